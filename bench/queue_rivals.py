"""Queues for Python programs that keep their messages in a SQLite file, each used as its documentation says."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

__all__ = ["FULL", "RIVALS", "Leased", "Queue", "Server", "System", "in_files"]

Leased = tuple[bytes, Any]
"""The body of a message, and that by which the queue settles it."""
FULL: Final = "syncs each commit"


class Queue(Protocol):
    """One process's connection to one queue."""

    def fill(self, bodies: Sequence[bytes]) -> None:
        """Put them for what is measured afterwards: faster than ``put``, and not synced where that can be left out."""

    def put(self, bodies: Sequence[bytes]) -> None:
        """Store the bodies, in one commit where the queue can do that. They are durable, as far as the queue makes
        them, when this returns."""

    def lease(self, count: int, wait: float) -> Sequence[Leased]:
        """Up to ``count`` messages; those that are there now, or that come within ``wait`` seconds where the queue can
        wait."""

    def ack(self, leased: Sequence[Leased]) -> None:
        """Settle the messages for good."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Server:
    """``fresh()`` empties the queue, or makes a new one, and answers the place at which it can be connected to;
    ``pids()`` are the processes that a server has now."""

    fresh: Callable[[], str]
    pids: Callable[[], tuple[int, ...]] = tuple


@dataclass(frozen=True)
class System:
    """``runs(directory)`` is a context in which there is a ``Server``; ``connect(place)`` makes a ``Queue`` in any
    process."""

    name: str
    syncs: str
    keeps: str
    """The fate of a message that was received and not acknowledged."""
    runs: Callable[[Path], AbstractContextManager[Server]]
    connect: Callable[[str], Queue]
    counts: bool = True
    """It syncs, keeps what was not acknowledged, and gives each message to one of its consumers."""
    shows: bool = False
    """It does not count, and ours is held against it all the same."""
    batch: tuple[int, int] = (30, 10)
    """Messages a lease and messages an acknowledgement, where it is best."""
    waiting: int = 15_000
    """Messages in the queue when leasing begins."""
    waits: bool = False
    """A consumer in another process is woken."""
    shares: bool = True
    """Several processes can consume."""


@contextmanager
def in_files(directory: Path) -> Iterator[Server]:
    """Each queue is a file in a new directory."""
    yield Server(lambda: str(Path(tempfile.mkdtemp(dir=directory), "queue.db")))


class InFile:
    """A queue behind a connection to SQLite."""

    def _connection(self) -> sqlite3.Connection: ...

    def put(self, bodies: Sequence[bytes]) -> None: ...

    def fill(self, bodies: Sequence[bytes]) -> None:
        self._connection().execute("PRAGMA synchronous = OFF")
        self.put(bodies)


class AckQueue(InFile):
    """persist-queue's queue with acknowledgements: each call is a commit of its own."""

    def __init__(self, place: str) -> None:
        from persistqueue import SQLiteAckQueue

        file = Path(place)
        self._queue = SQLiteAckQueue(str(file.parent), db_file_name=file.name, auto_resume=False)

    def _connection(self) -> sqlite3.Connection:
        return self._queue._putter

    def put(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._queue.put(body)

    def lease(self, count: int, wait: float) -> Sequence[Leased]:
        from persistqueue import Empty

        leased: list[Leased] = []
        try:
            while len(leased) < count:
                item = self._queue.get(block=False, raw=True)
                leased.append((item["data"], item["pqid"]))
        except Empty:
            pass
        return leased

    def ack(self, leased: Sequence[Leased]) -> None:
        for _, key in leased:
            self._queue.ack(id=key)

    def close(self) -> None:
        self._queue.close()


class CursorQueue(AckQueue):
    """persist-queue's queue without automatic commits: ``task_done`` deletes all that this process has read so far. A
    second consumer reads the same messages."""

    def __init__(self, place: str) -> None:
        from persistqueue import SQLiteQueue

        file = Path(place)
        self._queue = SQLiteQueue(str(file.parent), db_file_name=file.name, auto_commit=False)

    def ack(self, leased: Sequence[Leased]) -> None:
        self._queue.task_done()


class LiteQueue(InFile):
    """litequeue: puts and acknowledgements can share a commit, each message is received in one of its own."""

    synchronous = "FULL"

    def __init__(self, place: str) -> None:
        from litequeue import LiteQueue as Its

        self._queue = Its(place)
        self._connection().execute(f"PRAGMA synchronous = {self.synchronous}")

    def _connection(self) -> sqlite3.Connection:
        return self._queue.conn

    def put(self, bodies: Sequence[bytes]) -> None:
        if len(bodies) == 1:
            self._queue.put(bodies[0])
            return
        with self._queue.transaction(mode="IMMEDIATE"):
            for body in bodies:
                self._queue.put(body)

    def lease(self, count: int, wait: float) -> Sequence[Leased]:
        leased: list[Leased] = []
        while len(leased) < count and (message := self._queue.pop()) is not None:
            leased.append((message.data, message.message_id))
        return leased

    def ack(self, leased: Sequence[Leased]) -> None:
        with self._queue.transaction(mode="IMMEDIATE"):
            for _, key in leased:
                self._queue.done(key)

    def close(self) -> None:
        self._queue.conn.close()


class LiteQueueAsShipped(LiteQueue):
    synchronous = "NORMAL"


class Huey(InFile):
    """The queue under huey's tasks; a message is deleted when it is received."""

    def __init__(self, place: str) -> None:
        from huey.storage import SqliteStorage

        self._storage = SqliteStorage(filename=place, fsync=True)

    def _connection(self) -> sqlite3.Connection:
        return self._storage.conn

    def put(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._storage.enqueue(body)

    def lease(self, count: int, wait: float) -> Sequence[Leased]:
        leased: list[Leased] = []
        while len(leased) < count and (body := self._storage.dequeue()) is not None:
            leased.append((bytes(body), None))
        return leased

    def ack(self, leased: Sequence[Leased]) -> None: ...

    def close(self) -> None:
        self._storage.close()


RIVALS: Final = (
    System("persist-queue, ack", FULL, "kept", in_files, AckQueue, batch=(1, 1), waiting=3_000),
    System(
        *("persist-queue, task_done", FULL, "kept; every consumer gets it", in_files, CursorQueue),
        counts=False,
        shows=True,
        batch=(256, 256),
        waiting=5_000,
        shares=False,
    ),
    System("litequeue, FULL", FULL, "kept", in_files, LiteQueue, batch=(100, 100), waiting=1_000),
    System(
        *("litequeue", "does not sync", "kept", in_files, LiteQueueAsShipped),
        counts=False,
        batch=(100, 100),
        waiting=1_000,
    ),
    System("huey", FULL, "deleted", in_files, Huey, counts=False, batch=(1, 1), waiting=3_000),
)
