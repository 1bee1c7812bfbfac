"""A failed delivery: wait for the next step of the ladder, or, after the last, what the queue says (``on_poison``)."""

from __future__ import annotations

import enum
from typing import NamedTuple

from wsrm_mq.queue.counts import failed
from wsrm_mq.queue.cursor import move_past
from wsrm_mq.queue.ending import apply_step, bury
from wsrm_mq.queue.ownership import Claim, free, give_back, still_mine
from wsrm_mq.queue.policy import OnPoison, QueuePolicy
from wsrm_mq.sequence.inbound import GaveUp, receive
from wsrm_mq.store import statements as sql
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.storable import storable
from wsrm_mq.store.transaction import Transaction

__all__ = ["Aftermath", "Failed", "after_failure", "fail"]


class Aftermath(enum.Enum):
    RETRY = "retry"
    BLOCKED = "blocked"
    BURIED = "buried"
    ENDED = "ended"


class Failed(NamedTuple):
    aftermath: Aftermath
    attempt: int
    retry_at: int | None
    released: bool


def fail(
    tx: Transaction,
    held: Claim,
    position: int,
    number: int,
    error: str,
    policy: QueuePolicy,
    fault: str = "",
    seconds: float | None = None,
) -> Failed:
    """Record a failed attempt, and what follows from it. The claim is given up unless the sequence can go on.
    ``fault`` is the kind of the error, see ``Outcome``."""
    record = still_mine(tx, held)
    error = storable(error)
    tx.execute(sql.FAIL, {"key": position, "delivered": 1, "error": error, "retry_at": None})
    failures, _deaths, _number = tx.execute(sql.ENTRY_COUNTERS, {"key": position}).fetchone()
    tx.ledger("failed", record, number=number, position=position, attempt=failures, reason=error)
    failed(tx, record.queue, fault, seconds)
    aftermath = after_failure(tx, record, position, number, failures, policy, error)
    goes_on = aftermath is Aftermath.BURIED or (aftermath is Aftermath.RETRY and not record.value.terms.ordered)
    if goes_on:
        released = give_back(tx, held)
    else:
        free(record)
        released = True
    return Failed(aftermath, failures, record.retry_at, released)


def after_failure(
    tx: Transaction,
    record: SequenceRecord,
    position: int,
    number: int,
    failures: int,
    policy: QueuePolicy,
    error: str,
) -> Aftermath:
    """Decide what happens to the entry at ``position`` that has failed ``failures`` times."""
    if failures <= len(policy.retry):
        retry_at = tx.now + policy.retry[failures - 1]
        tx.execute(sql.RETRY_LATER, {"key": position, "now": tx.now, "retry_at": retry_at})
        if record.value.terms.ordered:
            record.wait(tx.now, retry_at)
        return Aftermath.RETRY
    on_poison = policy.on_poison if record.is_rm else policy.connection_on_poison
    return _POISON[on_poison](tx, record, position, number, error)


def _block(tx: Transaction, record: SequenceRecord, position: int, number: int, error: str) -> Aftermath:
    record.blocked = position
    tx.ledger("blocked", record, number=number, position=position, reason=error)
    return Aftermath.BLOCKED


def _dead_letter(tx: Transaction, record: SequenceRecord, position: int, number: int, error: str) -> Aftermath:
    bury(tx, record, position, number, "max_failures")
    move_past(tx, record, number)
    return Aftermath.BURIED


def _terminate(tx: Transaction, record: SequenceRecord, position: int, number: int, error: str) -> Aftermath:
    tx.execute(sql.FREE_RETRY, {"key": position})
    apply_step(tx, record, receive(record.value, GaveUp(), tx.now), reason=error)
    return Aftermath.ENDED


_POISON = {OnPoison.BLOCK: _block, OnPoison.DEAD_LETTER: _dead_letter, OnPoison.TERMINATE: _terminate}
