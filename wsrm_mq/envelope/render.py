"""The messages of a destination, as bytes in UTF-8, and their parts, as text; ``envelope.fault`` makes its faults.

``to`` is the endpoint reference of an addressable receiver; without it the message is for the response of the request
(anonymous). ``relates_to`` is the request's MessageID, ``None`` if it had none.

RM and addressing elements declare their own namespace, so that each can be put into an envelope with any prefixes.
Children come in the schema's order (NS-008).
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from wsrm_mq.envelope.lexical import escape, render_duration
from wsrm_mq.sequence.elements import (
    CloseSequence,
    EndpointReference,
    IncompleteSequenceBehavior,
    SequenceAcknowledgement,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.versions import (
    FLOW_NAMESPACE,
    MAKE_CONNECTION_NAMESPACE,
    WSA_2004,
    AddressingVersion,
    RMVersion,
    SOAPVersion,
)

_UNMARKED: Final = (WSA_2004,)
"""Versions without IsReferenceParameter."""
_BUFFER_REMAINING: Final = f'<netrm:BufferRemaining xmlns:netrm="{FLOW_NAMESPACE}">{{}}</netrm:BufferRemaining>'
_OWN_NAMES: Final = re.compile(b'<Action xmlns="[^"]*">([^<]*)</Action><MessageID xmlns="[^"]*">([^<]*)</MessageID>')
_60_BITS: Final = 2**60 - 1
_KNOWN_SEQUENCES: Final = 4_096
_ELEMENT_NAME: Final = re.compile(r"<[^\s/>]+")
_VALUE: Final = "urn:the-value"
"""Stands for a value in an envelope that is rendered to be cut there."""


def reply_headers(
    soap: SOAPVersion, rm: RMVersion, place: SequenceHeader | None, acks: Iterable[SequenceAcknowledgement]
) -> bytes:
    """Render the header blocks of a reply: its ``place`` in the offered sequence, and a ``SequenceAcknowledgement`` for
    each of ``acks``, never mustUnderstand (D-ACK-026).

    An acknowledgement of nothing is ``None`` in 1.1 and no block at all in 1.0 (D-ACK-005, D-ACK-006).
    """
    said = acknowledgements(rm, acks)
    return (said if place is None else sequence_header(soap, rm, place) + said).encode()


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
    """The text before, between and after MessageID and the acknowledgements of such an envelope."""
    action = rm.action("SequenceAcknowledgement")
    headers = addressing_headers(addressing, action, None, message_id=_VALUE)
    return envelope(soap, headers + _VALUE, "").decode().split(_VALUE)


def create_sequence(
    soap: SOAPVersion,
    addressing: AddressingVersion,
    rm: RMVersion,
    to: EndpointReference,
    message_id: str,
    expires: int,
    offered: str | None = None,
    acks_to: str | None = None,
) -> bytes:
    """Render a CreateSequence whose response is to leave on that of HTTP, as its acknowledgements are without
    ``acks_to`` (S-CRE-001, S-CRE-003); ``expires`` in milliseconds. ``offered``: the identifier of a sequence for
    replies, whose endpoint is ``acks_to`` too (S-CRE-004, S-CRE-013)."""
    anonymous = endpoint(addressing, EndpointReference(addressing.anonymous))
    there = endpoint(addressing, EndpointReference(acks_to or addressing.anonymous))
    headers = addressing_headers(addressing, rm.action("CreateSequence"), None, to, message_id)
    lifetime = f"<wsrm:Expires>{render_duration(expires)}</wsrm:Expires>"
    offer = ""
    if offered is not None:
        place = f"<wsrm:Endpoint>{there}</wsrm:Endpoint>" if rm.has_close else ""
        offer = f"<wsrm:Offer><wsrm:Identifier>{offered}</wsrm:Identifier>{place}{lifetime}</wsrm:Offer>"
    body = (
        f'<wsrm:CreateSequence xmlns:wsrm="{rm.namespace}"><wsrm:AcksTo>{there}</wsrm:AcksTo>'
        f"{lifetime}{offer}</wsrm:CreateSequence>"
    )
    return envelope(soap, f'{headers}<ReplyTo xmlns="{addressing.namespace}">{anonymous}</ReplyTo>', body)


def make_connection(
    soap: SOAPVersion, addressing: AddressingVersion, rm: RMVersion, to: EndpointReference, address: str
) -> bytes:
    """Ask for a message to ``address`` that waits at ``to`` (WS-MakeConnection 1.1 §3.2)."""
    assert rm.make_connection is not None
    headers = addressing_headers(addressing, rm.make_connection.action, None, to)
    namespace = rm.make_connection.namespace
    wanted = f"<wsmc:Address>{escape(address)}</wsmc:Address>"
    return envelope(soap, headers, f'<wsmc:MakeConnection xmlns:wsmc="{namespace}">{wanted}</wsmc:MakeConnection>')


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
    """Render a CreateSequenceResponse. ``expires`` in milliseconds, left out for never; ``behavior`` is left out in
    1.0, which has none (D-CRE-026).

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
    *,
    is_response: bool = False,
) -> bytes:
    """Render the message by which this side ends a sequence, one that is sent from here or received (1.1); or the
    response to ``element``, with the final acknowledgement as a header: WCF breaks off without it."""
    local = type(element).__name__ + "Response" * is_response
    headers = addressing_headers(addressing, rm.action(local), relates_to, to)
    number = element.last_number if rm.has_close and not is_response else None
    last = "" if number is None else f"<wsrm:LastMsgNumber>{number}</wsrm:LastMsgNumber>"
    body = (
        f'<wsrm:{local} xmlns:wsrm="{rm.namespace}">'
        f"<wsrm:Identifier>{escape(element.identifier)}</wsrm:Identifier>{last}</wsrm:{local}>"
    )
    return envelope(soap, headers + acknowledgements(rm, acks), body)


# the parts


class _Ids:
    """Ids of one process: random digits of its own, and a number. Asking the system for each would give up the
    interpreter's lock each time."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        digits = os.urandom(8).hex()
        self.start = f"urn:uuid:{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-{secrets.choice('89ab')}"
        self.numbers = itertools.count(secrets.randbits(56))


_ids = _Ids(0)


def new_message_id() -> str:
    """A fresh ``urn:uuid:`` (A-014): unique, not secret. A forked worker never repeats one."""
    global _ids
    if _ids.pid != os.getpid():
        _ids = _Ids(os.getpid())
    number = f"{next(_ids.numbers) & _60_BITS:015x}"
    return f"{_ids.start}{number[:3]}-{number[3:]}"


def envelope(soap: SOAPVersion, headers: str, body: str) -> bytes:
    """Render an envelope. ``headers`` and ``body`` are XML that declares every prefix but ``soap``."""
    return (
        f'<soap:Envelope xmlns:soap="{soap.namespace}"><soap:Header>{headers}</soap:Header>'
        f"<soap:Body>{body}</soap:Body></soap:Envelope>"
    ).encode()


def addressing_elements(
    addressing: AddressingVersion,
    action: str,
    relates_to: str | None,
    to: EndpointReference | None = None,
    message_id: str | None = None,
) -> dict[str, str]:
    """Action, MessageID (a new one unless it is given), To (anonymous without ``to``) and RelatesTo, if any, by local
    name."""
    recipient = addressing.anonymous if to is None else to.address
    elements = {
        "Action": _constant("Action", addressing, action),
        "MessageID": f'<MessageID xmlns="{addressing.namespace}">{message_id or new_message_id()}</MessageID>',
        "To": _constant("To", addressing, recipient),
    }
    if relates_to:
        elements["RelatesTo"] = f'<RelatesTo xmlns="{addressing.namespace}">{escape(relates_to)}</RelatesTo>'
    return elements


@lru_cache(256)
def _constant(local: str, addressing: AddressingVersion, value: str) -> str:
    """An element that many messages have: there are few actions and few recipients."""
    return f'<{local} xmlns="{addressing.namespace}">{escape(value)}</{local}>' if value else ""


def addressing_headers(
    addressing: AddressingVersion,
    action: str,
    relates_to: str | None,
    to: EndpointReference | None = None,
    message_id: str | None = None,
) -> str:
    """The header blocks of ``addressing_elements``, and the parameters of ``to``."""
    headers = "".join(addressing_elements(addressing, action, relates_to, to, message_id).values())
    return headers if to is None else headers + parameter_headers(addressing, to)


def own_names(envelope: bytes) -> tuple[str, str]:
    """MessageID and Action of an envelope that was rendered here, with ``addressing_headers``: it need not be scanned,
    as its form is known. Neither has a character that is escaped."""
    found = _OWN_NAMES.search(envelope)
    assert found is not None
    action, message_id = found.groups()
    return message_id.decode(), action.decode()


def parameter_headers(addressing: AddressingVersion, to: EndpointReference) -> str:
    """The parameters of ``to`` as header blocks."""
    return "".join([_echoed(addressing, parameter) for parameter in to.parameters])


def _echoed(addressing: AddressingVersion, parameter: str) -> str:
    """A reference parameter as a header block (A-008, A-009), under a prefix that no sender chooses."""
    if addressing in _UNMARKED:
        return parameter
    name = _ELEMENT_NAME.match(parameter)
    cut = name.end() if name else 0
    mark = f' xmlns:wsa-of-wsrm="{addressing.namespace}" wsa-of-wsrm:IsReferenceParameter="true"'
    return parameter[:cut] + mark + parameter[cut:]


def endpoint(addressing: AddressingVersion, reference: EndpointReference) -> str:
    """The content of an element that is an endpoint reference."""
    parameters = "".join(reference.parameters)
    return f'<Address xmlns="{addressing.namespace}">{escape(reference.address)}</Address>' + (
        f'<wsa:ReferenceParameters xmlns:wsa="{addressing.namespace}">{parameters}</wsa:ReferenceParameters>'
    ) * bool(parameters)


def sequence_header(soap: SOAPVersion, rm: RMVersion, header: SequenceHeader) -> str:
    """The ``Sequence`` header block, which has to be understood (S-SND-002)."""
    last = "<wsrm:LastMessage/>" if header.last else ""
    return (
        f'<wsrm:Sequence xmlns:wsrm="{rm.namespace}" xmlns:soap="{soap.namespace}" soap:mustUnderstand="1">'
        f"<wsrm:Identifier>{escape(header.identifier)}</wsrm:Identifier>"
        f"<wsrm:MessageNumber>{header.number}</wsrm:MessageNumber>{last}</wsrm:Sequence>"
    )


def ack_requested(rm: RMVersion, identifier: str) -> bytes:
    """The ``AckRequested`` header block, which in 1.0 too has no other child (S-SND-011)."""
    said = f"<wsrm:Identifier>{escape(identifier)}</wsrm:Identifier>"
    return f'<wsrm:AckRequested xmlns:wsrm="{rm.namespace}">{said}</wsrm:AckRequested>'.encode()


def acknowledgement_request(
    soap: SOAPVersion, addressing: AddressingVersion, rm: RMVersion, identifier: str, to: EndpointReference
) -> bytes:
    """The message that asks for an acknowledgement, and says nothing else."""
    headers = addressing_headers(addressing, rm.action("AckRequested"), None, to)
    return envelope(soap, headers + ack_requested(rm, identifier).decode(), "")


def message_pending(is_pending: bool) -> bytes:
    """The ``MessagePending`` header block of a message that was fetched: whether more waits to be
    (WS-MakeConnection 1.1 §3.3, MC-006)."""
    said = "true" if is_pending else "false"
    return f'<wsmc:MessagePending xmlns:wsmc="{MAKE_CONNECTION_NAMESPACE}" pending="{said}"/>'.encode()


def acknowledgements(rm: RMVersion, acks: Iterable[SequenceAcknowledgement]) -> str:
    """A ``SequenceAcknowledgement`` header block for each of ``acks``; never mustUnderstand (D-ACK-026).

    An acknowledgement of nothing is ``None`` in 1.1 and no block at all in 1.0 (D-ACK-005, D-ACK-006).
    """
    blocks = []
    for ack in acks:
        said = ""
        for lower, upper in () if ack.nacks else sorted(ack.ranges):
            said += f'<wsrm:AcknowledgementRange Lower="{lower}" Upper="{upper}"/>'
        for number in ack.nacks:
            said += f"<wsrm:Nack>{number}</wsrm:Nack>"
        if not said:
            if not rm.has_none:
                continue
            said = "<wsrm:None/>"
        if ack.final and rm.has_none and not ack.nacks:
            said += "<wsrm:Final/>"
        if ack.buffer_remaining is not None:
            said += _BUFFER_REMAINING.format(ack.buffer_remaining)
        blocks.append(f"{_acknowledgement_start(rm, ack.identifier)}{said}</wsrm:SequenceAcknowledgement>")
    return "".join(blocks)


@lru_cache(_KNOWN_SEQUENCES)
def _acknowledgement_start(rm: RMVersion, identifier: str) -> str:
    return (
        f'<wsrm:SequenceAcknowledgement xmlns:wsrm="{rm.namespace}">'
        f"<wsrm:Identifier>{escape(identifier)}</wsrm:Identifier>"
    )
