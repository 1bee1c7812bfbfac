"""The envelope in a body: the body itself, or the root part of a multipart/related one (RFC 2387), which has a message
with attachments or MTOM; and whether the last of the parts is closed.

Nothing is copied but the pieces that are looked at; the part ends where its boundary is, wherever a reader
stops.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from wsrm_mq.envelope.content import ContentType, parse_content_type
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.stream import Source, readable
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.faults import MalformedMessage

_PIECE: Final = 8 * 1024
_PLAIN: Final = frozenset(("", "7bit", "8bit", "binary"))
_MAX_BOUNDARY: Final = 200
"""RFC 2046 allows 70."""
_PADDING: Final = 256
"""Bytes behind a closing boundary that are looked at."""
_LINE_END: Final = re.compile(rb"[ \t]*(?:\r?\n|\r?\Z)")


class _PartStream:
    """Reads a part, never beyond its boundary."""

    def __init__(self, window: Window, boundary: bytes) -> None:
        self._window = window
        self._boundary = boundary

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes, fewer only at the end of the part."""
        ahead = self._window.peek(size + len(self._boundary))
        end = ahead.find(self._boundary)
        if end > 0 and ahead[end - 1 : end] == b"\r":
            end -= 1  # the line end before a boundary belongs to the boundary
        return self._window.take(size if end < 0 else min(size, end))


class Part(NamedTuple):
    """The part of a body that is its envelope: its bytes, its Content-Type, and the place in the body where it
    begins."""

    source: Source
    content: ContentType
    offset: int


def envelope_in(source: Source, content_type: str, limits: Limits) -> Part:
    """Find the envelope in a body: the part that ``start`` names, else the first; the whole body where it is not
    multipart. Raises ``EnvelopeError`` if there is no such part."""
    content = parse_content_type(content_type)
    return _root_part(source, content, limits) if content.is_multipart else Part(source, content, 0)


def _root_part(source: Source, content: ContentType, limits: Limits) -> Part:
    boundary = _boundary(content)
    wanted = content.parameters.get("start", "").strip().strip("<>")
    window = Window(source)
    # A boundary is always at the start of a line. The first one of a body may have no line end before it.
    between = b"\n--" + boundary
    found = window.starts_with(between[1:]) or window.skip_to(between)
    count = 0
    while found and not window.starts_with(b"--") and window.skip_to(b"\n"):
        count += 1
        if count > limits.parts:
            raise _refuse(f"The root part is not among the first {limits.parts} parts.")
        fields = _part_header(window, limits)
        if (count == 1 and not wanted) or (wanted and fields.get("content-id", "").strip("<>") == wanted):
            if fields.get("content-transfer-encoding", "").lower() not in _PLAIN:
                raise _refuse("The root part has a content transfer encoding; only 7bit, 8bit and binary are read.")
            described = parse_content_type(fields.get("content-type", ""))
            return Part(_PartStream(window, between), described, window.position)
        found = window.skip_to(between)
    raise _refuse("The multipart body has no root part.")


def ends_closed(tail: bytes, content: ContentType) -> bool:
    """Whether ``tail``, the last bytes of a body, is its closing boundary. In front of an epilogue it may stand where
    only ``check_closed`` finds it."""
    return tail.rstrip(b" \t\r\n").endswith(b"\n--" + _boundary(content) + b"--")


def check_closed(source: Source, content: ContentType) -> None:
    """Raises ``EnvelopeError`` (status 400) where the closing boundary is missing: the body breaks off."""
    window = Window(source)
    closing = b"\n--" + _boundary(content) + b"--"
    while window.skip_to(closing):
        if _LINE_END.match(window.peek(_PADDING)):
            return
    raise _refuse("The multipart body breaks off: its closing boundary is missing.")


def _boundary(content: ContentType) -> bytes:
    boundary = content.parameters.get("boundary", "").encode("latin-1", "replace")
    if not boundary or len(boundary) > _MAX_BOUNDARY:
        raise _refuse("The multipart body has no usable boundary.")
    return boundary


def _part_header(window: Window, limits: Limits) -> dict[str, str]:
    """The MIME header fields of the part at the window; the window is behind their empty line afterwards."""
    block = window.peek(limits.part_header_bytes)
    lines: list[str] = []
    position = 0
    while (end := block.find(b"\n", position)) >= 0:
        line = block[position:end].rstrip(b"\r").decode("latin-1")
        position = end + 1
        if not line:
            window.take(position)
            return {name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
        if line[0] in " \t" and lines:
            lines[-1] += " " + line.strip()
        else:
            lines.append(line)
    raise _refuse("The header of a MIME part does not end.")


class Window:
    """A source seen through a buffer that only moves forward. ``position`` is that of its first byte."""

    def __init__(self, source: Source) -> None:
        self.position = 0
        self._buffer = b""
        self._source = readable(source)

    def peek(self, size: int) -> bytes:
        """The next ``size`` bytes without taking them, fewer at the end of the source."""
        while len(self._buffer) < size:
            piece = self._source.read(max(size - len(self._buffer), _PIECE))
            if not piece:
                break
            self._buffer += piece
        return self._buffer[:size]

    def take(self, size: int) -> bytes:
        """Takes up to ``size`` bytes that were peeked at."""
        piece, self._buffer = self._buffer[:size], self._buffer[size:]
        self.position += len(piece)
        return piece

    def skip_to(self, token: bytes) -> bool:
        """Moves behind the next ``token``; false if there is none."""
        while True:
            ahead = self.peek(_PIECE)
            found = ahead.find(token)
            if found >= 0:
                self.take(found + len(token))
                return True
            if len(ahead) < _PIECE:
                return False
            self.take(len(ahead) - len(token))

    def starts_with(self, token: bytes) -> bool:
        """Takes ``token`` if it is next."""
        return self.peek(len(token)) == token and bool(self.take(len(token)))


def _refuse(reason: str) -> EnvelopeError:
    return EnvelopeError(MalformedMessage(reason), status=400)
