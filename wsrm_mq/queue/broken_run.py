"""A run that broke off, or whose process died, leaves a free lane, and marks on the messages it may have called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from wsrm_mq.queue.failure import after_failure
from wsrm_mq.queue.ownership import RUN_AHEAD, Claim, free, lane_of, owned_by, settle_cursor, still_mine
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.store import entries, queues
from wsrm_mq.store.loose import LooseEntry
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction

_DIED: Final = "its process died while it ran: instance {} (process {} on {})"
_FORGOTTEN: Final = "its process died while it ran, and had been taken for dead long before"
_DROPPED: Final = "its run was dropped: an error came where none was expected"
_BROKE_OFF: Final = "broke_off"
MOST_DEATHS: Final = 3
"""In a row: from then on each is a failed attempt."""


def let_go(tx: Transaction, held: Claim, policy_of: PolicyOf, why: str | None) -> None:
    """Give the lane back after a run that broke off: what it may have called counts as called. ``why`` counts
    against the message that it was at, as a death does: what breaks off every run of it is not repeated for ever.
    ``None``: the store was the reason."""
    lane = still_mine(tx, held)
    if why is not None:
        _end_run(tx, lane, policy_of, _BROKE_OFF, why)
    else:
        free(lane)
        mark_redelivery(tx, lane)


def let_go_dropped(tx: Transaction, dropped: Iterable[Claim], policy_of: PolicyOf) -> list[Claim]:
    """``let_go`` of claims that no hand has, as far as they are still this instance's. Answers those that were."""
    found = []
    for held in dropped:
        lane = lane_of(tx, held)
        if lane is not None and lane.owner == tx.instance and lane.fence == held.fence:
            let_go(tx, held, policy_of, _DROPPED)
            found.append(held)
    return found


def mark_redelivery(tx: Transaction, lane: Lane) -> None:
    """Mark what a run may have called whose process is gone. In order that is the head and what may have run ahead of
    its settlement; without order it may be any, and so where numbers that came late lie before it."""
    settle_cursor(tx, lane)
    if isinstance(lane, LooseEntry):  # its fence says that it was taken before
        return
    beyond = None
    if not lane.in_any_order:
        bounds = {"lane": lane.id, "lower": lane.cursor, "upper": lane.limit}
        beyond = tx.execute(entries.NTH_LIVE, {**bounds, "skip": RUN_AHEAD + 1}).fetchone()
    lane.redelivery_below = max(lane.redelivery_below, beyond[0] if beyond else lane.limit)


class Left(NamedTuple):
    """The message that a dead owner was at, and what counts against it."""

    position: int
    number: int
    failures: int
    deaths: int
    why: str


def take_from_dead(tx: Transaction, lane: Lane, event: str = "holder_died", why: str | None = None) -> Left | None:
    """Free a lane whose owner died, or whose run did. What it may have been running is marked as a possible
    redelivery; its death counts as a delivery of the message that it was at, from the third in a row also as a
    failure. ``None`` where nothing is deliverable."""
    since = lane.running_since
    if why is None:
        found = tx.execute(queues.INSTANCE, {"key": lane.owner}).fetchone()
        why = _FORGOTTEN if found is None else _DIED.format(*found)
    free(lane)
    mark_redelivery(tx, lane)
    if not lane.is_unsettled:
        return None
    position = _was_at(tx, lane, since)
    if position is None:
        return None
    tx.execute(entries.COUNT_DEATH, {"key": position, "error": why})
    failures, deaths, number = tx.execute(entries.ENTRY_COUNTERS, {"key": position}).fetchone()
    tx.ledger(event, lane, number=number, position=position, attempt=deaths, reason=why)
    return Left(position, number, failures, deaths, why)


def _was_at(tx: Transaction, lane: Lane, since: int | None) -> int | None:
    """Position of the entry that a run was at; ``None`` where retention has taken it."""
    if isinstance(lane, LooseEntry):
        return lane.position
    head = tx.execute(entries.ENTRY_BY_NUMBER, {"lane": lane.id, "number": _ran(tx, lane, since)}).fetchone()
    return None if head is None else int(head[0])


def _ran(tx: Transaction, lane: Lane, since: int | None) -> int:
    """The number that a run was at which has settled nothing after ``since``. Where numbers come late that need not be
    the lowest: a run comes back to them when it is through."""
    if not (lane.ordered and lane.in_any_order):
        return lane.cursor
    row = {"lane": lane.id, "limit": lane.limit, "since": since}
    (number,) = tx.execute(entries.RUN_IS_AT, row).fetchone()
    return lane.cursor if number is None else int(number)


def _end_run(
    tx: Transaction, lane: Lane, policy_of: PolicyOf, event: str = "holder_died", why: str | None = None
) -> None:
    """``take_from_dead``, and what follows where it is a failure."""
    left = take_from_dead(tx, lane, event, why)
    if left is not None and left.deaths >= MOST_DEATHS and tx.serves(lane.queue):
        tx.counts.failed(lane.queue, event)
        policy = policy_of(lane.partner)
        after_failure(tx, lane, left.position, left.number, left.failures, policy, left.why)


def take_over(tx: Transaction, instance: int, policy_of: PolicyOf) -> int:
    """Free what a dead instance ran, and do what follows from its death. Answers how many lanes and loose entries it
    had."""
    ended = tx.execute(queues.END_INSTANCE, {"key": instance, "now": tx.now}).rowcount
    owned = [lane for lane in owned_by(tx, instance) if lane.owner == instance]
    for lane in owned:
        _end_run(tx, lane, policy_of)
    if ended:
        tx.ledger("instance_gone", reason=f"instance {instance}")
    return len(owned)
