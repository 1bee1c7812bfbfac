"""Takes what a destination says at an address of this side, or in answer to a MakeConnection: acknowledgements,
replies, the end of a sequence, faults.

Each is taken as it is on the response to a request. It is about the sequence that it names, or about that of the
request that it replies to, and about none that was not told this address (SEC-003).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from wsrm_mq.delivery.hearing import HandOver, tell_of_fault, tell_of_wrong
from wsrm_mq.delivery.outgoing_messages import with_end_of_outbound
from wsrm_mq.delivery.posted import Answered, Posted, read
from wsrm_mq.delivery.requesting import reply_in, tell_replied, with_taken
from wsrm_mq.envelope.fault import fault
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.render import ending, sequence_acknowledgement
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.arrival import Receipt
from wsrm_mq.queue.hearing import Said, hear
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.queue.requests import answered
from wsrm_mq.sequence.elements import CloseSequence, SequenceFault, TerminateSequence
from wsrm_mq.sequence.faults import UnknownSequence
from wsrm_mq.store import calls
from wsrm_mq.store import outbound as outbounds
from wsrm_mq.store.calls import Awaited
from wsrm_mq.store.channels import Channel
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import WSA_2005


class Told(NamedTuple):
    """The answer to a message that has come. ``content`` may be empty."""

    status: int
    content: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


class _Heard(NamedTuple):
    """The outcome of a message, as it is committed."""

    receipts: tuple[Receipt, ...]
    answer: bytes = b""
    is_fault: bool = False


class Arriving:
    """Takes messages for one process. ``hand_over`` does the work that each leaves."""

    def __init__(self, store: Store, policy_of: PolicyOf, events: Events, hand_over: HandOver) -> None:
        self._store = store
        self._policy_of = policy_of
        self._events = events
        self._hand_over = hand_over

    def posted(self, acks_to: str, message: Answered) -> Told:
        """Take what was posted to the address ``acks_to``. Raises ``StoreError``: then nothing of it is taken."""
        come = read(acks_to, message)
        if come.headers is None:
            self._events.tell("answer.unreadable", error=come.unreadable or f"{acks_to}: got what is no SOAP envelope")
            status = 415 if message.content and come.unreadable is None else 400
            return Told(status, b"Only SOAP messages are taken here.\n")
        return self.take(acks_to, come, come.headers)

    def take(self, acks_to: str, come: Posted, headers: Headers) -> Told:
        """Take a message that has come for the address ``acks_to``, with these ``headers``. Raises as ``posted``."""

        def committed(heard: _Heard) -> None:
            for receipt in heard.receipts:
                self._hand_over(receipt)
                tell_of_wrong(self._events, receipt)
                if isinstance(headers.body, SequenceFault):
                    tell_of_fault(self._events, headers.body, receipt)

        verb = partial(_heard, acks_to=acks_to, come=come, headers=headers, policy_of=self._policy_of)
        size = 0 if come.reply is None else len(come.reply.body)
        heard = self._store.call(verb, keep=True, size=size, committed=committed)
        if not heard.answer:
            return Told(202)
        return Told(500 if heard.is_fault else 200, heard.answer, f"{headers.soap.media_type}; charset=utf-8")


def _heard(tx: Transaction, acks_to: str, come: Posted, headers: Headers, policy_of: PolicyOf) -> _Heard:
    tx.write_lanes()
    receipts: list[Receipt] = []
    unknown: list[str] = []
    offering = _offering(tx, acks_to, headers)
    for identifier, said in _spoken(headers):
        about = tx.outbound_named(identifier)
        if about is not None and about.has_requests and about.principal == acks_to:
            receipts.append(_hear(tx, about, said, policy_of))
        elif offering is None or identifier != offering.offered:
            unknown.append(identifier)
    if headers.sequence is not None and offering is None:
        unknown.append(headers.sequence.identifier)
    elif come.reply is not None:
        receipts += _replied(tx, acks_to, come, policy_of)
        if offering is not None and headers.sequence is not None:
            tx.has_replied(offering, headers.sequence.number)
            if headers.ack_requested and not offering.value.terms.rm.is_fetched(acks_to):
                told = Receipt()
                told.sends = tell_replied(tx, offering)
                receipts.append(told)
    wrong = [one for receipt in receipts for one in receipt.wrong_acknowledgements]
    wrong += [UnknownSequence("The identifier is not that of a sequence known here.", one) for one in unknown]
    versions = headers.soap, headers.addressing or WSA_2005
    if wrong and not headers.is_fault:
        return _Heard(tuple(receipts), fault(wrong[0], *versions, headers.rm, headers.message_id), is_fault=True)
    answer, rm = b"", headers.rm
    acks = () if offering is None else offering.reply_acknowledgements
    if rm is not None and rm.has_close and isinstance(headers.body, CloseSequence | TerminateSequence):
        final = [one._replace(final=True) for one in acks]
        answer = ending(*versions, rm, headers.message_id, headers.body, final, is_response=True)
    elif rm is not None and acks:
        answer = sequence_acknowledgement(*versions, rm, acks)
    return _Heard(tuple(receipts), answer)


def _spoken(headers: Headers) -> Iterator[tuple[str, Said]]:
    """The parts of a message that are about sequences, each with the name of its sequence."""
    rm, body = headers.rm, headers.body
    if rm is None:
        return
    for one in headers.acknowledgements:
        yield one.identifier, Said(rm, acknowledgements=(one,))
    if isinstance(body, SequenceFault) and body.identifier is not None:
        yield body.identifier, Said(rm, fault=body)
    if isinstance(body, CloseSequence | TerminateSequence):
        yield body.identifier, Said(rm, element=body)


def _offering(tx: Transaction, acks_to: str, headers: Headers) -> OutboundRecord | None:
    """The sequence of requests that offers the one that it comes in, or is about."""
    named = [one.identifier for one in (headers.sequence, *headers.ack_requested) if one is not None]
    if isinstance(headers.body, CloseSequence | TerminateSequence):
        named.append(headers.body.identifier)
    found = (tx.execute(outbounds.OFFERING, {"identifier": one}).fetchone() for one in named)
    offering = (tx.outbound(row[0]) for row in found if row is not None)
    return next((one for one in offering if one is not None and one.principal == acks_to), None)


def _hear(tx: Transaction, about: OutboundRecord, said: Said, policy_of: PolicyOf) -> Receipt:
    assert about.endpoint is not None
    channel = Channel(about.endpoint, None, about.id)
    return with_end_of_outbound(tx, partial(hear, channel=channel, said=said, policy_of=policy_of))


def _replied(tx: Transaction, acks_to: str, come: Posted, policy_of: PolicyOf) -> Iterator[Receipt]:
    """Take the reply to a request that waits for it. One that comes again is for none."""
    row = tx.execute(calls.AWAITED, {"acks_to": acks_to, "message_id": come.relates_to}).fetchone()
    request = None if row is None else Awaited(*row)
    about = None if request is None else tx.outbound(request.outbound)
    if request is None or about is None:
        return
    reply = reply_in(come, about, come.relates_to, request.number)
    if reply is not None:
        answered(tx, about, request, reply)
        receipt = _hear(tx, about, with_taken(None, about, request.number), policy_of)
        receipt.acknowledged += (request.message,)
        yield receipt
