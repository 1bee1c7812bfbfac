"""The verbs that are committed for a request, made of its headers."""

from __future__ import annotations

from functools import partial
from typing import Final

from wsrm_mq.delivery.outgoing_messages import own_message, with_end_of_outbound
from wsrm_mq.destination.exchange import Commit, Forward, Request
from wsrm_mq.envelope import Headers, last_message
from wsrm_mq.queue.arrival import Arrival, Sender
from wsrm_mq.queue.lifecycle import lifecycle
from wsrm_mq.queue.outbound import acknowledged_with
from wsrm_mq.queue.sending import OutgoingMessage
from wsrm_mq.queue.unsequenced import accept_unsequenced
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import CloseSequence, EndpointReference, SequenceHeader, TerminateSequence
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
    """Have ``element`` and the AckRequested headers answered; ``then`` do with an application's message that carries
    them what is to be done."""
    asked = request.headers.ack_requested
    verb = partial(lifecycle, sender=sender, element=element, policy=request.peer.policy, ack_requested=asked)
    return Commit(verb, request, then=then)


def acknowledging(commit: Commit) -> Commit:
    """Have what the request acknowledges taken too, and what follows from it for an offered sequence."""
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
    """A one-way message without WS-RM is stored too, and gets its place among those of its connection."""
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
