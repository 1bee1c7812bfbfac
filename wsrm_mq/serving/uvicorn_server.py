"""uvicorn with the bounds that it has no options for, and an end that is ours to time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from socket import socket
from typing import Any, Final

import uvicorn

from wsrm_mq.asgi_calls import ASGIApplication
from wsrm_mq.events.telling import tell
from wsrm_mq.serving.admission import Admission, ConnectionBounds
from wsrm_mq.serving.http_protocol import BoundedProtocol

_SWEEP_TICKS: Final = 50
_LOOK_TICKS: Final = 10
"""Ticks of uvicorn, of 0.1 s each."""
_LAST_BYTES_SECONDS: Final = 2
"""For answers that are on their way when the end has come."""


class BoundedServer(uvicorn.Server):
    """Serves ``app``. ``announce`` is called when it does, ``ending`` when it is told to stop (``should_exit``): then
    no connection and no further request is taken, and running requests may take ``drain_seconds``. ``certificate`` and
    ``key``: files, as PEM; without them there is no TLS."""

    def __init__(
        self,
        app: ASGIApplication,
        *,
        announce: Callable[[], None],
        ending: Callable[[], None],
        drain_seconds: float,
        bounds: ConnectionBounds = ConnectionBounds(),  # noqa: B008 - it is frozen
        tell: Callable[..., None] = tell,
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        self._admission = Admission(bounds, tell)
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(BoundedProtocol, self._admission),  # type: ignore[arg-type]
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=[("server", "wsrm-mq")],
                ssl_certfile=certificate,
                ssl_keyfile=key,
                timeout_keep_alive=bounds.keep_alive,  # type: ignore[arg-type]
                timeout_graceful_shutdown=_LAST_BYTES_SECONDS,
            )
        )
        self._admission.set_connections(self.server_state.connections)  # type: ignore[arg-type]
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
        if counter % _LOOK_TICKS == 0:
            self._admission.look(asyncio.get_running_loop().time())
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
