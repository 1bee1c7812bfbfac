"""A digest of the Body of a message: two messages have the same Body where they have the same digest.

The digested bytes begin inside Body and go to the end of the message, attachments included: headers differ whenever a
message is sent again, and so do the attributes of Body, where a signature has it named anew.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.multipart import envelope_in
from wsrm_mq.envelope.spans import locate
from wsrm_mq.errors import EnvelopeError

_LIMITS: Final = Limits()
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
