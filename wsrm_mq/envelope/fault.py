"""Any fault of ``sequence.faults`` as a SOAP message (WS-RM 1.1, section 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from wsrm_mq.envelope.lexical import escape, escape_attribute
from wsrm_mq.envelope.render import acknowledgements, addressing_headers, envelope
from wsrm_mq.sequence.elements import EndpointReference, SequenceAcknowledgement
from wsrm_mq.sequence.faults import (
    Fault,
    FaultCode,
    FaultFamily,
    InvalidAcknowledgement,
    MessageNumberRollover,
    NotUnderstood,
    UnsupportedSelection,
)
from wsrm_mq.versions import (
    MAKE_CONNECTION,
    SOAP_VERSIONS,
    WSA_2004,
    WSRM_1_1,
    AddressingVersion,
    RMVersion,
    SOAPVersion,
)

_WITHOUT_DETAIL: Final = (WSA_2004,)
"""Addressing versions whose faults have neither a third-level code nor ProblemHeaderQName."""

_PREFIXES: Final = {
    FaultFamily.RM: "wsrm",
    FaultFamily.ADDRESSING: "wsa",
    FaultFamily.MAKE_CONNECTION: "wsmc",
    FaultFamily.SOAP: "",
}
"""The prefix of the subcode, by family."""
_XML: Final = "http://www.w3.org/XML/1998/namespace"
"""Bound to the prefix xml, and to no other."""
_NO_URI: Final = re.compile(r"""[\x00-\x20\x7f-\x9f"<>\\^`{|}\u2028\u2029]""")

_UPGRADE: Final = "<soap:Upgrade>{}</soap:Upgrade>".format(
    "".join(f'<soap:SupportedEnvelope qname="e:Envelope" xmlns:e="{ns}"/>' for ns in reversed(SOAP_VERSIONS))
)


def fault(
    fault: Fault,
    soap: SOAPVersion,
    addressing: AddressingVersion | None,
    rm: RMVersion | None,
    relates_to: str | None,
    acks: Iterable[SequenceAcknowledgement] = (),
    to: EndpointReference | None = None,
) -> bytes:
    """Render a fault as a message.

    Without ``addressing`` the message has no addressing headers, unless the fault is one that needs a version: then it
    is the first that goes with ``rm``. Without ``rm`` an RM fault is in the namespace of 1.1.
    """
    rm = rm or WSRM_1_1
    version = addressing or rm.addressings[0]
    headers = ""
    if addressing is not None or fault.family is not FaultFamily.SOAP:
        headers = addressing_headers(version, _action(fault, version, rm), relates_to, to)
    subcode, detail = _subcode(fault, version), _detail(fault, version, rm)
    # Prefixes inside values need a declaration around them; elements of detail make their own.
    prefixes = f'xmlns:wsrm="{rm.namespace}" xmlns:wsa="{version.namespace}"'
    if fault.family is FaultFamily.MAKE_CONNECTION:
        prefixes += f' xmlns:wsmc="{MAKE_CONNECTION.namespace}"'
    if soap is SOAPVersion.SOAP_1_1:
        headers += _detail_header(fault, subcode, detail, version, rm)
        body = _soap_1_1(fault, subcode, detail, version, prefixes)
    else:
        headers += _soap_1_2_headers(fault)
        body = _soap_1_2(fault, subcode, detail, version, prefixes)
    return envelope(soap, headers + acknowledgements(rm, acks), body)


def _action(fault: Fault, addressing: AddressingVersion, rm: RMVersion) -> str:
    match fault.family:
        case FaultFamily.RM:
            return rm.fault_action(addressing)
        case FaultFamily.ADDRESSING:
            return addressing.fault_action
        case FaultFamily.MAKE_CONNECTION:
            return MAKE_CONNECTION.fault_action
        case FaultFamily.SOAP:
            return addressing.soap_fault_action


def _subcode(fault: Fault, addressing: AddressingVersion) -> str:
    """The subcode as a QName, empty for none."""
    local = {"HeaderRequired": addressing.header_required, "InvalidHeader": addressing.invalid_header}.get(
        fault.subcode, fault.subcode
    )
    prefix = _PREFIXES[fault.family]
    return f"{prefix}:{local}" if prefix else ""


def _detail(fault: Fault, addressing: AddressingVersion, rm: RMVersion) -> str:
    """The detail elements, each with its own declarations (F-001 to F-009)."""
    if isinstance(fault, InvalidAcknowledgement) and fault.said is not None:
        said = acknowledgements(rm, (fault.said,))
        if said:
            return said
    if fault.is_header_fault and fault.identifier is not None:
        detail = _element(rm, "Identifier", fault.identifier)
        if isinstance(fault, MessageNumberRollover) and rm.has_close:
            detail += _element(rm, "MaxMessageNumber", str(fault.max_number))
        return detail
    if isinstance(fault, UnsupportedSelection):
        return "".join(_unsupported(*name) for name in fault.elements)
    problem = getattr(fault, "header", "")
    if problem and addressing not in _WITHOUT_DETAIL:
        return (
            f'<wsa:ProblemHeaderQName xmlns:wsa="{addressing.namespace}">wsa:{escape(problem)}</wsa:ProblemHeaderQName>'
        )
    return ""


def _element(rm: RMVersion, local: str, text: str) -> str:
    return f'<wsrm:{local} xmlns:wsrm="{rm.namespace}">{escape(text)}</wsrm:{local}>'


def _unsupported(namespace: str, local: str) -> str:
    """An UnsupportedElement; empty for a name that cannot be written, as in ``_not_understood``."""
    if _NO_URI.search(namespace):
        return ""
    prefix, declaration = ("n:", f' xmlns:n="{escape_attribute(namespace)}"') if namespace else ("", "")
    start = f'<wsmc:UnsupportedElement xmlns:wsmc="{MAKE_CONNECTION.namespace}"{declaration}>'
    return f"{start}{prefix}{escape(local)}</wsmc:UnsupportedElement>"


def _detail_header(fault: Fault, subcode: str, detail: str, addressing: AddressingVersion, rm: RMVersion) -> str:
    """SOAP 1.1 keeps the detail of header errors out of its Fault: it travels in a header block."""
    if fault.is_header_fault:
        if rm.wraps_fault_detail and detail:
            detail = f"<wsrm:Detail>{detail}</wsrm:Detail>"
        return (
            f'<wsrm:SequenceFault xmlns:wsrm="{rm.namespace}">'
            f"<wsrm:FaultCode>{subcode}</wsrm:FaultCode>{detail}</wsrm:SequenceFault>"
        )
    if fault.family is FaultFamily.ADDRESSING and detail:
        return f'<wsa:FaultDetail xmlns:wsa="{addressing.namespace}">{detail}</wsa:FaultDetail>'
    return ""


def _third(fault: Fault, addressing: AddressingVersion) -> str:
    """The third-level code as a QName, empty for none."""
    local = getattr(fault, "detail_code", "") if addressing not in _WITHOUT_DETAIL else ""
    return f"wsa:{escape(local)}" if local else ""


def _soap_1_1(fault: Fault, subcode: str, detail: str, addressing: AddressingVersion, prefixes: str) -> str:
    """Render a Fault of SOAP 1.1. It has room for one code: the most particular, as JAX-WS does it. Its detail is about
    the element in Body."""
    particular = "" if fault.is_header_fault else _third(fault, addressing) or subcode
    code = particular or f"soap:{fault.blame.value[1]}"
    of_body = detail if fault.family is FaultFamily.MAKE_CONNECTION else ""
    return (
        f"<soap:Fault {prefixes}><faultcode>{code}</faultcode>"
        f'<faultstring xml:lang="en">{escape(fault.reason)}</faultstring>'
        + f"<detail>{of_body}</detail>" * bool(of_body)
        + "</soap:Fault>"
    )


def _soap_1_2(fault: Fault, subcode: str, detail: str, addressing: AddressingVersion, prefixes: str) -> str:
    third = _third(fault, addressing)
    third = f"<soap:Subcode><soap:Value>{third}</soap:Value></soap:Subcode>" if third else ""
    second = f"<soap:Subcode><soap:Value>{subcode}</soap:Value>{third}</soap:Subcode>" if subcode else ""
    code = f"<soap:Code><soap:Value>soap:{fault.blame.value[0]}</soap:Value>{second}</soap:Code>"
    return (
        f"<soap:Fault {prefixes}>{code}"
        f'<soap:Reason><soap:Text xml:lang="en">{escape(fault.reason)}</soap:Text></soap:Reason>'
        + f"<soap:Detail>{detail}</soap:Detail>" * bool(detail)
        + "</soap:Fault>"
    )


def _soap_1_2_headers(fault: Fault) -> str:
    if isinstance(fault, NotUnderstood):
        return "".join(_not_understood(*name) for name in fault.headers)
    return _UPGRADE if fault.blame is FaultCode.VERSION_MISMATCH else ""


def _not_understood(namespace: str, local: str) -> str:
    """A NotUnderstood element for a header block; empty for a name that cannot be written, as parsers refuse a
    namespace that is no URI."""
    if namespace in ("", _XML):
        prefix = "xml:" if namespace else ""
        return f'<soap:NotUnderstood qname="{prefix}{escape_attribute(local)}"/>'
    if _NO_URI.search(namespace):
        return ""
    return f'<soap:NotUnderstood qname="n:{escape_attribute(local)}" xmlns:n="{escape_attribute(namespace)}"/>'
