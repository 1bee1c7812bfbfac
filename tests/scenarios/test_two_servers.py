"""Two server processes on one store: what one knows, the other knows."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source
from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue.operate import skip
from wsrm_mq.store.outside import run_once


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OrdersServer, OrdersServer]]:
    directory = tmp_path_factory.mktemp("pair")
    servers = [OrdersServer(directory, retry=[0.05], on_poison="block", hold_wait=5.0) for _ in range(2)]
    for server in servers:
        server.start()
    yield servers[0], servers[1]
    for server in servers:
        server.stop()


@pytest.fixture
def sources(pair: tuple[OrdersServer, OrdersServer], speak: Orders) -> Iterator[tuple[Source, Source]]:
    """A connection to each."""
    with Source(pair[0], speak) as one, Source(pair[1], speak) as other:
        yield one, other


@pytest.mark.spec("D-DEL-001", versions=("1.1",))
@pytest.mark.invariant("I6")
def test_the_same_number_at_the_same_instant_is_delivered_once(sources: tuple[Source, Source]) -> None:
    identifier = sources[0].create()
    numbers = range(1, 101)
    together = threading.Barrier(2)
    refused: list[int] = []

    def send(source: Source) -> None:
        for number in numbers:
            request = source.request(source.speak.put(identifier, number))
            together.wait(timeout=20)
            answer = source.wire.ask(request)
            if answer.status != 200 or answer.reply.ack.ranges != ((1, number),):
                refused.append(number)

    senders = [threading.Thread(target=send, args=(source,)) for source in sources]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert refused == []
    assert sources[0].delivered(identifier) == list(numbers)
    assert sources[0].calls(identifier) == list(numbers)
    assert sources[0].store.sequence(identifier)["duplicates"] == len(numbers)


@pytest.mark.spec("D-DEL-004", "D-DEL-006", versions=("1.1",))
def test_a_sequence_shuffled_over_both_is_seen_in_order(sources: tuple[Source, Source]) -> None:
    identifier = sources[0].create()
    numbers = random.Random(11).sample(range(1, 51), 50)

    def send(source: Source, mine: list[int]) -> None:
        for number in mine:
            assert source.put(identifier, number).status == 200

    senders = [threading.Thread(target=send, args=(source, numbers[at::2])) for at, source in enumerate(sources)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert sources[1].ask(identifier).reply.ack.ranges == ((1, 50),)
    assert sources[0].delivered(identifier) == list(range(1, 51))
    assert sources[0].calls(identifier) == list(range(1, 51))


@pytest.mark.spec("D-CLO-004", versions=("1.1",))
def test_a_close_through_one_binds_the_next_answer_of_the_other(sources: tuple[Source, Source]) -> None:
    one, other = sources
    identifier = one.create()
    assert one.put(identifier, 1).reply.ack.ranges == ((1, 1),)
    assert other.close(identifier).reply.ack.final
    fault = one.put(identifier, 2).reply.fault
    assert fault is not None
    assert fault.subcode == "SequenceClosed"
    assert one.delivered(identifier) == [1]


def test_an_operator_s_skip_binds_the_running_servers(sources: tuple[Source, Source]) -> None:
    one, other = sources
    identifier = one.create()
    one.put(identifier, 1, "fail=99")
    other.put(identifier, 2)
    assert within(5, lambda: one.store.sequence(identifier)["blocked"], bool)
    with pytest.raises(NotAllowed):
        run_once(one.server.store, lambda tx: skip(tx, identifier, 2, actor="test", reason="wrong one"))
    run_once(one.server.store, lambda tx: skip(tx, identifier, 1, actor="test", reason="cannot work"))
    begun = time.monotonic()
    assert one.soon(identifier, [2]) == [2]
    assert time.monotonic() - begun < 3
    assert other.put(identifier, 3).reply.ack.ranges == ((1, 3),)
    assert one.delivered(identifier) == [2, 3]
    assert one.store.outcomes(identifier) == {1: "dead", 2: "delivered", 3: "delivered"}


@pytest.mark.spec("D-DEL-020", versions=("1.1",))
def test_a_two_way_that_waits_at_one_is_answered_when_the_other_fills_the_gap(sources: tuple[Source, Source]) -> None:
    one, other = sources
    identifier = one.create()
    one.send(one.speak.echo(identifier, 2, "two"))
    assert within(5, lambda: one.store.outcomes(identifier), lambda found: 2 in found) == {2: None}
    begun = time.monotonic()
    assert other.put(identifier, 1).status == 200
    answer = one.wire.read()
    assert time.monotonic() - begun < 2
    assert (answer.text("echoResult"), answer.reply.ack.ranges) == ("two", ((1, 2),))
    assert other.echo(identifier, 2, "two").text("echoResult") == "two"
    assert one.calls(identifier) == [1, 2]


def test_what_one_was_running_when_it_was_killed_the_other_runs_at_once(
    pair: tuple[OrdersServer, OrdersServer], speak: Orders
) -> None:
    """The death is noticed by the lock that the system frees, not by a time that has to pass."""
    doomed, heir = pair
    with Source(doomed, speak) as one, Source(heir, speak) as other:
        identifier = one.create()
        one.send(one.speak.put(identifier, 1, "die=1"))  # the process may end before all of its answer is sent
        doomed.died()
        died = time.monotonic()
        assert other.put(identifier, 2).reply.ack.ranges == ((1, 2),)
        assert other.delivered(identifier) == [1, 2]
        assert time.monotonic() - died < 4
        assert other.calls(identifier) == [1, 1, 2]
    doomed.start()
