"""Group commit: a batch of verbs in one transaction, all of it or nothing.

It has the one connection of the process that writes, and what is known of the store while that is open. One thread uses
it at a time.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from wsrm_mq.errors import StoreFull, StoreUnavailable
from wsrm_mq.events.telling import Events
from wsrm_mq.store.applications import Serving
from wsrm_mq.store.cache import Cache, MaySend
from wsrm_mq.store.clock import Believed, Clock
from wsrm_mq.store.counting import Tally
from wsrm_mq.store.driver import FileIds, Guard, Reserve, connect_writer, log_bytes, space, translate
from wsrm_mq.store.identity import ADVANCE
from wsrm_mq.store.port import Connection, Instances, Log
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.unit_of_work import Session

# The write queue: verbs that wait for their commit, in the order they came. Its caller holds the lock of the writer.

R = TypeVar("R")
Verb = Callable[[Transaction], R]
OnCommit = Callable[[R | None, BaseException | None], None]
"""Gets (result, error), one of them ``None``."""

MAX_BATCH: Final = 512
LINGERING: Final = 32
"""Verbs whose results are not awaited are written with the next awaited one, or when there are so many."""


@dataclass(eq=False, slots=True)
class Write(Generic[R]):
    """A verb that waits for its commit. See ``Writer.submit``."""

    verb: Verb[R]
    on_commit: OnCommit[R]
    keep: bool = False
    drains: bool = False
    size: int = 0
    lingers: bool = False
    is_request: bool = False
    is_relaxed: bool = False
    result: R | None = None
    error: BaseException | None = None
    is_told: bool = False


class WriteQueue:
    """``max_requests``, ``max_request_bytes``: what requests there may be at a time, in all."""

    def __init__(self, max_requests: int, max_request_bytes: int) -> None:
        self.waiting: deque[Write[Any]] = deque()
        self.is_due = False
        """Whether a batch is due: a write does not linger, enough do, or one was put back or left over."""
        self._max_requests = max_requests
        self._max_request_bytes = max_request_bytes
        self.requests = 0
        """How many requests wait for their commit, those that are being written included."""
        self.request_bytes = 0

    def put(self, write: Write[Any]) -> bool:
        """Append it; ``False``: it is a request for which there is no room. One alone is never too large."""
        if write.is_request:
            size = self.request_bytes + write.size
            if self.requests and (size > self._max_request_bytes or self.requests >= self._max_requests):
                return False
            self.requests += 1
            self.request_bytes = size
        self.waiting.append(write)
        self.is_due = self.is_due or not write.lingers or len(self.waiting) >= LINGERING
        return True

    def take(self, most_bytes: int, *, alone: bool = True) -> list[Write[Any]]:
        """Take the writes that come next. ``alone``: one that is larger than ``most_bytes`` is taken by itself."""
        batch: list[Write[Any]] = []
        size = 0
        while self.waiting and len(batch) < MAX_BATCH:
            size += self.waiting[0].size
            if size > most_bytes and (batch or not alone):
                break
            batch.append(self.waiting.popleft())
        self.is_due = bool(self.waiting)
        return batch

    def take_all(self) -> list[Write[Any]]:
        batch, self.is_due = list(self.waiting), False
        self.waiting.clear()
        return batch

    def take_refusable(self) -> list[Write[Any]]:
        """Take the writes that may be refused."""
        batch = self.take_all()
        self.put_back([write for write in batch if write.keep])
        return [write for write in batch if not write.keep]

    def put_back(self, batch: list[Write[Any]]) -> None:
        """Put a batch back to the front: it came before what waits."""
        self.waiting.extendleft(reversed(batch))
        self.urge()

    def urge(self) -> None:
        """Make a batch due now, of writes that linger too."""
        self.is_due = bool(self.waiting)

    def release(self, batch: list[Write[Any]]) -> None:
        """Let a batch go, which is told how it went: there is room for other requests."""
        for write in batch:
            if write.is_request:
                self.requests -= 1
                self.request_bytes -= write.size


CHECKPOINT_BYTES: Final = 16 * 1024 * 1024
TIGHT_CHECKPOINT_BYTES: Final = 128 * 1024
"""On a disk that is full, or without room for a reserve: what is in the log has to find room in the file too."""
VERB_BYTES: Final = 8 * 1024
"""Bytes that a verb adds to the WAL beside its own, about. The file's size does not tell: a checkpoint leaves it."""
OTHERS_BYTES: Final = 64 * 1024
"""Bytes that other processes have added where they wrote since the last commit, about."""


class GroupCommit:
    """Runs verbs together in one transaction, and commits nothing before ``start``."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        believed: Believed,
        tally: Tally,
        events: Events,
        reserve: Reserve,
        serving: Serving,
        instances: Instances,
        connect: Callable[[Path], Connection] = connect_writer,
        guard: Callable[[Path, Events], Guard] = Guard,
    ) -> None:
        """``connect`` and ``guard``: those of a file."""
        self.path = path
        self.instance = 0
        self.instance_name = ""
        self.tally = tally
        self._connect = connect
        self._new_guard = guard
        self.guard = guard(path, events)
        self._cache = Cache(serving)
        self._instances = instances
        self._clock = clock
        self._believed = believed
        self.events = events
        self.reserve = reserve
        self._has_open: Callable[[FileIds], None] = lambda _files: None
        self._db: Connection | None = None
        self.is_open = False
        self.may_relax = False
        """Something was written here that need not survive a loss of power: batches are looked through for it."""
        self.at_lock = False
        """The writer's thread is about to begin a transaction; where another process holds the lock it stays there."""
        self.checkpoint_due = False
        """A checkpoint is to be made, or is being made."""
        self.thrown: BaseException | None = None
        """It was thrown into the last transaction from outside, whether that is committed or not."""
        self._not_checkpointed = 0
        self.commits = 0
        self.committed_verbs = 0

    def bound(self, has_slot: Callable[[int], bool], left_alone: MaySend) -> None:
        self._cache.has_slot, self._cache.left_alone = has_slot, left_alone

    def start(self, instance: int, instance_name: str, has_open: Callable[[FileIds], None]) -> None:
        """Open the connection, for an instance. ``has_open`` is told which files are open, and ``()`` before they are
        closed. Raises ``StoreError``."""
        self.instance, self.instance_name, self._has_open = instance, instance_name, has_open
        self.guard = self._new_guard(self.path, self.events)
        self.open()

    def open(self) -> Connection:
        """Open the connection, and answer it; after a fork to the same file as before, which is the one that this
        instance knows. Raises ``StoreError``."""
        self.guard.check_same()
        self._db = db = self._connect(self.path)
        db.for_writing()
        self.is_open = True
        self._has_open(self.guard.opened())
        return db

    def close(self) -> None:
        db, self._db, self.is_open = self._db, None, False
        if db is not None:
            self._has_open(())
            db.close()
        self._cache.clear()

    def run(self, batch: list[Write[Any]], *, wait: bool = True) -> BaseException | None:
        """One transaction. Answers what went wrong; then nothing is stored and nothing is cached. ``wait``: for other
        processes that write."""
        db = self._db or self.open()
        if self.guard.are_gone():  # to save what they hold takes its time
            if wait:
                return self.guard.lose(db, self.instance_name)
            return StoreUnavailable(f"{self.path}: was removed or replaced.", "")
        is_committing, size, self.thrown = False, 0, None
        try:
            if self.may_relax:
                db.sync_commits(not all(write.is_relaxed for write in batch))
            self.at_lock = wait
            version = db.begin(wait=wait)
            self.at_lock = False
            if not self._cache.validate(version):
                self.guard.check_newest(db)
                size += OTHERS_BYTES
            session = Session(
                db, self._cache, self.instance, self.instance_name, self._instances, self.tally, self._believed.steady
            )
            now = self._clock()
            tx = Transaction(session, now, self._believed.by(now))
            for write in batch:
                write.error = None
                write.result = write.verb(tx)
                size += VERB_BYTES + write.size
            tx.flush()
            mark = db.execute(ADVANCE).fetchone()[1] if tx.has_counted else None
            is_committing = True
            db.execute("COMMIT")
        except BaseException as error:
            self.at_lock = False
            self.thrown = None if isinstance(error, Exception) else error
            is_committed = is_committing and not (db.in_transaction or isinstance(error, db.Error))
            if not is_committed:
                self._cache.clear()
                if db.in_transaction:
                    db.execute("ROLLBACK")
                failure = translate(error, self.path)
                self.checkpoint_due = self.checkpoint_due or isinstance(failure, StoreFull)
                return failure
        try:
            self._count(len(batch), size)
            tx.committed()
            self.guard.committed(self._cache.last_position, mark)
            for event, fields in tx.notices:
                self.events.tell(event, **fields)
        except BaseException as error:  # committed is committed: callbacks say so, and nothing is run again
            self._cache.clear()
            self.events.tell("store.callback_failed", trouble=error)
        return None

    def _count(self, verbs: int, size: int) -> None:
        self.commits += 1
        self.committed_verbs += verbs
        self._not_checkpointed += size
        most = 0 if self.reserve.was_spent else min(CHECKPOINT_BYTES, self.reserve.size)
        self.checkpoint_due = self._not_checkpointed >= max(TIGHT_CHECKPOINT_BYTES, most)

    def roll_back(self) -> None:
        """After an error that was not foreseen: nothing is known, and no transaction is open."""
        self._cache.clear()
        if self._db is not None and self._db.in_transaction:
            with contextlib.suppress(self._db.Error):
                self._db.execute("ROLLBACK")

    def has_room(self) -> bool:
        """Whether the disk, and the log where it can be written anew, have room for more than settlements."""
        return self.reserve.leaves_enough(log_bytes(self.path) if self.checkpoint() else 0)

    def is_short(self, size: int) -> bool:
        """Whether the file's free pages are needed for what must be stored, once ``size`` bytes were written: where the
        reserve is small they are a part of it, and it is given up then."""
        is_short = self._db is not None and self.reserve.lacks(space(self._db).reclaimable - size)
        if is_short:
            self.reserve.release()
        return is_short

    def restore(self) -> None:
        """Make the reserve again, where the disk has room or the file has plenty."""
        spare = space(self._db).reclaimable if self._db is not None and self.reserve.is_spent else 0
        if spare >= self.reserve.plenty:
            self.checkpoint("TRUNCATE")
        self.reserve.restore(spare)

    def checkpoint(self, then: Log | None = None) -> bool:
        """Move what the WAL has into the file, and on a full disk have it written anew. Answers whether all was moved
        and that is so."""
        db = self._db or self.open()
        try:
            return db.checkpoint(then or ("RESTART" if self.reserve.is_spent else None))
        except db.Error as error:
            self.events.tell("store.checkpoint_failed", error=error)
            if isinstance(translate(error, self.path), StoreFull):
                self.reserve.release()
            return False
        finally:
            self._not_checkpointed, self.checkpoint_due = 0, False
