"""Requests for applications that trip over RM headers: ``headers="demote"`` and ``headers="strip"``.

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
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.multipart import envelope_in
from wsrm_mq.envelope.outline import codec_of
from wsrm_mq.envelope.spans import Document, Span, locate
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.versions import ADDRESSING_VERSIONS, RM_VERSIONS

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
