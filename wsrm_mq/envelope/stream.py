"""``expand``: a gzip body as a stream whose size is bounded before any of it is parsed (SEC-026)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, Protocol

from wsrm_mq.envelope.limits import Limits
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.faults import MalformedMessage

# The source of a request body: memory, or a file, which may be a part of another or one expanded.

_FIRST_PIECE: Final = 4_096


class Readable(Protocol):
    """A file, as far as it is needed: ``read`` gives at most ``size`` bytes, none at the end."""

    def read(self, size: int, /) -> bytes: ...


Source = bytes | bytearray | memoryview | Readable


class _Slices:
    """Bytes in memory, read like a file and without being copied as a whole."""

    __slots__ = ("_body", "_position")

    def __init__(self, body: bytes | bytearray | memoryview) -> None:
        self._body = memoryview(body)
        self._position = 0

    def read(self, size: int, /) -> bytes:
        piece = bytes(self._body[self._position : self._position + size])
        self._position += len(piece)
        return piece


def readable(source: Source) -> Readable:
    """``source`` as a file."""
    return _Slices(source) if isinstance(source, bytes | bytearray | memoryview) else source


def pieces(source: Source, limit: int, longest: int | None = None) -> Iterator[bytes]:
    """``source`` in growing pieces, up to ``limit`` bytes in all, none longer than ``longest``.

    Short reads are joined: expat looks at an unfinished tag again with every piece, so tiny ones would be
    slow.
    """
    read, size = readable(source).read, _FIRST_PIECE
    while limit > 0:
        size = min(size, limit if longest is None else min(limit, longest))
        piece = read(size)
        if 0 < len(piece) < size:
            parts = [piece]
            missing = size - len(piece)
            while missing and (part := read(missing)):
                parts.append(part)
                missing -= len(part)
            piece = b"".join(parts)
        if not piece:
            return
        yield piece
        limit -= len(piece)
        size *= 2


_PIECE: Final = 16 * 1024
_RATIO_FROM: Final = 1024 * 1024
"""Expanded bytes from which on the ratio counts: a small envelope full of spaces is no bomb."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_ALIASES: Final = {"x-gzip": "gzip", "identity": ""}


def content_coding(field: str) -> str:
    """The value of a Content-Encoding in one spelling: ``gzip``, empty for none, any other in lower case."""
    name = field.strip().lower()
    return _ALIASES.get(name, name)


def expand(source: Source, limits: Limits) -> Expanded:
    """The body of a request with ``Content-Encoding: gzip``. Nothing is read before the first ``read``."""
    return Expanded(readable(source), limits)


class Expanded:
    """A gzip body, expanded while it is read. ``read`` raises ``EnvelopeError``: status 413 beyond a limit, 400 for a
    stream that is not whole or not gzip."""

    def __init__(self, source: Readable, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._member = zlib.decompressobj(_GZIP)
        self._compressed = b""
        self._read = 0
        self._written = 0

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes, none at the end; everything with -1."""
        if size == 0:
            return b""
        if size < 0:
            return b"".join(iter(lambda: self.read(_PIECE), b""))
        while True:
            if self._member.eof and not self._next_member():
                return b""
            if not self._compressed:
                self._compressed = self._source.read(_PIECE)
                self._read += len(self._compressed)
                ended = not self._compressed
            else:
                ended = False
            try:
                piece = self._member.decompress(self._compressed, size)
            except zlib.error:
                raise _refuse("The request body is not valid gzip.", 400) from None
            self._compressed = self._member.unconsumed_tail
            if piece:
                self._written += len(piece)
                self._check()
                return piece
            if ended and not self._member.eof:
                raise _refuse("The gzip body breaks off.", 400)

    def check_to_end(self) -> None:
        """Read the rest, so that an error in it is raised."""
        while self.read(_PIECE):
            pass

    def _next_member(self) -> bool:
        """Begin the next member of the stream. Bytes behind a member have to be a member as well."""
        self._compressed = self._member.unused_data or self._source.read(_PIECE)
        if not self._compressed:
            return False
        self._member = zlib.decompressobj(_GZIP)
        return True

    def _check(self) -> None:
        limits = self._limits
        if self._written > limits.body_bytes:
            raise _refuse(f"The request body expands to more than {limits.body_bytes} bytes.", 413)
        if self._written > _RATIO_FROM and self._written > limits.expansion_ratio * self._read:
            raise _refuse(f"The request body expands to more than {limits.expansion_ratio} times its size.", 413)


def _refuse(reason: str, status: int) -> EnvelopeError:
    return EnvelopeError(MalformedMessage(reason), status=status)
