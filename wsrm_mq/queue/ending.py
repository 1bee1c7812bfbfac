"""The protocol steps of a sequence, taken on the row that a transaction has read, and written down; how a lane ends by
one or by the clock; and the way of what is left to the dead letters.

A tail of any length is given up in one step (``discard_from``: from then on nothing there can be delivered); its
entries follow to the dead-letter queue in batches.
"""

from __future__ import annotations

from typing import Any

from wsrm_mq import queue as verbs
from wsrm_mq.queue.outbound import end_outbound, forget
from wsrm_mq.queue.ownership import count_unsettled, settle_cursor
from wsrm_mq.sequence.inbound import GaveUp, Input, Step, TimePassed, receive
from wsrm_mq.sequence.states import State
from wsrm_mq.store import entries, lanes
from wsrm_mq.store.pruning import FREE_TAKEN
from wsrm_mq.store.records import Lane, SequenceRecord
from wsrm_mq.store.transaction import Transaction, as_json


def step_of(tx: Transaction, record: SequenceRecord, event: Input, **asked: Any) -> Step:
    """Answers the protocol step of ``receive`` as of now: the clock ends the sequence first, as far as it is
    believed."""
    return receive(record.value, event, tx.now, reached=tx.reached, **asked)


def apply_step(
    tx: Transaction,
    record: SequenceRecord,
    step: Step,
    *,
    accepted: int | None = None,
    reason: str | None = None,
    actor: str | None = None,
) -> None:
    """Write a protocol step down: the value, the cursor, and the ledger rows of the sequence's life. ``accepted``: the
    number that is taken to be delivered; ``reason``: why it is closed or ended; ``actor``: the operator who did it."""
    before, after, held = record.value, step.sequence, record.held
    discard_from = after.discard_from
    newly_discarding = discard_from is not None and discard_from != record.discard_from
    record.follow(after, accepted)
    if after.limit != before.limit:
        # A part of what was held may have been settled before its turn, which the ranges cannot tell.
        if accepted is None and before.received.count(before.limit) != held:
            settle_cursor(tx, record)
        if record.held and held != before.held:
            record.release(count_unsettled(tx, record, after.limit))
    if step.closed_now:
        tx.ledger("closed", record, number=step.sequence.last_number, reason=reason, actor=actor)
    if step.ended_now:
        if record.outbound is not None:
            end_outbound(tx, record.outbound)
        record.ended_at = tx.now
        tx.ledger("ended", record, reason=reason or str(step.sequence.state), actor=actor)
    if step.released_across.ranges:
        tx.ledger("released_across_gap", record, reason=f"missing {step.released_across}")
    if newly_discarding:
        record.discarding = True
        tx.ledger("discarding", record, number=discard_from, reason=step.sequence.discard_reason)


def due(tx: Transaction, count: int) -> list[int]:
    """The keys of lanes whose time may be over."""
    return [key for (key,) in tx.execute(lanes.DUE, {"now": tx.reached, "count": count})]


def expire(tx: Transaction, key: int) -> bool:
    """Let the clock end a lane, silently (D-EXP-001). Answers whether it did."""
    lane = tx.lane(key)
    if lane is None:
        return False
    if isinstance(lane, SequenceRecord):
        return _expire_sequence(tx, lane)
    if lane.kind == "outgoing":
        forget(tx, lane)
        return True
    lane.due_at = None if lane.inactivity is None else lane.active_at + lane.inactivity
    if lane.due_at is None or tx.reached < lane.due_at:  # there was traffic since it was set
        return False
    end_lane(tx, lane)
    return True


def _expire_sequence(tx: Transaction, record: SequenceRecord) -> bool:
    step = step_of(tx, record, TimePassed())
    if step.ended_now:
        apply_step(tx, record, step)
    else:
        record.due_at = record.value.due_at  # there was traffic since it was set
    return step.ended_now


def end_lane(
    tx: Transaction,
    lane: Lane,
    how: State = State.TERMINATED,
    *,
    discard_reason: str | None = None,
    reason: str | None = None,
    actor: str | None = None,
) -> None:
    """Let nothing more come into a lane that no sequence rules. ``discard_reason``: what it has left is not delivered
    but goes to the dead letters, marked with that; ``reason`` and ``actor`` as for ``apply_step``."""
    if lane.ended is None:
        lane.ended, lane.ended_at, lane.due_at = how.value, tx.now, None
        tx.ledger("ended", lane, reason=reason or how.value, actor=actor)
    if discard_reason is not None and lane.discard_from is None:
        lane.give_up(1, discard_reason)
        tx.ledger("discarding", lane, number=1, reason=discard_reason)


def expire_due(tx: Transaction, count: int) -> int:
    """Look at up to ``count`` lanes whose time may be over, and let the clock end those that it ends; answers how
    many were looked at."""
    keys = due(tx, count)
    for key in keys:
        expire(tx, key)
    return len(keys)


def give_up(tx: Transaction, lane: Lane, event: GaveUp, *, reason: str | None = None, actor: str | None = None) -> None:
    """End a lane from this side, and the sequence that rules it. ``reason`` and ``actor`` as for ``apply_step``."""
    if isinstance(lane, SequenceRecord):
        apply_step(tx, lane, step_of(tx, lane, event), reason=reason, actor=actor)
    else:
        end_lane(tx, lane, State.FAILED, discard_reason=event.discard_reason, reason=reason, actor=actor)


def bury(
    tx: Transaction,
    lane: Lane,
    position: int,
    number: int,
    reason: str,
    actor: str | None = None,
    *,
    is_told: bool = True,
) -> None:
    """Move one entry to the dead-letter queue of its queue, in this transaction (I8). What is consumed from a queue
    that keeps no dead letters is discarded."""
    home = lane.queue if lane.plan is None else tx.home(lane.queue)
    consumed = tx.execute(entries.LEAVES, {"key": position}).fetchone() if lane.is_consumed else None
    is_kept = consumed is None or verbs.policy_of(tx, home).dead_letter
    row = {"key": position, "reason": reason, "now": tx.now}
    if is_kept:
        is_live = tx.execute(entries.BURY, {**row, "dead_letters": tx.dead_letters(home), "origin": home}).rowcount > 0
    else:
        is_live = tx.execute(entries.SETTLE, {**row, "outcome": "discarded", "delivered": 0}).fetchone() is not None
    if is_live:
        outcome = "dead" if is_kept else "discarded"
        if lane.is_consumed or lane.kind == "outgoing":
            verbs.settled(tx, lane, position, outcome, reason)
        lane.name(number, tx.now)
        tx.ledger(outcome, lane, number=number, position=position, reason=reason, actor=actor, is_told=is_told)
        if consumed is not None and not is_kept:
            tx.execute(FREE_TAKEN, {"keys": as_json([consumed[0]]), "now": tx.now})


def bury_tails(tx: Transaction, count: int = 500) -> bool:
    """Move up to ``count`` given-up entries, of however many lanes; answers whether there may be more."""
    keys = [key for (key,) in tx.execute(lanes.DISCARDING, {"count": count})]
    left = count
    for key in keys:
        left -= _bury_up_to(tx, key, left)
        if not left:
            return True
    return len(keys) == count


def _bury_up_to(tx: Transaction, key: int, count: int) -> int:
    """How many entries were moved; fewer than ``count``: they were the last, or have to wait."""
    lane = tx.lane(key)
    if lane is None or not lane.discarding or lane.discard_from is None or lane.keeps_tail:
        return 0
    lower = lane.discard_from
    doomed = tx.execute(entries.DOOMED, {"lane": key, "lower": lower, "count": count}).fetchall()
    reason = lane.discard_reason or "discarded"
    for position, number in doomed:
        bury(tx, lane, position, number, reason, is_told=False)  # `sequence.discarding` told of all of them
    if len(doomed) < count:
        lane.discarding = False
        if lane.cursor >= lower:
            lane.cursor = lane.limit
    return len(doomed)
