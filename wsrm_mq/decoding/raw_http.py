"""HTTP messages in a file: the bytes of a connection, a recording, or an envelope alone. Mistakes are reported, and the
rest is read all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from wsrm_mq.destination.request_body import told_length
from wsrm_mq.envelope.stream import (
    Limits,
    content_coding,
    expand,
)
from wsrm_mq.errors import EnvelopeError

_REQUEST: Final = re.compile(rb"([A-Z]{3,20}) (\S{1,8000}) HTTP/\d(?:\.\d)?\r?\n")
_RESPONSE: Final = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})(?: [^\r\n]{0,500})?\r?\n")
_NEXT: Final = re.compile(
    rb"^(?:[A-Z]{3,20} \S{1,8000} HTTP/\d(?:\.\d)?|HTTP/\d(?:\.\d)? \d{3}(?: [^\r\n]{0,500})?)\r?$", re.M
)
_HEAD_END: Final = re.compile(rb"^\r?\n", re.M)
_BETWEEN: Final = re.compile(rb"(?:\s+|#[^\n]*(?:\n|\Z))*")
"""White space, and comment lines of a recorder."""
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n]{0,1000})?\r?\n")
_LINE_END: Final = re.compile(rb"\r?\n")
_BOUNDARY: Final = re.compile(rb"--([!-~]{1,200})[ \t]*\r?\n")
_GZIP: Final = b"\x1f\x8b"
_ENVELOPE: Final = re.compile(rb"(?:<\?xml[^<>]{1,200}\?>\s{0,20})?<((?:[A-Za-z_][\w.-]{0,60}:)?Envelope)[\s>]")
_UNREADABLE: Final = {
    b"\x16\x03": "These are bytes of TLS: record behind what ends it, or have the client log its messages.",
    b"PRI * HTTP/2.0": "This is HTTP/2: record what the client says in HTTP/1.1.",
    **dict.fromkeys(
        (b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x0a\x0d\x0d\x0a"),
        "This is a recording of packets: write what one side has sent to a file (tcpflow, or Wireshark's Follow TCP "
        "Stream, shown as raw), and decode that.",
    ),
}
"""Recordings of another kind, by their first bytes."""
_BEFORE_XML: Final = b"\xef\xbb\xbf \t\r\n"
_MOST: Final = 100
"""The most messages of one file."""
_FIELDS_READ: Final = 200
_LONGEST: Final = 8_192
"""The most bytes of a field."""


@dataclass
class RawMessage:
    """A request or a response; neither where an envelope lies in the file alone. ``body`` is expanded."""

    start: str = ""
    method: str = ""
    target: str = ""
    status: int | None = None
    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    problems: list[str] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        """The value of a field; of one that comes several times, all of them."""
        values = [value for known, value in self.fields if known.lower() == name]
        return ", ".join(values) if values else None


def raw_messages(content: bytes, limits: Limits) -> Iterator[RawMessage]:
    """Read the messages in ``content``, at least one. A compressed file is expanded, and each message when it is asked
    for."""
    if content.startswith(_GZIP):
        packed = RawMessage(fields=[("Content-Encoding", "gzip")], body=content)
        _expand(packed, limits)
        if packed.problems:
            yield packed
            return
        content = packed.body
    position = _after_blanks(content, 0)
    begun = _started(content, position)
    if begun is None or begun.method == "PRI":
        yield from _without_http(content)
        return
    count = 0
    while begun is not None:
        count += 1
        position = _read_head(begun, content, content.index(b"\n", position) + 1)
        position = _after_blanks(content, _read_body(begun, content, position))
        following = _started(content, position) if count < _MOST else None
        if following is None and position < len(content):
            what = "no message of HTTP" if count < _MOST else f"not looked at: {_MOST} messages are"
            begun.problems.append(f"Behind it are {len(content) - position} bytes that are {what}.")
        _expand(begun, limits)
        yield begun
        begun = following


def _after_blanks(content: bytes, position: int) -> int:
    between = _BETWEEN.match(content, position)
    return between.end() if between is not None else position


def _started(content: bytes, position: int) -> RawMessage | None:
    request, response = _REQUEST.match(content, position), _RESPONSE.match(content, position)
    if request is not None:
        return RawMessage(_text(request[0]), _text(request[1]), _text(request[2]))
    return RawMessage(_text(response[0]), status=int(response[1])) if response is not None else None


def _without_http(content: bytes) -> Iterator[RawMessage]:
    """No start line: an envelope, or one with attachments, whose boundary is its first line; or the log of a client,
    with envelopes in it."""
    opening = _BOUNDARY.match(content)
    if opening is not None:
        yield RawMessage(fields=[("Content-Type", f'multipart/related; boundary="{_text(opening[1])}"')], body=content)
        return
    found = [] if content.lstrip(_BEFORE_XML).startswith(b"<") else list(islice(_in_text(content), _MOST))
    problems = [told for first, told in _UNREADABLE.items() if content.startswith(first)]
    yield from found or [RawMessage(body=content, problems=problems)]


def _in_text(content: bytes) -> Iterator[RawMessage]:
    """The envelopes in a text, each to its end tag; to the end of the text, where there is none."""
    position = 0
    while (start := _ENVELOPE.search(content, position)) is not None:
        end_tag = b"</" + start[1] + b">"
        end = content.find(end_tag, start.end())
        position = end + len(end_tag) if end >= 0 else len(content)
        yield RawMessage(body=content[start.start() : position])


def _read_head(message: RawMessage, content: bytes, position: int) -> int:
    end = _HEAD_END.search(content, position)
    lines = content[position : end.start() if end is not None else len(content)].split(b"\n", _FIELDS_READ)
    if len(lines) > _FIELDS_READ:
        message.problems.append(f"The header section has more than {_FIELDS_READ} lines; the others are not looked at.")
    for line in lines[:_FIELDS_READ]:
        name, colon, value = _text(line[:_LONGEST]).partition(":")
        if line[:1] in (b" ", b"\t") and message.fields:
            known, before = message.fields[-1]
            message.fields[-1] = known, f"{before} {_text(line[:_LONGEST]).strip()}"
        elif colon and name and name == name.strip():
            message.fields.append((name, value.strip()))
        elif line.strip():
            message.problems.append(f"A line of the header section is no field: {_text(line)[:60]!r}.")
    if end is None and (message.status is None or message.get("content-length") not in (None, "0")):
        message.problems.append("The header section of HTTP does not end: there is no empty line.")
    return end.end() if end is not None else len(content)


def _read_body(message: RawMessage, content: bytes, position: int) -> int:
    """Fill in the body; answers where it ends."""
    field = message.get("content-length")
    length = told_length({"CONTENT_LENGTH": field})
    if "chunked" in (message.get("transfer-encoding") or "").lower():
        if field is not None:
            message.problems.append("Both Content-Length and Transfer-Encoding are there; the length does not count.")
        if _CHUNK.match(content, position) is not None:
            return _read_chunks(message, content, position)
        message.problems.append("It says that it is chunked, and is not; it may have been saved without its chunks.")
    elif length is not None:
        message.body = content[position : position + length]
        if len(message.body) < length:
            message.problems.append(f"The body breaks off: {len(message.body)} of {length} bytes are there.")
        return position + len(message.body)
    elif field is not None:
        message.problems.append(f"Content-Length is {field[:30]!r}, which is no number.")
    following = _NEXT.search(content, position)
    end = following.start() if following is not None else len(content)
    message.body = content[position:end]
    if message.method and field is None and message.body.strip():
        message.problems.append("The request has a body and no Content-Length.")
    return end


def _read_chunks(message: RawMessage, content: bytes, position: int) -> int:
    pieces = []
    while (opening := _CHUNK.match(content, position)) is not None:
        size = int(opening[1], 16)
        piece = content[opening.end() : opening.end() + size]
        pieces.append(piece)
        position = opening.end() + len(piece)
        line_end = _LINE_END.match(content, position)
        position = line_end.end() if line_end is not None else position
        if size == 0 or len(piece) < size:
            break
    message.body = b"".join(pieces)
    if opening is None or int(opening[1], 16):
        message.problems.append(f"The chunked body breaks off after {len(message.body)} bytes.")
    return position


def _expand(message: RawMessage, limits: Limits) -> None:
    coding = content_coding(message.get("content-encoding") or "")
    if not coding or not message.body:
        return
    if coding != "gzip":
        message.problems.append(f"Content-Encoding {coding[:30]!r} is not expanded here; gzip is.")
        return
    try:
        message.body = expand(message.body, limits).read()
    except EnvelopeError as error:
        message.problems.append(str(error))


def _text(line: bytes) -> str:
    return line.decode("latin-1").rstrip("\r\n")
