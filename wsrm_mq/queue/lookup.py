"""The sequence that a sender speaks of."""

from __future__ import annotations

from wsrm_mq.queue.arrival import Receipt, Sender
from wsrm_mq.queue.room import not_ours
from wsrm_mq.sequence.faults import MalformedMessage, UnknownSequence
from wsrm_mq.sequence.ranges import EMPTY
from wsrm_mq.store import lanes
from wsrm_mq.store.port import Database
from wsrm_mq.store.records import Lane, SequenceRecord, load
from wsrm_mq.store.transaction import Transaction


def may_take(db: Database, sender: Sender, identifier: str) -> bool:
    """Whether a sequence of this name may still take messages of ``sender``: asked before a message is read to its end,
    so that what is refused in any case costs no more than its headers."""
    row = db.execute(lanes.LANE_BY_IDENTIFIER, {"identifier": identifier}).fetchone()
    if row is None:
        return False
    record = load(row, EMPTY, EMPTY)
    return isinstance(record, SequenceRecord) and record.principal == sender.principal and record.ended is None


def find(tx: Transaction, sender: Sender, identifier: str, receipt: Receipt) -> SequenceRecord | None:
    """The sequence that ``sender`` may speak of. Another sender learns nothing: to it the sequence is unknown
    (SEC-003)."""
    record = tx.sequence_named(identifier)
    if (
        record is None
        or record.principal != sender.principal
        or record.value.terms.rm is not sender.rm
        or record.queue != tx.queue_named(sender.queue)
    ):
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


def look_around(tx: Transaction, lane: Lane, receipt: Receipt) -> None:
    """Put down what is to be done about the lane once this is committed."""
    receipt.lane = lane.id
    receipt.needs_watch = receipt.needs_watch or lane.discarding or lane.owner not in (None, tx.instance)
    if isinstance(lane, SequenceRecord):
        receipt.faults_to = lane.acks_to
