"""The header blocks of an envelope, for eyes."""

from __future__ import annotations

from typing import Final, NamedTuple

from wsrm_mq.envelope.content import parse_content_type
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.multipart import root_part
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
    """Those of an envelope, or of a multipart body with one, which may break off behind its Header. Content is not
    compressed (``expand``). What cannot be read has none."""
    kind = parse_content_type(content_type)
    charset, offset = kind.charset, 0
    try:
        if kind.is_multipart:
            part = root_part(content, kind, _LIMITS)
            charset, offset = part.content.charset, part.stream.offset
        document = locate(content, charset, offset)
    except (EnvelopeError, LookupError):
        return []
    return [
        Block(span.namespace, span.local, " ".join(document.text(span.start, span.stop).split()))
        for span in header_blocks(document)
    ]
