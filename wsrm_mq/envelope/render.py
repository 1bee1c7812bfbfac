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
    new_message_id,
)
from wsrm_mq.envelope.soap_fault import fault
from wsrm_mq.envelope.text import escape
from wsrm_mq.sequence.elements import (
    CloseSequence,
    EndpointReference,
    IncompleteSequenceBehavior,
    SequenceAcknowledgement,
    TerminateSequence,
)
from wsrm_mq.versions import AddressingVersion, RMVersion, SOAPVersion

__all__ = [
    "acknowledgement_header",
    "create_sequence_response",
    "ending_response",
    "fault",
    "new_message_id",
    "sequence_acknowledgement",
]

_VALUE: Final = "urn:the-value"
"""Stands for a value in an envelope that is rendered to be cut there."""


def acknowledgement_header(rm: RMVersion, acks: Iterable[SequenceAcknowledgement]) -> bytes:
    """A ``SequenceAcknowledgement`` header block for each of ``acks``; never mustUnderstand (D-ACK-026).

    An acknowledgement of nothing is ``None`` in 1.1 and no block at all in 1.0 (D-ACK-005, D-ACK-006).
    """
    return acknowledgements(rm, acks).encode()


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
