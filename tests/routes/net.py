"""Nodes in one process, joined by a wire that is in the test's hand: real stores, real destinations, real sources."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from wsrm_mq.asgi_calls import Receive, Scope, Send
from wsrm_mq.errors import NotAnswered
from wsrm_mq.node import Node
from wsrm_mq.queue.routing import settle_name
from wsrm_mq.routes.running import Routing
from wsrm_mq.server.http import intake
from wsrm_mq.store.clock import wall_clock
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.testing import ASGIWire, Lifespan

__all__ = ["Answer", "Net", "One", "until"]

SECONDS: Final = 30.0


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    content: bytes


def until(condition: Callable[[], object], seconds: float = SECONDS) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class One:
    """A node that may be stopped and begun again. ``principal``: whom it takes its callers for."""

    def __init__(self, net: Net, name: str, **options: Any) -> None:
        self.net = net
        self.name = name
        self.url = f"http://{name}/rm"
        self.path = net.directory / f"{name}.db"
        self.options = options
        self.clock: Callable[[], int] = options.pop("clock", wall_clock)
        self.is_up = False
        self.is_node = True
        """Whether it says so on its answers."""

    def start(self) -> One:
        self.node = Node(self.path, clock=self.clock)
        self.node.call(partial(settle_name, configured=self.name))
        self.destination = intake._destination(self.node.store)
        self._lifespan = Lifespan(self._served)
        self._lifespan.__enter__()
        self.routing = Routing(self.node, post=self.net.post_from(self.name), **self.options)
        self.routing.start()
        self.is_up = True
        return self

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = intake._as_node(send, self.name) if self.is_node else send
        await self.destination({**scope, intake._NODE: "test"}, receive, sent)

    def stop(self) -> None:
        if self.is_up:
            self.is_up = False
            self.routing.close(5.0)
            self._lifespan.__exit__(None, None, None)
            self.destination.close(5.0)
            self.node.close()

    def answer(self, headers: Mapping[str, str], body: bytes) -> Answer:
        said = ASGIWire(self._served, "/rm").post(body, dict(headers))
        return Answer(said.status, list(said.fields.items()), said.body)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=30)) as db:
            return db.execute(query, values).fetchall()

    def dead(self) -> list[tuple[str, str]]:
        """Reason and error of each dead letter, whatever queue has it."""
        return self.rows("SELECT reason, last_error FROM entry WHERE outcome = 'dead' ORDER BY id")

    def waiting(self) -> int:
        """How many messages wait for next nodes."""
        rows = self.rows(
            "SELECT count(*) FROM entry e JOIN queue q ON q.id = e.queue WHERE q.name LIKE 'send/hop/%' "
            "AND e.outcome IS NULL AND e.message IN (SELECT message FROM routed)"
        )
        return int(rows[0][0])

    def bodies(self, queue: str) -> list[bytes]:
        """The bodies in a queue, in order."""
        return [one.body for one in self.node.peek(queue, limit=100_000)]

    def findings(self) -> list[Any]:
        with self.node.reader() as db:
            return list(all_findings(db))


Fate = Callable[[str, str, int], str]
"""Sender, receiver, number of the post → ``through``, ``request lost``, ``answer lost``."""


class Net:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes: dict[str, One] = {}
        self.fate: Fate = lambda _sender, _receiver, _number: "through"
        self.posts: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []
        self._lock = threading.Lock()

    def add(self, name: str, **options: Any) -> One:
        one = self.nodes[name] = One(self, name, **options)
        return one.start()

    def post_from(self, sender: str) -> Any:
        def post(url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answer:
            receiver = url.removeprefix("http://").partition("/")[0]
            with self._lock:
                self.posts.append((sender, receiver))
                self.bodies.append(body)
                number = len(self.posts)
            fate = self.fate(sender, receiver, number)
            one = self.nodes[receiver]
            if not one.is_up or fate == "request lost":
                raise NotAnswered(f"{url}: connection refused")
            answer = one.answer(headers, body)
            if fate == "answer lost":
                raise NotAnswered(f"{url}: the connection was reset")
            return answer

        return post

    @property
    def carried(self) -> list[tuple[str, str]]:
        """The posts that had a message: sender and receiver."""
        return [way for way, body in zip(self.posts, self.bodies, strict=False) if b"<r:Route" in body]

    def stop(self) -> None:
        for one in self.nodes.values():
            one.stop()
