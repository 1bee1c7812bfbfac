"""Answers of a destination, as simple values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from lxml import etree

from wsrm_mq.versions import (
    ADDRESSING_VERSIONS,
    MAKE_CONNECTION_NAMESPACE,
    RM_VERSIONS,
    SOAP_VERSIONS,
    AddressingVersion,
    RMVersion,
    SOAPVersion,
)


class Ack(NamedTuple):
    """A SequenceAcknowledgement: ``ranges`` of (lower, upper) in the order written."""

    identifier: str
    ranges: tuple[tuple[int, int], ...] = ()
    final: bool = False
    none: bool = False


class Place(NamedTuple):
    """A Sequence header: the place of a message in a sequence. ``last``: it has the 1.0 marker."""

    identifier: str
    number: int
    last: bool = False


class Created(NamedTuple):
    """A CreateSequenceResponse: ``expires`` as written, ``accept`` the address of Accept/AcksTo."""

    identifier: str
    expires: str | None = None
    behavior: str | None = None
    accept: str | None = None


class ReplyFault(NamedTuple):
    """A SOAP fault of either version.

    ``code`` is the local name in the words of SOAP 1.2 (``RMSender``, ``Receiver``, …); ``subcode`` the local
    name of the RM or addressing fault wherever the version puts it, else empty, and ``namespace`` the one it
    is in.
    """

    code: str
    subcode: str
    namespace: str
    reason: str
    identifier: str | None = None
    max_number: int | None = None
    third: str = ""
    problem: str = ""
    """The header that ProblemHeaderQName names, without prefix."""


@dataclass(frozen=True)
class Reply:
    """The contents of an envelope, as simple values. ``body`` is Body's first child, ``None`` for an empty one."""

    soap: SOAPVersion
    rm: RMVersion | None
    """The version of whatever RM element there is."""
    addressing: AddressingVersion | None
    action: str | None
    message_id: str | None
    relates_to: str | None
    to: str | None
    acks: tuple[Ack, ...]
    sequence: Place | None
    """Its place in the sequence that was offered."""
    created: Created | None
    fault: ReplyFault | None
    body: Any
    pending: bool | None = None
    """The value of MessagePending; ``None`` without it."""

    @property
    def body_name(self) -> str | None:
        """Local name of ``body``."""
        return None if self.body is None else etree.QName(self.body).localname

    @property
    def ack(self) -> Ack:
        """The only acknowledgement."""
        (only,) = self.acks
        return only

    @classmethod
    def parse(cls, envelope: bytes) -> Reply:
        """Parse an envelope. Raises ``ValueError`` where it is no SOAP envelope, ``lxml.etree.XMLSyntaxError`` where it
        is no XML."""
        root = etree.fromstring(envelope, etree.XMLParser(resolve_entities=False, no_network=True))
        soap = SOAP_VERSIONS.get(etree.QName(root).namespace or "")
        if soap is None or etree.QName(root).localname != "Envelope":
            raise ValueError("not a SOAP envelope")
        rm = next((v for ns, v in RM_VERSIONS.items() if root.find(f".//{{{ns}}}*") is not None), None)
        header = root.find(f"{{{soap.namespace}}}Header")
        addressing = next(
            (v for ns, v in ADDRESSING_VERSIONS.items() if header is not None and _all(header, ns, "*")), None
        )
        body = root.find(f"{{{soap.namespace}}}Body/*")

        def text(local: str) -> str | None:
            return _text(header, f"{{{addressing.namespace}}}{local}") if addressing is not None else None

        return cls(
            soap=soap,
            rm=rm,
            addressing=addressing,
            action=text("Action"),
            message_id=text("MessageID"),
            relates_to=text("RelatesTo"),
            to=text("To"),
            acks=tuple(_ack(e) for ns in RM_VERSIONS for e in _all(header, ns, "SequenceAcknowledgement")),
            sequence=next((_place(e) for ns in RM_VERSIONS for e in _all(header, ns, "Sequence")), None),
            created=_created(body),
            fault=_fault(soap, header, body),
            body=body,
            pending=_pending(header),
        )


def _all(parent: Any, namespace: str, local: str) -> list[Any]:
    return [] if parent is None else parent.findall(f"{{{namespace}}}{local}")


def _text(parent: Any, path: str) -> str | None:
    found = None if parent is None else parent.find(path)
    return None if found is None else (found.text or "").strip()


def _ack(element: Any) -> Ack:
    ns = etree.QName(element).namespace
    ranges = ((int(e.get("Lower")), int(e.get("Upper"))) for e in _all(element, ns, "AcknowledgementRange"))
    final, none = (element.find(f"{{{ns}}}{local}") is not None for local in ("Final", "None"))
    return Ack(_text(element, f"{{{ns}}}Identifier") or "", tuple(ranges), final, none)


def _pending(header: Any) -> bool | None:
    found = None if header is None else header.find(f"{{{MAKE_CONNECTION_NAMESPACE}}}MessagePending")
    return None if found is None else found.get("pending") in ("1", "true")


def _place(element: Any) -> Place:
    ns = etree.QName(element).namespace
    last = element.find(f"{{{ns}}}LastMessage") is not None
    return Place(_text(element, f"{{{ns}}}Identifier") or "", int(_text(element, f"{{{ns}}}MessageNumber") or 0), last)


def _created(body: Any) -> Created | None:
    if body is None or etree.QName(body).localname != "CreateSequenceResponse":
        return None
    ns = etree.QName(body).namespace
    address = body.find(f"{{{ns}}}Accept/{{{ns}}}AcksTo/{{*}}Address")
    return Created(
        _text(body, f"{{{ns}}}Identifier") or "",
        _text(body, f"{{{ns}}}Expires"),
        _text(body, f"{{{ns}}}IncompleteSequenceBehavior"),
        None if address is None else address.text,
    )


def _fault(soap: SOAPVersion, header: Any, body: Any) -> ReplyFault | None:
    if body is None or body.tag != f"{{{soap.namespace}}}Fault":
        return None
    s = f"{{{soap.namespace}}}"
    if soap is SOAPVersion.SOAP_1_1:
        codes = [e for e in (body.find("faultcode"), header.find("{*}SequenceFault/{*}FaultCode")) if e is not None]
        reason = _text(body, "faultstring")
    else:
        values = (
            f"{s}Code/{s}Value",
            f"{s}Code/{s}Subcode/{s}Value",
            f"{s}Code/{s}Subcode/{s}Subcode/{s}Value",
        )
        codes = [e for e in map(body.find, values) if e is not None]
        reason = _text(body, f"{s}Reason/{s}Text")
    names = [_qname(e) for e in codes]
    own = [local for namespace, local in names if namespace == soap.namespace]
    others = [name for name in names if name[0] != soap.namespace]
    namespace, subcode = others[0] if others else ("", "")
    around = [e for e in (header, body) if e is not None]
    details = [e for parent in around for e in parent.iter("{*}SequenceFault", f"{s}Detail", "{*}FaultDetail")]

    def detail(local: str) -> str | None:
        return next((e.text.strip() for d in details for e in d.iter(f"{{*}}{local}") if e.text), None)

    maximum = detail("MaxMessageNumber")
    return ReplyFault(
        code={"Client": "Sender", "Server": "Receiver"}.get(own[0], own[0]) if own else "",
        subcode=subcode,
        namespace=namespace,
        reason=reason or "",
        identifier=detail("Identifier"),
        max_number=int(maximum) if maximum is not None else None,
        third=others[1][1] if len(others) > 1 else "",
        problem=(detail("ProblemHeaderQName") or "").rpartition(":")[2],
    )


def _qname(element: Any) -> tuple[str, str]:
    """(namespace, local name) of an element's QName value; an undeclared prefix raises ``KeyError``."""
    prefix, _, local = (element.text or "").strip().rpartition(":")
    return (element.nsmap[prefix] if prefix else element.nsmap.get(None) or "", local)


# A clock that stands still until it is told.


class ManualClock:
    """Milliseconds since the epoch that pass only when told to; a negative step is a clock set back."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> int:
        self.now += milliseconds
        return self.now
