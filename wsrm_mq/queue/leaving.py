"""How a message leaves the queue that it is consumed from without having been acknowledged."""

from __future__ import annotations

from typing import NamedTuple

from wsrm_mq.queue.broken_run import MOST_DEATHS, take_from_dead
from wsrm_mq.queue.ending import bury
from wsrm_mq.queue.failure import Aftermath, after_failure
from wsrm_mq.queue.ownership import free, move_past, settle_cursor
from wsrm_mq.queue.policies import DEFAULT, QueuePolicy, decoded
from wsrm_mq.store import consuming, entries
from wsrm_mq.store.entries import LOOSE_NUMBER
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction, as_json

TAKEN = "taken"
"""Reason of a dead letter that a consumer of the dead letters has acknowledged."""


class Standing(NamedTuple):
    """Where an entry stands that is consumed. ``queue``, ``message`` and ``lane`` are keys."""

    position: int
    queue: int
    message: int
    lane: int | None
    number: int | None
    outcome: str | None
    owner: int | None
    fence: int
    lessee: int | None
    expires_at: int | None
    priority: int | None
    deliveries: int
    failures: int
    cancels: int
    asks: int | None
    size: int
    stored_policy: str | None
    leased_below: int | None
    """Numbers of its lane below this are leased."""

    @property
    def policy(self) -> QueuePolicy:
        return DEFAULT if self.stored_policy is None else decoded(self.stored_policy)

    @property
    def was_handed_out(self) -> bool:
        """It was settled as delivered when it was leased, at most once: whatever its consumer says, it is."""
        return self.outcome == "delivered"

    @property
    def is_letter(self) -> bool:
        return self.outcome == "dead"


def standing(tx: Transaction, positions: list[int]) -> dict[int, Standing]:
    """The entries at these positions; those that are not there are left out."""
    found = tx.execute(consuming.STANDING, {"keys": as_json(positions)}).fetchall()
    return {row[0]: Standing._make(row) for row in found}


def lane_of(tx: Transaction, one: Standing) -> Lane:
    """The lane of an entry; of one that is in none the lane that it would be alone in."""
    lane = tx.loose_entry(one.position) if one.lane is None else tx.lane(one.lane)
    assert lane is not None
    return lane


def holder_of(tx: Transaction, one: Standing) -> tuple[int | None, int]:
    """The instance that has leased an entry, ``None`` where none has, and the fence of the lease."""
    if one.lane is None or one.number is None or one.is_letter:
        return one.owner, one.fence
    lane = lane_of(tx, one)
    return lane.owner if one.number < (one.leased_below or 0) else None, lane.fence


def put_aside(tx: Transaction, one: Standing, reason: str, actor: str | None = None) -> None:
    """Give up a message that is not leased: it goes to the dead letters, where its queue has some, else it is
    discarded; so is what is a dead letter, by ``actor``."""
    lane, number = lane_of(tx, one), LOOSE_NUMBER if one.number is None else one.number
    if one.is_letter:
        tx.execute(consuming.TAKE_LETTERS, {"keys": as_json([one.position]), "reason": reason, "now": tx.now})
        tx.ledger("discarded", lane, number=one.number, position=one.position, reason=reason, actor=actor)
        return
    bury(tx, lane, one.position, number, reason)
    move_past(tx, lane, number)


def over_limits(tx: Transaction, one: Standing) -> bool:
    """Give a message up that was given back, and was delivered as often as its queue allows; answers whether it was."""
    most = one.policy.max_deliveries
    if most is None or one.deliveries < most or one.outcome is not None:
        return False
    put_aside(tx, one, "max_deliveries")
    return True


def failed(tx: Transaction, one: Standing, failures: int, error: str) -> None:
    """Follow the ladder after a failure of a message that is in no lane and was given back: it waits, or is given
    up."""
    lane = lane_of(tx, one)
    aftermath = after_failure(tx, lane, one.position, LOOSE_NUMBER, failures, one.policy.dispatch, error)
    if aftermath is Aftermath.RETRY and lane.retry_at is not None and lane.retry_at > tx.now:
        tx.execute(consuming.HOLD, {"key": one.position, "hold": "backoff"})


def free_lane(tx: Transaction, lane: Lane, lower: int | None = None) -> None:
    """End the lease of a group; it was handed out from number ``lower`` on, ``None``: from its cursor."""
    (below,) = tx.execute(consuming.LANE_LEASE, {"key": lane.id}).fetchone()
    bounds = {"lane": lane.id, "lower": lane.cursor if lower is None else lower, "upper": below or 0}
    tx.execute(consuming.COUNT_RUN, bounds)
    free(lane)
    tx.execute(consuming.FREE_LANE, {"key": lane.id})


def holder_of_lane_died(tx: Transaction, lane: Lane, policy: QueuePolicy, why: str) -> None:
    """End the lease of a group whose holder is gone: from the third in a row on that is a failure of its head."""
    left = take_from_dead(tx, lane, why=why)
    free_lane(tx, lane, None if left is None else left.number + 1)
    if left is None or over_limits(tx, standing(tx, [left.position])[left.position]):
        return
    if left.deaths >= MOST_DEATHS:
        after_failure(tx, lane, left.position, left.number, left.failures, policy.dispatch, why)


def lease_of_lane_ended(tx: Transaction, lane: Lane, policy: QueuePolicy, why: str) -> None:
    """End the lease of a group whose time is over: a failure of its head. The others were not begun."""
    settle_cursor(tx, lane)
    head = tx.execute(entries.DOOMED, {"lane": lane.id, "lower": lane.cursor, "count": 1}).fetchone()
    if head is None or head[1] >= lane.limit:
        free_lane(tx, lane)
        return
    position, number = head
    tx.execute(entries.FAIL, {"key": position, "delivered": 1, "error": why, "retry_at": None})
    failures, _deaths, _number = tx.execute(entries.ENTRY_COUNTERS, {"key": position}).fetchone()
    tx.ledger("lease_ended", lane, number=number, position=position, attempt=failures, reason=why)
    free_lane(tx, lane, number + 1)
    if not over_limits(tx, standing(tx, [position])[position]):
        after_failure(tx, lane, position, number, failures, policy.dispatch, why)
