"""The header blocks of an envelope, as people read them."""

from __future__ import annotations

from typing import Final, NamedTuple

from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.multipart import envelope_in
from wsrm_mq.envelope.rewrite import header_blocks
from wsrm_mq.envelope.spans import locate
from wsrm_mq.errors import EnvelopeError

_LIMITS: Final = Limits()


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
        for span in header_blocks(document)
    ]
