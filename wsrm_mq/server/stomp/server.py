"""The server of STOMP: over TCP, TLS and WebSockets, on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ssl import SSLContext
from typing import Final

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from wsrm_mq.node import Node
from wsrm_mq.server.access import Access
from wsrm_mq.server.sessions import Sessions
from wsrm_mq.server.stomp.client import Client, Terms
from wsrm_mq.server.stomp.serving import TEMPORARY
from wsrm_mq.server.stomp.wires import SocketWire, WebSocketWire, Wire

SUBPROTOCOLS: Final = (Subprotocol("v12.stomp"), Subprotocol("v11.stomp"))
MOST: Final = 10_000
"""Connections that are served at a time; more are closed at once."""
HEAD_BYTES: Final = 64 * 1024
"""Room for the head of a frame in a message of a WebSocket, beside its body."""


class StompServer:
    def __init__(self, sessions: Sessions, access: Access, terms: Terms | None = None) -> None:
        self._sessions = sessions
        self._access = access
        self._terms = terms or Terms()
        self._listening: list[asyncio.Server | Server] = []
        self._serving: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, tls: SSLContext | None = None) -> int:
        """Serve sockets there; answers the port."""
        await asyncio.to_thread(forget_left, self._sessions.node)
        server = await asyncio.start_server(self._on_socket, host, port, ssl=tls)
        self._listening.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def listen_websocket(self, host: str, port: int, tls: SSLContext | None = None) -> int:
        """Serve WebSockets there, on any path; answers the port."""
        await asyncio.to_thread(forget_left, self._sessions.node)
        server = await serve(
            self._on_websocket,
            host,
            port,
            ssl=tls,
            subprotocols=SUBPROTOCOLS,
            select_subprotocol=_subprotocol,
            compression=None,  # a small message would become a large one
            max_size=self._terms.limits.body + HEAD_BYTES,
            max_queue=1,
        )
        self._listening.append(server)
        return int(next(iter(server.sockets)).getsockname()[1])

    async def close(self) -> None:
        """Take no other connection, and end those that are served: what they have leased goes back."""
        for one in self._listening:
            one.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for one in self._listening:
            await one.wait_closed()

    async def _on_socket(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(SocketWire(reader, writer, self._terms.patience.stalled))

    async def _on_websocket(self, connection: ServerConnection) -> None:
        await self._serve(WebSocketWire(connection, self._terms.patience.stalled))

    async def _serve(self, wire: Wire) -> None:
        if len(self._serving) >= MOST:
            await wire.close()
            return
        task = asyncio.create_task(Client(self._sessions, self._access, wire, self._terms).run())
        self._serving.add(task)
        await asyncio.wait([task])
        self._serving.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._sessions.node.telling.tell("stomp.failed", peer=wire.peer, error=error)


def _subprotocol(_connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """The first of ours that the client offers; one that offers none speaks STOMP all the same."""
    return next((one for one in SUBPROTOCOLS if one in offered), None)


def forget_left(node: Node) -> None:
    """End the subscriptions to topics that should have ended with their connection, and whose server has died."""
    live = {queue for one in node.clients() if one.state == "live" for queue in one.queues}
    names = node.keys()
    for queue in names:
        client, _, name = queue.rpartition("/")
        if name.startswith(TEMPORARY) and queue not in live:
            node.unsubscribe(name, client=client)
