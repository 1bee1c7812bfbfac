"""Envelopes for eyes and machines elsewhere: without the header block that proves who sent them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from wsrm_mq.envelope.content import parse_content_type
from wsrm_mq.envelope.encoding import codec_of
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.multipart import root_part
from wsrm_mq.envelope.rewrite import cut, header_blocks
from wsrm_mq.envelope.spans import locate
from wsrm_mq.errors import EnvelopeError

_SECURITY: Final = "Security"
"""The block's local name in every version of WS-Security, and in the drafts that some stacks still send."""
_LIMITS: Final = Limits()
_DECLARATION: Final = 256
"""Bytes that an XML declaration may have."""
_KNOWN: Final = 256
"""Content types and beginnings of documents, of which there are few."""


def without_security(content: bytes, content_type: str) -> bytes | None:
    """``content``, an envelope or a multipart body with one, without its ``Security`` header blocks: the object itself
    where it has none, ``None`` where that cannot be told. Content is not compressed (``expand``)."""
    is_multipart, charset = _kind(content_type)
    offset = 0
    try:
        if is_multipart:
            part = root_part(content, parse_content_type(content_type), _LIMITS)
            charset, offset = part.content.charset, part.stream.offset
        if _in_codec(_beginning(content, offset), charset) not in content:
            return content
    except (EnvelopeError, LookupError, UnicodeError):
        return None
    document = locate(content, charset, offset)
    if not any(span.local == "Body" and span.parent is document.spans[0] for span in document.spans):
        return None  # it breaks off inside Header: what follows may be anything
    blocks = [span for span in header_blocks(document) if span.local == _SECURITY]
    return cut(content, blocks) if blocks else content


@lru_cache(_KNOWN)
def _kind(content_type: str) -> tuple[bool, str | None]:
    content = parse_content_type(content_type)
    return content.is_multipart, content.charset


def _beginning(content: bytes, offset: int) -> bytes:
    """What says in which encoding a document is: the XML declaration, or the first bytes."""
    if not content.startswith(b"<?xml", offset):
        return content[offset : offset + 4]
    end = content.find(b"?>", offset, offset + _DECLARATION)
    return content[offset : end if end >= 0 else offset + _DECLARATION]


@lru_cache(_KNOWN)
def _in_codec(beginning: bytes, charset: str | None) -> bytes:
    """The name of the block in the encoding of a document that begins so."""
    return _SECURITY.encode(codec_of(beginning, charset))
