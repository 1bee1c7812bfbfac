"""The carriers of frames: a socket, with TLS or without, or a WebSocket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

READ_BYTES: Final = 64 * 1024
LINGER_SECONDS: Final = 1.0
"""How long the other end may take to read the last frame and to close."""


class SocketWire:
    """The TCP connection of a client of STOMP. ``peer``: the address of that. ``stalled``: after so many seconds in
    which it has taken nothing it is cut off."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stalled: float) -> None:
        self._reader = reader
        self._writer = writer
        self._stalled = stalled
        name = writer.get_extra_info("peername")
        self.peer: str | None = name[0] if isinstance(name, tuple) else None
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def read(self) -> bytes:
        """Some bytes; none: the other end has closed."""
        try:
            return await self._reader.read(READ_BYTES)
        except OSError:
            return b""

    async def write(self, frames: Sequence[bytes]) -> None:
        """Send these, each a frame or a heart-beat. Raises ``ConnectionError`` where the other end is gone, or takes
        nothing for too long."""
        self._writer.write(b"".join(frames))
        transport = self._writer.transport
        if transport.is_closing() or transport.get_write_buffer_size() > READ_BYTES:
            await _in_time(self._writer.drain(), self._stalled)

    async def close(self) -> None:
        """Close it; what was sent has a moment to arrive."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await self._writer.drain()
                if self._writer.can_write_eof():
                    self._writer.write_eof()
                    while await self._reader.read(READ_BYTES):  # else what it still sends has the last frame discarded
                        continue
                self._writer.close()
                await self._writer.wait_closed()
        self._writer.transport.abort()


class WebSocketWire:
    """The same over a WebSocket. Each frame is a message of its own; one that cannot be text is sent as bytes."""

    def __init__(self, connection: ServerConnection, stalled: float) -> None:
        self._connection = connection
        self._stalled = stalled
        address = connection.remote_address
        self.peer: str | None = address[0] if isinstance(address, tuple) else None

    async def read(self) -> bytes:
        try:
            found = await self._connection.recv()
        except ConnectionClosed:
            return b""
        return found.encode() if isinstance(found, str) else found or b"\n"  # an empty message ends nothing

    async def write(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            try:
                said: str | bytes = frame.decode()
            except UnicodeDecodeError:
                said = frame
            try:
                await _in_time(self._connection.send(said), self._stalled)
            except ConnectionClosed as error:
                raise ConnectionError(str(error)) from error

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await self._connection.close()
        self._connection.transport.abort()


Wire = SocketWire | WebSocketWire


async def _in_time(sending: Coroutine[Any, Any, None], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await sending
    except TimeoutError:
        raise ConnectionError(f"the other end has taken nothing for {seconds:g} seconds") from None
