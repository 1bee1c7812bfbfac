"""One step of the writer: a batch in a transaction, all of it or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.events.telling import Events
from wsrm_mq.store.cache import Cache
from wsrm_mq.store.counting import Tally
from wsrm_mq.store.database import begin, translate
from wsrm_mq.store.guard import Guard
from wsrm_mq.store.identity import ADVANCE
from wsrm_mq.store.line import Waiting
from wsrm_mq.store.reserve import Reserve
from wsrm_mq.store.transaction import Transaction

__all__ = ["Clock", "Step"]

Clock = Callable[[], int]
"""ms since the epoch."""

CHECKPOINT_BYTES: Final = 16 * 1024 * 1024
TIGHT_CHECKPOINT_BYTES: Final = 128 * 1024
"""On a disk without room for a reserve: what is in the log has to find room in the file too."""
VERB_BYTES: Final = 8 * 1024
"""What a verb adds to the WAL beside its own bytes, about. The file's size does not tell: a checkpoint leaves it."""


class Step:
    """Takes it, in whatever thread has the right to write."""

    def __init__(
        self,
        path: Path,
        guard: Guard,
        cache: Cache,
        clock: Clock,
        tally: Tally,
        events: Events,
        reserve: Reserve | None,
        instance: int,
        instance_name: str,
    ) -> None:
        self.path = path
        self.instance = instance
        self.instance_name = instance_name
        self.tally = tally
        self._guard = guard
        self._cache = cache
        self._clock = clock
        self._events = events
        self._reserve = reserve
        self.at_lock = False
        """The thread is about to begin a transaction; where another process holds the lock it stays there."""
        self.checkpoint_due = False
        self._not_checkpointed = 0
        self.commits = 0
        self.committed_verbs = 0

    def checkpointed(self) -> None:
        self._not_checkpointed, self.checkpoint_due = 0, False

    def run(
        self,
        db: sqlite3.Connection | None,
        batch: list[Waiting[Any]],
        *,
        wait: bool = True,
    ) -> BaseException | None:
        """One transaction. Answers what went wrong; then nothing is stored and nothing is cached. ``wait``: for others
        who write."""
        assert db is not None
        if self._guard.are_gone():  # to save what they hold takes its time
            return self._guard.lose(db) if wait else StoreUnavailable(f"{self.path}: was removed or replaced.", "")
        is_committing = False
        try:
            self.at_lock = wait
            begin(db, wait=wait)
            self.at_lock = False
            version = db.execute("PRAGMA data_version").fetchone()[0]
            if not self._cache.validate(version):
                self._guard.check_newest(db)
            tx = Transaction(db, self._clock(), self._cache, self.instance, self.instance_name, self.tally)
            for item in batch:
                item.error = None
                item.result = item.verb(tx)
            tx.flush()
            mark = db.execute(ADVANCE).fetchone()[1] if tx.has_counted else None
            is_committing = True
            db.execute("COMMIT")
        except BaseException as error:
            self.at_lock = False
            is_committed = is_committing and not (db.in_transaction or isinstance(error, sqlite3.Error))
            if not is_committed:
                self._cache.clear()
                if db.in_transaction:
                    db.execute("ROLLBACK")
                return translate(error, self.path) if isinstance(error, sqlite3.Error) else error
        try:
            tx.committed()
            self._guard.committed(self._cache.last_position or 0, mark)
            for event, fields in tx.notices:
                self._events.tell(event, **fields)
        except BaseException as error:  # what is committed is: those who wait are told so, and nothing is run again
            self._cache.clear()
            self._events.tell("store.callback_failed", trouble=error)
        self.commits += 1
        self.committed_verbs += len(batch)
        self._not_checkpointed += sum(VERB_BYTES + item.size for item in batch)
        has_room = self._reserve is None or self._reserve.is_made
        self.checkpoint_due = self._not_checkpointed >= (CHECKPOINT_BYTES if has_room else TIGHT_CHECKPOINT_BYTES)
        return None
