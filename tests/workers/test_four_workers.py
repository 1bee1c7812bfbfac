"""Four gunicorn workers on one store: a sequence spread over them is one sequence."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.crash.checker import problems
from tests.crash.witness import in_background, settled
from tests.support.fleet import Fleet, Nginx, gunicorn, until_dead
from tests.support.orders import OrderSender
from tests.support.orders_server import within
from tests.workers.conftest import Launch

WORKERS = 4
ways_to_load = pytest.mark.parametrize(
    "preload", [pytest.param(False, id="each-loads", marks=pytest.mark.long), pytest.param(True, id="preload")]
)
LAST = 200

Reach = Callable[[Fleet, int], dict[int, OrderSender]]


def shuffled(seed: int) -> list[int]:
    return random.Random(seed).sample(range(1, LAST + 1), LAST)


def clean(fleet: Fleet, identifier: str, acknowledged: set[int]) -> None:
    """All was acknowledged, and the service saw 1 to 200, once and in order."""
    assert acknowledged == set(range(1, LAST + 1))
    assert settled(fleet, identifier, LAST, 60) == list(range(1, LAST + 1))
    assert problems(acknowledged, fleet.effects(identifier), fleet.calls(identifier)) == []


def shared_out(source: OrderSender, seed: int, senders: int) -> None:
    """The sequence's numbers, shuffled, from several connections at once, each number until it is acknowledged."""
    numbers = shuffled(seed)

    def send(one: OrderSender, mine: list[int]) -> None:
        for number in mine:
            one.send_until_acknowledged(number)
            one.disconnect()  # the next connection is another worker's, perhaps

    threads = [in_background(partial(send, source.another(), numbers[at::senders])) for at in range(senders)]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.scenario("Q-041")
@ways_to_load
def test_a_shuffled_sequence_spread_over_four_workers_is_seen_in_order_once(
    launch: Launch, reach: Reach, preload: bool
) -> None:
    fleet = launch(gunicorn(WORKERS, preload=preload), instances=WORKERS)
    senders = list(reach(fleet, WORKERS).values())
    source = senders[0]
    for at, number in enumerate(shuffled(7)):
        assert senders[at % WORKERS].send(number).status == 200
    clean(fleet, source.identifier, source.acknowledged)
    assert len(fleet.calls(source.identifier)) == LAST, "nothing was called twice"


@pytest.mark.invariant("I6")
@ways_to_load
def test_the_same_while_workers_are_killed_and_replaced_in_turn(launch: Launch, preload: bool) -> None:
    fleet = launch(gunicorn(WORKERS, preload=preload), work=0.02, instances=WORKERS)
    source = OrderSender(fleet)
    sending = in_background(lambda: shared_out(source, 8, senders=6))
    for victim in list(fleet.workers):
        fleet.kill_worker(victim)
        assert until_dead(victim)
        assert within(30, lambda: fleet.is_complete(WORKERS), bool), "the worker was not replaced"
    sending.join(60)
    assert not sending.is_alive()
    source.send_until_acknowledged(LAST)
    clean(fleet, source.identifier, source.acknowledged)


def test_the_same_through_a_proxy_that_mixes_its_clients_connections(
    launch: Launch, proxied: Callable[[Fleet], Nginx]
) -> None:
    fleet = launch(gunicorn(WORKERS), instances=WORKERS)
    nginx = proxied(fleet)
    source = OrderSender(nginx)
    shared_out(source, 9, senders=6)
    source.send_until_acknowledged(LAST)
    clean(fleet, source.identifier, source.acknowledged)
    assert len(fleet.calls(source.identifier)) == LAST


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_slow_operation_in_one_worker_is_not_run_a_second_time_by_another(launch: Launch, reach: Reach) -> None:
    """Neither the time it takes, nor a clock that is stepped an hour on and two back meanwhile, nor a death elsewhere
    makes its worker look dead."""
    work = 30.0
    fleet = launch(gunicorn(WORKERS), instances=WORKERS)
    senders = reach(fleet, WORKERS)
    slow, *others = senders.values()
    identifier = slow.identifier
    begun = time.monotonic()
    assert slow.send(1, f"sleep={work}").status == 200
    assert settled_calls(fleet, identifier, 1) == [(1, False)]
    [(busy,)] = fleet.rows("SELECT pid FROM calls WHERE sequence = ?", identifier)
    for number, other in enumerate(others, 2):
        assert other.send(number).acked == [(1, number)]
    fleet.set_clock(3600)
    time.sleep(work / 6)
    fleet.kill_worker(next(pid for pid in senders if pid != busy))
    time.sleep(work / 6)
    fleet.set_clock(-3600)
    while time.monotonic() - begun < work - 1:
        assert fleet.calls(identifier) == [(1, False)]
        time.sleep(1)
    assert settled(fleet, identifier, WORKERS) == [1, 2, 3, 4]
    assert fleet.calls(identifier) == [(n, False) for n in (1, 2, 3, 4)]


def settled_calls(fleet: Fleet, identifier: str, count: int) -> list[tuple[int, bool]]:
    end = time.monotonic() + 10
    while len(calls := fleet.calls(identifier)) < count and time.monotonic() < end:
        time.sleep(0.02)
    return calls
