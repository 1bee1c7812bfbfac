"""Settling what is leased, many leases at once: each is answered by a ``Settlement``, and none raises.

A lease is known by its position and its fence. Where there is no fence the settlement is in no lease's name: it is
allowed of what is not leased, and in a queue whose leasing is ``sublet`` of all.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from wsrm_mq.queue import failure, settle
from wsrm_mq.queue.failure import NACKED
from wsrm_mq.queue.leaving import (
    TAKEN,
    Standing,
    failed,
    free_lane,
    holder_of,
    lane_of,
    over_limits,
    put_aside,
    standing,
)
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.reporting import left
from wsrm_mq.store import consuming, entries
from wsrm_mq.store.pruning import FREE_TAKEN
from wsrm_mq.store.records import Lane
from wsrm_mq.store.sql import storable
from wsrm_mq.store.transaction import Transaction, as_json


class Settlement(enum.StrEnum):
    """The result of an attempt to settle one lease."""

    SETTLED = "settled"
    ALREADY_SETTLED = "already_settled"
    NOT_YOURS = "not_yours"
    """Another consumer has leased it."""
    LOST = "lost"
    """The lease had ended, and the message went on."""
    OUT_OF_ORDER = "out_of_order"
    """It is in an ordered group, and one before it is not settled."""
    UNKNOWN = "unknown"
    """There is no such message any more."""


class Lease(NamedTuple):
    """A lease of the message at ``position``; without ``fence`` it is in no lease's name."""

    position: int
    fence: int | None = None


Settled = list[Settlement]


def ack(tx: Transaction, leases: Sequence[Lease]) -> Settled:
    """The messages are taken: they are settled as delivered, and bodies are freed that their queue does not keep."""
    allowed, answers = _judge(tx, leases)
    loose: list[Standing] = []
    letters: list[Standing] = []
    in_lanes: list[Standing] = []
    for one in allowed:
        (letters if one.is_letter else loose if one.lane is None else in_lanes).append(one)
    freed = [one.message for one in loose]
    if loose:
        tx.execute(consuming.ACKNOWLEDGE, {"keys": as_json([one.position for one in loose]), "now": tx.now})
    counted = [one for one in loose if one.outcome is None and one.stored_policy is not None]
    for queue in {one.queue for one in counted}:
        sizes = [one.size for one in counted if one.queue == queue]
        tx.add_unsettled(queue, -len(sizes), -sum(sizes))
        tx.counts["delivered", queue, ""] += len(sizes)
    for one in counted:
        if one.asks:
            left(tx, one.position, one.message, one.size, one.asks, "delivered")
    if letters:
        row = {"keys": as_json([one.position for one in letters]), "reason": TAKEN, "now": tx.now}
        tx.execute(consuming.TAKE_LETTERS, row)
        for one in letters:
            tx.ledger("discarded", lane_of(tx, one), number=one.number, position=one.position, reason=TAKEN)
    for one in in_lanes:
        answers[one.position] = _ack_in_lane(tx, one, lane_of(tx, one))
        if answers[one.position] is Settlement.SETTLED and one.stored_policy is not None:
            freed.append(one.message)
    if freed:
        tx.execute(FREE_TAKEN, {"keys": as_json(freed), "now": tx.now})
    return [answers[one.position] for one in leases]


def release(tx: Transaction, leases: Sequence[Lease]) -> Settled:
    """The messages go back to their places ("cancel"): they are ready at once, and their cancels count."""
    allowed, answers = _judge(tx, leases, only_leased=True)
    loose = [one for one in allowed if one.lane is None or one.is_letter]
    if loose:
        tx.execute(consuming.RELEASE, {"keys": as_json([one.position for one in loose])})
    for one in loose:
        if not _over_cancels(tx, one):
            over_limits(tx, one)
    for one in allowed:
        if one.lane is not None and not one.is_letter:
            answers[one.position] = _returned(tx, one, _release_in_lane)
    return [answers[one.position] for one in leases]


def _over_cancels(tx: Transaction, one: Standing) -> bool:
    """Give a message up that was given back, and now as often as its queue allows; answers whether it was."""
    most = one.policy.max_cancels
    is_over = most is not None and one.cancels + 1 >= most
    if not is_over or tx.execute(entries.IS_LIVE_AT, {"key": one.position}).fetchone() is None:
        return False
    put_aside(tx, one, "max_cancels")
    return True


def nack(tx: Transaction, leases: Sequence[Lease], error: str) -> Settled:
    """The consumer has failed: the messages wait for the next step of the ladder, and after the last are given up."""
    allowed, answers = _judge(tx, leases, only_leased=True)
    for one in allowed:
        if one.lane is not None and not one.is_letter:
            answers[one.position] = _returned(tx, one, partial(_nack_in_lane, error=error))
            continue
        if one.was_handed_out:
            tx.execute(consuming.GIVE_BACK, {"keys": as_json([one.position])})
            continue
        why, failures = storable(error), one.failures + 1
        tx.execute(consuming.FAIL, {"key": one.position, "error": why})
        lane = lane_of(tx, one)  # as it is now
        tx.ledger("failed", lane, position=one.position, attempt=failures, reason=why, failure=NACKED.columns)
        tx.counts.failed(one.queue, NACKED.kind)
        if not one.is_letter and not over_limits(tx, one):
            failed(tx, one, failures, error)
    return [answers[one.position] for one in leases]


def reject(tx: Transaction, leases: Sequence[Lease], reason: str = "rejected", error: str | None = None) -> Settled:
    """The messages are given up at once: they go to the dead letters, for ``reason``; ``error`` says more."""
    allowed, answers = _judge(tx, leases)
    for one in allowed:
        if one.lane is not None and not one.is_letter:
            answers[one.position] = _reject_in_lane(tx, one, lane_of(tx, one), reason)
        else:
            tx.execute(consuming.GIVE_BACK, {"keys": as_json([one.position])})
            if not one.was_handed_out:
                put_aside(tx, one, reason)
        if error is not None and answers[one.position] is Settlement.SETTLED:
            tx.execute(consuming.SAY_WHY, {"key": one.position, "error": storable(error)})
    return [answers[one.position] for one in leases]


def expire(tx: Transaction, leases: Sequence[Lease]) -> Settled:
    """The messages are no longer wanted: they go to the dead letters."""
    return reject(tx, leases, "forced_expire")


def renew(tx: Transaction, leases: Sequence[Lease], lease: int | None = None) -> Settled:
    """The leases begin anew, for ``lease`` ms, or as long as their queues say. That is no delivery."""
    allowed, answers = _judge(tx, leases, only_leased=True)
    for one in allowed:
        until = one.policy.lease_end(tx.measured, lease)
        if one.lane is None or one.is_letter:
            tx.execute(consuming.RENEW, {"keys": as_json([one.position]), "until": until})
        else:
            tx.execute(consuming.RENEW_LANE, {"key": one.lane, "until": until})
    return [answers[one.position] for one in leases]


def hand_back(tx: Transaction, leases: Sequence[Lease]) -> Settled:
    """Messages that no program has seen go back to their places: nothing is counted, not even a delivery."""
    return _back(tx, leases, was_delivery=False)


def put_back(tx: Transaction, leases: Sequence[Lease]) -> Settled:
    """Messages whose program has left them go back to their places: they were delivered, and that is no failure."""
    return _back(tx, leases, was_delivery=True)


def _back(tx: Transaction, leases: Sequence[Lease], *, was_delivery: bool) -> Settled:
    allowed, answers = _judge(tx, leases, only_leased=True)
    if keys := [one.position for one in allowed if one.lane is None or one.is_letter]:
        tx.execute(consuming.GIVE_BACK if was_delivery else consuming.NEVER_DELIVERED, {"keys": as_json(keys)})
    for one in allowed:
        if one.lane is not None and not one.is_letter:
            answers[one.position] = _returned(tx, one, partial(_back_in_lane, was_delivery=was_delivery))
    return [answers[one.position] for one in leases]


def take_back(tx: Transaction, leases: Sequence[Lease]) -> None:
    """Messages in no group that were leased ahead, and that no consumer got, go back: that was no delivery. Of those
    that are delivered at most once the lease ends, which is on record."""
    allowed, _answers = _judge(tx, leases, only_leased=True)
    keys = [one.position for one in allowed if not one.was_handed_out]
    tx.execute(consuming.NEVER_DELIVERED, {"keys": as_json(keys)})


def _judge(
    tx: Transaction, leases: Sequence[Lease], *, only_leased: bool = False
) -> tuple[list[Standing], dict[int, Settlement]]:
    """The entries that may be settled, in the order of positions, and an answer for each lease."""
    found = standing(tx, [one.position for one in leases])
    allowed: dict[int, Standing] = {}
    answers: dict[int, Settlement] = {}
    for asked in leases:
        one = found.get(asked.position)
        if one is None:
            answers[asked.position] = Settlement.UNKNOWN
        elif asked.position not in allowed:
            answer = answers[asked.position] = _may_settle(tx, one, asked.fence, only_leased=only_leased)
            if answer is Settlement.SETTLED:
                allowed[asked.position] = one
    in_turn = sorted(allowed.values(), key=lambda one: (one.number or 0, one.position))
    return in_turn, answers


def _may_settle(tx: Transaction, one: Standing, fence: int | None, *, only_leased: bool) -> Settlement:
    owner, held = holder_of(tx, one)
    is_over = one.outcome is not None and not one.is_letter
    if fence is not None and owner is not None and held == fence:
        return Settlement.SETTLED if not is_over or one.lane is None else Settlement.ALREADY_SETTLED
    if is_over and (fence is None or fence == held):
        return Settlement.ALREADY_SETTLED
    if fence is not None:
        return Settlement.LOST
    if owner is None:
        return Settlement.NOT_YOURS if only_leased else Settlement.SETTLED
    return Settlement.SETTLED if one.policy.leasing == "sublet" else Settlement.NOT_YOURS


# in an ordered group


def _returned(tx: Transaction, one: Standing, verb: Callable[[Transaction, Standing, Lane], Settlement]) -> Settlement:
    lane = lane_of(tx, one)
    return Settlement.SETTLED if lane.owner is None else verb(tx, one, lane)  # it went back with one before it


def _is_next(one: Standing, lane: Lane) -> bool:
    """Whether it may be settled now. Where numbers come late, one before it may have come since it was leased."""
    return one.number == lane.cursor or lane.in_any_order


def _ack_in_lane(tx: Transaction, one: Standing, lane: Lane) -> Settlement:
    if not _is_next(one, lane) or one.number is None:
        return Settlement.OUT_OF_ORDER
    settle.settle(tx, _claim(tx, lane), one.position, one.number)
    if one.stored_policy is not None and lane.is_consumed:
        tx.add_unsettled(one.queue, -1, -one.size)
    if one.asks:
        left(tx, one.position, one.message, one.size, one.asks, "delivered")
    _end_if_through(tx, lane)
    return Settlement.SETTLED


def _nack_in_lane(tx: Transaction, one: Standing, lane: Lane, error: str) -> Settlement:
    if not _is_next(one, lane) or one.number is None:
        return Settlement.OUT_OF_ORDER
    tail = one.number + 1
    failure.fail(tx, _claim(tx, lane), one.position, one.number, error, one.policy.dispatch, NACKED)
    free_lane(tx, lane, tail)
    over_limits(tx, standing(tx, [one.position])[one.position])
    return Settlement.SETTLED


def _reject_in_lane(tx: Transaction, one: Standing, lane: Lane, reason: str) -> Settlement:
    put_aside(tx, one, reason)
    _end_if_through(tx, lane)
    return Settlement.SETTLED


def _release_in_lane(tx: Transaction, one: Standing, lane: Lane) -> Settlement:
    tx.execute(entries.CANCEL, {"key": one.position})
    _back_in_lane(tx, one, lane)
    _over_cancels(tx, one)
    return Settlement.SETTLED


def _back_in_lane(tx: Transaction, one: Standing, lane: Lane, *, was_delivery: bool = True) -> Settlement:
    """It and all that was leased behind it go back together; what is before it stays leased. In any order all that was
    leased goes back, which may have been seen."""
    assert one.number is not None
    if _is_next(one, lane):
        free_lane(tx, lane, None if was_delivery or lane.in_any_order else lane.limit)
        over_limits(tx, standing(tx, [one.position])[one.position])
        return Settlement.SETTLED
    (below,) = tx.execute(consuming.LANE_LEASE, {"key": lane.id}).fetchone()
    if was_delivery:
        tx.execute(consuming.COUNT_RUN, {"lane": lane.id, "lower": one.number, "upper": below})
    tx.execute(consuming.SHORTEN_LANE, {"key": lane.id, "below": min(one.number, below)})
    return Settlement.SETTLED


def _claim(tx: Transaction, lane: Lane) -> Claim:
    lane.owner = tx.instance  # it settles in the name of the consumer that has leased it, where that is allowed
    return Claim(lane.id, lane.fence)


def _end_if_through(tx: Transaction, lane: Lane) -> None:
    """End the lease of a lane where all that was leased is settled, whatever came since that lies before it."""
    (below,) = tx.execute(consuming.LANE_LEASE, {"key": lane.id}).fetchone()
    is_through = lane.cursor >= (below or 0)
    if not is_through and lane.in_any_order:
        run = {"lane": lane.id, "below": below, "fence": lane.fence}
        is_through = tx.execute(consuming.LEFT_OF_RUN, run).fetchone() is None
    if is_through:
        free_lane(tx, lane)
