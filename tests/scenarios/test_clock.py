"""The clock is stepped by an hour while everything runs: nothing ends before its time."""

from __future__ import annotations

import time

import pytest

from tests.support.orders_server import OrdersServer, within
from tests.support.policies import At, Start

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
    [before] = source.store.rows("select owner, fence from sequence")
    server.set_clock(step)
    assert other.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    time.sleep(2.5)
    assert source.store.rows("select owner, fence from sequence") == [before]
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
