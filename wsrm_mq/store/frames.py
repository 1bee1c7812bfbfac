"""The language in which a process uses the temporary database of another one: a line of greeting, then frames, each a
length of four bytes and so many bytes of MessagePack. A request has one answer."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from wsrm_mq.errors import WSRMError
from wsrm_mq.store.driver import beside

GREETING: Final = b"wsrm_mq express 1\n"
MOST: Final = 256 * 1024 * 1024
"""Bytes of a frame."""
FRAME_SECONDS: Final = 2.0
"""A frame that has begun is through after so long, or the connection ends."""
_LENGTH: Final = struct.Struct(">I")


class Malformed(WSRMError):
    """The bytes that came are no greeting, or no frame of this language."""


class Begin(msgspec.Struct, tag="begin", forbid_unknown_fields=True):
    """Begin a transaction."""

    wait: bool


class Run(msgspec.Struct, tag="run", forbid_unknown_fields=True):
    """Run a statement, in the transaction or outside of one."""

    statement: str
    values: list[Any] | dict[str, Any]


class Give(msgspec.Struct, tag="give", forbid_unknown_fields=True):
    """Give so many positions."""

    count: int


class Answer(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The answer to a request. ``number``: the version of the database, or the number of rows that were changed.
    ``error``: why nothing was done; ``is_busy``: it may be tried again."""

    rows: list[Any] = []
    number: int = 0
    in_transaction: bool = False
    error: str | None = None
    is_busy: bool = False


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_REQUEST: Final = msgspec.msgpack.Decoder(Begin | Run | Give)
_ANSWER: Final = msgspec.msgpack.Decoder(Answer)


def request_of(content: bytes) -> Begin | Run | Give:
    try:
        request: Begin | Run | Give = _REQUEST.decode(content)
        return request
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"a frame that is no request: {error}") from error


def answer_of(content: bytes) -> Answer:
    try:
        return _ANSWER.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"a frame that is no answer: {error}") from error


def send(peer: socket.socket, said: msgspec.Struct) -> None:
    content = _ENCODE(said)
    if len(content) > MOST:
        raise Malformed(f"a frame of {len(content)} bytes, and {MOST} are the most")
    peer.settimeout(FRAME_SECONDS)
    peer.sendall(_LENGTH.pack(len(content)) + content)


def receive(peer: socket.socket, seconds: float | None) -> bytes | None:
    """The content of the next frame, which begins within ``seconds``; ``None``: the peer has closed."""
    peer.settimeout(seconds)
    first = peer.recv(1)
    if not first:
        return None
    peer.settimeout(FRAME_SECONDS)
    (length,) = _LENGTH.unpack(first + exactly(peer, _LENGTH.size - 1))
    if length > MOST:
        raise Malformed(f"a frame of {length} bytes, and {MOST} are the most")
    return exactly(peer, length)


def exactly(peer: socket.socket, length: int) -> bytes:
    content = bytearray()
    while len(content) < length:
        piece = peer.recv(min(length - len(content), 1024 * 1024))
        if not piece:
            raise Malformed("the connection ended within a frame")
        content += piece
    return bytes(content)


@contextmanager
def address(store: Path, instance: str) -> Iterator[str]:
    """The address of the socket of an instance, beside the store, while this is open: a Unix path may have 107
    characters, a store's may have more."""
    directory = os.open(beside(store), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{instance}.express"
    finally:
        os.close(directory)
