"""`serve`'s server in a thread of the test, with short times."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from wsrm_mq.serving.admission import ConnectionBounds
from wsrm_mq.serving.uvicorn_server import BoundedServer

SHORT = 0.5
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def read(scope: Any, receive: Any) -> bytes | None:
    """The body of a request; ``None`` where its client is gone before the end."""
    if scope["type"] != "http":
        raise RuntimeError("no lifespan")
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body
    return None


async def application(scope: Any, receive: Any, send: Any) -> None:
    body = await read(scope, receive)
    if body is None:
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def showing(scope: Any, receive: Any, send: Any) -> None:
    """Answers, as JSON, with what it was asked; after a while where the path says so."""
    body = await read(scope, receive)
    if body is None:
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(SHORT)
    fields = {name.decode(): value.decode() for name, value in scope["headers"]}
    shown = {"asked": f"{scope['method']} {scope['path']}", "fields": fields, "body": body.decode("latin-1")}
    text = json.dumps(shown).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


class Running:
    def __init__(self, app: Any = application, drain_seconds: float = 5.0, **bounds: Any) -> None:
        self.steps: list[str] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        serves = threading.Event()

        def announce() -> None:
            self.steps.append("serves")
            serves.set()

        self.server = BoundedServer(
            app,
            announce=announce,
            ending=lambda: self.steps.append("ends"),
            drain_seconds=drain_seconds,
            bounds=ConnectionBounds(**{"request_seconds": SHORT, **bounds}),
            tell=lambda name, **fields: self.told.append((name, fields)),
        )
        self.thread = threading.Thread(target=self.server.run, args=([listening],), daemon=True)
        self.thread.start()
        assert serves.wait(20)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()


Run = Callable[..., Running]
