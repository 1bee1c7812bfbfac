"""How a sequence ends in the store: protocol steps written down, the clock, and the way to the dead letters.

A tail of any length is given up in one step (``discard_from``: from then on nothing there can be delivered); its
entries follow to the dead-letter queue in batches.
"""

from __future__ import annotations

from wsrm_mq.queue.cursor import count_unsettled, settle_cursor
from wsrm_mq.queue.forgetting import forget
from wsrm_mq.queue.offered import end_outgoing
from wsrm_mq.queue.stepping import step_of
from wsrm_mq.sequence.inbound import InboundSequence, Step, TimePassed
from wsrm_mq.store import entries, sequences
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

__all__ = ["apply_step", "bury", "bury_tails", "due", "expire", "expire_due"]


def apply_step(
    tx: Transaction,
    record: SequenceRecord,
    step: Step,
    *,
    accepted: int | None = None,
    reason: str | None = None,
    actor: str | None = None,
) -> None:
    """Write a protocol step down: the value, the cursor, and the ledger rows of the sequence's life. ``reason``: why
    it is closed or ended; ``actor``: the operator who did it."""
    discard_from = step.sequence.discard_from
    newly_discarding = discard_from is not None and discard_from != record.value.discard_from
    _follow(tx, record, step.sequence, accepted)
    if step.closed_now:
        tx.ledger("closed", record, number=step.sequence.last_number, reason=reason, actor=actor)
    if step.ended_now:
        if record.outgoing is not None:
            end_outgoing(tx, record)
        record.ended_at = tx.now
        tx.ledger("ended", record, reason=reason or str(step.sequence.state), actor=actor)
    if step.released_across.ranges:
        tx.ledger("released_across_gap", record, reason=f"missing {step.released_across}")
    if newly_discarding:
        record.discarding = True
        tx.ledger("discarding", record, number=discard_from, reason=step.sequence.discard_reason)


def _follow(tx: Transaction, record: SequenceRecord, value: InboundSequence, accepted: int | None) -> None:
    """The record takes the next value. Where a part of what it held was settled before its turn, what it holds still is
    counted, and its cursor is put behind what was settled: the ranges cannot tell it."""
    before, held = record.value, record.held
    record.follow(value, accepted)
    if accepted is None and value.limit != before.limit and before.received.count(before.limit) != held:
        settle_cursor(tx, record)
    if record.held and value.limit != before.limit and held != before.held:
        record.release(count_unsettled(tx, record, value.limit))


def due(tx: Transaction, count: int) -> list[int]:
    """The keys of sequences whose time may be over."""
    return [key for (key,) in tx.execute(sequences.DUE, {"now": tx.reached, "count": count})]


def expire(tx: Transaction, key: int) -> bool:
    """Let the clock end a sequence, silently (D-EXP-001). Answers whether it did."""
    record = tx.sequence(key)
    if record is None:
        return False
    if record.kind == "outgoing":
        forget(tx, record)
        return True
    step = step_of(tx, record, TimePassed())
    if step.ended_now:
        apply_step(tx, record, step)
    else:
        record.due_at = record.value.due_at  # there was traffic since it was set
    return step.ended_now


def expire_due(tx: Transaction, count: int) -> int:
    """Look at up to ``count`` sequences whose time may be over, and let the clock end those that it ends; answers how
    many were looked at."""
    keys = due(tx, count)
    for key in keys:
        expire(tx, key)
    return len(keys)


def bury(
    tx: Transaction,
    record: SequenceRecord,
    position: int,
    number: int,
    reason: str,
    actor: str | None = None,
    *,
    is_told: bool = True,
) -> None:
    """Move one entry to the dead-letter queue of its queue, in this transaction (I8)."""
    home = record.queue if record.plan is None else tx.home(record.queue)
    row = {"key": position, "dead_letters": tx.dead_letters(home), "origin": home, "reason": reason, "now": tx.now}
    if tx.execute(entries.BURY, row).rowcount:
        record.name(number, tx.now)
        tx.ledger("dead", record, number=number, position=position, reason=reason, actor=actor, is_told=is_told)


def bury_tails(tx: Transaction, count: int = 500) -> bool:
    """Move up to ``count`` given-up entries, of however many sequences; answers whether there may be more."""
    keys = [key for (key,) in tx.execute(sequences.DISCARDING, {"count": count})]
    left = count
    for key in keys:
        left -= _bury_up_to(tx, key, left)
        if not left:
            return True
    return len(keys) == count


def _bury_up_to(tx: Transaction, key: int, count: int) -> int:
    """How many entries were moved; fewer than ``count``: they were the last, or have to wait."""
    record = tx.sequence(key)
    if record is None or not record.discarding or record.value.discard_from is None or record.keeps_tail:
        return 0
    lower = record.value.discard_from
    doomed = tx.execute(entries.DOOMED, {"sequence": key, "lower": lower, "count": count}).fetchall()
    reason = record.value.discard_reason or "discarded"
    for position, number in doomed:
        bury(tx, record, position, number, reason, is_told=False)  # `sequence.discarding` told of all of them
    if len(doomed) < count:
        record.discarding = False
        if record.cursor >= lower:
            record.cursor = record.value.limit
    return len(doomed)
