"""The verbs that are committed for a request, made of its headers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from wsrm_mq.delivery.outgoing_messages import own_message, with_end_of_outbound
from wsrm_mq.destination import answers
from wsrm_mq.destination.answers import EMPTY, Answer
from wsrm_mq.destination.checks import Reach, check_create, reply_endpoint_of, usable_offer
from wsrm_mq.destination.exchange import Commit, Forward, Request
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.render import last_message
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.queue.arrival import Arrival, CreateReceipt, Receipt, Sender
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.lifecycle import lifecycle
from wsrm_mq.queue.outbound import acknowledged_with
from wsrm_mq.queue.polling import FetchReceipt, fetch
from wsrm_mq.queue.sending import OutgoingMessage, send
from wsrm_mq.queue.unsequenced import accept_unsequenced
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import (
    CloseSequence,
    CreateSequence,
    EndpointReference,
    IncompleteSequenceBehavior,
    MakeConnection,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.store.records import About, SequenceRecord
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import UNSEQUENCED, WSA_2005, RMVersion

# Answers that do not leave on the response to their request: they are stored with the change that they tell of, and
# sent.


def _created_there(
    tx: Transaction, verb: Callable[[Transaction], CreateReceipt], headers: Headers, to: EndpointReference
) -> CreateReceipt:
    """Create a sequence, and have the response sent (D-CRE-006)."""
    receipt = verb(tx)
    record = None if receipt.created is None else tx.sequence_named(receipt.created.terms.identifier)
    if record is not None:
        body = answers.created(receipt, headers, to).body
        receipt.sends += send(tx, record, own_message(to, body, headers.soap)).claims
        receipt.is_answered_elsewhere = True
    return receipt


def ended_there(
    tx: Transaction,
    verb: Callable[[Transaction], Receipt],
    element: CloseSequence | TerminateSequence,
    headers: Headers,
    to: EndpointReference,
) -> Receipt:
    """Close or terminate a sequence, and have the response sent (H-018). Its acknowledgement is put in when it leaves,
    where acknowledgements go there too."""
    receipt = verb(tx)
    if receipt.fault is not None or receipt.no_room:
        return receipt
    about: About | None = tx.sequence_named(element.identifier)
    if about is None and (outbound := tx.outbound_named(element.identifier)) is not None:
        about = outbound.about
    if about is not None:
        final = None if isinstance(about, SequenceRecord) and about.acks_to == to else receipt.acknowledgement
        body = answers.ended(final, headers, to=to).body
        receipt.sends += send(tx, about, own_message(to, body, headers.soap)).claims
        receipt.is_answered_elsewhere = True
    return receipt


_UNNUMBERED: Final = SequenceHeader("", 0)
"""Stands in an ``Arrival`` until the transaction has given it its place."""


def sender_of(request: Request, rm: RMVersion) -> Sender:
    return Sender(
        queue=request.client.queue,
        rm=rm,
        soap=request.headers.soap,
        addressing=request.headers.addressing or WSA_2005,
        principal=request.principal,
        peer=request.client.address,
        partner=request.peer.name,
    )


def asking(
    request: Request,
    sender: Sender,
    element: CloseSequence | TerminateSequence | None = None,
    then: Forward | faults.Fault | None = None,
) -> Commit:
    """Make the commit that answers ``element`` and the AckRequested headers. ``then`` is the rest to do with an
    application's message that carries them."""
    asked = request.headers.ack_requested
    verb = partial(lifecycle, sender=sender, element=element, policy=request.peer.policy, ack_requested=asked)
    return Commit(verb, request, then=then)


def creating(request: Request, sender: Sender, element: CreateSequence, reach: Reach, *, has_replies: bool) -> Commit:
    """Make the commit that creates a sequence. ``has_replies``: operations of the service may answer. Raises
    ``EnvelopeError`` for a request that this side cannot keep."""
    headers, policy, is_cxf = request.headers, request.peer.policy, request.stack == "cxf"
    check_create(element, headers, reach)
    is_held_as_a_whole = policy.behavior is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE  # then nothing replies
    offer = usable_offer(element, headers, reach) if has_replies and not is_held_as_a_whole else None
    if offer is not None and is_cxf and sender.rm.has_close:
        offer = replace(offer, endpoint=None)  # CXF fails over the end there, and takes it on a response
    verb = partial(
        create,
        sender=sender,
        request=replace(element, offer=offer),
        message_id=headers.message_id,
        policy=policy,
        ack_requested=headers.ack_requested,
        acks_with_reply=is_cxf,  # it sends no more once any response has acknowledged, though the reply was lost
    )
    to = reply_endpoint_of(headers)
    return Commit(verb if to is None else partial(_created_there, verb=verb, headers=headers, to=to), request)


def acknowledging(commit: Commit) -> Commit:
    """Add to a commit the acknowledgements of the request, and the changes of an offered sequence that follow from
    them."""
    headers = commit.request.headers
    assert headers.rm is not None
    is_alone = headers.action == headers.rm.action("SequenceAcknowledgement") and not headers.ack_requested
    verb = partial(
        acknowledged_with,
        verb=commit.verb,
        sender=sender_of(commit.request, headers.rm),
        acknowledgements=headers.acknowledgements,
        is_alone=is_alone,
    )
    return commit._replace(verb=partial(with_end_of_outbound, verb=verb))


def last_reply(headers: Headers, to: EndpointReference | None) -> OutgoingMessage:
    """The message that answers a LastMessage without a body, should it be the offered sequence's last message too.
    ``None``: on the response."""
    assert headers.rm is not None
    assert headers.addressing is not None
    body = last_message(headers.soap, headers.addressing, headers.rm, headers.message_id, to)
    content_type = f"{headers.soap.media_type}; charset=utf-8"
    if to is None:
        return OutgoingMessage(EndpointReference(headers.addressing.anonymous), "", "", content_type, body)
    return own_message(to, body, headers.soap)


def unsequenced(request: Request) -> Commit:
    """Make the commit that stores a one-way message without WS-RM, in its place among those of its connection."""
    client, headers = request.client, request.headers
    arrival = Arrival(
        sender=sender_of(request, UNSEQUENCED),
        header=_UNNUMBERED,
        message_id=headers.message_id,
        action=headers.action,
        environ=client.kept,
        connection=request.connection,
        body=request.body,
        policy=request.peer.policy,
        ack_requested=headers.ack_requested,
    )
    speaker = sender_of(request, headers.rm) if headers.ack_requested and headers.rm is not None else None
    return Commit(
        partial(accept_unsequenced, arrival=arrival, asking=speaker), request, request.body.size, arrival=arrival
    )


# MakeConnection: the messages that it may ask for, its answer, and the time when a message need not be asked for
# again.


class Fetching:
    """``is_waiting`` looks whether anything waits for an address, and ``left`` writes down that the message at a
    position is gone."""

    def __init__(self, is_waiting: Callable[[Sender, str], bool], left: Callable[[int], object]) -> None:
        self._is_waiting = is_waiting
        self._left = left

    def begin(self, request: Request, sender: Sender, element: MakeConnection) -> Answer | Commit:
        """Begin to answer a MakeConnection. Where nothing waits the answer is empty, whether the address is known or
        not (SEC-029)."""
        headers = request.headers
        check_selection(element, headers)
        address = element.address or ""
        if sender.rm.is_fetched(address) and self._is_waiting(sender, address):
            policy, asked = request.peer.policy, headers.ack_requested
            verb = partial(fetch, sender=sender, address=address, policy=policy, ack_requested=asked)
            return Commit(verb, request)
        return asking(request, sender) if headers.ack_requested or headers.acknowledgements else EMPTY

    def answer(self, receipt: FetchReceipt, headers: Headers) -> Answer:
        """The message that waited, or the acknowledgements alone."""
        found, element = receipt.fetched, headers.body
        assert isinstance(element, MakeConnection)
        if found is None:
            return answers.acknowledgement(headers, receipt.others, EndpointReference(element.address or ""))
        answer = answers.fetched(found)
        return answer if found.place is not None else self.leaving(answer, found.position)

    def leaving(self, answer: Answer, position: int) -> Answer:
        """``answer`` carries the message at ``position``, which is not numbered: gone is gone."""
        return answer._replace(left=partial(self._left, position))


def check_selection(element: MakeConnection, headers: Headers) -> None:
    """Raises ``EnvelopeError`` for anything but an Address, which alone the Reliable Secure Profile knows (MC-004,
    MC-005, RSP-006, RSP-007)."""
    if element.unsupported:
        named = ", ".join(local for _namespace, local in element.unsupported)
        reason = f"Messages are selected by Address only; this MakeConnection has {named}."
        raise EnvelopeError(faults.UnsupportedSelection(reason, elements=element.unsupported), headers)
    if element.address is None:
        raise EnvelopeError(faults.MissingSelection("MakeConnection has no Address to select messages by."), headers)
