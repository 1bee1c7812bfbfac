"""The clock is stepped by an hour while everything runs: nothing ends before its time."""

from __future__ import annotations

import time

import pytest

from tests.protocol.test_fetching import Client
from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.policies import At, Start
from tests.support.source import Source

HOUR = 3600.0
HOLD_WAIT = 2.0

either_way = pytest.mark.parametrize("step", [-HOUR, HOUR], ids=["back", "on"])


@pytest.fixture
def server(start: Start) -> OrdersServer:
    """Sequences that are silent for 1.5 seconds end at ``/idle``."""
    return start(hold_wait=HOLD_WAIT, retry=[1.0], partners={"idle": {"path": "/idle", "inactivity": 1.5}})


@pytest.mark.scenario("Q-110")
@either_way
def test_a_running_operation_stays_its_servers_own_when_the_clock_is_stepped(
    at: At, start: Start, server: OrdersServer, step: float
) -> None:
    """Two servers on one store; the second looks for sequences without an owner, and for dead servers, each second."""
    source, other = at(server=server), at(server=start(server.store.parent, hold_wait=HOLD_WAIT, retry=[1.0]))
    identifier = source.create()
    source.put(identifier, 1, "gate=go")
    assert within(5, lambda: source.calls(identifier), bool) == [1]
    [before] = source.store.rows("select owner, fence from lane")
    server.set_clock(step)
    assert other.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    time.sleep(2.5)
    assert source.store.rows("select owner, fence from lane") == [before]
    assert source.store.rows("select count(*) from instance where ended_at is not null") == [(0,)]
    assert source.calls(identifier) == [1]
    server.open_gate("go")
    assert source.delivered(identifier) == [1, 2]
    assert source.calls(identifier) == [1, 2]


@pytest.mark.scenario("Q-110")
def test_a_sequence_and_what_it_holds_do_not_expire_when_the_clock_goes_back(at: At, server: OrdersServer) -> None:
    source, idle = at(server=server), at("/idle", server=server)
    granted, silent = source.create(expires="PT2S"), idle.create()
    source.put(granted, 2)
    idle.put(silent, 2)
    server.set_clock(-HOUR)
    idle.put(silent, 3)
    heard = time.monotonic()
    time.sleep(1.2)  # most of what /idle allows; every look of the server's sees the new time
    assert idle.store.sequence(silent)["state"] == "created"
    assert idle.put(silent, 1).reply.ack.ranges == ((1, 3),)
    assert idle.delivered(silent) == [1, 2, 3]
    time.sleep(max(0.0, 2.5 - (time.monotonic() - heard)))
    assert source.put(granted, 1).reply.ack.ranges == ((1, 2),)  # its two seconds come an hour later
    assert source.delivered(granted) == [1, 2]
    ended = within(5, lambda: idle.store.sequence(silent)["ended"], bool)  # by the new time, and not an hour late
    assert ended == "expired"


@pytest.mark.scenario("Q-110")
@either_way
def test_a_request_waits_as_long_as_ever_when_the_clock_is_stepped(at: At, server: OrdersServer, step: float) -> None:
    source, filler = at(server=server), at(server=server)
    identifier = source.create()
    begun = time.monotonic()
    source.send(source.speak.echo(identifier, 2, "two"))
    assert within(5, lambda: source.store.received(identifier), bool) == [(2, 2)]
    server.set_clock(step)
    given_up = source.wire.read()
    assert (given_up.status, given_up.body) == (202, b"")
    assert HOLD_WAIT - 0.1 < time.monotonic() - begun < HOLD_WAIT + 3
    source.send(source.speak.echo(identifier, 2, "two"))
    server.set_clock(2 * step)
    filler.put(identifier, 1)
    assert source.wire.read().text("echoResult") == "two"
    assert source.calls(identifier) == [1, 2]


def test_a_wait_for_the_next_try_is_not_an_hour_longer_when_the_clock_goes_back(at: At, server: OrdersServer) -> None:
    source = at(server=server)
    identifier = source.create()
    source.put(identifier, 1, "fail=1")
    assert within(5, lambda: source.store.sequence(identifier)["retry_at"], bool)
    server.set_clock(-HOUR)
    assert source.delivered(identifier) == [1]
    assert source.calls(identifier) == [1, 1]


AHEAD = 40 * 24 * HOUR


@pytest.fixture
def doubting(start: Start) -> OrdersServer:
    """Its clock is doubted as the machine's own is, and its janitor sweeps each second."""
    return start(doubted=True, hold_wait=0.05, retain=7 * 86_400, bounds={"wsrm_mq.engine.Janitor": SWEEPS})


SWEEPS = {"witness_seconds": 0.2, "sweep_seconds": 0.2}


def left(source: Source, identifier: str) -> tuple[object, ...]:
    """What the clock could end for ever: the sequence, a reply to be fetched, a settled message with its body."""
    fetched = "select outcome from entry where lane in (select lane from channel) order by id"
    bodies = "select count(*) from message where body is not null and action like '%put_order'"
    return source.store.sequence(identifier)["ended"], source.store.rows(fetched), source.store.rows(bodies)


@pytest.mark.scenario("Q-110")
@pytest.mark.parametrize("at_a_start", [True, False], ids=["at a start", "while it runs"])
def test_a_clock_that_runs_ahead_and_comes_back_ends_nothing_and_is_told(
    speak: Orders, doubting: OrdersServer, at_a_start: bool
) -> None:
    with Source(doubting, speak) as source:
        client = Client(source)
        source.put(client.identifier, 1)
        assert source.delivered(client.identifier) == [1]
        client.ask_late(2)
        client.reply(2)
        held = source.opened(2)
        before = left(source, client.identifier)
        assert before == (None, [(None,)], [(2,)])
        if at_a_start:
            doubting.kill()
        doubting.set_clock(AHEAD)
        if at_a_start:
            doubting.start()
            source.reconnect()
        assert within(5, lambda: "clock.jumped" in doubting.log.read_text(), bool)
        assert source.put(held, 4).reply.ack.ranges == ((2, 2), (4, 4)), "what arrives ends nothing either"
        time.sleep(1.5)  # the watch and the janitor look more than once
        assert left(source, client.identifier)[:2] == before[:2]
        assert left(source, client.identifier)[2] == [(3,)]
        doubting.set_clock(0)
        assert source.put(held, 1).reply.ack.ranges == ((1, 2), (4, 4))
        assert client.poll().text("echoResult") is not None


@pytest.mark.scenario("Q-110")
@pytest.mark.parametrize("again", ["the same, put an end to", "the same, killed", "another one"])
def test_a_process_that_starts_while_the_clock_is_doubted_doubts_it_too(
    speak: Orders, doubting: OrdersServer, start: Start, again: str
) -> None:
    """What is written down meanwhile has the wrong time."""
    with Source(doubting, speak) as source:
        identifier = source.create(expires="PT1H")
        source.put(identifier, 1)
        doubting.kill()
        doubting.set_clock(AHEAD)
        doubting.start()
        source.reconnect()
        source.put(identifier, 2)
        if again == "another one":
            start(doubting.store.parent, doubted=True)
        else:
            doubting.kill() if again.endswith("killed") else doubting.stop()
            doubting.start()
        source.reconnect()
        assert source.put(identifier, 3).reply.ack.ranges == ((1, 3),)
        time.sleep(1.5)  # the watch looks more than once
        assert source.store.sequence(identifier)["ended"] is None


@pytest.mark.scenario("Q-110")
def test_a_clock_that_is_ahead_at_each_start_ends_nothing_at_the_second_either(
    speak: Orders, doubting: OrdersServer
) -> None:
    """A machine whose own clock is wrong until it has asked a better one."""
    with Source(doubting, speak) as source:
        identifier = source.create(expires="P2D")
        source.put(identifier, 1)
        for starts in (1, 2):
            doubting.kill()
            doubting.set_clock(starts * HOUR + AHEAD)
            doubting.start()
            source.reconnect()
            assert source.put(identifier, 1 + starts).reply.ack.ranges == ((1, 1 + starts),)
            doubting.set_clock(starts * HOUR)
        assert source.store.sequence(identifier)["ended"] is None


@pytest.mark.scenario("Q-110")
def test_a_clock_that_was_put_right_by_a_jump_is_believed_after_a_grace(start: Start, speak: Orders) -> None:
    server = start(doubted=True, bounds={"wsrm_mq.store.clock.GRACE": 1.0})
    with Source(server, speak) as source:
        identifier = source.create(expires="PT1H")
        server.set_clock(2 * HOUR)
        assert within(5, lambda: "clock.jumped" in server.log.read_text(), bool)
        assert source.store.sequence(identifier)["ended"] is None
        ended = within(10, lambda: source.store.sequence(identifier)["ended"], bool)
        assert ended == "expired"
