"""``/rm``: other nodes hand messages over, each by the WS-RM of this package, to its own destination.

It is the destination of the ASGI front in the mode ``pull``, with no application behind it. What it has acknowledged is
in the queue ``INTAKE``, and is placed from there. Who asks is known before a byte of a body is read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from wsrm_mq.errors import RightMissing, WSRMError
from wsrm_mq.queue.hopping import NODE_HEADER
from wsrm_mq.queue.routing import node_name
from wsrm_mq.server.http.problems import answer_of
from wsrm_mq.server.rights import Principal
from wsrm_mq.store.applications import INTAKE
from wsrm_mq.store.store import Store

if TYPE_CHECKING:
    from wsrm_mq.asgi import WSRMASGIMiddleware

PATH: Final = "/rm"
PUT: Final = "urn:wsrm-mq:route:put"
_NODE: Final = "wsrm-mq.node"
"""In the scope of a request: the name of the node that sends it."""
_DRAIN_SECONDS: Final = 30.0


class Intake:
    """An application of ASGI below that of ``scope``. Its destination begins with the first request of a node: where
    nothing is routed it costs nothing."""

    def __init__(self) -> None:
        self._making = asyncio.Lock()
        self._made: WSRMASGIMiddleware | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client, server = scope.get("client"), scope["app"].server
        try:
            node = server.access.of_request(Headers(scope=scope), client and client[0])
            _require(node)
        except WSRMError as error:
            return await answer_of(error)(scope, receive, send)
        destination = self._made or await self._make(server.node.store)
        with server.node.store.reader() as db:
            here = node_name(db).name
        headers = [one for one in scope["headers"] if one[0] != b"authorization"]
        await destination({**scope, "headers": headers, _NODE: node.name}, receive, _as_node(send, here))

    async def _make(self, store: Store) -> WSRMASGIMiddleware:
        async with self._making:
            if self._made is None:
                self._made = await asyncio.to_thread(_destination, store)
            return self._made

    async def stop(self) -> None:
        if self._made is not None:
            made, self._made = self._made, None
            await asyncio.to_thread(made.close, _DRAIN_SECONDS)


def _as_node(send: Send, name: str) -> Send:
    """Say on an answer which node gives it: an endpoint that is none takes no messages of nodes, and none that has had
    a message is chosen for it again."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            said = (NODE_HEADER.encode(), quote(name).encode())
            message = {**message, "headers": [*message.get("headers", ()), said]}
        await send(message)

    return sent


def _destination(store: Store) -> WSRMASGIMiddleware:
    from wsrm_mq.asgi import WSRMASGIMiddleware  # few servers have routes
    from wsrm_mq.config import settings_from

    settings = settings_from(
        {
            "store": str(store.path),
            "mode": "pull",
            "one_way": (PUT,),
            "require_rm": True,
            "announce_rm": False,
            "retry": (),
            "on_poison": "dead_letter",
            "retain": 0,
        }
    )
    own = settings.replace(queue=INTAKE)  # no service may call its queue so
    return WSRMASGIMiddleware.from_settings(
        _no_application, own, interface="asgi", start=False, authenticate=_node_of, clock=store.clock
    )


def _node_of(environ: Any, _headers: object) -> str:
    return str(environ["asgi.scope"][_NODE])


async def _no_application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that is no message for a queue: for a page, or of an operation that answers."""
    said = f"Nodes post messages here, by WS-ReliableMessaging, with the action {PUT}. There is nothing else."
    await PlainTextResponse(said, 404)(scope, receive, send)


def _require(node: Principal) -> None:
    """Raises ``RightMissing`` for who may hand over nothing at all."""
    if not any(grant.right == "route" for grant in node.grants):
        raise RightMissing(
            f"{node.name} is no node here: it has not the right `route`. "
            "An operator grants that: `wsrm-mq token add … --route '*'`."
        )
