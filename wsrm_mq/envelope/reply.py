"""The reply of an application: missing addressing headers and acknowledgements are put in, and no other byte of it is
touched."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from xml.parsers import expat

from wsrm_mq.envelope.arrived_fault import FaultPass
from wsrm_mq.envelope.content import parse_content_type
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.multipart import envelope_in
from wsrm_mq.envelope.outline import NAME_SEPARATOR, expat_encoding, split_name
from wsrm_mq.envelope.render import addressing_elements, endpoint, parameter_headers
from wsrm_mq.envelope.spans import Document, Span, locate
from wsrm_mq.errors import EnvelopeError, WSRMError
from wsrm_mq.remembered import SMALL, Recent
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.sequence.faults import FaultCode
from wsrm_mq.versions import ADDRESSING_VERSIONS, SOAP_VERSIONS, AddressingVersion, SOAPVersion

_LIMITS: Final = Limits()
_TAG: Final = re.compile(r"<[^>]*>")
_BODY: Final = re.compile(rb"<(?:[\w.-]+:)?Body\b")
_PIECE: Final = 16 * 1024
_HEAD: Final = 1024 * 1024
"""Bytes in which the code of a fault stands."""
_FAULT_CODES: Final = {name: code for code in FaultCode for name in code.value}
_CODE_PATHS: Final = (["faultcode"], ["Code", "Value"])
_SUBCODE_PATH: Final = ["Code", "Subcode", "Value"]
_LAST_PLACES: Final = (["faultcode"], ["Code"], _SUBCODE_PATH)
"""Elements behind whose end no more of the code follows."""

HeaderPlace = tuple[int, str]
"""Where the header blocks of an envelope begin: offset into its bytes, and their codec."""


class ServiceFault(NamedTuple):
    whose: FaultCode
    code: str | None
    """As the service wrote it, without prefixes, and with the subcode of SOAP 1.2: ``Client.NoStock``,
    ``Sender.NoStock``. ``None``: it cannot be read."""


class NotAnEnvelope(WSRMError):
    """The application's reply is no SOAP envelope, so nothing can be added to it."""


def complete_reply(
    body: bytes,
    content_type: str,
    soap: SOAPVersion,
    addressing: AddressingVersion,
    relates_to: str | None,
    action: str,
    to: EndpointReference | None = None,
    reply_to: str | None = None,
    message_id: str | None = None,
) -> tuple[bytes, HeaderPlace]:
    """Put the addressing headers into ``body`` that it lacks (Action, MessageID, To with its parameters, RelatesTo, and
    ReplyTo where that is given). Answers the new body, and the place in it for more header blocks. ``to``: an
    addressable receiver; ``message_id``: the MessageID, a new one unless it is given.

    Raises ``NotAnEnvelope`` for a body that is no envelope of the version ``soap``.
    """
    document = _document(body, content_type)
    if document.spans[0].namespace != soap.namespace:
        raise NotAnEnvelope("The reply is not in the SOAP version of the request.")
    header = _header(document)
    present = {
        span.local
        for span in document.spans
        if header is not None and span.parent is header and span.namespace in ADDRESSING_VERSIONS
    }
    elements = addressing_elements(addressing, action, relates_to, to, message_id)
    if reply_to is not None:
        whole = endpoint(addressing, EndpointReference(reply_to))
        elements["ReplyTo"] = f'<ReplyTo xmlns="{addressing.namespace}">{whole}</ReplyTo>'
    missing = "".join(xml for local, xml in elements.items() if local not in present)
    if to is not None:
        missing += parameter_headers(addressing, to)
    return _inserted(document, header, missing)


def piggyback(body: bytes, content_type: str, fragment: bytes, place: HeaderPlace | None = None) -> bytes:
    """``body`` with ``fragment`` (of ``reply_headers``) as its first header blocks; ``place``, which
    ``complete_reply`` has answered for it, spares looking for them.

    Raises ``NotAnEnvelope``.
    """
    if place is not None:
        offset, codec = place
        return b"".join((body[:offset], _encoded(fragment.decode(), codec), body[offset:]))
    known = _beginnings.get(content_type)
    if known is not None and body.startswith(known[0]):
        beginning, codec = known
        return b"".join((beginning, _encoded(fragment.decode(), codec), body[len(beginning) :]))
    document = _document(body, content_type, into_header=False)
    header = _header(document)
    is_plain = header is not None and not header.is_self_closed and not parse_content_type(content_type).is_multipart
    if header is not None and is_plain and header.content <= SMALL:
        _beginnings.keep(content_type, (body[: header.content], document.codec))
    return _inserted(document, header, fragment.decode())[0]


def fault_in(body: bytes, content_type: str) -> ServiceFault | None:
    """The fault that the reply is; ``None`` if it is no SOAP fault, or no envelope.

    A code of the application's own is its deliberate answer to an error of the sender: the fault is ``SENDER``'s. A
    fault without a readable code is ``RECEIVER``'s.
    """
    try:
        offset, charset = _root(body, content_type)
    except NotAnEnvelope:
        return None
    first = body[offset : offset + 256]
    parser = expat.ParserCreate(expat_encoding(first, charset), NAME_SEPARATOR, None)
    fault = _ReplyFault(parser)
    try:
        for begin in range(offset, min(len(body), offset + _HEAD), _PIECE):
            parser.Parse(body[begin : begin + _PIECE], False)
    except (_Known, expat.ExpatError, LookupError, ValueError):
        pass
    return ServiceFault(fault.whose, fault.code) if fault.whose is not None else None


def excerpt(fault: bytes) -> str:
    """The words of a fault for people: the text of its Body without the tags."""
    body = _BODY.search(fault)
    begin = 0 if body is None else body.start()
    return " ".join(_TAG.sub(" ", fault[begin : begin + 4_000].decode("utf-8", "replace")).split())[:500]


_beginnings: Final[Recent[str, tuple[bytes, str]]] = Recent(256)
"""The bytes of the last envelope of a Content-Type up to the first header block, and their codec: most begin alike."""


class _Known(Exception):
    """Ends the pass."""


class _ReplyFault(FaultPass):
    """Looks for the code of a fault; ``whose`` is ``RECEIVER`` as soon as there is a fault at all."""

    def __init__(self, parser: expat.XMLParserType) -> None:
        super().__init__(parser)
        self.whose: FaultCode | None = None
        self.code: str | None = None
        parser.StartDoctypeDeclHandler = self._leave

    def _leave(self, *_: object) -> None:
        raise _Known

    def started(self) -> None:
        path = self.path
        if len(path) == 3 and split_name(path[1])[1] == "Body":
            namespace, local = split_name(path[2])
            if local != "Fault" or namespace not in SOAP_VERSIONS:
                raise _Known
            self.whose = FaultCode.RECEIVER

    def ended(self) -> None:
        path = self.path
        place = self.local_path[3:] if self.whose is not None else []
        if place in _CODE_PATHS:
            namespace, prefix, local = self.said_name
            is_of_soap = not prefix or namespace == split_name(path[2])[0]
            self.whose = _FAULT_CODES.get(local.partition(".")[0], FaultCode.SENDER) if is_of_soap else FaultCode.SENDER
            self.code = local or None
        elif place == _SUBCODE_PATH and self.code is not None:
            self.code = f"{self.code}.{self.said_name[-1]}"
        if place in _LAST_PLACES or (len(path) == 2 and split_name(path[1])[1] == "Body"):
            raise _Known


def _root(body: bytes, content_type: str) -> tuple[int, str | None]:
    """(offset, charset) of the envelope."""
    try:
        part = envelope_in(body, content_type, _LIMITS)
    except EnvelopeError as error:
        raise NotAnEnvelope(error.fault.reason) from None
    return part.offset, part.content.charset


def _document(body: bytes, content_type: str, *, into_header: bool = True) -> Document:
    offset, charset = _root(body, content_type)
    document = locate(body, charset, offset, into_header=into_header)
    if not document.spans or document.spans[0].local != "Envelope" or document.spans[0].namespace not in SOAP_VERSIONS:
        raise NotAnEnvelope("The reply is not a SOAP envelope.")
    if len(document.spans) == 1:
        raise NotAnEnvelope("The reply is an envelope without a Body.")
    return document


def _header(document: Document) -> Span | None:
    return next(
        (s for s in document.spans[1:2] if s.local == "Header" and s.namespace == document.spans[0].namespace), None
    )


def _inserted(document: Document, header: Span | None, xml: str) -> tuple[bytes, HeaderPlace]:
    envelope = document.spans[0]
    start = stop = envelope.content if header is None else header.content
    opening = closing = ""
    if header is None:
        opening, closing = f'<soap:Header xmlns:soap="{envelope.namespace}">', "</soap:Header>"
    elif header.is_self_closed:
        tag = document.text(header.start, header.content)
        name = tag[1:].split(maxsplit=1)[0].rstrip("/>")
        opening, closing = f"{tag.rstrip('>').rstrip('/')}>", f"</{name}>"
        start = header.start
    before = document.body[:start] + _encoded(opening, document.codec)
    inserted = _encoded(xml + closing, document.codec)
    return b"".join((before, inserted, document.body[stop:])), (len(before), document.codec)


def _encoded(xml: str, codec: str) -> bytes:
    return xml.encode(codec, "xmlcharrefreplace")
