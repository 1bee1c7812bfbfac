"""A sequence looked up before a message for it is read to its end: what is refused in any case costs no more than
that."""

from __future__ import annotations

from wsrm_mq.queue.accept import Arrival, Receipt, Sender, accept, find
from wsrm_mq.sequence.ranges import EMPTY
from wsrm_mq.sequence.states import ENDED
from wsrm_mq.store import statements as sql
from wsrm_mq.store.port import Database
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

__all__ = ["may_take", "turn_away"]


def may_take(db: Database, sender: Sender, identifier: str) -> bool:
    """Whether a sequence of this name may still take messages of ``sender``."""
    row = db.execute(sql.SEQUENCE_BY_IDENTIFIER, {"identifier": identifier}).fetchone()
    if row is None:
        return False
    record = SequenceRecord.load(row, EMPTY, EMPTY)
    return record.principal == sender.principal and record.value.state not in ENDED


def turn_away(tx: Transaction, arrival: Arrival) -> Receipt:
    """Refuse a message that ``may_take`` said no to: its body was not looked at. Where the sequence is there by now,
    the sender is told to come again."""
    receipt = Receipt()
    record = find(tx, arrival.sender, arrival.header.identifier, receipt)
    if record is None or record.value.state in ENDED:
        return accept(tx, arrival)
    receipt.no_room = "The sequence was not known yet when the message came."
    return receipt
