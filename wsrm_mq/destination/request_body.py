"""The body of a request: of a WSGI one by the rules of the servers, a length, or an input that ends, or none at all;
and whether it is whole, and well-formed where that is wanted.

A large body goes to a temporary file as it comes in; it is never whole in memory.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from wsrm_mq.destination.connections import uwsgi
from wsrm_mq.envelope.stream import (
    TAIL_BYTES,
    Limits,
    Source,
    check_well_formed,
    check_whole,
    ends_once,
    expand,
    looks_whole,
    parse_content_type,
)
from wsrm_mq.queue.arrival import Body

if TYPE_CHECKING:
    from wsrm_mq.destination.exchange import Client, Request

SPOOL_OVER: Final = 1024 * 1024
"""Bytes above which a body goes to a temporary file."""
_PIECE: Final = 65_536
_MAX_DIGITS: Final = 18


class BodyRefused(Exception):
    """The body cannot be taken: ``status``, and the reason for the sender, in words and HTTP header fields."""

    def __init__(self, status: int, reason: str, *fields: tuple[str, str]) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.fields = fields


def too_large(limit: int) -> BodyRefused:
    return BodyRefused(413, f"The body is larger than {limit} bytes.")


class Spool:
    """A body as it comes in, piece by piece: in memory, above ``spool_over`` bytes in a temporary file."""

    def __init__(self, limit: int, spool_over: int = SPOOL_OVER) -> None:
        self._limit = limit
        self._spool_over = spool_over
        self._file: Any = tempfile.SpooledTemporaryFile(max_size=spool_over)  # noqa: SIM115 - Body keeps it
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Add a piece of the body. Raises ``BodyRefused`` where it is more than ``limit`` bytes with this."""
        self.size += len(piece)
        if self.size > self._limit:
            raise too_large(self._limit)
        self._file.write(piece)

    def body(self, *, is_counted: bool = True) -> Body:
        if self.size <= self._spool_over:
            self._file.seek(0)
            return Body(self._file.read(), is_counted=is_counted)
        return Body(None, self._file, self.size, is_counted=is_counted)


class _Chunks:
    """uWSGI's way to read a chunked body, as a file."""

    def __init__(self, chunked_read: Callable[[], bytes]) -> None:
        self._chunked_read = chunked_read

    def read(self, _size: int = -1) -> bytes:
        return self._chunked_read()


def told_length(environ: Mapping[str, Any]) -> int | None:
    """Content-Length; ``None`` without one, or with one that is no number. One with more digits than a length can have
    is ``sys.maxsize``: it never becomes an int."""
    digits = str(environ.get("CONTENT_LENGTH") or "").strip(" \t")
    if not (digits.isascii() and digits.isdecimal()):
        return None
    significant = digits.lstrip("0")
    return int(significant or 0) if len(significant) <= _MAX_DIGITS else sys.maxsize


def read_body(environ: Mapping[str, Any], *, limit: int, spool_over: int = SPOOL_OVER) -> Body:
    """Read the whole body. ``limit`` and ``spool_over`` are in bytes. Raises ``BodyRefused``."""
    length = told_length(environ)
    if length is None:
        return _spool(_ending(environ), None, Spool(limit, spool_over), b"")
    if length > limit:
        raise too_large(limit)
    source, begun = environ["wsgi.input"], b""
    if length <= spool_over:
        begun = source.read(length)
        if len(begun) == length:
            return Body(begun)
    return _spool(source, length, Spool(limit, spool_over), begun)


def _ending(environ: Mapping[str, Any]) -> Any:
    """The input of a request without a length: where the body ends, it does."""
    if environ.get("CONTENT_LENGTH") not in (None, ""):
        raise BodyRefused(400, "Content-Length is not a number.")
    if environ.get("wsgi.input_terminated") or "asgi.scope" in environ:
        return environ["wsgi.input"]
    if uwsgi is None:
        raise BodyRefused(411, "Send Content-Length.")
    return _Chunks(uwsgi.chunked_read)


def _spool(source: Any, length: int | None, spool: Spool, begun: bytes) -> Body:
    """The whole body, of which ``begun`` was read."""
    spool.add(begun)
    while length is None or spool.size < length:
        piece = source.read(_PIECE if length is None else min(_PIECE, length - spool.size))
        if not piece:
            break
        spool.add(piece)
    if length is not None and spool.size < length:
        raise BodyRefused(400, f"The body ended after {spool.size} of {length} bytes.")
    return spool.body(is_counted=length is not None)


# whether it is whole


def source_of(client: Client, body: Body, limits: Limits) -> Source:
    """The body from its first byte, expanded where it is compressed."""
    source: Source = body.content if body.content is not None else body.open()
    return expand(source, limits) if client.content_encoding == "gzip" else source


def shows_its_end(client: Client, body: Body, limits: Limits) -> bool:
    """Whether the last bytes tell that nothing is missing. What is compressed does not show its end."""
    if client.content_encoding:
        return False
    end = body.content
    if end is None:
        file = body.open()
        file.seek(-min(TAIL_BYTES, body.size), os.SEEK_END)
        end = file.read()
    if not looks_whole(end[-TAIL_BYTES:], client.content_type):
        return False
    return body.is_counted or ends_once(source_of(client, body, limits), client.content_type)


def needs_reading(request: Request, limits: Limits, *, is_kept: bool) -> bool:
    """Whether ``check_body`` has to read it to its end."""
    has_parts = request.headers.is_rm and parse_content_type(request.client.content_type).is_multipart
    is_read_in_any_case = is_kept and request.peer.verify_body
    return is_read_in_any_case or ((is_kept or has_parts) and not shows_its_end(request.client, request.body, limits))


def check_body(request: Request, limits: Limits, *, is_kept: bool) -> None:
    """Raises ``EnvelopeError`` for a body that breaks off, or is not well-formed."""
    client, body = request.client, request.body
    if is_kept and request.peer.verify_body:
        check_well_formed(source_of(client, body, limits), client.content_type, limits)
    if not shows_its_end(client, body, limits):
        check_whole(source_of(client, body, limits), client.content_type, limits)
