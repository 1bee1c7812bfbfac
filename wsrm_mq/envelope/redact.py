"""Envelopes without the header block that proves who sent them: such as are exported, or shown to people."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from wsrm_mq.envelope.encoding import codec_of
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.multipart import envelope_in
from wsrm_mq.envelope.rewrite import cut, header_blocks
from wsrm_mq.envelope.spans import locate
from wsrm_mq.errors import EnvelopeError

_SECURITY: Final = "Security"
"""The block's local name in every version of WS-Security, and in the drafts that some stacks still send."""
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
    blocks = [span for span in header_blocks(document) if span.local == _SECURITY]
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
