"""The effects of time and deaths on messages that are consumed: waits, deadlines and leases end, holders go.

Each verb does a bounded part, and answers how much that was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wsrm_mq.queue import leaving
from wsrm_mq.queue.broken_run import MOST_DEATHS
from wsrm_mq.queue.declaring import policy_of
from wsrm_mq.queue.policies import FOREVER, QueuePolicy
from wsrm_mq.queue.settling import Lease
from wsrm_mq.store import consuming, entries, queues, routing
from wsrm_mq.store.port import Database
from wsrm_mq.store.pruning import FREE_TAKEN
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction, as_json

LeaseEnds = Callable[[Transaction, Lane, QueuePolicy, str], None]

PORTION: Final = 256
"""The most entries in one turn."""


def time_left(db: Database, now: int, reached: int, measured: int) -> int:
    """ms until a wait, a deadline or a lease ends; 0 or less: one is over. ``FOREVER``: there is none. The three times
    are those of a transaction."""
    *waits, expiry, lease, lease_of_lane = db.execute(consuming.NEXT_ENDS, {"now": now}).fetchone()
    ends = (*((wait, now) for wait in waits), (expiry, reached), (lease, measured), (lease_of_lane, measured))
    return min((end - at for end, at in ends if end is not None), default=FOREVER)


def sweep(tx: Transaction) -> int:
    """End the waits, deadlines and leases whose time is over; answers how many."""
    if time_left(tx, tx.now, tx.reached, tx.measured) > 0:
        return 0
    return end_waits(tx) + end_leases(tx) + expire(tx)


def end_waits(tx: Transaction) -> int:
    """Make ready the messages that were scheduled, or waited after a failure."""
    keys: list[int] = []
    for hold in ("scheduled", "backoff"):
        due = {"hold": hold, "now": tx.now, "count": PORTION}
        keys += (key for (key,) in tx.execute(consuming.DUE_WAITS, due).fetchall())
    if keys:
        tx.execute(consuming.END_WAITS, {"keys": as_json(keys)})
    return len(keys)


def end_turned_back(tx: Transaction) -> int:
    """Make ready the messages whose wait begins in the future: the clock was stepped back."""
    found = tx.execute(consuming.TURNED_BACK, {"now": tx.now, "count": PORTION}).fetchall()
    if found:
        tx.execute(consuming.END_WAITS, {"keys": as_json([key for (key,) in found])})
    return len(found)


def forget_put_before(tx: Transaction) -> int:
    """Forget the ids under which messages were put long ago."""
    found = tx.execute(consuming.FORGOTTEN, {"now": tx.reached, "count": PORTION}).fetchall()
    for queue, message_id in found:
        tx.execute(consuming.FORGET_PUT, {"queue": queue, "message_id": message_id})
    return len(found)


def expire(tx: Transaction) -> int:
    """Give up the messages that have outlived their deadline and are not leased."""
    found = tx.execute(consuming.EXPIRED, {"now": tx.reached, "count": PORTION}).fetchall()
    if found:
        for one in leaving.standing(tx, [key for (key,) in found]).values():
            leaving.put_aside(tx, one, _which(tx, one))
    return len(found)


def _which(tx: Transaction, one: leaving.Standing) -> str:
    """The deadline of a message that is over."""
    is_late = (
        one.lane is not None and tx.execute(routing.IS_LATE, {"message": one.message, "now": tx.reached}).fetchone()
    )
    return "reach_by" if is_late else "ttl_expired"


def end_leases(tx: Transaction) -> int:
    """End the leases whose time is over. That is a failure of the first message that each holder had: the others it had
    not begun."""
    ended = 0
    for owner, name, first, first_of_lanes in tx.execute(consuming.FIRST_ENDS).fetchall():
        why = f"its lease ended before it was acknowledged: instance {name}"
        over = {"owner": owner, "until": tx.measured, "count": PORTION}
        if first is not None and first <= tx.measured:
            keys = [key for (key,) in tx.execute(consuming.LEASED_BY, over).fetchall()]
            _end(tx, keys, why, is_death=False)
            ended += len(keys)
        if first_of_lanes is not None and first_of_lanes <= tx.measured:
            ended += _each_lane(tx, over, leaving.lease_of_lane_ended, why)
    return ended


def _each_lane(tx: Transaction, which: dict[str, int], end: LeaseEnds, why: str) -> int:
    found = tx.lanes_by(consuming.LANES_LEASED_BY, which)
    for lane in found:
        end(tx, lane, policy_of(tx, lane.queue), why)
    return len(found)


def holder_gone(tx: Transaction, instance: int, name: str) -> int:
    """Give back what an instance has leased that is gone."""
    why = f"its consumer is gone: instance {name}"
    all_of_it = {"owner": instance, "until": FOREVER, "count": PORTION}
    keys = [key for (key,) in tx.execute(consuming.LEASED_BY, all_of_it).fetchall()]
    if keys:
        _end(tx, keys, why, is_death=True)
    lanes = _each_lane(tx, all_of_it, leaving.holder_of_lane_died, why)
    tx.execute(queues.LET_GO_OF_QUEUES, {"key": instance})
    return max(len(keys), lanes)


def holder_left(tx: Transaction, leases: Sequence[Lease], why: str) -> None:
    """The holder of these has left. Of those that are delivered at most once, and were not acknowledged, none comes
    again, which is on record."""
    if keys := [one.position for one in _held(tx, leases) if one.was_handed_out]:
        _end(tx, keys, why, is_death=False)


def holder_died(tx: Transaction, leases: Sequence[Lease], why: str) -> None:
    """Give back what a consumer has leased that is gone, by an instance that lives on. See ``holder_gone``."""
    held = _held(tx, leases)
    if keys := [one.position for one in held if one.lane is None or one.is_letter]:
        _end(tx, keys, why, is_death=True)
    for key in {one.lane: None for one in held if not one.is_letter}:
        lane = None if key is None else tx.lane(key)
        if lane is not None:
            leaving.holder_of_lane_died(tx, lane, policy_of(tx, lane.queue), why)


def _held(tx: Transaction, leases: Sequence[Lease]) -> list[leaving.Standing]:
    """The messages of these leases that are still leased so."""
    found = leaving.standing(tx, [one.position for one in leases])
    return [
        found[one.position]
        for one in leases
        if one.position in found and leaving.holder_of(tx, found[one.position]) == (tx.instance, one.fence)
    ]


def _end(tx: Transaction, keys: list[int], why: str, *, is_death: bool) -> None:
    found = leaving.standing(tx, keys)
    lost = [one for one in found.values() if one.outcome == "delivered"]
    tx.execute(consuming.GIVE_BACK, {"keys": as_json(keys)})
    if lost:
        tx.execute(FREE_TAKEN, {"keys": as_json([one.message for one in lost]), "now": tx.now})
    for one in lost:
        tx.ledger("lost_after_delivery", leaving.lane_of(tx, one), position=one.position, reason=why)
    heads: dict[tuple[int, int | None], leaving.Standing] = {}
    for one in found.values():
        if one.outcome != "delivered":
            held_by = (one.queue, one.lessee)
            heads[held_by] = min(heads.get(held_by, one), one, key=_turn)
    for one in heads.values():
        _head_failed(tx, one, why, is_death=is_death)
    for one in found.values():
        is_over = one.outcome is None and one.expires_at is not None and one.expires_at <= tx.reached
        if is_over and tx.execute(entries.IS_LIVE_AT, {"key": one.position}).fetchone() is not None:
            leaving.put_aside(tx, one, "ttl_expired")


def _turn(one: leaving.Standing) -> tuple[int, int]:
    return -(one.priority or 0), one.position


def _head_failed(tx: Transaction, one: leaving.Standing, why: str, *, is_death: bool) -> None:
    tx.execute(consuming.DIE if is_death else consuming.FAIL, {"key": one.position, "error": why})
    failures, deaths, _number = tx.execute(entries.ENTRY_COUNTERS, {"key": one.position}).fetchone()
    event = "holder_died" if is_death else "lease_ended"
    tx.ledger(
        event, leaving.lane_of(tx, one), position=one.position, attempt=deaths if is_death else failures, reason=why
    )
    if one.is_letter or leaving.over_limits(tx, one):
        return
    if not is_death or deaths >= MOST_DEATHS:
        leaving.failed(tx, one, failures, why)
