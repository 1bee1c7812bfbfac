"""The sequence that a source offers with its own: replies get their numbers there, acknowledgements are taken, it ends.

A reply to a source without an address leaves on the response to its own request, as often as that comes. On another one
it would be taken for the answer to that (WCF), or drop the acknowledgement that it came for (CXF). One that is sent or
fetched is an entry of its own (``queue.sending``), until its number is acknowledged here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from wsrm_mq.queue.arrival import Receipt, Sender
from wsrm_mq.queue.numbered import acknowledged, give_up, is_sent, wanted
from wsrm_mq.sequence.elements import (
    CloseSequence,
    Offer,
    SequenceAcknowledgement,
    SequenceFault,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.sequence.faults import Fault, UnknownSequence
from wsrm_mq.sequence.outbound import Input, NewMessage, OutboundSequence, OutboundStep, OutboundTerms, Own, take
from wsrm_mq.sequence.outbound_states import OutboundState
from wsrm_mq.sequence.states import ENDED
from wsrm_mq.store.outgoing import Outgoing
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

R = TypeVar("R", bound=Receipt)


def accept_offer(
    tx: Transaction,
    record: SequenceRecord,
    sender: Sender,
    offer: Offer,
    max_expires: int,
    *,
    acks_with_reply: bool = False,
) -> bool:
    """Have the replies to a new sequence go out in the one that was offered with it; answers whether they do. A name
    that is known already is no name for it (SEC-033), unless its source offers it anew before it was used: the response
    to its first CreateSequence was lost."""
    earlier = answered_by(tx, sender, offer.identifier)
    if earlier is not None and earlier.peer == sender.peer and _is_unused(earlier):
        tx.drop_outgoing(earlier)
    lifetime = min(offer.expires or max_expires, max_expires)
    terms = OutboundTerms(offer.identifier, record.value.terms.rm, tx.now + lifetime)
    is_on_responses = offer.endpoint is None or offer.endpoint.address == sender.addressing.anonymous
    endpoint = None if is_on_responses else offer.endpoint
    return tx.add_outgoing(record, Outgoing(OutboundSequence(terms), None, endpoint, acks_with_reply))


def _is_unused(record: SequenceRecord) -> bool:
    """Neither a message nor a word about its replies has come."""
    assert record.outgoing is not None
    offered = record.outgoing.value
    return not record.value.received and offered.is_open and not (offered.given or offered.last_number)


def number_reply(tx: Transaction, record: SequenceRecord, *, is_last: bool) -> SequenceHeader | None:
    """A place for a reply in the offered sequence; ``None`` where there is none. It is given in the transaction that
    stores the reply, so it is given once."""
    return None if record.outgoing is None else _step(tx, record, NewMessage(is_last)).header


def acknowledged_with(
    tx: Transaction,
    verb: Callable[[Transaction], R],
    sender: Sender,
    acknowledgements: tuple[SequenceAcknowledgement, ...],
    *,
    is_alone: bool = False,
) -> R:
    """Take what a request acknowledges, then do what it is about. What is wrong with the one does not stop the other
    (S-ACK-014). ``is_alone``: it is about nothing else, so its response has room for the end of an offered sequence."""
    wrong: list[Fault] = []
    terminates = None
    for said in acknowledgements:
        record = answered_by(tx, sender, said.identifier)
        if record is not None:
            was_open = is_open(record)
            told = said if may_end(record, sender) else said._replace(final=False)
            fault = take_outgoing(tx, record, told).fault
            wrong += [] if fault is None else [fault]
            if (is_alone and _is_ended_here(record)) or (was_open and is_ended_there(record)):
                terminates = end_of(record)
        elif said.ranges or said.nacks:  # Metro says of an offer that was declined that it has received nothing
            unknown = "The identifier is not that of a sequence sent from here."
            wrong.append(UnknownSequence(unknown, said.identifier))
    receipt = verb(tx)
    receipt.wrong_acknowledgements = tuple(wrong)
    receipt.terminates = receipt.terminates or terminates
    receipt.needs_watch = receipt.needs_watch or any(said.nacks for said in acknowledgements)
    return receipt


def answered_by(tx: Transaction, sender: Sender, identifier: str) -> SequenceRecord | None:
    """The inbound sequence whose replies go out in the one of this name, if ``sender`` may speak of it (SEC-003)."""
    record = tx.answered_by(identifier)
    if record is None or record.principal != sender.principal or record.value.terms.rm is not sender.rm:
        return None
    return record if record.queue == tx.queue_named(sender.queue) and tx.serves(record.queue) else None


def may_end(record: SequenceRecord, sender: Sender) -> bool:
    """Whether ``sender`` may end the offered sequence: without a principal only the address that has created it. What
    it acknowledges counts from any: a source that has moved, or is many nodes, would get its replies for ever."""
    return record.principal is not None or record.peer == sender.peer


def take_outgoing(
    tx: Transaction,
    record: SequenceRecord,
    said: SequenceAcknowledgement | CloseSequence | TerminateSequence | SequenceFault,
) -> OutboundStep:
    """Take what the source says of the sequence that it has offered."""
    step = _step(tx, record, said)
    if step.released:
        acknowledged(tx, record, step.released)
    if step.wanted:
        wanted(tx, record, step.wanted)
    if record.value.state in ENDED:
        end_outgoing(tx, record)
    return step


def end_outgoing(tx: Transaction, record: SequenceRecord) -> None:
    """The inbound sequence has ended: the offered one ends when it is acknowledged, unless replies are to come that are
    sent. Whether its TerminateSequence arrives changes nothing here (S-TRM-003). Where replies leave on
    responses, no more of them do: it stays until it is acknowledged, or is forgotten with the inbound one
    (D-TRM-014). What is sent in requests of this side's own goes on."""
    assert record.outgoing is not None
    if record.is_unsettled and (record.outgoing.endpoint is not None or is_sent(tx, record)):
        return
    if record.outgoing.value.is_acknowledged:
        _step(tx, record, Own.TERMINATE)
    if record.outgoing.value.is_acknowledged or not is_sent(tx, record):
        _step(tx, record, Own.CHANNEL_ENDED)


def end_of(record: SequenceRecord) -> TerminateSequence:
    """What terminates the offered sequence (S-TRM-001)."""
    assert record.outgoing is not None
    offered = record.outgoing.value
    return TerminateSequence(offered.terms.identifier, offered.given or None)


def is_open(record: SequenceRecord) -> bool:
    """Whether there is an offered sequence that has not ended."""
    return record.outgoing is not None and record.outgoing.value.is_open


def is_answered_with_end(record: SequenceRecord, element: CloseSequence | TerminateSequence) -> bool:
    """Whether the end of the inbound sequence is answered with that of the offered one: in 1.0, where it has no
    response of its own."""
    has_no_response = isinstance(element, TerminateSequence) and not record.value.terms.rm.has_close
    return has_no_response and _is_ended_here(record)


def is_ended_there(record: SequenceRecord) -> bool:
    """Whether the offered sequence has ended, as it was acknowledged, and that is to be told to its endpoint."""
    return _is_over(record) and record.outgoing is not None and record.outgoing.endpoint is not None


def _is_ended_here(record: SequenceRecord) -> bool:
    """The same, where it can be told on a response. WCF and Metro expect it there, in 1.0; CXF tells it so."""
    return _is_over(record) and record.outgoing is not None and record.outgoing.endpoint is None


def _is_over(record: SequenceRecord) -> bool:
    """1.0 terminates only what has a last message."""
    if record.outgoing is None or record.value.state not in ENDED:
        return False
    outgoing = record.outgoing.value
    has_last = outgoing.last_number is not None or not outgoing.terms.rm.has_last_message
    return has_last and outgoing.is_acknowledged and outgoing.state is OutboundState.TERMINATED


def _step(tx: Transaction, record: SequenceRecord, event: Input) -> OutboundStep:
    assert record.outgoing is not None
    before = record.outgoing.value
    step = take(before, event, tx.reached)
    if step.sequence != before:
        record.outgoing = record.outgoing.follow(step.sequence, tx.now)
    left = step.sequence.unacknowledged
    is_closed_now = step.sequence.state is OutboundState.CLOSED and before.state is not OutboundState.CLOSED
    if left and (step.in_doubt or is_closed_now):  # nothing of it leaves again (S-RET-012)
        give_up(tx, record)
        tx.ledger("replies_in_doubt", record, reason=f"not acknowledged: {left} of {before.terms.identifier}")
    return step
