"""Verbs for what a source says about its sequences outside of their messages: their end, a request for an
acknowledgement, a fault. Each is one transaction."""

from __future__ import annotations

from typing import Final

from wsrm_mq.queue.acknowledgement import answer_ack_requested
from wsrm_mq.queue.arrival import EndReceipt, Receipt, Sender, find, look_around
from wsrm_mq.queue.ending import apply_step, step_of
from wsrm_mq.queue.outbound import end_of, hear_of, is_answered_with_end, is_ended_there, may_end, spoken_of, told_with
from wsrm_mq.queue.ownership import take
from wsrm_mq.queue.policy import QueuePolicy
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
"""The codes of faults about a sequence. Only these are written down: a sender who makes up others costs nothing."""


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
            outbound = record.outbound
            was_open = outbound is not None and outbound.value.is_open
            _end(tx, record, element, receipt)
            receipt.acknowledgement = record.value.acknowledgement()
            if outbound is not None and (
                is_answered_with_end(outbound, element) or (was_open and is_ended_there(outbound))
            ):
                receipt.terminates = end_of(outbound)
        elif (outbound := spoken_of(tx, sender, element.identifier)) is not None and may_end(outbound, sender):
            hear_of(tx, outbound, element)
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
        return _about_outbound(tx, sender, arrived, arrived.identifier, receipt)
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


def _about_outbound(
    tx: Transaction, sender: Sender, arrived: SequenceFault, identifier: str, receipt: Receipt
) -> Receipt:
    """Take a fault about an outbound sequence, if it is that."""
    outbound = spoken_of(tx, sender, identifier)
    if outbound is None or not may_end(outbound, sender):
        return receipt
    receipt.fault, receipt.act = None, Act.IGNORE
    if not outbound.value.is_open:
        return receipt
    hear_of(tx, outbound, arrived)
    lane = told_with(tx, outbound)
    reason = f"{arrived.code}, about {identifier}"
    said = {"sequence": None if lane is None else lane.id, "event": "fault_received", "reason": reason}
    if tx.execute(queues.IN_LEDGER, said).fetchone() is None:
        tx.ledger("fault_received", lane, reason=reason)
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
        if found is not None and found[1] is None and running < record.deliver_below:
            receipt.unfinished = found[0]
            tx.execute(entries.SET_WAITER, {"key": found[0], "waiter": tx.instance_name})
    receipt.claim = take(tx, record)
    look_around(tx, record, receipt)
