"""Whether a body came to its end.

Some servers show the end of a connection as that of a chunked body, so that there is a body proves nothing: what was
cut off has to be seen in it. Half a message that is acknowledged is lost, and its resend is a duplicate.
"""

from __future__ import annotations

from typing import Final

from wsrm_mq.envelope.content import parse_content_type
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.multipart import Window, check_closed, ends_closed
from wsrm_mq.envelope.source import Source
from wsrm_mq.envelope.stream import Expanded
from wsrm_mq.envelope.wellformed import check_well_formed

TAIL_BYTES: Final = 512
_END: Final = b"Envelope>"


def looks_whole(tail: bytes, content_type: str) -> bool:
    """Whether ``tail``, the last ``TAIL_BYTES`` of a request, is the end of an envelope, or of the last of its parts.
    That costs the same for every body. One that looks otherwise was cut off, or is in UTF-16, or ends with a comment
    or an epilogue: only ``check_whole`` tells."""
    content = parse_content_type(content_type)
    return ends_closed(tail, content) if content.is_multipart else tail.rstrip().endswith(_END)


def check_whole(source: Source, content_type: str, limits: Limits) -> None:
    """Read it to its end. Raises ``EnvelopeError`` for what breaks off or goes beyond a limit behind the header
    section: that could not be read later."""
    content = parse_content_type(content_type)
    if content.is_multipart:
        check_closed(source, content)
    elif not isinstance(source, Expanded):
        check_well_formed(source, content_type, limits)
    if isinstance(source, Expanded):
        source.check_to_end()


def ends_once(source: Source, content_type: str) -> bool:
    """Whether a body that looks whole cannot have been cut off behind an envelope that it holds: the first end of one
    is the end of the body. Of parts, the closing boundary says it."""
    window = Window(source)
    return parse_content_type(content_type).is_multipart or (
        window.skip_to(_END) and not window.peek(TAIL_BYTES).strip()
    )
