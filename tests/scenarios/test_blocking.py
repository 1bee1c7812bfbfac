"""What blocks, and what must not: operations, gaps, and a store that another program has locked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.policies import At, Start
from tests.support.source import Source
from tests.support.stored import write_locked
from wsrm_mq.store.sqlite.connection import BUSY_TIMEOUT_MS
from wsrm_mq.testing import HTTPAnswer

HOLD_WAIT = 1.0
LONGEST = HOLD_WAIT + BUSY_TIMEOUT_MS / 1000
SLACK = 1.5
"""For a busy machine; everything here that breaks the rule breaks it by seconds."""
BLOCKS_SECONDS = 5


def took(ask: Callable[[], HTTPAnswer]) -> tuple[float, HTTPAnswer]:
    """How many seconds an answer took."""
    begun = time.monotonic()
    answer = ask()
    return time.monotonic() - begun, answer


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrdersServer]:
    """A server whose requests wait for one second, and two of them at a time for a gap."""
    server = OrdersServer(tmp_path_factory.mktemp("patient"), hold_wait=HOLD_WAIT, max_waiting=2, threads=24)
    server.start()
    yield server
    server.stop()


# ---- operations


@pytest.mark.timed
@pytest.mark.spec("D-DEL-008", versions=("1.1",))
@pytest.mark.scenario("Q-053", "Q-037")
def test_an_operation_that_blocks_delays_no_other_sequence_connection_or_answer(at: At) -> None:
    blocked, same_connection = at(), at()
    stuck = blocked.create()
    blocked.put(stuck, 1, f"sleep={BLOCKS_SECONDS * 1000}")
    assert within(5, lambda: blocked.calls(stuck), bool) == [1]
    begun = time.monotonic()
    slowest = 0.0
    others = {source: source.create() for source in (blocked, same_connection)}
    number = 0
    while time.monotonic() - begun < BLOCKS_SECONDS - 1:
        number += 1
        for source, identifier in others.items():
            for ask in (
                partial(source.put, identifier, 2 * number - 1),
                partial(source.echo, identifier, 2 * number, "echo"),
                partial(source.put, stuck, number + 1),
            ):
                seconds_taken, answer = took(ask)
                assert answer.status == 200
                slowest = max(slowest, seconds_taken)
        time.sleep(BLOCKS_SECONDS / 50)
    assert slowest < 1
    assert blocked.calls(stuck) == [1]
    for source, identifier in others.items():
        assert len(source.delivered(identifier)) == 2 * number
    assert blocked.delivered(stuck) == list(range(1, number + 2))


@pytest.mark.timed
@pytest.mark.spec("D-DEL-008", versions=("1.1",))
def test_as_many_blocked_operations_as_there_are_threads_delay_nothing(at: At, patient: OrdersServer) -> None:
    """The pool of the dispatcher grows while all its threads are busy."""
    source = at(server=patient)
    stuck = [source.create() for _ in range(30)]
    for identifier in stuck:
        source.put(identifier, 1, "gate=many")
    assert within(10, lambda: sum(bool(source.calls(i)) for i in stuck), lambda n: n == 30) == 30
    free = source.create()
    seconds, _answer = took(lambda: source.put(free, 1))
    assert seconds < 1
    assert source.soon(free, [1]) == [1]
    patient.open_gate("many")
    assert all(source.delivered(identifier) == [1] for identifier in stuck)


# ---- gaps


@pytest.mark.timed
@pytest.mark.spec("H-008", versions=("1.1",))
@pytest.mark.invariant("I16")
def test_no_request_waits_for_a_gap_longer_than_hold_wait_and_few_wait_at_all(at: At, patient: OrdersServer) -> None:
    """Of ten two-way requests behind gaps two wait, the others are answered at once; all are kept."""
    sources = [at(server=patient) for _ in range(10)]
    identifiers = [source.create() for source in sources]
    times: list[float] = []

    def wait(source: Source, identifier: str) -> None:
        seconds, answer = took(lambda: source.echo(identifier, 2, "two"))
        assert (answer.status, answer.body) == (202, b"")
        times.append(seconds)

    waiting = [threading.Thread(target=wait, args=pair) for pair in zip(sources, identifiers, strict=True)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert len(times) == 10
    assert max(times) < HOLD_WAIT + SLACK
    assert sum(seconds > HOLD_WAIT * 0.9 for seconds in times) == 2
    for source, identifier in zip(sources, identifiers, strict=True):
        source.put(identifier, 1)
        again = within(10, partial(source.echo, identifier, 2, "two"), lambda answer: answer.status == 200)
        assert again.text("echoResult") == "two"
        assert source.calls(identifier) == [1, 2]


# ---- the store


@pytest.mark.spec("D-DUR-003", versions=("1.1",))
@pytest.mark.invariant("I16")
def test_a_locked_store_keeps_no_request_longer_than_hold_wait_and_busy_timeout(
    at: At, patient: OrdersServer, speak: Orders
) -> None:
    """Every kind of request, coming at any moment of a lock of 8.5 seconds; then all of them are sent again."""
    sources = [at(server=patient) for _ in range(12)]
    identifiers = [source.create() for source in sources]
    for source, identifier in zip(sources, identifiers, strict=True):
        source.put(identifier, 1)
    assert all(source.delivered(i) == [1] for source, i in zip(sources, identifiers, strict=True))
    kinds: list[Callable[[Source, str], HTTPAnswer]] = [
        lambda source, identifier: source.put(identifier, 2),
        lambda source, identifier: source.echo(identifier, 2, "two"),
        lambda source, identifier: source.echo(identifier, 3, "three"),
        lambda source, identifier: source.ask(identifier),
        lambda source, identifier: source.close(identifier),
        lambda source, _identifier: source.post(speak.create_sequence()),
    ]
    results: list[tuple[int, float, int]] = []

    def ask(at_: int) -> None:
        time.sleep(at_ * 0.5)
        seconds, answer = took(lambda: kinds[at_ % len(kinds)](sources[at_], identifiers[at_]))
        results.append((at_ % len(kinds), seconds, answer.status))

    askers = [threading.Thread(target=ask, args=(at_,)) for at_ in range(12)]
    with write_locked(patient.store):
        begun = time.monotonic()
        for asker in askers:
            asker.start()
        time.sleep(8.5 - (time.monotonic() - begun))
    for asker in askers:
        asker.join()
    assert len(results) == 12
    assert max(seconds for _kind, seconds, _status in results) < LONGEST + SLACK
    assert {status for _kind, _seconds, status in results} <= {200, 202, 503}
    assert any(status == 503 for _kind, _seconds, status in results)
    for at_, (source, identifier) in enumerate(zip(sources, identifiers, strict=True)):
        answer = kinds[at_ % len(kinds)](source, identifier)
        assert answer.status in (200, 202)
        calls = source.calls(identifier)
        assert 1 in calls
        assert len(calls) == len(set(calls))


@pytest.mark.spec("D-DEL-020", "D-DEL-021", versions=("1.1",))
@pytest.mark.invariant("I16")
def test_a_reply_that_cannot_be_stored_in_time_is_had_by_a_resend(at: At, start: Start) -> None:
    """The lock comes while the operation runs: its request is answered in time, empty; the settlement is not lost."""
    server = start(hold_wait=HOLD_WAIT, retry=[0.1])
    source = at(server=server)
    identifier = source.create()
    request = source.speak.echo(identifier, 1, "gate=go")
    source.send(request)
    assert within(5, lambda: source.calls(identifier), bool) == [1]
    with write_locked(server.store):
        server.open_gate("go")
        seconds, answer = took(source.wire.read)
        assert seconds < LONGEST + SLACK
        assert answer.status in (202, 503)
        assert b"SequenceAcknowledgement" not in answer.body
    again = within(10, lambda: source.post(request), lambda found: found.status == 200)
    assert (again.text("echoResult"), again.reply.ack.ranges) == ("gate=go", ((1, 1),))
    assert source.calls(identifier) == [1]
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [None, 2]


@pytest.mark.spec("D-DEL-001", versions=("1.1",))
@pytest.mark.invariant("I6")
def test_settlements_wait_for_a_locked_store_and_are_written_once(at: At, start: Start) -> None:
    server = start()
    source = at(server=server)
    identifier = source.create()
    source.put(identifier, 1, "gate=go")
    source.put(identifier, 2)
    assert within(5, lambda: source.calls(identifier), bool) == [1]
    with write_locked(server.store):
        server.open_gate("go")
        time.sleep(6)
        assert source.store.outcomes(identifier) == {1: None, 2: None}
    assert source.delivered(identifier) == [1, 2]
    assert source.calls(identifier) == [1, 2]
    deliveries = source.store.rows(
        "select deliveries from entry where lane = (select id from lane where identifier = ?)", identifier
    )
    assert deliveries == [(1,), (1,)]
