"""Our queues, and the least that their rows cost: the same rows of the same tables, written in a loop of plain SQL."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from bench.queue_rivals import FULL, InFile, Leased, System, in_files
from wsrm_mq.store.sqlite import schema

__all__ = ["BARE", "OURS", "filled"]

_QUEUE: Final = "INSERT OR IGNORE INTO queue (name, kind, created_at, policy) VALUES ('bench', 'app', 0, '{}')"
_ENTRY: Final = "INSERT INTO entry (id, queue, message, priority) VALUES (?1, 1, ?1, 4)"
_MESSAGE: Final = "INSERT INTO message (id, environ, received_at, body_size, body) VALUES (?, '{}', ?, ?, ?)"
_PUT: Final = (
    "UPDATE queue SET messages = messages + ?, bytes = bytes + ?, last_position = ?, last_put_at = ? WHERE id = 1"
)
_COUNTED: Final = "UPDATE queue SET messages = messages + ?, bytes = bytes + ? WHERE id = 1"
_LAST: Final = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entry'"
_LEASE: Final = """
UPDATE entry SET owner = 1, fence = fence + 1, deliveries = deliveries + 1, running_since = ?1, leased_until = ?2
WHERE id IN (SELECT id FROM entry INDEXED BY entry_ready WHERE queue = 1 AND priority IS NOT NULL AND lane IS NULL
    AND outcome IS NULL AND owner IS NULL AND hold IS NULL ORDER BY priority DESC, id LIMIT ?3)
RETURNING (SELECT body FROM message WHERE message.id = entry.message), id"""
_ACK: Final = """
UPDATE entry SET outcome = 'delivered', settled_at = ?, owner = NULL, running_since = NULL, leased_until = NULL
WHERE id = ? AND outcome IS NULL"""
_FREE: Final = "UPDATE message SET body = NULL WHERE id = ?"


class BareQueue(InFile):
    """The statements that a message costs, in transactions of ``sqlite3`` with ``synchronous=FULL``, and nothing around
    them: no validation, no waking, no limits."""

    def __init__(self, place: str) -> None:
        path = Path(place)
        made = not path.exists()
        if made:
            schema.ensure(path)
        self._db = sqlite3.connect(place, isolation_level=None, timeout=5)
        self._db.execute("PRAGMA synchronous = FULL")
        if made:
            self._db.execute(_QUEUE)

    def _connection(self) -> sqlite3.Connection:
        return self._db

    @contextmanager
    def _commit(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def put(self, bodies: Sequence[bytes]) -> None:
        with self._commit():
            first = self._db.execute(_LAST).fetchone()[0] + 1
            now = time.time_ns() // 1_000_000
            keys = range(first, first + len(bodies))
            self._db.executemany(
                _MESSAGE,
                [(key, now, len(body), body) for key, body in zip(keys, bodies, strict=True)],
            )
            self._db.executemany(_ENTRY, [(key,) for key in keys])
            self._db.execute(_PUT, (len(bodies), sum(map(len, bodies)), keys[-1], now))

    def lease(self, count: int, wait: float) -> Sequence[Leased]:
        with self._commit():
            now = time.time_ns() // 1_000_000
            return self._db.execute(_LEASE, (now, now + 30_000, count)).fetchall()

    def ack(self, leased: Sequence[Leased]) -> None:
        with self._commit():
            now = time.time_ns() // 1_000_000
            self._db.executemany(_ACK, [(now, key) for _, key in leased])
            self._db.executemany(_FREE, [(key,) for _, key in leased])
            self._db.execute(_COUNTED, (-len(leased), -sum(len(body) for body, _ in leased)))

    def close(self) -> None:
        self._db.close()


BARE: Final = System("bare SQL, the same rows", FULL, "kept", in_files, BareQueue, counts=False)


class OurQueue:
    """A queue of a node, as README's examples use it."""

    def __init__(self, place: str) -> None:
        import wsrm_mq

        self._node = wsrm_mq.connect(f"sqlite:///{place}")
        self._node.declare("bench")

    def put(self, bodies: Sequence[bytes]) -> None:
        if len(bodies) == 1:
            self._node.put("bench", bodies[0])
        else:
            self._node.put_many("bench", bodies)

    def fill(self, bodies: Sequence[bytes]) -> None:
        self._node.put_many("bench", bodies)

    def lease(self, count: int, wait: float) -> Sequence[Leased]:
        return [(message.body, message) for message in self._node.receive("bench", count, wait=wait)]

    def ack(self, leased: Sequence[Leased]) -> None:
        self._node.ack([message for _, message in leased])

    def close(self) -> None:
        self._node.close()


OURS: Final = System("wsrm_mq", FULL, "kept", in_files, OurQueue, waits=True)


def filled(path: Path, count: int) -> str:
    """A store of ours in which that many small messages wait."""
    with closing(OurQueue(str(path))) as queue:
        queue.fill([b"first"])
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA foreign_keys = OFF")
        for table, key in (("message", "id"), ("entry", "id"), ("header", "message")):
            columns = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})") if name != key]
            others = ", ".join("n" if (table, name) == ("entry", "message") else f'"{name}"' for name in columns)
            names = ", ".join(f'"{name}"' for name in (key, *columns))
            db.execute(
                f"WITH RECURSIVE more(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM more WHERE n < ?) "
                f"INSERT INTO {table} ({names}) SELECT n, {others} FROM more, {table} WHERE {table}.{key} = 1",
                (count,),
            )
        db.execute("UPDATE queue SET messages = ?1, bytes = bytes * ?1 WHERE policy IS NOT NULL", (count,))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return str(path)
