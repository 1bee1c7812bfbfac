"""What was acknowledged is there after a crash, and what was not written was not acknowledged (group D-DUR)."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.policies import At
from tests.support.source import Source, each_rm, each_rm_at_length
from tests.support.stored import write_locked


@pytest.fixture(scope="module")
def much_killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrdersServer]:
    server = OrdersServer(tmp_path_factory.mktemp("much-killed"), retry=[0.1] * 9, hold_wait=2.0)
    yield server
    server.kill()


@pytest.fixture
def server(much_killed: OrdersServer) -> OrdersServer:
    """One that the test may kill. The service takes part in the exactly-once effect where ``put_once`` is sent."""
    if not much_killed.is_running:
        much_killed.start()
    return much_killed


def restart(server: OrdersServer, *sources: Source) -> None:
    server.start()
    for source in sources:
        source.reconnect()


@each_rm
@pytest.mark.spec("D-DUR-001", "D-DEL-001")
@pytest.mark.peer("P-54", "P-55")
@pytest.mark.invariant("I7")
def test_what_was_acknowledged_and_not_yet_dispatched_survives_kill_nine(at: At, server: OrdersServer) -> None:
    """The first message runs, so the others are in the store alone when the process dies."""
    source = at(server=server)
    identifier = source.create()
    gate = identifier.rpartition(":")[2]
    source.post(source.speak.put_once(identifier, 1, f"gate={gate}"))
    for number in (2, 3):
        acknowledged = source.post(source.speak.put_once(identifier, number)).reply.ack.ranges
    assert acknowledged == ((1, 3),)
    assert within(5, lambda: source.calls(identifier), bool) == [1]
    server.kill()
    server.open_gate(gate)
    restart(server, source)
    assert source.delivered(identifier) == [1, 2, 3]
    assert source.ask(identifier).reply.ack.ranges == ((1, 3),)
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 3),)
    assert source.delivered(identifier) == [1, 2, 3]


@each_rm
@pytest.mark.spec("D-DUR-001", "D-DEL-001")
@pytest.mark.peer("P-55")
@pytest.mark.parametrize("moment", ["die=1", "die-after=1"], ids=["before the effect", "after the effect"])
def test_a_crash_in_an_operation_delivers_its_message_once_more_and_its_effect_once(
    at: At, server: OrdersServer, moment: str
) -> None:
    """Between dispatch and done, and between done and our commit of it."""
    source = at(server=server)
    identifier = source.create()
    source.post(source.speak.put_once(identifier, 1))
    assert source.delivered(identifier) == [1]
    source.send(source.speak.put_once(identifier, 2, moment))
    server.died()
    restart(server, source)
    for number in (2, 3):  # the source knows nothing of the crash but that an answer is missing
        answer = source.post(source.speak.put_once(identifier, number, moment if number == 2 else ""))
        assert answer.reply.ack.ranges == ((1, number),)
    assert source.delivered(identifier) == [1, 2, 3]
    assert source.calls(identifier) == [1, 2, 2, 3]
    redeliveries = source.store.rows(
        "select number, deliveries from entry where lane = (select id from lane where identifier = ?)",
        identifier,
    )
    assert dict(redeliveries) == {1: 1, 2: 2, 3: 1}


def acknowledged(source: Source, identifier: str) -> tuple[tuple[int, int], ...]:
    """What the server says it has; in 1.0 an empty answer says that it is nothing."""
    answer = source.ask(identifier)
    return answer.reply.ack.ranges if answer.body else ()


@each_rm
@pytest.mark.spec("D-DUR-002", "D-DEL-001")
@pytest.mark.peer("P-55")
def test_killed_at_any_moment_the_server_knows_a_message_or_does_not(at: At, server: OrdersServer) -> None:
    """A message is sent and the process killed some instants later: before, in, or after the commit. What the new one
    says of it is what becomes of it."""
    source = at(server=server)
    identifier = source.create()
    chance = random.Random(7)
    known = []
    for number in range(1, 6):
        source.send(source.speak.put_once(identifier, number))
        time.sleep(chance.uniform(0, 0.012))
        server.kill()
        restart(server, source)
        ranges = acknowledged(source, identifier)
        assert ranges in (((1, number),), ((1, number - 1),) if number > 1 else ())
        known.append(ranges == ((1, number),))
        assert source.store.received(identifier) == list(ranges)
        assert source.post(source.speak.put_once(identifier, number)).reply.ack.ranges == ((1, number),)
    assert source.delivered(identifier) == list(range(1, 6))
    assert source.store.sequence(identifier)["duplicates"] == sum(known)


@each_rm_at_length
@pytest.mark.spec("D-DUR-003", "D-DEL-018")
@pytest.mark.invariant("I16")
def test_what_cannot_be_written_is_not_accepted_not_acknowledged_and_not_delivered(
    at: At, server: OrdersServer
) -> None:
    source = at(server=server)
    identifier = source.create()
    source.put(identifier, 1)
    assert source.delivered(identifier) == [1]
    before = source.store.everything()
    with write_locked(server.store):
        begun = time.monotonic()
        answer = source.put(identifier, 2)
        assert time.monotonic() - begun < 7
    assert (answer.status, answer.fields["retry-after"].isdigit()) == (503, True)
    assert b"Acknowledgement" not in answer.body
    assert source.store.everything() == before
    assert source.ask(identifier).reply.ack.ranges == ((1, 1),)
    assert source.delivered(identifier) == [1]
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [1, 2]


@each_rm
@pytest.mark.spec("D-DUR-004")
@pytest.mark.scenario("Q-042")
def test_sequences_in_every_state_answer_after_a_restart_as_before(at: At, server: OrdersServer) -> None:
    source = at(server=server)
    speak = source.speak
    open_, closed, gone = (source.create() for _ in range(3))
    for identifier in (open_, closed, gone):
        for number in (1, 3):
            source.put(identifier, number)
    if speak.rm.has_close:
        source.close(closed, 5)
    else:
        source.put(closed, 5, last=True)
    source.terminate(gone)
    questions = [
        *(speak.ack_requested(identifier) for identifier in (open_, closed, gone)),
        *(source.speak.put(identifier, 1) for identifier in (open_, closed, gone)),
        source.speak.put(closed, 6),
        source.speak.put(gone, 4),
        speak.close(closed, 5),
        speak.terminate(gone),
    ]

    def answers() -> list[object]:
        found = [source.post(question) for question in questions]
        return [(a.status, a.body and (a.reply.body_name, a.reply.acks, a.reply.fault)) for a in found]

    def states() -> list[str]:
        return [source.store.sequence(identifier)["state"] for identifier in (open_, closed, gone)]

    answers()  # asked for the first time, a question may end a sequence
    before = answers(), states()
    server.kill()
    restart(server, source)
    assert (answers(), states()) == before
    assert source.delivered(open_) == [1]
    assert source.delivered(gone) == [1, 3]


@each_rm
@pytest.mark.spec("D-DUR-005")
@pytest.mark.scenario("Q-040")
def test_what_was_held_is_held_after_a_restart_and_delivered_when_the_gap_closes(at: At, server: OrdersServer) -> None:
    source = at(server=server)
    identifier = source.create()
    for number in (3, 2, 5, 4):
        source.put(identifier, number)
    assert source.ask(identifier).reply.ack.ranges == ((2, 5),)
    server.kill()
    restart(server, source)
    assert source.ask(identifier).reply.ack.ranges == ((2, 5),)
    server.look()
    assert source.delivered(identifier) == []
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 5),)
    assert source.delivered(identifier) == [1, 2, 3, 4, 5]


@each_rm
@pytest.mark.spec("D-DUR-006", "D-DEL-020")
@pytest.mark.scenario("Q-042")
def test_a_resend_obtains_the_stored_reply_after_a_restart(at: At, server: OrdersServer) -> None:
    source = at(server=server)
    identifier = source.create()
    first = source.echo(identifier, 1, "one")
    server.kill()
    restart(server, source)
    again = source.echo(identifier, 1, "one")
    assert first.text("echoResult") == again.text("echoResult") == "one"
    assert again.reply.message_id == first.reply.message_id
    assert again.reply.ack.ranges == ((1, 1),)
    assert source.calls(identifier) == [1]


@each_rm_at_length
@pytest.mark.spec("D-DEL-001")
@pytest.mark.peer("P-28", "P-22")
@pytest.mark.invariant("I6")
def test_resends_simultaneous_copies_and_restarts_never_make_a_second_delivery(
    at: At, server: OrdersServer, speak: Orders
) -> None:
    """Four connections send every number, each in an order of its own, until all is acknowledged; meanwhile the server
    is killed twice."""
    source = at(server=server)
    identifier = source.create()
    numbers = range(1, 25)
    stop = time.monotonic() + 60

    def insist(seed: int) -> None:
        order = random.Random(seed).sample(numbers, len(numbers))
        while order and time.monotonic() < stop:
            number = order.pop(0)
            try:
                with Source(server, speak) as sender:
                    answer = sender.post(sender.speak.put_once(identifier, number, "sleep=15"))
                    assert answer.status == 503 or any(low <= number <= high for low, high in answer.reply.ack.ranges)
                    again = answer.status == 503
            except OSError:
                again = True
            if again:
                order.append(number)
                time.sleep(0.05)

    senders = [threading.Thread(target=insist, args=(seed,)) for seed in range(4)]
    for sender in senders:
        sender.start()
    for _ in range(2):
        time.sleep(0.25)
        server.kill()
        server.start()
    for sender in senders:
        sender.join()
    source.reconnect()
    assert source.ask(identifier).reply.ack.ranges == ((1, 24),)
    assert source.delivered(identifier) == list(numbers)
    assert set(source.store.outcomes(identifier).values()) == {"delivered"}


@contextmanager
def refusing_once(server: OrdersServer, identifier: str, number: int) -> Iterator[None]:
    """The service's database refuses the effect of a message at its first call."""
    with sqlite3.connect(server.service_db) as service:
        service.execute(
            "create trigger refuses_once before insert on effects"
            f" when new.sequence = '{identifier}' and new.number = {number} and"
            " (select count(*) from calls where sequence = new.sequence and number = new.number) = 1"
            " begin select raise(abort, 'the effect is refused'); end"
        )
    try:
        yield
    finally:
        with sqlite3.connect(server.service_db) as service:
            service.execute("drop trigger refuses_once")


@each_rm
@pytest.mark.spec("D-DEL-001")
@pytest.mark.peer("P-55")
def test_an_operation_that_fails_after_its_mark_has_its_effect_when_it_is_tried_again(
    at: At, server: OrdersServer
) -> None:
    """The inbox's mark is undone with the work it stands beside: for the second try the message is new."""
    source = at(server=server)
    identifier = source.create()
    source.post(source.speak.put_once(identifier, 1))
    with refusing_once(server, identifier, 2):
        assert source.post(source.speak.put_once(identifier, 2)).reply.ack.ranges == ((1, 2),)
        assert source.delivered(identifier) == [1, 2]
    assert source.calls(identifier) == [1, 2, 2]


@each_rm
@pytest.mark.peer("P-54")
def test_a_restarted_server_has_the_sequence_or_says_cleanly_that_it_has_not(at: At, mortal: OrdersServer) -> None:
    """With its store, all is as before; with another, empty one the client gets the fault that says so, for whatever it
    sends, and a new sequence works."""
    source = at(server=mortal)
    identifier = source.create()
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
    assert source.delivered(identifier) == [1]
    mortal.kill()
    restart(mortal, source)
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [1, 2]
    mortal.stop()
    mortal.store = mortal.store.with_name("another.db")
    restart(mortal, source)
    for answer in (source.put(identifier, 3), source.echo(identifier, 4, "four"), source.ask(identifier)):
        fault = answer.reply.fault
        assert fault is not None
        assert (fault.subcode, fault.identifier) == ("UnknownSequence", identifier)
    assert source.put(source.create(), 1).reply.ack.ranges == ((1, 1),)
