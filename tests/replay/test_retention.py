"""What retention does to a plan, and to what it was made of."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.replay.build import House, read
from wsrm_mq.errors import NotFound
from wsrm_mq.queue.retention import Kept, Pruned, batches
from wsrm_mq.replay import cancel_plan
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.outside import run_once
from wsrm_mq.store.port import Database
from wsrm_mq.store.sqlite.connection import connect_reader
from wsrm_mq.views.rows import find_plan, outcomes, plans

DAY = 86_400_000
KEPT = Kept(settled=7 * DAY, ended=30 * DAY)


def pruned_in(house: House, days: int) -> Pruned:
    """What the service's janitor deletes then."""

    @contextmanager
    def reader() -> Iterator[Database]:
        with closing(connect_reader(house.path)) as db:
            yield db

    done = Pruned()
    now = time.time_ns() // 1_000_000 + days * DAY
    for batch in batches(reader, lambda _partner: KEPT, now):
        done = done.plus(run_once(house.path, batch))
    with reader() as db:
        assert list(all_findings(db)) == []
    return done


def test_what_retention_takes_between_plan_and_run_is_missing_and_the_plan_goes_through(house: House) -> None:
    identifier = house.sequence(1, 2)
    file = house.plan("queue:/orders")
    assert pruned_in(house, 8).messages == 2
    house.rm.put(identifier, 3)
    progress = house.run(file)
    assert (progress.line, progress.settled, house.other.calls) == (2, 2, [])
    assert house.state_of(file) == "done"
    with connect_reader(house.path) as db:
        assert find_plan(db, read(file)[0].id).missing == 2


def test_what_a_plan_has_entered_is_kept_until_it_is_delivered(house: House) -> None:
    house.other.refused = {1}
    house.sequence(1, 2)
    file = house.plan("queue:/orders")
    house.run(file)
    assert pruned_in(house, 100).messages == 0
    house.other.refused = set()
    house.run(file)
    with connect_reader(house.path) as db:
        assert outcomes(db, read(file)[0].id) == {"delivered": 2}


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_plan_that_has_ended_goes_after_its_replays(house: House, is_cancelled: bool) -> None:
    house.sequence(1)
    file = house.plan("queue:/orders")
    plan = read(file)[0].id
    if is_cancelled:
        cancel_plan(house.path, plan, actor="ann", reason="wrong day")
    else:
        house.run(file)
    house.sequence(1)  # the newest sequence stays
    assert pruned_in(house, 29).plans == 0
    assert pruned_in(house, 31).plans == 1
    with connect_reader(house.path) as db:
        assert plans(db) == []
    assert ("1 ended plans",) in house.rm.rows("SELECT reason FROM ledger WHERE event = 'pruned'")
    with pytest.raises(NotFound, match="it ended long ago"):
        house.run(file)


def test_a_plan_that_can_still_be_run_stays(house: House) -> None:
    house.other.refused = {1}
    house.sequence(1)
    never, stopped = house.plan("queue:/orders"), house.plan("queue:/orders")
    house.run(stopped)
    assert pruned_in(house, 1000).plans == 0
    assert house.state_of(never) == "planned"
    assert house.state_of(stopped) == "running"
