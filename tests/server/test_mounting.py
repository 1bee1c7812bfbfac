"""The queues beside another application: calls go where their path leads, and both live as long as the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wsrm_mq.asgi_calls import Message, Receive, Scope, Send
from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.server.mounting import Mounted


class Queues:
    """It notes what it is asked for."""

    def __init__(self, error: Exception | None = None) -> None:
        self.seen: list[Any] = []
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append((scope["path"], scope["root_path"]))

    async def start(self) -> None:
        if self._error is not None:
            raise self._error
        self.seen.append("start")

    async def stop(self) -> None:
        self.seen.append("stop")

    def ending(self) -> None:
        self.seen.append("ending")


class Service(Queues):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            return await super().__call__(scope, receive, send)
        await receive()
        self.seen.append("start")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.seen.append("stop")
        await send({"type": "lifespan.shutdown.complete"})


async def _lived(mounted: Mounted, *paths: str) -> list[str]:
    """Have it live, and called on ``paths``; what it says of its life."""
    said: list[str] = []
    coming: asyncio.Queue[Message] = asyncio.Queue()

    async def send(message: Message) -> None:
        said.append(message["type"])

    life = asyncio.create_task(mounted({"type": "lifespan"}, coming.get, send))
    coming.put_nowait({"type": "lifespan.startup"})
    while not said:
        await asyncio.sleep(0)
    for path in paths:
        await mounted({"type": "http", "path": path, "root_path": ""}, coming.get, send)
    coming.put_nowait({"type": "lifespan.shutdown"})
    await life
    return said


def test_what_is_below_their_path_is_the_queues_and_all_else_the_services() -> None:
    queues, service = Queues(), Service()
    said = asyncio.run(_lived(Mounted(queues, service), "/queues/queues/a", "/queues", "/queuesque", "/orders"))
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert queues.seen == ["start", ("/queues/queues/a", "/queues"), ("/queues", "/queues"), "stop"]
    assert service.seen == ["start", ("/queuesque", ""), ("/orders", ""), "stop"]


def test_by_themselves_they_have_every_path() -> None:
    queues = Queues()
    assert asyncio.run(_lived(Mounted(queues), "/orders"))[0] == "lifespan.startup.complete"
    assert queues.seen == ["start", ("/orders", ""), "stop"]


@pytest.mark.parametrize("beside", [None, Service()], ids=["alone", "beside"])
def test_a_store_that_cannot_be_opened_is_a_start_that_failed(beside: Service | None) -> None:
    mounted = Mounted(Queues(StoreUnavailable("no store", "")), beside)
    assert asyncio.run(_lived(mounted))[0] == "lifespan.startup.failed"
