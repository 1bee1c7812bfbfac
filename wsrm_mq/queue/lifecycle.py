"""What a source says about its sequences outside of their messages: their end, a request for an acknowledgement, a
fault. Each in one transaction."""

from __future__ import annotations

from typing import Final

from wsrm_mq.queue.acknowledgement import answer_ack_requested
from wsrm_mq.queue.arrival import EndReceipt, Receipt, Sender
from wsrm_mq.queue.ending import apply_step
from wsrm_mq.queue.lookup import find, look_around
from wsrm_mq.queue.offered import (
    answered_by,
    end_of,
    is_answered_with_end,
    is_ended_there,
    is_open,
    may_end,
    take_outgoing,
)
from wsrm_mq.queue.ownership import take
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.stepping import step_of
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import AckRequested, CloseSequence, SequenceFault, TerminateSequence
from wsrm_mq.sequence.states import ENDED, Act
from wsrm_mq.store import entries, queues
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

_CODES: Final = frozenset(
    (
        faults.SequenceTerminated.subcode,
        faults.UnknownSequence.subcode,
        "InvalidAcknowledgement",
        faults.MessageNumberRollover.subcode,
        faults.LastMessageNumberExceeded.subcode,
        faults.SequenceClosed.subcode,
    )
)
"""Of the faults about a sequence. Only these are written down: a sender who makes up others costs nothing."""


def lifecycle(
    tx: Transaction,
    sender: Sender,
    element: CloseSequence | TerminateSequence | None,
    policy: QueuePolicy,
    ack_requested: tuple[AckRequested, ...] = (),
) -> EndReceipt:
    """CloseSequence, TerminateSequence, or AckRequested alone."""
    receipt = EndReceipt()
    identifier = element.identifier if element is not None else None
    if element is not None:
        record = find(tx, sender, element.identifier, receipt)
        if record is not None:
            was_open = is_open(record)
            _end(tx, record, element, receipt)
            receipt.acknowledgement = record.value.acknowledgement()
            if is_answered_with_end(record, element) or (was_open and is_ended_there(record)):
                receipt.terminates = end_of(record)
        elif (answered := answered_by(tx, sender, element.identifier)) is not None and may_end(answered, sender):
            take_outgoing(tx, answered, element)
            receipt.fault = None
    answer_ack_requested(tx, sender, policy, ack_requested, receipt, identifier)
    return receipt


def take_fault(tx: Transaction, sender: Sender, arrived: SequenceFault) -> Receipt:
    """Take a fault that a source sends about a sequence of its own: one that says it is gone ends it (F-025, F-026),
    any other is written down, once for a sequence and code. Of other sequences it changes nothing (F-029)."""
    receipt = Receipt()
    if arrived.identifier is None or arrived.code not in _CODES:
        receipt.fault = faults.UnknownSequence("The fault names no sequence, or is none of WS-ReliableMessaging.")
        return receipt
    record = find(tx, sender, arrived.identifier, receipt)
    if record is None:
        return _about_replies(tx, sender, arrived, arrived.identifier, receipt)
    if record.value.state in ENDED:
        return receipt
    step = step_of(tx, record, arrived)
    said = {"sequence": record.id, "event": "fault_received", "reason": arrived.code}
    if step.act is Act.END or tx.execute(queues.IN_LEDGER, said).fetchone() is None:
        tx.ledger("fault_received", record, reason=arrived.code)
    apply_step(tx, record, step, reason=f"the source sent {arrived.code}")
    receipt.act = step.act
    receipt.claim = take(tx, record)
    look_around(tx, record, receipt)
    return receipt


def _about_replies(
    tx: Transaction, sender: Sender, arrived: SequenceFault, identifier: str, receipt: Receipt
) -> Receipt:
    """Take a fault about the sequence that the source has offered, if it is that."""
    record = answered_by(tx, sender, identifier)
    if record is None or not may_end(record, sender):
        return receipt
    receipt.fault, receipt.act = None, Act.IGNORE
    if not is_open(record):
        return receipt
    take_outgoing(tx, record, arrived)
    reason = f"{arrived.code}, about {identifier}"
    said = {"sequence": record.id, "event": "fault_received", "reason": reason}
    if tx.execute(queues.IN_LEDGER, said).fetchone() is None:
        tx.ledger("fault_received", record, reason=reason)
    return receipt


def _end(
    tx: Transaction, record: SequenceRecord, element: CloseSequence | TerminateSequence, receipt: EndReceipt
) -> None:
    step = step_of(tx, record, element)
    running = max((upper for _lower, upper in record.value.unnamed), default=None)
    apply_step(tx, record, step)
    receipt.act, receipt.fault = step.act, step.fault
    if running is not None and step.act in (Act.CLOSE, Act.TERMINATE):
        found = tx.execute(entries.ENTRY_BY_NUMBER, {"lane": record.id, "number": running}).fetchone()
        if found is not None and found[1] is None and running < record.value.deliver_below:
            receipt.unfinished = found[0]
            tx.execute(entries.SET_WAITER, {"key": found[0], "waiter": tx.instance_name})
    receipt.claim = take(tx, record)
    look_around(tx, record, receipt)
