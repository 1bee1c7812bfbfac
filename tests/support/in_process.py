"""The middleware in this process, without a server: for what only its inside can show."""

from __future__ import annotations

import gzip
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from wsrm_mq import WSRMMiddleware
from wsrm_mq.testing import EnvelopeFactory, Reply, WSGIWire

FACTORY = EnvelopeFactory()
TWO_WAY = FACTORY.anonymous

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def taken(start_response: Callable[..., Any]) -> list[bytes]:
    """Answer as an operation without a result does."""
    start_response("202 Accepted", [("Content-Length", "0")])
    return []


class InProcess:
    """A store and the middleware over it, which may be closed and opened again."""

    def __init__(self, directory: Path, app: Application, **options: Any) -> None:
        self.path = directory / "store.db"
        self._app = app
        self._options = {"one_way": (), **options}
        """Nothing is asked of the application but what a test sends."""
        self.open()

    def open(self) -> None:
        self.middleware = WSRMMiddleware(self._app, self.path, **self._options)

    def create(self) -> str:
        created = Reply.parse(self.post(FACTORY.create_sequence())[1]).created
        assert created is not None
        return created.identifier

    def put(self, identifier: str, number: int, **options: Any) -> str:
        """Send a message; answers the status line."""
        return self.post(FACTORY.message(identifier, number, **options))[0]

    def put_compressed(self, identifier: str, number: int) -> str:
        return self.post(gzip.compress(FACTORY.message(identifier, number)), HTTP_CONTENT_ENCODING="gzip")[0]

    def post(self, body: bytes, **more: str) -> tuple[str, bytes]:
        wire = WSGIWire(self.middleware, "/orders", more)
        answer = wire.post(body, {"Content-Type": FACTORY.content_type})
        return f"{answer.status} {answer.reason}", answer.body

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=10)) as db:
            rows = db.execute(query, values).fetchall()
            db.commit()
            return rows


def until(condition: Callable[[], object], seconds: float = 10) -> bool:
    """Whether it becomes true within ``seconds``."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
