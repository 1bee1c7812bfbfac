"""The work of a process for the routes of its node: it sends what waits for next nodes, and places what has come."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from wsrm_mq.node.node import Node
from wsrm_mq.queue.declaring import Declared
from wsrm_mq.queue.leasing import count_ready
from wsrm_mq.queue.routing import settle_name
from wsrm_mq.routes.hops import Hops
from wsrm_mq.routes.placing import MOST, Broken, May, place
from wsrm_mq.routes.sending import Hop, Sending
from wsrm_mq.store import queues
from wsrm_mq.store.applications import INTAKE
from wsrm_mq.store.lasting import Lasting, Repeated
from wsrm_mq.store.sql import storable

if TYPE_CHECKING:
    from wsrm_mq.delivery.posted import Post

LOOK_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 30.0
_RESTS: Final = 10.0
"""The factor of a rest to the time of a look that has found no room for anything."""
_GATHERS: Final = 5.0
"""The factor of the time for which messages are gathered to the time of the last placing: a commit for each message
would contend with those that store what arrives."""
_GATHER_SECONDS: Final = 0.05


class Routing:
    """Beside a node, in its process: see ``Node.route``. Any number of processes may do it for one store.

    ::

        with connect("east.db") as node, Routing(node, hops={north: Hop(token=…)}):
            node.route("north/*", next_hop=north)
            node.put("north/orders", b"…")
    """

    def __init__(
        self,
        node: Node,
        *,
        may: May = lambda _tx, _principal, _target: True,
        hops: Mapping[str, Hop] | None = None,
        post: Post | None = None,
    ) -> None:
        """``may`` answers whether the holder of a token may put into a queue by way of this node; ``hops``: how next
        nodes are spoken to, by URL; ``post`` takes the place of HTTP."""
        self._node = node
        self._may = may
        self._sending = Sending(node.store, hops or {}, post)
        self._hops = Hops(node.store, self._sending, node.telling)
        self._stopping = threading.Event()
        self._trouble = Repeated()
        self._thread = Lasting("wsrm-mq-routes", self._run, self._broke, node.telling)

    def start(self) -> None:
        self._node.call(settle_name)
        try:
            self._sending.start()
        except BaseException:
            self._sending.close(0)
            raise
        self._thread.start()
        self._hops.start()

    def close(self, timeout: float = _DRAIN_SECONDS) -> None:
        self._stopping.set()
        self._node.doorbell.settled()
        self._thread.join()
        self._hops.stop()
        self._sending.close(timeout)

    def __enter__(self) -> Routing:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        bell = self._node.doorbell
        bell.listen()
        while not self._stopping.is_set():
            rings = bell.rings
            began = time.monotonic()
            while not self._stopping.is_set() and self._has_come():
                placed = self._place()
                took = time.monotonic() - began
                if not placed:  # all that is here waits for room
                    self._stopping.wait(min(LOOK_SECONDS, _RESTS * took))
                    break
                bell.tell()
                if placed < MOST:
                    self._stopping.wait(min(_GATHER_SECONDS, _GATHERS * took))
                began = time.monotonic()
            self._sending.look()
            self._trouble.over()
            bell.wait(rings, LOOK_SECONDS)

    def _place(self) -> int:
        failed: set[int] = set()
        aside: dict[int, str] = {}
        while True:
            try:
                return self._node.call(partial(place, may=self._may, aside=aside))
            except Broken as broken:  # once more, and then it is set aside: what lies behind it goes on
                if broken.position in failed:
                    error = broken.__cause__
                    self._node.telling.tell("route.broken", trouble=error)
                    aside[broken.position] = storable(f"{type(error).__name__}: {error}")
                failed.add(broken.position)

    def _has_come(self) -> bool:
        with self._node.reader() as db:
            row = db.execute(queues.QUEUE_ROW, {"name": INTAKE}).fetchone()
            return row is not None and count_ready(db, Declared(*row), None, self._node.store.reached(), most=1) > 0

    def _broke(self, error: BaseException) -> None:
        self._trouble.tell(self._node.telling, "route.broken", error)
        self._stopping.wait(LOOK_SECONDS)
