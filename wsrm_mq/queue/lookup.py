"""The sequence that a sender speaks of."""

from __future__ import annotations

from wsrm_mq.queue.arrival import Receipt, Sender
from wsrm_mq.queue.room import not_ours
from wsrm_mq.sequence.faults import MalformedMessage, UnknownSequence
from wsrm_mq.sequence.ranges import EMPTY
from wsrm_mq.sequence.states import ENDED
from wsrm_mq.store import sequences
from wsrm_mq.store.port import Database
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

__all__ = ["find", "look_around", "may_take"]


def may_take(db: Database, sender: Sender, identifier: str) -> bool:
    """Whether a sequence of this name may still take messages of ``sender``: asked before a message is read to its end,
    so that what is refused in any case costs no more than its headers."""
    row = db.execute(sequences.SEQUENCE_BY_IDENTIFIER, {"identifier": identifier}).fetchone()
    if row is None:
        return False
    record = SequenceRecord.load(row, EMPTY, EMPTY)
    return record.is_rm and record.principal == sender.principal and record.value.state not in ENDED


def find(tx: Transaction, sender: Sender, identifier: str, receipt: Receipt) -> SequenceRecord | None:
    """The sequence that ``sender`` may speak of. Another sender learns nothing: to it the sequence is unknown
    (SEC-003)."""
    record = tx.sequence_named(identifier)
    known = (
        record is not None
        and record.is_rm
        and record.principal == sender.principal
        and record.value.terms.rm is sender.rm
        and record.queue == tx.queue_named(sender.queue)
    )
    if record is None or not known:
        receipt.fault = UnknownSequence("The identifier is not that of a sequence known here.", identifier)
        return None
    if not tx.serves(record.queue):
        receipt.turn_away(not_ours(sender.queue))
        return None
    terms = record.value.terms
    if terms.soap is not sender.soap or terms.addressing is not sender.addressing:
        receipt.fault = MalformedMessage(
            f"The sequence was created with SOAP {terms.soap.label} and WS-Addressing {terms.addressing.label}; "
            "all its messages have to use the same."
        )
        return None
    return record


def look_around(tx: Transaction, record: SequenceRecord, receipt: Receipt) -> None:
    """Put down what is to be done about the sequence once this is committed."""
    receipt.sequence = record.id
    receipt.needs_watch = receipt.needs_watch or record.discarding or record.owner not in (None, tx.instance)
    receipt.faults_to = record.acks_to
