"""uvicorn with the bounds that it has no options for, and an end that is ours to time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from socket import socket
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from wsrm_mq.asgi_calls import ASGIApplication

__all__ = ["BoundedServer"]

MOST_CONNECTIONS: Final = 1_000
"""At a time; whoever comes then is answered 503."""
KEEP_ALIVE_SECONDS: Final = 120
"""Longer than clients keep a connection that they do not use (WCF: 100 s): they should be the ones who close it."""
REQUEST_SECONDS: Final = 60.0
"""How long the head of a request may take to come, and a pause in its body."""
HEAD_BYTES: Final = 64 * 1024
"""What the request line and the headers may be together, beside what came with their first byte."""
_SWEEP_TICKS: Final = 50
"""Of 0.1 s each, as uvicorn counts."""
_LAST_BYTES_SECONDS: Final = 2
"""For answers that are on their way when the end has come."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection on which a request has to come in time and with a head of bounded size."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._is_new = self._in_head = True
        self._head_bytes = 0
        self._due: float | None = self.loop.time() + REQUEST_SECONDS
        """When the request, or the next piece of it, has to be here. None while an answer is being made."""

    def data_received(self, data: bytes) -> None:
        self._is_new = False
        super().data_received(data)
        if not self._in_head:
            if self._due is not None:
                self._due = self.loop.time() + REQUEST_SECONDS
        elif not self._is_new:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_new = self._in_head = True
        self._head_bytes = 0
        self._due = self.loop.time() + REQUEST_SECONDS

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._due = None
        super().on_message_complete()

    def close_if_late(self, now: float) -> None:
        if self._due is not None and self._due < now and not self.flow.read_paused:
            self.transport.close()

    def shutdown(self) -> None:
        """The end is near: a request that is not here in whole is not waited for."""
        if self._due is not None:
            self.transport.close()
        else:
            super().shutdown()


class BoundedServer(uvicorn.Server):
    """Serves ``app``. ``announce`` is called when it does, ``ending`` when it is told to stop (``should_exit``): then
    no connection and no further request is taken, and what runs may take ``drain_seconds``."""

    def __init__(
        self, app: ASGIApplication, *, announce: Callable[[], None], ending: Callable[[], None], drain_seconds: float
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=BoundedProtocol,
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=[("server", "wsrm-mq")],
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_LAST_BYTES_SECONDS,
            )
        )
        self._announce = announce
        self._ending = ending
        self._drain_seconds = drain_seconds
        self.has_finished = True
        """Whether all requests were answered before the end."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()  # the caller's business

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    async def on_tick(self, counter: int) -> bool:
        if counter % _SWEEP_TICKS == 0:
            now = asyncio.get_running_loop().time()
            for connection in self._connections():
                connection.close_if_late(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._ending()
        for server in self.servers:
            server.close()
        for connection in self._connections():
            connection.shutdown()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._drain_seconds
        while self.server_state.tasks and loop.time() < deadline:
            await asyncio.sleep(0.02)
        self.has_finished = not self.server_state.tasks
        await super().shutdown(sockets)

    def _connections(self) -> list[Any]:
        return list(self.server_state.connections)
