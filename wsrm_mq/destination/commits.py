"""The verbs that are committed for a request, made of its headers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from wsrm_mq.delivery.outgoing_messages import own_message, with_end_of_outbound
from wsrm_mq.destination.checks import check_create, reply_endpoint_of, usable_offer
from wsrm_mq.destination.elsewhere import created_there
from wsrm_mq.destination.exchange import Commit, Forward, Request
from wsrm_mq.destination.reach import Reach
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.render import last_message
from wsrm_mq.queue.arrival import Arrival, Sender
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.lifecycle import lifecycle
from wsrm_mq.queue.outbound import acknowledged_with
from wsrm_mq.queue.sending import OutgoingMessage
from wsrm_mq.queue.unsequenced import accept_unsequenced
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import (
    CloseSequence,
    CreateSequence,
    EndpointReference,
    IncompleteSequenceBehavior,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.versions import UNSEQUENCED, WSA_2005, RMVersion

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
    return Commit(verb if to is None else partial(created_there, verb=verb, headers=headers, to=to), request)


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
