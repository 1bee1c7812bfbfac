"""Acknowledgements: what one says, when it may be put off, and those that AckRequested headers ask for."""

from __future__ import annotations

from collections.abc import Callable

from wsrm_mq.queue.arrival import Receipt, Sender
from wsrm_mq.queue.ending import apply_step
from wsrm_mq.queue.lookup import find
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.room import buffer_remaining
from wsrm_mq.sequence.elements import AckRequested, SequenceAcknowledgement
from wsrm_mq.sequence.inbound import receive
from wsrm_mq.sequence.states import Act
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

__all__ = ["acknowledged", "answer_ack_requested", "is_due"]


def acknowledged(record: SequenceRecord, policy: QueuePolicy, used: Callable[[], int]) -> SequenceAcknowledgement:
    """What an acknowledgement of this sequence says now, the room that is left too where ``policy`` wants that.
    ``used`` answers how many bytes of the store hold something."""
    said = record.value.acknowledgement()
    if not policy.tells_room:
        return said
    most = policy.room.max_store
    is_full = most is not None and used() >= most
    return said._replace(buffer_remaining=buffer_remaining(record, policy.bounds, policy.room, is_full=is_full))


def is_due(tx: Transaction, record: SequenceRecord, receipt: Receipt, interval: int) -> bool:
    """Whether an acknowledgement may not be put off: the last one is ``interval`` ms old (or older than the clock
    says: it was stepped back), or the source does not know what it has to know."""
    age = tx.now - record.acknowledged_at
    if 0 <= age < interval and receipt.act is Act.ACCEPT and receipt.outcome != "held":
        return False
    record.acknowledged_at = tx.now
    return True


def answer_ack_requested(
    tx: Transaction,
    sender: Sender,
    policy: QueuePolicy,
    requests: tuple[AckRequested, ...],
    receipt: Receipt,
    carried: str | None,
) -> None:
    """Answer each AckRequested once. One that fails does not stop the message it rides on (D-ACK-018)."""
    for identifier in dict.fromkeys(request.identifier for request in requests):
        if identifier == carried:
            continue
        answer = Receipt()
        record = find(tx, sender, identifier, answer)
        if record is not None:
            step = receive(record.value, AckRequested(identifier), tx.now)
            apply_step(tx, record, step)
            answer.fault = step.fault
        if record is None or answer.fault is not None:
            assert answer.fault is not None
            receipt.other_faults += (answer.fault,)
        else:
            receipt.others += (acknowledged(record, policy, lambda: tx.used_bytes),)
