"""The parts that every message of ours is made of, as text.

RM and addressing elements declare their own namespace, so that each can be put into an envelope with whatever
prefixes. Children come in the schema's order (NS-008).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

from wsrm_mq.envelope.text import escape
from wsrm_mq.sequence.elements import EndpointReference, SequenceAcknowledgement
from wsrm_mq.versions import WSA_2004, AddressingVersion, RMVersion, SOAPVersion

__all__ = ["acknowledgements", "addressing_headers", "endpoint", "envelope", "new_message_id"]

_UNMARKED: Final = (WSA_2004,)
"""Versions without IsReferenceParameter."""
_ELEMENT_NAME: Final = re.compile(r"<[^\s/>]+")


def new_message_id() -> str:
    """A fresh ``urn:uuid:`` (A-014); from ``os.urandom``, so forked workers never repeat one."""
    octets = bytearray(os.urandom(16))
    octets[6] = octets[6] & 0x0F | 0x40
    octets[8] = octets[8] & 0x3F | 0x80
    digits = octets.hex()
    return f"urn:uuid:{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def envelope(soap: SOAPVersion, headers: str, body: str) -> bytes:
    """``headers`` and ``body`` are XML that declares every prefix but ``soap``."""
    return (
        f'<soap:Envelope xmlns:soap="{soap.namespace}"><soap:Header>{headers}</soap:Header>'
        f"<soap:Body>{body}</soap:Body></soap:Envelope>"
    ).encode()


def addressing_headers(
    addressing: AddressingVersion,
    action: str,
    relates_to: str | None,
    to: EndpointReference | None = None,
    message_id: str | None = None,
) -> str:
    """Action, MessageID (a new one without ``message_id``), To, RelatesTo, and the parameters of ``to``."""
    open_tag = f'xmlns="{addressing.namespace}">'
    related = f"<RelatesTo {open_tag}{escape(relates_to)}</RelatesTo>" if relates_to else ""
    address = addressing.anonymous if to is None else escape(to.address)
    echoed = "".join(_echoed(addressing, parameter) for parameter in to.parameters) if to is not None else ""
    return (
        f"<Action {open_tag}{escape(action)}</Action>"
        f"<MessageID {open_tag}{escape(message_id or new_message_id())}</MessageID>"
        f"<To {open_tag}{address}</To>{related}{echoed}"
    )


def _echoed(addressing: AddressingVersion, parameter: str) -> str:
    """A reference parameter as a header block (A-008, A-009); the prefix is one that nobody else would
    choose."""
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


def acknowledgements(rm: RMVersion, acks: Iterable[SequenceAcknowledgement]) -> str:
    """A ``SequenceAcknowledgement`` header block for each of ``acks``; never mustUnderstand (D-ACK-026).

    An acknowledgement of nothing is ``None`` in 1.1 and no block at all in 1.0 (D-ACK-005, D-ACK-006).
    """
    return "".join([_acknowledgement(rm, ack) for ack in acks])


def _acknowledgement(rm: RMVersion, ack: SequenceAcknowledgement) -> str:
    ranges = "".join(
        [
            f'<wsrm:AcknowledgementRange Lower="{lower}" Upper="{upper}"/>'
            for lower, upper in sorted(ack.ranges)
        ]
    )
    if ack.nacks:
        ranges, final = "".join([f"<wsrm:Nack>{number}</wsrm:Nack>" for number in ack.nacks]), ""
    else:
        final = "<wsrm:Final/>" if ack.final and rm.has_none else ""
    if not ranges:
        if not rm.has_none:
            return ""
        ranges = "<wsrm:None/>"
    return (
        f'<wsrm:SequenceAcknowledgement xmlns:wsrm="{rm.namespace}">'
        f"<wsrm:Identifier>{escape(ack.identifier)}</wsrm:Identifier>{ranges}{final}</wsrm:SequenceAcknowledgement>"
    )
