"""Acknowledgements: what one says, when it may be put off, and those that AckRequested headers ask for; and gaps that
stay open: the ledger tells of each once, and its source may be asked for what is missing.

Nothing else follows from a gap: what is held stays held, and is delivered when the gap is filled (Q-052).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain, islice
from typing import Final, NamedTuple

from wsrm_mq.queue.arrival import Receipt, Sender, find
from wsrm_mq.queue.ending import apply_step, step_of
from wsrm_mq.queue.policy import PolicyOf, QueuePolicy
from wsrm_mq.queue.room import buffer_remaining
from wsrm_mq.sequence.elements import AckRequested, EndpointReference, SequenceAcknowledgement
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.sequence.states import Act, State
from wsrm_mq.sequence.terms import Terms
from wsrm_mq.store.channels import ACKS_DUE
from wsrm_mq.store.entries import ANSWERED_WITH
from wsrm_mq.store.lanes import GAP_OPEN
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.port import Database
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

_COLLECTED_FOR: Final = 200
"""How long acknowledgements are collected that are sent by themselves, in ms, where no interval is configured."""
_UNCONFIRMED: Final = 1_000
"""The number of the newest replies that are looked at for an acknowledgement: more callers than a client has."""


def acknowledged(
    db: Database, record: SequenceRecord, policy: QueuePolicy, used: Callable[[], int], number: int | None = None
) -> SequenceAcknowledgement:
    """The acknowledgement of this sequence as it is now, on the response to its message ``number`` or on another one;
    the room that is left too where ``policy`` wants that. ``used`` answers how many bytes of the store hold
    something."""
    said = record.value.acknowledgement()
    if record.outbound is not None and (unconfirmed := _unconfirmed(db, record, record.outbound)):
        own = AckRanges() if number is None else AckRanges.of((number,))
        said = said._replace(ranges=AckRanges(said.ranges).without(unconfirmed.without(own)).ranges)
    if not policy.tells_room:
        return said
    most = policy.room.max_store
    is_full = most is not None and used() >= most
    return said._replace(buffer_remaining=buffer_remaining(record, policy.bounds, policy.room, is_full=is_full))


def _unconfirmed(db: Database, record: SequenceRecord, outbound: OutboundRecord) -> AckRanges:
    """The numbers that only the response with their reply tells, as that is not acknowledged: a source that was told of
    them elsewhere would not ask for a reply that was lost."""
    if not outbound.acks_with_reply or record.value.state is not State.CREATED:
        return AckRanges()
    newest = AckRanges(((max(1, outbound.value.given - _UNCONFIRMED + 1), max(1, outbound.value.given)),))
    numbers = outbound.value.unacknowledged.within(newest) if outbound.value.is_open else AckRanges()
    if not numbers:
        return numbers
    row = {"outbound": outbound.id, "numbers": json.dumps(numbers.ranges)}
    return AckRanges.of(number for (number,) in db.execute(ANSWERED_WITH, row))


def is_due(tx: Transaction, record: SequenceRecord, receipt: Receipt, interval: int) -> bool:
    """Whether an acknowledgement may not be put off: the last one is ``interval`` ms old (or older than the clock
    says: it was stepped back), or the source does not know what it has to know."""
    age = tx.now - record.acknowledged_at
    if 0 <= age < interval and receipt.act is Act.ACCEPT and receipt.outcome != "held":
        return False
    record.acknowledged_at = tx.now
    return True


def fall_due(tx: Transaction, record: SequenceRecord, receipt: Receipt, policy: QueuePolicy, *, asked: bool) -> None:
    """An acknowledgement is to be sent to where this sequence has them sent: at once where the source asks, or does not
    know what it has to know (D-ACK-024), else with what else comes in the interval (D-ACK-023)."""
    interval = _COLLECTED_FOR if policy.acknowledgement_interval is None else policy.acknowledgement_interval
    due_at = tx.now if asked or receipt.outcome == "held" else tx.now + interval
    if record.ack_due_at is None or due_at < record.ack_due_at or record.ack_due_at > tx.now + interval:
        record.ack_due_at = due_at
        receipt.needs_watch = True


class DueAcknowledgement(NamedTuple):
    """One that is sent by itself, and where to."""

    about: int
    """Key of the sequence."""
    who: str | None
    """Its sender."""
    to: EndpointReference
    terms: Terms
    said: SequenceAcknowledgement


def due_elsewhere(tx: Transaction, policy_of: PolicyOf, count: int) -> list[DueAcknowledgement]:
    """Take up to ``count`` acknowledgements that are to be sent now, and whose host is not left alone. One that is
    lost on its way is not sent again: the next one says the same (D-ACK-025), and a source that waits for it sends its
    messages again."""
    tx.write_lanes()
    due = []
    for (key,) in tx.execute(ACKS_DUE, {"now": tx.now, "count": count, "foreign": tx.foreign()}).fetchall():
        record = tx.sequence(key)
        if record is None or record.acks_to is None:
            continue
        left_alone = tx.left_alone(record.acks_to.address, record.sender, 0.0)
        if left_alone is not None:
            record.ack_due_at = tx.now + round(left_alone.seconds * 1000)
            continue
        record.ack_due_at = None
        said = acknowledged(tx.db, record, policy_of(record.partner), lambda: tx.used_bytes)
        if said.ranges or record.value.terms.rm.has_none:
            due.append(DueAcknowledgement(key, record.sender, record.acks_to, record.value.terms, said))
    return due


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
            step = step_of(tx, record, AckRequested(identifier))
            apply_step(tx, record, step)
            answer.fault = step.fault
        if answer.fault is not None:
            receipt.other_faults += (answer.fault,)
        elif record is None:
            continue  # it is another application's: its source asks again
        elif record.acks_to is not None:
            fall_due(tx, record, receipt, policy, asked=True)
        else:
            receipt.others += (acknowledged(tx.db, record, policy, lambda: tx.used_bytes),)


_MOST_ASKED: Final = 128
"""The most numbers that are asked for at a time: the first ones."""


def tell_gaps(tx: Transaction, keys: list[int]) -> list[DueAcknowledgement]:
    """Write down what the sequences of these keys wait for. Those that have an address for acknowledgements are to be
    asked for it."""
    nacks = []
    for key in keys:
        record = tx.sequence(key)
        if record is None or not record.held or record.value.state is not State.CREATED:
            continue
        value = record.value
        first = max(value.limit, value.expected)
        missing = AckRanges(((first, value.received.highest),)).without(value.received)
        if not missing:
            continue
        tx.ledger(GAP_OPEN, record, number=first, reason=f"missing {missing}")
        if record.acks_to is not None:
            numbers = chain.from_iterable(range(lower, upper + 1) for lower, upper in missing)
            said = SequenceAcknowledgement(value.terms.identifier, nacks=tuple(islice(numbers, _MOST_ASKED)))
            nacks.append(DueAcknowledgement(key, record.sender, record.acks_to, value.terms, said))
    return nacks
