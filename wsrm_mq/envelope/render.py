"""Everything a destination says, as bytes in UTF-8.

``to`` is the endpoint reference of an addressable receiver; without it the message is for the response of the
request (anonymous). ``relates_to`` is the request's MessageID, ``None`` if it had none.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from wsrm_mq.envelope.duration import render_duration
from wsrm_mq.envelope.fragments import (
    acknowledgements,
    addressing_headers,
    endpoint,
    envelope,
    message_pending,
    new_message_id,
    own_names,
    sequence_header,
)
from wsrm_mq.envelope.soap_fault import fault
from wsrm_mq.envelope.text import escape
from wsrm_mq.sequence.elements import (
    CloseSequence,
    EndpointReference,
    IncompleteSequenceBehavior,
    SequenceAcknowledgement,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.versions import AddressingVersion, RMVersion, SOAPVersion

__all__ = [
    "create_sequence_response",
    "ending",
    "ending_response",
    "fault",
    "fetched_headers",
    "last_message",
    "new_message_id",
    "own_names",
    "reply_headers",
    "sequence_acknowledgement",
]

_VALUE: Final = "urn:the-value"
"""Stands for a value in an envelope that is rendered to be cut there."""


def reply_headers(
    soap: SOAPVersion, rm: RMVersion, place: SequenceHeader | None, acks: Iterable[SequenceAcknowledgement]
) -> bytes:
    """The header blocks that a reply goes out with: its ``place`` in the offered sequence, and a
    ``SequenceAcknowledgement`` for each of ``acks``, never mustUnderstand (D-ACK-026).

    An acknowledgement of nothing is ``None`` in 1.1 and no block at all in 1.0 (D-ACK-005, D-ACK-006).
    """
    said = acknowledgements(rm, acks)
    return (said if place is None else sequence_header(soap, rm, place) + said).encode()


def fetched_headers(
    soap: SOAPVersion,
    rm: RMVersion,
    place: SequenceHeader | None,
    acks: Iterable[SequenceAcknowledgement],
    *,
    is_pending: bool,
) -> bytes:
    """Those of ``reply_headers``, and whether more waits to be fetched (MC-006)."""
    return reply_headers(soap, rm, place, acks) + message_pending(is_pending).encode()


def last_message(
    soap: SOAPVersion,
    addressing: AddressingVersion,
    rm: RMVersion,
    relates_to: str | None,
    to: EndpointReference | None = None,
) -> bytes:
    """The empty message that ends the offered sequence (1.0), but for its place there (``reply_headers``)."""
    return envelope(soap, addressing_headers(addressing, rm.action("LastMessage"), relates_to, to), "")


def sequence_acknowledgement(
    soap: SOAPVersion,
    addressing: AddressingVersion,
    rm: RMVersion,
    acks: Iterable[SequenceAcknowledgement],
    to: EndpointReference | None = None,
) -> bytes:
    """A stand-alone acknowledgement: the headers of ``acks`` and an empty Body (D-ACK-027). It relates to nothing: it
    is no reply, and a CXF client drops one that names a message it does not wait for."""
    if to is None:  # nearly every answer there is
        start, middle, end = _acknowledgement_around(soap, addressing, rm)
        return f"{start}{new_message_id()}{middle}{acknowledgements(rm, acks)}{end}".encode()
    headers = addressing_headers(addressing, rm.action("SequenceAcknowledgement"), None, to)
    return envelope(soap, headers + acknowledgements(rm, acks), "")


@lru_cache(64)
def _acknowledgement_around(soap: SOAPVersion, addressing: AddressingVersion, rm: RMVersion) -> list[str]:
    """What stands before, between and after MessageID and the acknowledgements of such an envelope."""
    action = rm.action("SequenceAcknowledgement")
    headers = addressing_headers(addressing, action, None, message_id=_VALUE)
    return envelope(soap, headers + _VALUE, "").decode().split(_VALUE)


def create_sequence_response(
    soap: SOAPVersion,
    addressing: AddressingVersion,
    rm: RMVersion,
    relates_to: str | None,
    identifier: str,
    *,
    expires: int | None = None,
    behavior: IncompleteSequenceBehavior | None = None,
    accept: EndpointReference | None = None,
    acks: Iterable[SequenceAcknowledgement] = (),
    to: EndpointReference | None = None,
) -> bytes:
    """``expires`` in milliseconds, left out for never; ``behavior`` is left out in 1.0, which has none
    (D-CRE-026).

    ``accept`` is the AcksTo of the accepted Offer, ``None`` without one.
    """
    body = [
        f'<wsrm:CreateSequenceResponse xmlns:wsrm="{rm.namespace}">'
        f"<wsrm:Identifier>{escape(identifier)}</wsrm:Identifier>"
    ]
    if expires is not None:
        body.append(f"<wsrm:Expires>{render_duration(expires)}</wsrm:Expires>")
    if behavior is not None and rm.has_incomplete_behavior:
        body.append(f"<wsrm:IncompleteSequenceBehavior>{behavior}</wsrm:IncompleteSequenceBehavior>")
    if accept is not None:
        body.append(f"<wsrm:Accept><wsrm:AcksTo>{endpoint(addressing, accept)}</wsrm:AcksTo></wsrm:Accept>")
    body.append("</wsrm:CreateSequenceResponse>")
    headers = addressing_headers(addressing, rm.action("CreateSequenceResponse"), relates_to, to)
    return envelope(soap, headers + acknowledgements(rm, acks), "".join(body))


def ending(
    soap: SOAPVersion,
    addressing: AddressingVersion,
    rm: RMVersion,
    relates_to: str | None,
    element: CloseSequence | TerminateSequence,
    acks: Iterable[SequenceAcknowledgement] = (),
    to: EndpointReference | None = None,
) -> bytes:
    """The end of a sequence, from this side: of one that is sent from here, or received (1.1)."""
    local = type(element).__name__
    headers = addressing_headers(addressing, rm.action(local), relates_to, to)
    number = element.last_number if rm.has_close else None
    last = "" if number is None else f"<wsrm:LastMsgNumber>{number}</wsrm:LastMsgNumber>"
    body = (
        f'<wsrm:{local} xmlns:wsrm="{rm.namespace}">'
        f"<wsrm:Identifier>{escape(element.identifier)}</wsrm:Identifier>{last}</wsrm:{local}>"
    )
    return envelope(soap, headers + acknowledgements(rm, acks), body)


def ending_response(
    soap: SOAPVersion,
    addressing: AddressingVersion,
    rm: RMVersion,
    relates_to: str | None,
    ending: CloseSequence | TerminateSequence,
    acks: Iterable[SequenceAcknowledgement] = (),
    to: EndpointReference | None = None,
) -> bytes:
    """The response to ``ending``, with the final acknowledgement as a header: WCF breaks off without it."""
    local = f"{type(ending).__name__}Response"
    headers = addressing_headers(addressing, rm.action(local), relates_to, to)
    body = (
        f'<wsrm:{local} xmlns:wsrm="{rm.namespace}">'
        f"<wsrm:Identifier>{escape(ending.identifier)}</wsrm:Identifier></wsrm:{local}>"
    )
    return envelope(soap, headers + acknowledgements(rm, acks), body)
