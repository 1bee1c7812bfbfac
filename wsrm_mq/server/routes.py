"""The work of a server for the routes of its node: it sends what waits for other nodes, and places what has come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from wsrm_mq.node import Node
from wsrm_mq.server import tokens
from wsrm_mq.store import routing
from wsrm_mq.store.lasting import Repeated
from wsrm_mq.store.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from wsrm_mq.routes.running import Routing
    from wsrm_mq.routes.sending import Hop

_LOOK_SECONDS: Final = 1.0


class Routes:
    """They begin once the node has routes, or another one has handed something over: else they cost nothing."""

    def __init__(self, node: Node, hops: Mapping[str, Hop]) -> None:
        self._node = node
        self._hops = hops
        self._life = threading.Lock()
        """Held while they begin or end: an end waits for a beginning under way."""
        self._begun: Routing | None = None
        self._is_over = False
        self._trouble = Repeated()

    async def watch(self) -> None:
        while self._begun is None:
            try:
                await asyncio.to_thread(self._begin)
            except Exception as error:
                self._trouble.tell(self._node.telling, "route.broken", error)
            await asyncio.sleep(_LOOK_SECONDS)

    def _begin(self) -> None:
        with self._life:
            with self._node.reader() as db:
                (is_needed,) = db.execute(routing.IS_NEEDED).fetchone()
            if self._is_over or not is_needed:
                return
            from wsrm_mq.routes.running import Routing  # few servers have routes

            begun = Routing(self._node, may=may_route, hops=self._hops)
            begun.start()
            self._begun = begun

    async def stop(self) -> None:
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        with self._life:
            self._is_over = True
            if self._begun is not None:
                self._begun.close()


def may_route(tx: UnitOfWork, node: str | None, target: str) -> bool:
    """Whether the node of this name may hand over messages for the queue ``target``, now that they are placed."""
    token = tokens.named(tx, node or "")
    return token is not None and not token.has_expired(tx.now) and token.principal.may("route", target)
