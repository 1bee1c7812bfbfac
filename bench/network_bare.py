"""The least that could stand in the place of the queue server: an application that waits, on the server that ours runs
on. Nothing of ours beside that server is loaded."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from wsrm_mq.cli.serve import MANY, Listener, spare_the_collector
from wsrm_mq.config import Settings


class Waiting:
    """An ASGI application: a POST to a path that ends with ``/leases`` is answered with the body of a later POST."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[bytes]] = deque()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (said := (await receive())["type"]) == "lifespan.startup":
                await send({"type": f"{said}.complete"})
            await send({"type": f"{said}.complete"})
            return
        body: bytes = (await receive())["body"]
        if scope["path"].endswith("/leases"):
            answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            self._waiting.append(answer)
            body = await answer
        elif self._waiting:
            self._waiting.popleft().set_result(body)
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def main() -> None:
    listener = Listener(Settings(port=0, max_connections=MANY))
    spare_the_collector()
    listener.run(Waiting(), lambda *_, **__: None)


if __name__ == "__main__":
    main()
