"""A database that is gone with its process: SQLite's temporary one. It lies in the memory of the process, and what is
more than that may have in a file without a name.

It belongs to one connection, so its sessions take turns: each has the whole database for a transaction, or for a
statement outside of one. Nothing of it is ever synced. What comes into a queue that is recorded elsewhere, and what
becomes of it, is recorded there before it is committed here, whichever session it is done in.
"""

from __future__ import annotations

import io
import sqlite3
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, BinaryIO, Final, NamedTuple

from wsrm_mq.errors import StoreBusy
from wsrm_mq.store.port import Log, Parameters, Rows
from wsrm_mq.store.sqlite.connection import BUSY_TIMEOUT_MS, space
from wsrm_mq.store.sqlite.schema import HEAD

_WRITE_BODY: Final = "UPDATE message SET body = ? WHERE id = ?"
_BODY: Final = "SELECT body FROM message WHERE id = ?"


class Fleeting:
    """A connection of the port to what is gone with its process: nothing of it is synced, and one session at a time
    has the whole database."""

    in_transaction = False

    def execute(self, statement: str, parameters: Parameters = (), /) -> Rows:
        raise NotImplementedError("what runs a statement is the class of each")

    def for_writing(self) -> None:
        """It writes in transactions, and nowhere else."""

    def sync_commits(self, wanted: bool) -> None:
        """No commit is synced."""

    def reserve_positions(self, wanted: int) -> range:
        raise NotImplementedError("positions of express messages are reserved in the store")

    def write_body(self, message: int, size: int, body: BinaryIO) -> None:
        self.execute(_WRITE_BODY, (body.read(size), message))

    def open_body(self, message: int) -> BinaryIO:
        return io.BytesIO(self.execute(_BODY, (message,)).fetchone()[0])

    def checkpoint(self, then: Log | None = None) -> bool:
        """There is no log."""
        return False


_SESSIONS: Final = 40
"""Bits of a version that count commits; those above tell sessions apart."""
_RECORDING: Final = (
    "CREATE TABLE recorded (queue INTEGER PRIMARY KEY)",
    "CREATE TABLE unrecorded (entry INTEGER PRIMARY KEY, is_new INTEGER NOT NULL)",
    """CREATE TRIGGER came AFTER INSERT ON entry WHEN NEW.queue IN (SELECT queue FROM recorded)
    BEGIN INSERT OR IGNORE INTO unrecorded VALUES (NEW.id, 1); END""",
    """CREATE TRIGGER went AFTER UPDATE OF outcome ON entry
    WHEN NEW.outcome IS NOT OLD.outcome AND NEW.queue IN (SELECT queue FROM recorded)
    BEGIN INSERT OR IGNORE INTO unrecorded VALUES (NEW.id, 0); END""",
)


class Change(NamedTuple):
    """An entry that came into a queue which is recorded, or that left it with an ``outcome``; both at once perhaps.
    Without ``is_new`` the body is left out."""

    queue: str
    position: int
    is_new: int
    outcome: str | None
    reason: str | None
    last_error: str | None
    deliveries: int
    failures: int
    cancels: int
    priority: int
    message_id: str | None
    action: str | None
    received_at: int
    body_size: int
    body: bytes | None
    topic: str | None
    properties: str | None
    content_type: str | None
    receive_by: int | None
    client: str | None


def recorded(*, wanted: bool) -> str:
    """The statement after which the queue with the key ``:queue`` of a temporary database is recorded, or no longer."""
    return "INSERT OR IGNORE INTO recorded VALUES (:queue)" if wanted else "DELETE FROM recorded WHERE queue = :queue"


class Temporary:
    """A temporary database with the schema of a store. ``memory_limit``: bytes of memory that it may have, about.
    ``next_position`` gives the keys of its messages and entries. ``record`` is told of the changes of a transaction
    before that is committed; where it raises, nothing is."""

    def __init__(
        self, memory_limit: int, next_position: Callable[[], int], record: Callable[[list[Change]], object]
    ) -> None:
        from wsrm_mq.store.sqlite import creating  # only here: as a rule no process needs it

        self.next_position = next_position
        self._record = record
        self.turn = threading.Lock()
        self.commits = 0
        self._sessions = count(1)
        self.db = sqlite3.connect("", isolation_level=None, check_same_thread=False, cached_statements=256)
        self.db.execute("PRAGMA journal_mode = MEMORY")  # a journal on disk would be a file where nothing overflows
        self.limit_memory(memory_limit)
        for statement in (*creating.statements(HEAD), *_RECORDING):
            self.db.execute(statement)
        self.db.execute("PRAGMA query_only = ON")

    @property
    def size(self) -> int:
        """The bytes of what it has, in memory or not."""
        with self.turn:
            return space(self.db).used

    def limit_memory(self, memory_limit: int) -> None:
        with self.turn:
            self.memory_limit = memory_limit
            self.db.execute(f"PRAGMA cache_size = -{memory_limit // 1024}")

    def record_changes(self) -> None:
        """Have recorded what the transaction has changed in queues that are recorded."""
        found = self.db.execute(
            """
            SELECT queue.name, entry.id, is_new, outcome, reason, last_error, deliveries, failures, cancels, priority,
              message.message_id, action, received_at, body_size, CASE WHEN is_new THEN body END,
              topic, properties, content_type, receive_by, client
            FROM unrecorded JOIN entry ON entry.id = unrecorded.entry JOIN queue ON queue.id = entry.queue
              JOIN message ON message.id = entry.message LEFT JOIN header ON header.message = message.id
            ORDER BY entry.id
            """
        )
        changes = [Change._make(row) for row in found]
        if changes:
            self._record(changes)
            self.db.execute("DELETE FROM unrecorded")

    def session(self) -> Session:
        return Session(self, next(self._sessions))

    def close(self) -> None:
        with self.turn:
            self.db.close()


class Session(Fleeting):
    """A session of a temporary database, in its own process."""

    Error = sqlite3.Error

    def __init__(self, database: Temporary, number: int) -> None:
        self._database = database
        self._own = -(number << _SESSIONS)
        """The commits of this session; no two sessions count alike."""

    def begin(self, *, wait: bool = True) -> int:
        if not self._database.turn.acquire(blocking=wait, timeout=BUSY_TIMEOUT_MS / 1000 if wait else -1):
            raise StoreBusy("The express messages are being used by another thread or process.")
        try:
            self._database.db.execute("PRAGMA query_only = OFF")
            self._database.db.execute("BEGIN")
        except BaseException:
            self._database.turn.release()
            raise
        self.in_transaction = True
        return self._database.commits - self._own

    def execute(self, statement: str, parameters: Parameters = (), /) -> Rows:
        db = self._database.db
        if self.in_transaction:
            return self._end(statement) if statement in ("COMMIT", "ROLLBACK") else db.execute(statement, parameters)
        with self._database.turn:
            found = db.execute(statement, parameters)
            if db.in_transaction:
                db.execute("ROLLBACK")
                raise sqlite3.OperationalError("a transaction is begun by `begin`")
            return Fetched(found.fetchall(), found.rowcount)

    def _end(self, statement: str) -> Rows:
        db = self._database.db
        if statement == "COMMIT":
            self._database.record_changes()
        try:
            done = db.execute(statement)
            if statement == "COMMIT":
                self._database.commits += 1
                self._own += 1
            return done
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
            db.execute("PRAGMA query_only = ON")
            self.in_transaction = False
            self._database.turn.release()

    def positions(self) -> Iterator[int]:
        return iter(self._database.next_position, None)

    def close(self) -> None:
        if self.in_transaction:
            self._end("ROLLBACK")


class Fetched:
    """The answer of a statement, all of whose rows are here."""

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self._rows = iter(rows)
        self.rowcount = rowcount

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def close(self) -> None:
        self._rows = iter(())

    def __iter__(self) -> Iterator[Any]:
        return self._rows
