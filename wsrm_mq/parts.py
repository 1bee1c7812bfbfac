"""Messages over HTTP, as the server of queues and its client both know them: what is told of each, and several in one
body: ``multipart/mixed``, written and read as it comes. Bodies are bytes as they are."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

HEAD_BYTES: Final = 64 * 1024
"""The longest head of a part."""
_BOUNDARY: Final = re.compile(
    r'multipart/mixed\s*;(?:.*;)?\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE
)
_END: Final = b"\r\n\r\n"


class Facts(Struct):
    """The facts that are told of a message as they are: see ``Message``."""

    queue: str
    position: int
    message_id: str
    type: str | None
    topic: str | None
    content_type: str | None
    priority: int
    sequence: str | None
    number: int | None
    received_at: float
    deliveries: int
    failures: int
    state: str
    reason: str | None
    last_error: str | None
    leased_until: float | None
    is_barrier: bool
    lane: int | None


class Malformed(ValueError):
    """The bytes are no ``multipart/mixed``. The text says where that shows."""


class TooLarge(ValueError):
    """A part is larger than may be, or there are more of them."""


class Part(NamedTuple):
    """One message. ``headers``: their names in lower case."""

    headers: Mapping[str, str]
    body: bytes


def boundary_of(content_type: str) -> str | None:
    """The boundary that a Content-Type of several messages names; ``None``: it is of something else."""
    found = _BOUNDARY.match(content_type)
    return None if found is None else found[1] or found[2]


def new_boundary() -> str:
    """A boundary that is in no body, as far as chance goes: 128 bits of it."""
    return secrets.token_hex(16)


def content_type(boundary: str) -> str:
    return f"multipart/mixed; boundary={boundary}"


def written(boundary: str, parts: Iterable[tuple[Mapping[str, str], bytes]]) -> Iterator[bytes]:
    """The pieces of a body that has these parts; none of their bodies is copied. Header values are in ASCII."""
    for headers, body in parts:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        yield f"\r\n--{boundary}\r\n{lines}\r\n".encode("ascii")
        yield body
    yield f"\r\n--{boundary}--\r\n".encode("ascii")


class Reader:
    """Reads a body piece by piece: what it keeps is one part, and what came with that. ``most_bytes``: of the body of
    one part; ``most_parts``: of them in all."""

    def __init__(self, boundary: str, most_bytes: int, most_parts: int) -> None:
        self._mark = f"\r\n--{boundary}".encode("latin-1")
        self._most_bytes = most_bytes
        self._left = most_parts
        self._bytes = bytearray(b"\r\n")  # a body may begin with its first mark
        self._looked = 0
        self._has_begun = self.has_ended = False

    def feed(self, piece: bytes) -> list[Part]:
        """The parts that are whole by this piece. Raises ``Malformed`` and ``TooLarge``."""
        found: list[Part] = []
        if self.has_ended:
            return found  # what is behind the last mark is nothing
        self._bytes += piece
        start = 0
        while (at := self._bytes.find(self._mark, max(start, self._looked))) >= 0:
            behind = self._bytes[at + len(self._mark) : at + len(self._mark) + 2]
            if len(behind) < 2:
                break
            if self._has_begun:
                found.append(self._part(start, at))
            self._has_begun, start = True, at + len(self._mark)
            self._looked = start
            if behind == b"--":
                self.has_ended = True
                break
        del self._bytes[:start]
        self._looked = max(0, len(self._bytes) - len(self._mark) - 2)
        if not self.has_ended and len(self._bytes) > self._most_bytes + HEAD_BYTES:
            raise TooLarge(f"A part has more than {self._most_bytes} bytes.")
        return found

    def _part(self, start: int, end: int) -> Part:
        self._left -= 1
        if self._left < 0:
            raise TooLarge("There are more parts than may be in one request.")
        begins = self._bytes.find(b"\r\n", start, end)
        blank = self._bytes.find(_END, begins, end) if begins >= 0 else -1
        if blank < 0 or self._bytes[start:begins].strip(b" \t"):
            raise Malformed("A part has no blank line between its headers and its body.")
        if end - blank - len(_END) > self._most_bytes:
            raise TooLarge(f"A part has more than {self._most_bytes} bytes.")
        lines = self._bytes[begins + 2 : blank].decode("latin-1").split("\r\n") if blank > begins else []
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip() or name.lower() in headers:
                raise Malformed(f"{line[:80]!r} is no header of a part, or there twice.")
            headers[name.lower()] = value.strip(" \t")
        return Part(headers, bytes(memoryview(self._bytes)[blank + len(_END) : end]))
