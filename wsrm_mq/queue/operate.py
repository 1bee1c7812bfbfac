"""What an operator does to a sequence: each act is one transaction and leaves its ledger row."""

from __future__ import annotations

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue.broken_run import take_from_dead
from wsrm_mq.queue.cursor import settle_cursor
from wsrm_mq.queue.ending import bury
from wsrm_mq.store import instances
from wsrm_mq.store import statements as sql
from wsrm_mq.store.database import file_of
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

__all__ = ["resume", "skip"]


def resume(tx: Transaction, identifier: str, *, actor: str, reason: str) -> int:
    """Try a sequence again now, from the first step of the ladder: one that is blocked, waits for its next retry, or
    was run by a process that died. Answers the number that will be tried."""
    record, left_by_dead = _idle(tx, identifier)
    position, number = _stopper(tx, record)
    if record.blocked is None and record.retry_at is None and not left_by_dead:
        raise NotAllowed(f"{identifier} is neither blocked nor waiting for a retry; there is nothing to resume.")
    record.blocked = None
    record.wait(tx.now, None)
    tx.execute(sql.BEGIN_LADDER, {"key": position})
    tx.ledger("resumed", record, number=number, position=position, reason=reason, actor=actor)
    return number


def skip(tx: Transaction, identifier: str, number: int, *, actor: str, reason: str) -> int:
    """Send the message that stops a sequence to the dead letters and let the sequence go on. Answers its position."""
    record, _left_by_dead = _idle(tx, identifier)
    if number not in record.value.received:
        raise NotAllowed(
            f"number {number} of {identifier} was never received; only what stops a sequence can be skipped. "
            "A gap is filled by the source, or left when it closes or terminates the sequence."
        )
    position, stopper = _stopper(tx, record)
    if number != stopper:
        raise NotAllowed(f"number {number} of {identifier} is not what stops it; that is number {stopper}.")
    bury(tx, record, position, number, "skipped", actor=actor)
    record.blocked = None
    record.wait(tx.now, None)
    settle_cursor(tx, record)
    tx.ledger("skipped", record, number=number, position=position, reason=reason, actor=actor)
    return position


def _idle(tx: Transaction, identifier: str) -> tuple[SequenceRecord, bool]:
    """The sequence, which no live process runs; and whether it was taken from a process that died. That needs no other
    process: a lock that is free proves the death, and nothing that the dead one might still write would fit."""
    record = tx.sequence_named(identifier)
    if record is None:
        raise NotFound(f"There is no sequence {identifier}.")
    if record.owner is None:
        return record, False
    name, has_ended = tx.execute(sql.INSTANCE, {"key": record.owner}).fetchone()
    holds_lock = instances.holds_lock(file_of(tx.db), name)
    if holds_lock:
        raise NotAllowed(f"{identifier} is being run; wait until it stops, then try again.")
    if holds_lock is None and not has_ended:
        raise NotAllowed(
            f"{identifier} was being run by a process whose lock file is missing, and so not known to be dead. Start "
            "the service if no process lives: it finds out within seconds. Then try again."
        )
    take_from_dead(tx, record)
    return record, True


def _stopper(tx: Transaction, record: SequenceRecord) -> tuple[int, int]:
    """Position and number of the message that blocks it, else of the next to be delivered. Without order they
    differ: a lower number may wait for its retry."""
    settle_cursor(tx, record)
    if record.blocked is not None:
        _failures, _deaths, number = tx.execute(sql.ENTRY_COUNTERS, {"key": record.blocked}).fetchone()
        return record.blocked, number
    found = tx.execute(sql.ENTRY_BY_NUMBER, {"sequence": record.id, "number": record.cursor}).fetchone()
    if found is None or not record.cursor < record.value.deliver_below:
        raise NotAllowed(f"{record.value.terms.identifier} has nothing to deliver: nothing of it is stopped.")
    return found[0], record.cursor
