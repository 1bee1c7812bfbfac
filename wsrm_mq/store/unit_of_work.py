"""A unit of work: one write transaction, whatever it is about.

Verbs are plain functions ``verb(tx, …) → result``; a test can call them without threads. Messages, entries and
deliveries are collected and written many rows to a statement, before whatever else is asked of the database.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from typing import Any, BinaryIO, Final, NamedTuple

from wsrm_mq.events.table import FROM_LEDGER
from wsrm_mq.store import queues
from wsrm_mq.store.applications import Serving, foreign
from wsrm_mq.store.bulk import COUNTERS, DELIVERED, ENTRIES, HEADERS, MESSAGES, PUT, REFUSALS, REPLAYS, BulkInsert, Row
from wsrm_mq.store.cache import Cache
from wsrm_mq.store.counting import Counts, Tally
from wsrm_mq.store.driver import space
from wsrm_mq.store.port import Connection, Instances, Parameters, Rows
from wsrm_mq.store.pruning import DROP_QUEUES

SKIPPED_EVERY: Final = 60_000
"""ms between two rows of the ledger that say the same of a queue."""


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
    steady: Callable[[], int] | None = None
    """The clock that measures leases, ms since the epoch; ``None``: the time of day."""


class UnitOfWork:
    """A transaction in progress. ``now`` is one time for all of it, ms since the epoch; by ``reached`` it is judged
    what ends for ever: another time while the clock is doubted."""

    def __init__(self, session: Session, now: int, reached: int | None = None) -> None:
        self.db, cache, self.instance, self.instance_name, self.instances, tally, self._steady = session
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
        self._rows: dict[BulkInsert, list[Row]] = {}
        """Rows that are not written yet, by the statement that writes them."""
        self._unsettled: dict[int, list[int]] = {}
        """How many messages came to be unsettled, how many are it no more, and the change in their bytes, by declared
        queue."""
        self._last_put: dict[int, int] = {}
        """Positions by the keys of declared queues."""
        self._measured: int | None = None
        self._delivered: list[Row] = []
        self._used_bytes: int | None = None
        if cache.positions is None:
            cache.positions = self.db.positions()
        self._positions = cache.positions
        self._position = 0
        """The last position that an entry has."""

    def execute(self, statement: str, parameters: Parameters = ()) -> Rows:
        """Run a statement. It sees all that this transaction did before, but changes of sequences."""
        if self._rows or self._delivered:
            self._write_rows()
        return self.db.execute(statement, parameters)

    @property
    def measured(self) -> int:
        """One time for all of it by the clock that leases are measured by; ms since the epoch."""
        if self._measured is None:
            self._measured = self.now if self._steady is None else self._steady()
        return self._measured

    @property
    def used_bytes(self) -> int:
        """The bytes of the store's file that hold something."""
        if self._used_bytes is None:
            self._used_bytes = space(self.db).used
        return self._used_bytes

    # messages and entries

    def reserve_positions(self, wanted: int) -> range:
        """Give away so many positions: no entry of this store gets one of them."""
        self._write_rows()
        given = self.db.reserve_positions(wanted)
        self._cache.positions = self._positions = self.db.positions()
        return given

    def add_message(
        self,
        message_id: str | None,
        action: str | None,
        body: bytes | None,
        *,
        size: int = 0,
        environ: str = "{}",
        principal: str | None = None,
        connection: str | None = None,
    ) -> int:
        """Add a message, of ``size`` bytes where its body is written behind it; answers its key: the position of the
        entry that comes with it."""
        key = next(self._positions)
        request = {"environ": environ, "principal": principal, "connection": connection, "received_at": self.now}
        content = {"body": body, "body_size": size if body is None else len(body)}
        self._add(MESSAGES, {"id": key, "message_id": message_id, "action": action, **request, **content})
        return key

    def add_header(self, row: dict[str, Any]) -> None:
        """Add a row of ``header``, of a message that was added."""
        self._add(HEADERS, row)

    def add_entry(self, row: dict[str, Any], kind: BulkInsert = ENTRIES) -> int:
        """Add a row of ``entry``; answers its position, which is given once and never again. ``id`` is in the row
        where it came with its message. ``kind``: ``PUT`` of what is to be consumed, ``REPLAYS`` of a message that is
        there."""
        if "id" not in row:
            row["id"] = next(self._positions)
        self._position = position = int(row["id"])
        if kind is PUT:
            self._last_put[row["queue"]] = position
        self._add(kind, row)
        return position

    def _add(self, kind: BulkInsert, row: dict[str, Any]) -> None:
        self._rows.setdefault(kind, []).append(kind.row(row))

    def write_body(self, message: int, size: int, body: BinaryIO) -> None:
        """Write the body, ``size`` bytes, of a message that was added without one."""
        self._write_rows()
        self.db.write_body(message, size, body)

    def delivered(self, position: int) -> None:
        """Settle an entry as delivered."""
        self._delivered.append((position,))

    def _write_rows(self) -> None:
        for kind in (MESSAGES, HEADERS, ENTRIES, REPLAYS, PUT):
            if kind in self._rows:
                kind.write(self.db.execute, self._rows[kind])
        if self._delivered:
            DELIVERED.write(self.db.execute, self._delivered, self.now)
        self._rows, self._delivered = {}, []

    # queues

    def queue(self, name: str, kind: str = "app", parent: int | None = None) -> int:
        """The key of the queue with this name, which is made if it is missing."""
        known = self.queue_named(name)
        if known is not None:
            return known
        application = self._cache.serving.application if kind == "app" else None
        row = {"name": name, "kind": kind, "parent": parent, "created_at": self.now, "application": application}
        (key,) = self.execute(queues.ADD_QUEUE, row).fetchone()
        return int(key)

    def queue_named(self, name: str) -> int | None:
        """The key of the queue with this name; ``None`` where there is none."""
        row = self.queue_row(name)
        return None if row is None else row.key

    def queue_name(self, queue: int) -> str:
        """The name of the queue with this key."""
        name, _application = self.execute(queues.QUEUE, {"key": queue}).fetchone()
        return str(name)

    def add_unsettled(self, queue: int, messages: int, size: int, last: int | None = None) -> None:
        """Count ``messages`` more as unsettled in a declared queue, of ``size`` bytes in all. Both may be negative.
        ``last``: position of the one that has arrived."""
        if last is not None:
            self._last_put[queue] = last
        counted = self._unsettled.setdefault(queue, [0, 0, 0])
        counted[messages < 0] += abs(messages)
        counted[2] += size

    def unsettled_in(self, queue: int) -> tuple[int, int]:
        """Messages and bytes in a declared queue that are not settled."""
        messages, size = self.execute(queues.UNSETTLED, {"key": queue}).fetchone()
        came, went, larger = self._unsettled.get(queue, (0, 0, 0))
        return messages + came - went, size + larger

    def unsettled_in_all(self) -> tuple[int, int]:
        """Messages and bytes in all queues that programs put into which are not settled."""
        self._write_unsettled()
        messages, size = self.execute(queues.UNSETTLED_IN_ALL).fetchone()
        return int(messages), int(size)

    def queue_row(self, name: str) -> queues.QueueRow | None:
        """The queue with this name; ``None`` where there is none. What changes one says so (``forget_queue_name``)."""
        row = self._cache.queues.get(name)
        if row is None:
            found = self.execute(queues.QUEUE_ROW, {"name": name}).fetchone()
            if found is not None:
                row = queues.QueueRow(*found)
                self._cache.keep_queue(name, row)
        return row

    def set_policy(self, name: str, key: int, policy: str) -> None:
        """Declare a queue, or declare it anew."""
        self.execute(queues.SET_POLICY, {"key": key, "policy": policy})
        self.forget_queue_name(name)

    def set_mode(self, name: str, key: int, mode: str, policy: str | None = None) -> None:
        """Have an endpoint's queue consumed, or no longer. ``policy``: where it was not declared, it is so."""
        self.execute(queues.SET_MODE, {"key": key, "mode": mode, "policy": policy})
        self.forget_queue_name(name)

    def forget_queue_name(self, name: str) -> None:
        """The queue of this name was changed, or has it no longer."""
        self._cache.queues.pop(name, None)

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

    def serve(self, serving: Serving) -> None:
        """This process serves other queues from now on."""
        self._cache.serving, self._cache.served = serving, set()
        self.execute(queues.SERVE, {"key": self.instance, "paths": serving.stored_paths})

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
        name = self.queue_name(queue)
        base = name.removesuffix(f"#{queue}")
        return self.queue(f"{base}#dead{name[len(base) :]}", "dead_letter", queue)

    # ledger and counts

    def add_ledger(self, event: str, queue: int | None, **columns: object) -> None:
        """Write down what an entry's own columns cannot tell, and count it."""
        row = {**_LEDGER, **columns, "at": self.now, "event": event, "queue": queue, "instance": self.instance_name}
        self.execute(queues.ADD_LEDGER, row)
        self.counts["ledger", queue or 0, event] += 1
        self._counts_now = True

    def skipped(self, event: str, queue: int, name: str, why: str) -> None:
        """Something was not added to a queue beside the one that a message came into, or left. Each time is counted;
        it is told and written down at most once a minute by each process."""
        self.counts[event, queue, ""] += 1
        if self.now - self._cache.skipped.get((event, queue), 0) >= SKIPPED_EVERY:
            self._cache.skipped[event, queue] = self.now
            self.add_ledger(event, queue, reason=why)
            self.notices.append((FROM_LEDGER[event], {"queue": name, "reason": why}))

    def taken_from_programs(self, queue: int, name: str, messages: int) -> None:
        """Programs have declared a queue and put so many messages there, and a service is called from it now."""
        if messages:
            self.add_ledger("mode_changed", queue, reason=f"dispatch: {messages} messages of programs stay")
            self.notices.append(("queue.taken", {"queue": name, "messages": messages}))

    def count_now(self) -> None:
        """Write the counts of this process with this transaction."""
        self._counts_now = True

    # the end

    def flush(self) -> None:
        """Write what is not written yet. Called once, before COMMIT."""
        self._write_rows()
        self._write_unsettled()
        self._counts_now = self._counts_now or time.monotonic() >= self._tally.due_at
        if self._counts_now:
            counts = self._tally.with_waiting(self.counts)
            COUNTERS.write(self.db.execute, counts)
            REFUSALS.write(self.db.execute, self._tally.refused())
            self.has_counted = bool(counts)

    def _write_unsettled(self) -> None:
        for queue, (came, went, size) in self._unsettled.items():
            row = {"key": queue, "came": came, "went": went, "bytes": size, "last": self._last_put.get(queue)}
            self.db.execute(queues.COUNT_UNSETTLED, {**row, "now": self.now})
            if came:
                self.counts["put", queue, ""] += came
        self._unsettled = {}

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


as_json: Final[Callable[[object], str]] = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
