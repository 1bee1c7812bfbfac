"""The floor on an event loop: one commit a tick, in the loop's own thread."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench.applications import live
from bench.floor import CONTENT_TYPE, LINGER_SECONDS, Arrival, Floor, Items, acknowledgement, arrival

__all__ = ["ASGIFloor"]


class ASGIFloor:
    """An ASGI application: ``app``, of WSGI, is called for every message that is stored at ``path``."""

    def __init__(self, app: Any, path: Path) -> None:
        self.floor = Floor(app, path)
        self._arrivals: list[Arrival] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._unsettled = 0
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await live(receive, send)
        client = scope["client"]
        pieces, more = [], True
        while more:
            message = await receive()
            pieces.append(message["body"])
            more = message.get("more_body", False)
        environ = _environ(scope["path"], client[0], scope["server"], tuple(scope["headers"]))
        found = arrival(b"".join(pieces), environ, f"{client[0]}:{client[1]}")
        if found is None:
            answer = self.floor.create(scope["path"])
        else:
            await self._committed(found)
            answer = acknowledgement(found.identifier, found.number)
        headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _committed(self, one: Arrival) -> asyncio.Future[None]:
        """Done with the commit at the end of this tick."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if not self._arrivals:
            loop.call_soon(self._commit, loop)
        self._arrivals.append(one)
        self._waiting.append(future)
        return future

    def _commit(self, loop: asyncio.AbstractEventLoop) -> None:
        arrivals, self._arrivals = self._arrivals, []
        waiting, self._waiting = self._waiting, []
        self._unsettled += len(arrivals) - self.floor.commit(arrivals)
        for future in waiting:
            future.set_result(None)
        if self._unsettled and self._timer is None:
            self._timer = loop.call_later(LINGER_SECONDS, self._late, loop)

    def _late(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing may have come to be written with."""
        self._timer = None
        self._commit(loop)


@lru_cache(1_024)
def _environ(path: str, address: str, server: tuple[str, int], headers: tuple[tuple[bytes, bytes], ...]) -> Items:
    """A client's requests are alike."""
    named = {f"HTTP_{name.decode().upper().replace('-', '_')}": value.decode() for name, value in headers}
    environ = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.url_scheme": "http",
        "REMOTE_ADDR": address,
        "CONTENT_TYPE": named.pop("HTTP_CONTENT_TYPE"),
        "CONTENT_LENGTH": named.pop("HTTP_CONTENT_LENGTH"),
    }
    return (*environ.items(), *named.items())
