"""For tests of services that use this package: requests as an RM Source writes them, answers read, and a
clock.

::

    source = EnvelopeFactory(WSRM_1_1)
    reply = Reply.parse(post(source.create_sequence(), source.content_type))
    post(source.message(reply.created.identifier, 1), source.content_type)

The factory writes whatever it is told: ``None`` leaves a part out, a string stands where a number is due, and
``headers`` is put into the Header as it is. The prefixes ``soap``, ``wsa`` and ``wsrm`` are declared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import uuid4

from lxml import etree

from wsrm_mq.versions import (
    ADDRESSING_VERSIONS,
    RM_VERSIONS,
    SOAP_VERSIONS,
    WSA_2005,
    WSRM_1_1,
    AddressingVersion,
    RMVersion,
    SOAPVersion,
)

__all__ = ["FRESH", "Ack", "Created", "EnvelopeFactory", "ManualClock", "Reply", "ReplyFault"]

FRESH: Final = "fresh"
"""As ``message_id``: a new one."""
_PUT: Final = '<p:put xmlns:p="urn:example:orders"><p:text>hello</p:text></p:put>'


class ManualClock:
    """Milliseconds since the epoch that pass only when told to; a negative step is a clock set back."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> int:
        self.now += milliseconds
        return self.now


@dataclass(frozen=True)
class EnvelopeFactory:
    """Writes requests in one combination of versions. Every method answers the bytes of an envelope."""

    rm: RMVersion = WSRM_1_1
    soap: SOAPVersion = SOAPVersion.SOAP_1_2
    addressing: AddressingVersion = WSA_2005
    to: str | None = "http://service.example/orders"

    @property
    def content_type(self) -> str:
        """For the Content-Type field; it names no action."""
        return f"{self.soap.media_type}; charset=utf-8"

    @property
    def anonymous(self) -> str:
        return self.addressing.anonymous

    @property
    def none(self) -> str:
        """The none address; 2004/08 has none of its own and gets that of 1.0."""
        return self.addressing.none or WSA_2005.none

    def having(self, **changes: Any) -> EnvelopeFactory:
        """The same factory with other versions or another ``to``."""
        return replace(self, **changes)

    def create_sequence(
        self,
        *,
        acks_to: str | None = "",
        expires: str | None = None,
        offer: str | None = None,
        offer_endpoint: str | None = "",
        message_id: str | None = FRESH,
        reply_to: str | None = "",
        headers: str = "",
        extra: str = "",
    ) -> bytes:
        """``acks_to``, ``offer_endpoint`` and ``reply_to``: an address, XML of an endpoint reference, ``""``
        for anonymous. ``offer`` is the identifier offered, ``extra`` more children of CreateSequence."""
        parts = []
        if acks_to is not None:
            parts.append(f"<wsrm:AcksTo>{self.endpoint(acks_to)}</wsrm:AcksTo>")
        if expires is not None:
            parts.append(f"<wsrm:Expires>{expires}</wsrm:Expires>")
        if offer is not None:
            parts.append(f"<wsrm:Offer><wsrm:Identifier>{offer}</wsrm:Identifier>")
            if offer_endpoint is not None and self.rm.has_incomplete_behavior:
                parts.append(f"<wsrm:Endpoint>{self.endpoint(offer_endpoint)}</wsrm:Endpoint>")
            parts.append("</wsrm:Offer>")
        body = f"<wsrm:CreateSequence>{''.join(parts)}{extra}</wsrm:CreateSequence>"
        return self.envelope(
            self.rm.action("CreateSequence"), body, message_id=message_id, reply_to=reply_to, headers=headers
        )

    def message(
        self,
        identifier: str | None,
        number: int | str | None,
        body: str = _PUT,
        *,
        action: str | None = "urn:example:orders/put",
        last: bool | str = False,
        ack_requested: bool = False,
        must_understand: bool = True,
        message_id: str | None = FRESH,
        reply_to: str | None = "none",
        headers: str = "",
    ) -> bytes:
        """A message of a sequence. ``last`` is the 1.0 marker; as a string, its content.

        ``reply_to`` is an address, ``"none"`` for one-way, ``""`` for anonymous.
        """
        sequence = self.sequence_header(identifier, number, last=last, must_understand=must_understand)
        if ack_requested:
            sequence += self.ack_requested_header(identifier)
        return self.envelope(action, body, message_id=message_id, reply_to=reply_to, headers=sequence + headers)

    def last_message(self, identifier: str, number: int, **options: Any) -> bytes:
        """The empty message of its own that ends a 1.0 sequence."""
        return self.message(identifier, number, "", action=self.rm.action("LastMessage"), last=True, **options)

    def ack_requested(self, *identifiers: str, **options: Any) -> bytes:
        """A stand-alone request for an acknowledgement."""
        blocks = "".join(self.ack_requested_header(identifier) for identifier in identifiers)
        options.setdefault("reply_to", "none")
        return self.envelope(self.rm.action("AckRequested"), "", headers=blocks, **options)

    def close(self, identifier: str | None, last_number: int | str | None = None, **options: Any) -> bytes:
        return self._ending("CloseSequence", identifier, last_number, **options)

    def terminate(self, identifier: str | None, last_number: int | str | None = None, **options: Any) -> bytes:
        return self._ending("TerminateSequence", identifier, last_number, **options)

    def _ending(self, local: str, identifier: str | None, last_number: int | str | None, **options: Any) -> bytes:
        children = "" if identifier is None else f"<wsrm:Identifier>{identifier}</wsrm:Identifier>"
        if last_number is not None:
            children += f"<wsrm:LastMsgNumber>{last_number}</wsrm:LastMsgNumber>"
        options.setdefault("reply_to", "")
        return self.envelope(self.rm.action(local), f"<wsrm:{local}>{children}</wsrm:{local}>", **options)

    def envelope(
        self,
        action: str | None,
        body: str = _PUT,
        *,
        message_id: str | None = FRESH,
        reply_to: str | None = None,
        headers: str = "",
        to: str | None = "",
        encoding: str = "utf-8",
    ) -> bytes:
        """Any message. ``to``: ``""`` is the factory's. An ``encoding`` other than UTF-8 is declared."""
        to = self.to if to == "" else to
        addressing = [
            f"<wsa:{local}>{value}</wsa:{local}>"
            for local, value in (
                ("Action", action),
                ("MessageID", uuid4().urn if message_id == FRESH else message_id),
                ("To", to),
                ("ReplyTo", None if reply_to is None else self.endpoint(reply_to)),
            )
            if value is not None
        ]
        declaration = "" if encoding == "utf-8" else f'<?xml version="1.0" encoding="{encoding}"?>'
        return (
            f'{declaration}<soap:Envelope xmlns:soap="{self.soap.namespace}"'
            f' xmlns:wsa="{self.addressing.namespace}" xmlns:wsrm="{self.rm.namespace}">'
            f"<soap:Header>{''.join(addressing)}{headers}</soap:Header>"
            f"<soap:Body>{body}</soap:Body></soap:Envelope>"
        ).encode(encoding)

    def sequence_header(
        self,
        identifier: str | None,
        number: int | str | None,
        *,
        last: bool | str = False,
        must_understand: bool = True,
    ) -> str:
        children = "" if identifier is None else f"<wsrm:Identifier>{identifier}</wsrm:Identifier>"
        if number is not None:
            children += f"<wsrm:MessageNumber>{number}</wsrm:MessageNumber>"
        if last is not False:
            children += f"<wsrm:LastMessage>{'' if last is True else last}</wsrm:LastMessage>"
        mandatory = ' soap:mustUnderstand="1"' if must_understand else ""
        return f"<wsrm:Sequence{mandatory}>{children}</wsrm:Sequence>"

    def ack_requested_header(self, identifier: str | None) -> str:
        child = "" if identifier is None else f"<wsrm:Identifier>{identifier}</wsrm:Identifier>"
        return f"<wsrm:AckRequested>{child}</wsrm:AckRequested>"

    def endpoint(self, address: str) -> str:
        """The content of an endpoint reference; text that begins with a tag is taken as it is."""
        if address.startswith("<"):
            return address
        address = {"": self.anonymous, "none": self.none}.get(address, address)
        return f"<wsa:Address>{address}</wsa:Address>"


class Ack(NamedTuple):
    """A SequenceAcknowledgement: ``ranges`` of (lower, upper) in the order written."""

    identifier: str
    ranges: tuple[tuple[int, int], ...] = ()
    final: bool = False
    none: bool = False


class Created(NamedTuple):
    """A CreateSequenceResponse: ``expires`` as written, ``accept`` the address of Accept/AcksTo."""

    identifier: str
    expires: str | None = None
    behavior: str | None = None
    accept: str | None = None


class ReplyFault(NamedTuple):
    """A SOAP fault of either version.

    ``code`` is the local name in the words of SOAP 1.2 (``Sender``, ``Receiver``, …); ``subcode`` the local
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
    """What an envelope says, as simple values. ``body`` is Body's first child, ``None`` for an empty one."""

    soap: SOAPVersion
    rm: RMVersion | None
    """The version of whatever RM element there is."""
    addressing: AddressingVersion | None
    action: str | None
    message_id: str | None
    relates_to: str | None
    to: str | None
    acks: tuple[Ack, ...]
    created: Created | None
    fault: ReplyFault | None
    body: Any

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
        """Raises ``ValueError`` for what is no SOAP envelope, ``lxml.etree.XMLSyntaxError`` for no XML."""
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
            created=_created(body),
            fault=_fault(soap, header, body),
            body=body,
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
