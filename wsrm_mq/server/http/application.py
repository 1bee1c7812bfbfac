"""The application: one node of a store, its sessions, and the operations, behind credentials."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from wsrm_mq.errors import StoreError
from wsrm_mq.events.telling import Events
from wsrm_mq.node import Node, connect
from wsrm_mq.server.access import Access
from wsrm_mq.server.bounds import Bounds
from wsrm_mq.server.http import consuming, looking, presence, putting
from wsrm_mq.server.http.answers import CutOff, as_json
from wsrm_mq.server.http.call import Limits, Server
from wsrm_mq.server.http.intake import PATH, Intake
from wsrm_mq.server.http.openapi import document
from wsrm_mq.server.http.operation import Operation
from wsrm_mq.server.http.problems import Problem, as_problem
from wsrm_mq.server.mounting import Mounted
from wsrm_mq.server.routes import Routes
from wsrm_mq.server.sessions import Sessions
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

if TYPE_CHECKING:
    from wsrm_mq.routes.sending import Hop

COUNT_SECONDS: Final = 5.0
"""The time between two writes of counts, however many events there are."""
ALL: Final[tuple[Operation, ...]] = (
    *(*putting.OPERATIONS[:1], *consuming.OPERATIONS[:3]),  # the busiest come first
    *(*putting.OPERATIONS[1:], *consuming.OPERATIONS[3:], *presence.OPERATIONS, *looking.OPERATIONS),
)


class QueueApplication:
    """An ASGI application that serves the queues of a store. It begins with the server's lifespan, or with the first
    request where there is none; ``start`` and ``stop`` are for the
    application that mounts it."""

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        access: Callable[[Store, Events], Access] = Access,
        bounds: Bounds = Bounds(),  # noqa: B008 - it is frozen
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
        hops: Mapping[str, Hop] | None = None,
    ) -> None:
        """``access`` makes what tells who asks. ``bounds``: of each principal; ``limits``: of the server; ``hops``: how
        the next nodes of its routes are spoken to, by URL."""
        self._hops = hops or {}
        self._where = where
        self._access_of = access
        self._bounds = bounds
        self._limits = limits
        self._starting = asyncio.Lock()
        self._watch: asyncio.Future[Any] | None = None
        self.server: Server
        self._routes: Routes
        self._intake = Intake()
        self._routed = Router(
            [
                *(Route(one.path, one, methods=[one.method]) for one in ALL),
                Route("/openapi.json", _described),
                Route(PATH, self._intake),
            ],
            redirect_slashes=False,
        )

    async def start(self) -> None:
        """Open the store."""
        async with self._starting:
            if self._watch is None:
                node: Node = await asyncio.to_thread(connect, self._where, auto_create=False)
                access = self._access_of(node.store, node.telling)
                self.server = Server(node, Sessions(node, self._bounds), access, self._limits)
                self._routes = Routes(node, self._hops)
                self._watch = asyncio.gather(self.server.sessions.watch(), _count_events(node), self._routes.watch())

    def ending(self) -> None:
        """The end is near: what waits for a message is answered that there is none."""
        if self._watch is not None and not self.server.ending.done():
            self.server.ending.set_result(None)

    async def stop(self) -> None:
        """End all sessions, and leave the store."""
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
            await self._routes.stop()
            await self._intake.stop()
            await self.server.sessions.close()
            await asyncio.to_thread(self.server.node.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await Mounted(self)(scope, receive, send)
        elif scope["type"] == "http":
            if self._watch is None:
                await self.start()
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            inner = {**scope, "path": raw.decode("latin-1"), "root_path": scope.get("root_path", ""), "app": self}
            try:
                await self._routed(inner, receive, send)
            except HTTPException as error:
                await _no_operation(Request(inner), error)(inner, receive, send)
            except CutOff:
                pass
        else:
            raise RuntimeError(f"{scope['type']} is not served here")


async def _described(_request: Request) -> Response:
    """The API's document; any client may read it."""
    return as_json(document(ALL))


async def _count_events(node: Node) -> None:
    """Write down now and then how many events were told, so that metrics show them whichever process is asked."""
    while True:
        await asyncio.sleep(COUNT_SECONDS)
        counts = node.telling.take_counts()
        if counts:
            try:
                await asyncio.to_thread(node.call, partial(_count, counts=counts))
            except StoreError:
                node.telling.put_back(counts)


def _count(tx: Transaction, counts: Mapping[str, int]) -> None:
    for event, times in counts.items():
        tx.counts["event", 0, event] += times
    tx.count_now()


def _no_operation(request: Request, error: HTTPException) -> Response:
    """There is no such path, or no such method there."""
    is_method = error.status_code == 405
    title, code = ("Method Not Allowed", "UnknownMethod") if is_method else ("Not Found", "UnknownPath")
    next_step = f"GET {request.scope['root_path']}/openapi.json describes what there is."
    problem = Problem(error.status_code, title, code, f"There is no {request.method} {request.url.path}.", next_step)
    answer = as_problem(problem, error)
    answer.headers.update(error.headers or {})
    return answer
