"""Wires to an application in this process, without a server, and its lifespan. Many threads may post on one."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import cache
from typing import Any, Final, Self
from urllib.parse import unquote_to_bytes

from wsrm_mq.testing.wire import HTTPAnswer

Message = MutableMapping[str, Any]
ASGIApplication = Callable[
    [Any, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
WSGIApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_OWN_KEYS: Final = ("CONTENT_TYPE", "CONTENT_LENGTH")
_SECONDS: Final = 60.0
"""The longest time of an answer."""


class WSGIWire:
    """Calls a WSGI application. ``environ`` is put over that of each request."""

    def __init__(self, app: WSGIApplication, path: str = "/", environ: Mapping[str, Any] | None = None) -> None:
        self._app = app
        self._environ = {"PATH_INFO": unquote_to_bytes(path).decode("latin-1"), **(environ or {})}

    def post(self, body: bytes, fields: Mapping[str, str]) -> HTTPAnswer:
        return self._call(body, len(body), fields)

    def post_half(self, body: bytes, fields: Mapping[str, str]) -> None:
        self._call(body[: len(body) // 2], len(body), fields)

    def close(self) -> None:
        """There is nothing to close."""

    def _call(self, body: bytes, length: int, fields: Mapping[str, str]) -> HTTPAnswer:
        environ = {
            "REQUEST_METHOD": "POST",
            "CONTENT_LENGTH": str(length),
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in fields.items():
            key = name.upper().replace("-", "_")
            environ[key if key in _OWN_KEYS else f"HTTP_{key}"] = value
        begun: list[tuple[str, list[tuple[str, str]]]] = []
        content = io.BytesIO()

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Callable[..., Any]:
            begun.append((status, headers))
            return content.write

        parts = self._app({**environ, **self._environ}, start_response)
        try:
            content.writelines(parts)
        finally:
            if hasattr(parts, "close"):
                parts.close()
        status, _, reason = begun[-1][0].partition(" ")
        return HTTPAnswer(
            int(status), {name.lower(): value for name, value in begun[-1][1]}, content.getvalue(), reason
        )


class ASGIWire:
    """Calls an ASGI application in an event loop that all wires of the process share. ``scope`` is put over that of
    each request."""

    def __init__(self, app: ASGIApplication, path: str = "/", scope: Mapping[str, Any] | None = None) -> None:
        self._app = app
        self._scope = {"path": unquote_to_bytes(path).decode(), "raw_path": path.encode(), **(scope or {})}

    def post(self, body: bytes, fields: Mapping[str, str]) -> HTTPAnswer:
        return self._call([body], len(body), fields)

    def post_half(self, body: bytes, fields: Mapping[str, str]) -> None:
        try:
            self._call([body[: len(body) // 2], None], len(body), fields)
        except ConnectionError:
            pass  # a client that is gone is told nothing

    def close(self) -> None:
        """There is nothing to close."""

    def _call(self, parts: list[bytes | None], length: int, fields: Mapping[str, str]) -> HTTPAnswer:
        exchange = self._exchange(parts, {"Content-Length": str(length), **fields})
        return asyncio.run_coroutine_threadsafe(exchange, _loop()).result(_SECONDS)

    async def _exchange(self, parts: list[bytes | None], fields: Mapping[str, str]) -> HTTPAnswer:
        """``None`` among ``parts``: the client is gone."""
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 5000),
            "server": ("127.0.0.1", 80),
        }
        sent: list[Message] = []

        async def receive() -> Message:
            if not parts:
                await asyncio.Event().wait()  # the client stays
            part = parts.pop(0)
            if part is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app({**scope, **self._scope}, receive, send)
        if not sent:
            raise ConnectionError("the application sent no answer")
        answered = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        return HTTPAnswer(sent[0]["status"], answered, b"".join(message.get("body", b"") for message in sent[1:]))


class Lifespan:
    """Starts an ASGI application in the loop of ``ASGIWire`` and stops it, as a server does: ``with Lifespan(app):``.

    One that knows no lifespan is left as it is. Raises ``RuntimeError`` where it fails to start or to stop."""

    def __init__(self, app: ASGIApplication) -> None:
        self._app = app
        self.state: dict[str, Any] = {}
        """The state that the application fills at its start; ``ASGIWire(app, scope={"state": …})`` gives it to
        requests."""

    def __enter__(self) -> Self:
        self._told: asyncio.Queue[Message] = asyncio.Queue()
        self._said: asyncio.Queue[Message] = asyncio.Queue()
        self._run = asyncio.run_coroutine_threadsafe(self._live(), _loop())
        self._announce("startup")
        return self

    def __exit__(self, *_exception: object) -> None:
        if not self._run.done():
            self._announce("shutdown")
            self._run.result(_SECONDS)

    async def _live(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            await self._app(scope, self._told.get, self._said.put)
        finally:
            await self._said.put({"type": "lifespan.none"})

    def _announce(self, event: str) -> None:
        async def tell() -> Message:
            await self._told.put({"type": f"lifespan.{event}"})
            return await self._said.get()

        said = asyncio.run_coroutine_threadsafe(tell(), _loop()).result(_SECONDS)
        if said["type"].endswith(".failed"):
            raise RuntimeError(f"{event}: {said.get('message') or 'failed'}")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="ASGIWire", daemon=True).start()
    return loop
