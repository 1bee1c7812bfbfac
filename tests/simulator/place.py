"""The store of a schedule: one real file, and connections that stay open from schedule to schedule. Making them would
take most of the time."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tests.support.stored import empty_store
from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.events.telling import Events
from wsrm_mq.store import queues
from wsrm_mq.store.applications import NAMELESS, Serving
from wsrm_mq.store.group_commit import GroupCommit
from wsrm_mq.store.port import Instances
from wsrm_mq.store.sqlite.connection import Connection, only_reading, write_ahead
from wsrm_mq.store.sqlite.files import beside
from wsrm_mq.store.store import Store
from wsrm_mq.testing import ManualClock

BEGINNING: Final = 1_700_000_000_000
PROCESSES: Final = 3
PAGE_BYTES: Final = 1024
"""Smaller than usual: what is written here is small, and each page that a commit touches is copied twice."""
CHECKPOINT_EVERY: Final = 10
"""Schedules; a longer log makes every read slower."""
_KEPT: Final = {"alembic_version", "identity", "epoch", "watermark"}


class Files:
    """The connections of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer = _connected(path)
        self.writer.for_writing()
        for setting in ("synchronous = OFF", "secure_delete = OFF", "wal_autocheckpoint = 0", "cache_size = -32768"):
            self.writer.execute(f"PRAGMA {setting}")
        self.reader = _connected(path)


def _connected(path: Path) -> Connection:
    """A connection like the product's. All are of this process, so their locks are: each statement is spared four
    calls of the system."""
    return only_reading(path, "mode=rw&vfs=unix-excl")


class Place:
    """``outbox``: that of the program which sends to the services of this store."""

    outbox: Place

    def __init__(self, home: Path, clock: ManualClock) -> None:
        self.path = home / "store.db"
        beside(self.path).mkdir(parents=True)
        whole = home / "whole.db"
        whole.write_bytes(empty_store())
        with closing(sqlite3.connect(whole)) as db:
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            db.execute("VACUUM INTO ?", (str(self.path),))
        with closing(sqlite3.connect(self.path)) as db:
            write_ahead(db)
        self.clock = clock
        self.files = [Files(self.path) for _ in range(PROCESSES)]
        self.operator = Files(self.path)
        self.reader = _connected(self.path)
        found = self.operator.writer.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        self._emptied = 0
        tables = [name for (name,) in found if name not in _KEPT and not name.startswith("sqlite_")]
        self._filled = " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM \"{name}\")" for name in tables)
        """The tables that have rows."""

    def empty(self) -> None:
        db = self.operator.writer
        db.execute("BEGIN IMMEDIATE")
        for (name,) in db.execute(self._filled).fetchall():
            db.execute(f'DELETE FROM "{name}"')
        db.execute("COMMIT")
        self._emptied += 1
        if self._emptied % CHECKPOINT_EVERY == 0:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


class OpenStore(Store):
    """The product's store, opened with connections that are there. Its writer's thread begins with ``begin``."""

    def __init__(
        self, files: Files, clock: ManualClock, events: Events, instances: Instances, serving: Serving = NAMELESS
    ) -> None:
        super().__init__(files.path, clock=clock, events=events, instances=instances, serving=serving)
        self.presence = instances.enter()
        name = self.presence.name
        row = {"name": name, "host": "here", "pid": 1, "started_at": clock()}
        row |= {"application": None, "paths": serving.stored_paths}
        self.committing: GroupCommit = self.writer._commit
        self.committing._db = files.writer
        self.committing.instance = files.writer.execute(queues.ADD_INSTANCE, row).fetchone()[0]
        self.committing.instance_name = name
        self.committing.guard.opened()
        self._idle_readers.append(files.reader)

    def begin(self) -> None:
        self.writer.resume()

    def connect_reader(self) -> Connection:
        return _connected(self.path)

    @property
    def has_writes(self) -> bool:
        """Something waits for its commit."""
        return bool(self.writer._queue.waiting)

    def end(self) -> None:
        """The process is gone: nothing is taken any more, nor is anything written."""
        self.submit = self.call = _gone


def _gone(*_arguments: Any, **_options: Any) -> Any:
    raise StoreUnavailable("the process was killed", "")
