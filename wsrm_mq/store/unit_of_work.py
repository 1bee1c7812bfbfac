"""A unit of work: one write transaction, whatever it is about.

Verbs are plain functions ``verb(tx, …) → result``; a test can call them without threads. Messages, entries and
deliveries are collected and written many rows to a statement, before whatever else is asked of the database.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from typing import Any, BinaryIO, Final, NamedTuple

from wsrm_mq.store import queues
from wsrm_mq.store.applications import foreign
from wsrm_mq.store.bulk import COUNTERS, DELIVERED, ENTRIES, MESSAGES, REFUSALS, REPLAYS, Row
from wsrm_mq.store.cache import Cache
from wsrm_mq.store.counting import Counts, Tally
from wsrm_mq.store.driver import space
from wsrm_mq.store.port import Connection, Instances, Parameters, Rows
from wsrm_mq.store.pruning import DROP_QUEUES


class Session(NamedTuple):
    """The things that a process uses in all its transactions."""

    db: Connection
    cache: Cache
    instance: int
    """Key of the instance that writes."""
    instance_name: str
    instances: Instances
    """The instances of the store, to be asked whether one lives."""
    tally: Tally | None = None


class UnitOfWork:
    """A transaction in progress. ``now`` is one time for all of it, ms since the epoch; by ``reached`` it is judged
    what ends for ever: another time while the clock is doubted."""

    def __init__(self, session: Session, now: int, reached: int | None = None) -> None:
        self.db, cache, self.instance, self.instance_name, self.instances, tally = session
        self.now = now
        self.reached = now if reached is None else reached
        self.connections = cache.connections
        self.counts = Counts(int)
        """The counts of this transaction; ``counting`` says when they are written."""
        self.notices: list[tuple[str, dict[str, Any]]] = []
        """Events to be told once this is committed."""
        self.has_counted = False
        """It wrote counters: at most a few transactions a second do."""
        self._cache = cache
        self._tally = tally or Tally()
        self._counts_now = False
        self._messages: list[Row] = []
        self._entries: list[Row] = []
        self._replays: list[Row] = []
        self._delivered: list[Row] = []
        self._used_bytes: int | None = None
        if cache.positions is None:
            cache.positions = self.db.positions()
        self._positions = cache.positions
        self._position = 0
        """The last that was given."""

    def execute(self, statement: str, parameters: Parameters = ()) -> Rows:
        """Run a statement. It sees all that this transaction did before, but changes of sequences."""
        if self._entries or self._messages or self._delivered or self._replays:
            self._write_rows()
        return self.db.execute(statement, parameters)

    @property
    def used_bytes(self) -> int:
        """The bytes of the store's file that hold something."""
        if self._used_bytes is None:
            self._used_bytes = space(self.db).used
        return self._used_bytes

    # messages and entries

    def add_message(self, row: dict[str, Any]) -> int:
        """Add a row of ``message``, its ``id`` left out; answers that: the position of the entry that comes with it."""
        row["id"] = self._position = key = next(self._positions)
        self._messages.append(MESSAGES.row(row))
        return key

    def add_entry(self, row: dict[str, Any]) -> int:
        """Add a row of ``entry``; answers its position, which is given once and never again. ``id`` is in the row
        where it came with its message."""
        if "id" not in row:
            row["id"] = self._position = next(self._positions)
        self._entries.append(ENTRIES.row(row))
        return int(row["id"])

    def add_replay(self, row: dict[str, Any]) -> int:
        """Add a row of ``entry`` for a message that is there; answers its position."""
        row["id"] = self._position = key = next(self._positions)
        self._replays.append(REPLAYS.row(row))
        return key

    def write_body(self, message: int, size: int, body: BinaryIO) -> None:
        """Write the body, ``size`` bytes, of a message that was added without one."""
        self._write_rows()
        self.db.write_body(message, size, body)

    def delivered(self, position: int) -> None:
        """Settle an entry as delivered."""
        self._delivered.append((position,))

    def _write_rows(self) -> None:
        for bulk, rows in ((MESSAGES, self._messages), (ENTRIES, self._entries), (REPLAYS, self._replays)):
            if rows:
                bulk.write(self.db.execute, rows)
        if self._delivered:
            DELIVERED.write(self.db.execute, self._delivered, self.now)
        self._messages, self._entries, self._replays, self._delivered = [], [], [], []

    # queues

    def queue(self, name: str, kind: str = "app", parent: int | None = None) -> int:
        """The key of the queue with this name, which is made if it is missing."""
        known = self.queue_named(name)
        if known is not None:
            return known
        application = self._cache.serving.application if kind == "app" else None
        row = {"name": name, "kind": kind, "parent": parent, "created_at": self.now, "application": application}
        (key,) = self.execute(queues.ADD_QUEUE, row).fetchone()
        self._cache.keep_queue(name, key)
        return int(key)

    def queue_named(self, name: str) -> int | None:
        """The key of the queue with this name; ``None`` where there is none."""
        known = self._cache.queues.get(name)
        if known is not None:
            return known
        found = self.execute(queues.QUEUE_ID, {"name": name}).fetchone()
        if found is None:
            return None
        self._cache.keep_queue(name, found[0])
        return int(found[0])

    def forget_queues(self, keys: Collection[int]) -> None:
        """Delete queues. Nothing has their keys any more, nor will: keys are given once."""
        self._cache.drop_queues(keys)
        self.execute(DROP_QUEUES, (as_json([*keys]),))

    def serves(self, queue: int) -> bool:
        """Whether this process serves the queue with this key."""
        if queue in self._cache.served:
            return True
        row = self.execute(queues.QUEUE, {"key": queue}).fetchone()
        if row is None or not self._cache.serving.may_run(*row):
            return False
        self._cache.served.add(queue)
        return True

    def foreign(self, *, sends: bool = True) -> str:
        """The keys of the queues that it does not serve, or not now, where it ``sends`` nothing more; as JSON."""
        return as_json(foreign(self.db, self._cache.serving, sends=sends))

    def home(self, queue: int) -> int:
        """The key of the queue that the messages of an outgoing one came into; of any other its own."""
        found = self.execute(queues.PARENT, {"key": queue}).fetchone()
        return queue if found is None else int(found[0])

    def dead_letters(self, queue: int) -> int:
        """The key of the dead-letter queue of ``queue``, whatever its name."""
        found = self.execute(queues.DEAD_LETTERS, {"parent": queue}).fetchone()
        if found is not None:
            return int(found[0])
        name, _application = self.execute(queues.QUEUE, {"key": queue}).fetchone()
        return self.queue(f"{name}#dead", "dead_letter", queue)

    # ledger and counts

    def add_ledger(self, event: str, queue: int | None, **columns: object) -> None:
        """Write down what an entry's own columns cannot tell, and count it."""
        row = {**_LEDGER, **columns, "at": self.now, "event": event, "queue": queue, "instance": self.instance_name}
        self.execute(queues.ADD_LEDGER, row)
        self.counts["ledger", queue or 0, event] += 1
        self._counts_now = True

    def count_now(self) -> None:
        """Write the counts of this process with this transaction."""
        self._counts_now = True

    # the end

    def flush(self) -> None:
        """Write what is not written yet. Called once, before COMMIT."""
        self._write_rows()
        self._counts_now = self._counts_now or time.monotonic() >= self._tally.due_at
        if self._counts_now:
            counts = self._tally.with_waiting(self.counts)
            COUNTERS.write(self.db.execute, counts)
            REFUSALS.write(self.db.execute, self._tally.refused())
            self.has_counted = bool(counts)

    def committed(self) -> None:
        """Keep what is now true for the next transaction. Called once, after COMMIT."""
        self._cache.last_position = self._position or self._cache.last_position
        if self._counts_now:
            self._tally.written()
        else:
            self._tally.wait(self.counts)


_LEDGER: Final = dict.fromkeys(
    ("sequence", "number", "position", "attempt", "reason", "actor", "fault", "exception", "place")
)


def as_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
