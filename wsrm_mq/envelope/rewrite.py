"""Envelopes that are not written anew: header blocks are taken out or switched off in a request, and put into a reply.

Only the bytes of the header blocks in question change. Everything else stays as it came, so that a signature
over Body, and over every other header, still holds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.lexical import WHITE_SPACE
from wsrm_mq.envelope.outline import Document, Enough, FaultPass, Span, feed, locate, split_name
from wsrm_mq.envelope.render import addressing_elements, endpoint, parameter_headers
from wsrm_mq.envelope.stream import Limits, codec_of, envelope_in, parse_content_type
from wsrm_mq.errors import EnvelopeError, WSRMError
from wsrm_mq.remembered import SMALL, Recent
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.sequence.faults import FaultCode
from wsrm_mq.versions import ADDRESSING_VERSIONS, RM_VERSIONS, SOAP_VERSIONS, AddressingVersion, SOAPVersion

_OFF: Final = {"1": "0", "true": "false"}
_ATTRIBUTE: Final = re.compile(r"""\s([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")


class _Edit(NamedTuple):
    start: int
    stop: int
    replacement: bytes


def demote(body: bytes, headers: Headers) -> bytes:
    """``body`` with mustUnderstand switched off on the header blocks of WS-RM and WS-Addressing."""
    document = locate(body, headers.charset, headers.offset)
    ours = {*RM_VERSIONS, *ADDRESSING_VERSIONS}
    blocks = (block for block in _header_blocks(document) if block.namespace in ours)
    return _edited(body, [edit for block in blocks for edit in _switched_off(document, block, headers)])


def strip(body: bytes, headers: Headers) -> bytes:
    """``body`` without the header blocks of WS-RM."""
    document = locate(body, headers.charset, headers.offset)
    return cut(body, (block for block in _header_blocks(document) if block.namespace in RM_VERSIONS))


def _header_blocks(document: Document) -> Iterator[Span]:
    """The complete header blocks."""
    for span in document.spans:
        header = span.parent
        is_block = header is not None and header.parent is document.spans[0] and header.local == "Header"
        if is_block and span.stop >= 0:
            yield span


def cut(body: bytes, spans: Iterable[Span]) -> bytes:
    """``body`` without ``spans``, which are in ascending order and do not overlap."""
    return _edited(body, [_Edit(span.start, span.stop, b"") for span in spans])


def _switched_off(document: Document, block: Span, headers: Headers) -> Iterator[_Edit]:
    tag = document.text(block.start, block.content)
    names = {f"{prefix}:mustUnderstand" for prefix, ns in block.inner.items() if ns == headers.soap.namespace}
    for attribute in _ATTRIBUTE.finditer(tag):
        name, quoted = attribute.groups()
        value = quoted[1:-1].strip(WHITE_SPACE)
        if name in names and value in _OFF:
            before = tag[: attribute.start(2) + quoted.index(value)]
            start = block.start + len(before.encode(document.codec))
            yield _Edit(start, start + len(value.encode(document.codec)), _OFF[value].encode(document.codec))


def _edited(body: bytes, edits: list[_Edit]) -> bytes:
    """``edits`` are in ascending order and do not overlap. The body is copied once."""
    whole = memoryview(body)
    pieces: list[bytes | memoryview] = []
    position = 0
    for edit in edits:
        pieces += (whole[position : edit.start], edit.replacement)
        position = edit.stop
    return b"".join((*pieces, whole[position:]))


# Envelopes without the header block that proves who sent them: such as are exported, or shown to people.

_SECURITY: Final = "Security"
"""The block's local name in every version of WS-Security, and in the drafts that some stacks still send."""
# A digest of the Body of a message: two messages have the same Body where they have the same digest.
#
# The digested bytes begin inside Body and go to the end of the message, attachments included: headers differ whenever
# a message is sent again, and so do the attributes of Body, where a signature has it named anew.

# The header blocks of an envelope, as people read them.

_LIMITS: Final = Limits()
_DECLARATION: Final = 256
"""Bytes that an XML declaration may have."""
_KNOWN: Final = 256
"""Beginnings of documents, of which there are few."""


def without_security(content: bytes, content_type: str) -> bytes | None:
    """``content``, an envelope or a multipart body with one, without its ``Security`` header blocks: the object itself
    where it has none, ``None`` where that cannot be told. Content is not compressed (``expand``)."""
    try:
        part = envelope_in(content, content_type, _LIMITS)
        charset = part.content.charset
        if _in_codec(_beginning(content, part.offset), charset) not in content:
            return content
    except (EnvelopeError, LookupError, UnicodeError):
        return None
    document = locate(content, charset, part.offset)
    if not any(span.local == "Body" and span.parent is document.spans[0] for span in document.spans):
        return None  # it breaks off inside Header: what follows may be anything
    blocks = [span for span in _header_blocks(document) if span.local == _SECURITY]
    return cut(content, blocks) if blocks else content


def _beginning(content: bytes, offset: int) -> bytes:
    """The beginning of a document, which says its encoding: the XML declaration, or the first bytes."""
    if not content.startswith(b"<?xml", offset):
        return content[offset : offset + 4]
    end = content.find(b"?>", offset, offset + _DECLARATION)
    return content[offset : end if end >= 0 else offset + _DECLARATION]


@lru_cache(_KNOWN)
def _in_codec(beginning: bytes, charset: str | None) -> bytes:
    """The name of the block in the encoding of a document that begins so."""
    return _SECURITY.encode(codec_of(beginning, charset))


class Block(NamedTuple):
    """A header block: namespace and local name of its element."""

    namespace: str
    name: str
    text: str
    """The element as it was sent, in one line."""


def blocks(content: bytes, content_type: str) -> list[Block]:
    """The blocks of an envelope, or of a multipart body with one, which may break off behind its Header. Content is not
    compressed (``expand``). An envelope that cannot be read has none."""
    try:
        part = envelope_in(content, content_type, _LIMITS)
        document = locate(content, part.content.charset, part.offset)
    except (EnvelopeError, LookupError):
        return []
    return [
        Block(span.namespace, span.local, " ".join(document.text(span.start, span.stop).split()))
        for span in _header_blocks(document)
    ]


_HEADER_THEN_BODY: Final = re.compile(rb"</((?:[\w.-]+:)?)Header\s*>\s*<\1Body(?:\s[^<>]*)?>")
_ANY_BODY: Final = re.compile(rb"<(?:[\w.-]+:)?Body[\s/>]")


def body_digest(content: bytes, content_type: str) -> str | None:
    """SHA-256 in hexadecimal; ``None`` where Body is not found. ``content`` is not compressed (``expand``)."""
    begin = _inside_body(content, content_type)
    return hashlib.sha256(memoryview(content)[begin:]).hexdigest() if begin is not None else None


def _inside_body(content: bytes, content_type: str) -> int | None:
    """Where Body's start tag ends. A look for the bytes of most envelopes takes 2 µs, a parser 50."""
    try:
        part = envelope_in(content, content_type, _LIMITS)
    except EnvelopeError:
        return None
    seen = _HEADER_THEN_BODY.search(content, part.offset)
    if seen is not None and _ANY_BODY.search(content, part.offset, seen.start()) is None:
        return seen.end()
    spans = locate(content, part.content.charset, part.offset).spans
    return next((span.content for span in spans if span.local == "Body" and span.parent is spans[0]), None)


# The reply of an application: missing addressing headers and acknowledgements are put in.


_TAG: Final = re.compile(r"<[^>]*>")
_BODY: Final = re.compile(rb"<(?:[\w.-]+:)?Body\b")
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
    fault = _ReplyFault(body[offset : offset + 256], charset)
    feed(fault.parser, body, offset, offset + _HEAD)
    return ServiceFault(fault.whose, fault.code) if fault.whose is not None else None


def excerpt(fault: bytes) -> str:
    """The words of a fault for people: the text of its Body without the tags."""
    body = _BODY.search(fault)
    begin = 0 if body is None else body.start()
    return " ".join(_TAG.sub(" ", fault[begin : begin + 4_000].decode("utf-8", "replace")).split())[:500]


_beginnings: Final[Recent[str, tuple[bytes, str]]] = Recent(256)
"""The bytes of the last envelope of a Content-Type up to the first header block, and their codec: most begin alike."""


class _ReplyFault(FaultPass):
    """Looks for the code of a fault; ``whose`` is ``RECEIVER`` as soon as there is a fault at all."""

    def __init__(self, start: bytes, charset: str | None) -> None:
        super().__init__(start, charset)
        self.whose: FaultCode | None = None
        self.code: str | None = None
        self.parser.StartDoctypeDeclHandler = self._leave

    def _leave(self, *_: object) -> None:
        raise Enough

    def started(self) -> None:
        path = self.path
        if len(path) == 3 and split_name(path[1])[1] == "Body":
            namespace, local = split_name(path[2])
            if local != "Fault" or namespace not in SOAP_VERSIONS:
                raise Enough
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
            raise Enough


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
