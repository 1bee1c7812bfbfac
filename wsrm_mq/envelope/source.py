"""The source of a request body: memory, or a file, which may be a part of another or one expanded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

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
