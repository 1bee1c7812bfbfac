"""One write transaction: the connection, the time, and the sequences it works on.

Verbs are plain functions ``verb(tx, …) → result``; a test can call them without threads. A verb asks for a sequence,
changes the copy it is given, and forgets it: ``flush`` writes each changed sequence once, before COMMIT, however many
verbs of the batch touched it.

What was read may be kept from one transaction to the next only while ``PRAGMA data_version`` proves that nobody else
wrote; it is kept only after COMMIT, and any rollback empties it.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, BinaryIO, Final

from wsrm_mq.events.table import EVENTS, FROM_LEDGER
from wsrm_mq.sequence.ranges import AckRange, AckRanges
from wsrm_mq.sequence.states import State
from wsrm_mq.store import statements as sql
from wsrm_mq.store.applications import NAMELESS, Serving, foreign
from wsrm_mq.store.bodies import write_body
from wsrm_mq.store.counting import Key, Tally
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.space import room
from wsrm_mq.store.together import COUNTERS, DELIVERED, ENTRIES, MESSAGES, PROGRESS, RANGES, REFUSALS, STEADY, Row

__all__ = ["ConnectionCache", "SequenceCache", "Transaction"]

_CACHED_WEIGHT: Final = 40_000
_CACHED_QUEUES: Final = 1_000
_CACHED_CONNECTIONS: Final = 10_000
_LAST_POSITION: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'entry'"
"""That of a deleted row is not used again."""
_STEADY: Final = len(sql.STEADY_COLUMNS)


def _weight(record: SequenceRecord) -> int:
    """What a sequence takes in memory: it and each of its ranges, which may be thousands, count as one."""
    return 1 + len(record.value.received.ranges) + len(record.value.unnamed.ranges)


class ConnectionCache:
    """What is known of connections, for those that ask: nothing here is filled for every message."""

    def __init__(self) -> None:
        self.sequences: dict[tuple[str, int], int] = {}
        """Key of the open sequence of a connection's messages without WS-RM in a queue."""
        self.unsettled: dict[str, int] = {}
        """How many unsettled messages a connection has, at most."""
        self.asked_at: dict[str, int] = {}
        """At which transaction's time they were counted last."""
        self.floors: OrderedDict[str, int] = OrderedDict()
        """The key of a message below which, and at which, all of a connection's are settled: for ever, so it stays
        true whoever writes."""

    def clear(self) -> None:
        self.sequences.clear()
        self.unsettled.clear()
        self.asked_at.clear()

    def set_floor(self, connection: str, key: int) -> None:
        self.floors[connection] = key
        self.floors.move_to_end(connection)
        if len(self.floors) > _CACHED_CONNECTIONS:
            gone, _key = self.floors.popitem(last=False)
            self.unsettled.pop(gone, None)
            self.asked_at.pop(gone, None)

    def set_sequence(self, connection: str, queue: int, key: int) -> None:
        if len(self.sequences) > _CACHED_CONNECTIONS:
            self.sequences.clear()
        self.sequences[connection, queue] = key


class SequenceCache:
    """Committed sequences, least recently used first out: 20,000 received in order, fewer that have gaps."""

    def __init__(self, size: int = _CACHED_WEIGHT, serving: Serving = NAMELESS) -> None:
        self._size = size
        self.serving = serving
        """What the process serves."""
        self.served: set[int] = set()
        """Keys of queues that it may run. No other process takes one of them away while this one lives."""
        self.weight = 0
        self._by_id: OrderedDict[int, SequenceRecord] = OrderedDict()
        self._ids: dict[str, int] = {}
        self._queues: OrderedDict[str, int] = OrderedDict()
        self.held_in_all: tuple[int, int] | None = None
        """Messages and bytes held in all sequences as committed; ``None``: not asked yet."""
        self.last_position: int | None = None
        """The last that was given; ``None``: not asked yet."""
        self.connections = ConnectionCache()
        self.version: int | None = None

    def validate(self, version: int) -> None:
        """Empty the cache if another connection has committed since (``PRAGMA data_version``)."""
        if version != self.version:
            served = self.served
            self.clear()
            self.served = served
            self.version = version

    def clear(self) -> None:
        self.weight = 0
        self.served = set()
        self._by_id.clear()
        self._ids.clear()
        self._queues.clear()
        self.last_position = None
        self.connections.clear()
        self.held_in_all = None

    def id_of(self, identifier: str) -> int | None:
        return self._ids.get(identifier)

    def get(self, key: int) -> SequenceRecord | None:
        record = self._by_id.get(key)
        if record is not None:
            self._by_id.move_to_end(key)
        return record

    def put(self, record: SequenceRecord) -> None:
        """Keep what was committed. What has ended and has nothing left to deliver is not kept."""
        if record.ended_at is not None and record.is_over:
            self.drop(record.id)
            return
        before = self._by_id.get(record.id)
        self._by_id[record.id] = record
        if before is None:
            self._ids[record.value.terms.identifier] = record.id
        else:
            self._by_id.move_to_end(record.id)
            self.weight -= _weight(before)
        self.weight += _weight(record)
        while self.weight > self._size and len(self._by_id) > 1:
            _key, oldest = self._by_id.popitem(last=False)
            del self._ids[oldest.value.terms.identifier]
            self.weight -= _weight(oldest)

    def drop(self, key: int) -> None:
        record = self._by_id.pop(key, None)
        if record is not None:
            del self._ids[record.value.terms.identifier]
            self.weight -= _weight(record)

    def held_changed(self, messages: int, size: int) -> None:
        if self.held_in_all is not None:
            self.held_in_all = (self.held_in_all[0] + messages, self.held_in_all[1] + size)

    def queue(self, name: str) -> int | None:
        return self._queues.get(name)

    def put_queue(self, name: str, key: int) -> None:
        self._queues[name] = key
        if len(self._queues) > _CACHED_QUEUES:
            self._queues.popitem(last=False)

    def drop_queues(self, keys: Collection[int]) -> None:
        """What another process has deleted goes with ``validate``."""
        self.served.difference_update(keys)
        for name in [name for name, key in self._queues.items() if key in keys]:
            del self._queues[name]


class Transaction:
    """A transaction in progress. ``now`` is one time for all of it, ms since the epoch."""

    def __init__(
        self,
        db: sqlite3.Connection,
        now: int,
        cache: SequenceCache,
        instance: int,
        instance_name: str,
        tally: Tally | None = None,
    ) -> None:
        self.db = db
        self.now = now
        self.instance = instance
        """Key of the instance that writes."""
        self.instance_name = instance_name
        self.connections = cache.connections
        self.notices: list[tuple[str, dict[str, Any]]] = []
        """Events to be told once this is committed."""
        self._tally = tally or Tally()
        self._counts: dict[Key, int] = {}
        self._counts_now = False
        self._cache = cache
        self._touched: dict[int, tuple[SequenceRecord, SequenceRecord]] = {}
        self._messages: list[Row] = []
        self._entries: list[Row] = []
        self._delivered: list[Row] = []
        self._used_bytes: int | None = None
        self.has_counted = False
        """It wrote counters: at most a few transactions a second do."""

    def execute(self, statement: str, parameters: Mapping[str, Any] | Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a statement. It sees all that this transaction did before, but changes of sequences."""
        if self._entries or self._messages or self._delivered:
            self._write_rows()
        return self.db.execute(statement, parameters)

    # sequences

    def sequence(self, key: int) -> SequenceRecord | None:
        """The sequence with this key, to be read and changed; ``None`` where there is none."""
        touched = self._touched.get(key)
        if touched is not None:
            return touched[1]
        record = self._cache.get(key)
        if record is None:
            row = self.execute(sql.SEQUENCE_BY_ID, {"key": key}).fetchone()
            if row is None:
                return None
            record = self._load(row)
        return self._touch(record)

    def sequence_named(self, identifier: str) -> SequenceRecord | None:
        key = self._cache.id_of(identifier)
        if key is not None:
            return self.sequence(key)
        row = self.execute(sql.SEQUENCE_BY_IDENTIFIER, {"identifier": identifier}).fetchone()
        if row is None:
            return None
        touched = self._touched.get(row[0])
        return touched[1] if touched is not None else self._touch(self._load(row))

    def add_sequence(self, record: SequenceRecord, create_id: str | None) -> SequenceRecord:
        row = {**record.terms_row, **record.saved_row, "create_id": create_id}
        record.id = self.execute(sql.ADD_SEQUENCE, row).lastrowid or 0
        record.written = record.standing, record.progress
        return self._touch(record)

    def forget_sequence(self, key: int) -> None:
        """Delete a sequence and its ranges. It has no entry any more."""
        self._touched.pop(key, None)
        self._cache.drop(key)
        self.execute(sql.DROP_RANGES, {"sequence": key})
        self.execute(sql.DROP_SEQUENCE, {"key": key})

    @property
    def changed_sequences(self) -> set[int]:
        """Keys of those that this transaction was asked for: what it made of them, no query sees."""
        return set(self._touched)

    def _load(self, row: tuple[object, ...]) -> SequenceRecord:
        key = row[0]
        ranges = tuple(self.execute(sql.RANGES, {"sequence": key}))
        unnamed = AckRanges.of(number for (number,) in self.execute(sql.UNNAMED, {"sequence": key}))
        return SequenceRecord.load(row, AckRanges(ranges), unnamed)

    def _touch(self, record: SequenceRecord) -> SequenceRecord:
        working = record.copy()
        self._touched[record.id] = (record, working)
        return working

    # room

    @property
    def held_in_all(self) -> tuple[int, int]:
        """Messages and bytes that all sequences hold, as last committed: a bound on it is kept but for one batch."""
        if self._cache.held_in_all is None:
            messages, size = self.db.execute(sql.HELD_IN_ALL).fetchone()
            self._cache.held_in_all = (messages, size)
        return self._cache.held_in_all

    @property
    def used_bytes(self) -> int:
        """The bytes of the store's file that hold something."""
        if self._used_bytes is None:
            self._used_bytes = room(self.db).used
        return self._used_bytes

    # rows that are written together

    def add_message(self, row: dict[str, Any]) -> int:
        """Add a row of ``message``, its ``id`` left out; answers that: the position of the entry that comes with it."""
        row["id"] = key = self._next_position()
        self._messages.append(MESSAGES.row(row))
        return key

    def add_entry(self, row: dict[str, Any]) -> int:
        """Add a row of ``entry``; answers its position, which is given once and never again. ``id`` is in the row
        where it came with its message."""
        row["id"] = key = row.get("id") or self._next_position()
        self._entries.append(ENTRIES.row(row))
        return int(key)

    def delivered(self, position: int) -> None:
        """Settle an entry as delivered."""
        self._delivered.append((position,))

    def write_body(self, message: int, size: int, body: BinaryIO) -> None:
        """The body of a message that was added without, ``size`` bytes."""
        self._write_rows()
        write_body(self.db, message, size, body)

    def _next_position(self) -> int:
        last = self._cache.last_position
        if last is None:
            found = self.db.execute(_LAST_POSITION).fetchone()
            last = found[0] if found else 0
        self._cache.last_position = key = last + 1
        return key

    def _write_rows(self) -> None:
        MESSAGES.write(self.db.execute, self._messages)
        ENTRIES.write(self.db.execute, self._entries)
        DELIVERED.write(self.db.execute, self._delivered, self.now)
        self._messages, self._entries, self._delivered = [], [], []

    # rows that stand alone

    def queue(self, name: str, kind: str = "app", parent: int | None = None) -> int:
        """The key of the queue with this name, which is made if it is missing."""
        known = self.queue_named(name)
        if known is not None:
            return known
        application = self._cache.serving.application if kind == "app" else None
        row = {"name": name, "kind": kind, "parent": parent, "created_at": self.now, "application": application}
        key = self.execute(sql.ADD_QUEUE, row).lastrowid or 0
        self._cache.put_queue(name, key)
        return key

    def queue_named(self, name: str) -> int | None:
        """The key of the queue with this name; ``None`` where there is none."""
        known = self._cache.queue(name)
        if known is not None:
            return known
        found = self.execute(sql.QUEUE_ID, {"name": name}).fetchone()
        if found is None:
            return None
        self._cache.put_queue(name, found[0])
        return int(found[0])

    def forget_queues(self, keys: Collection[int]) -> None:
        """Delete queues. Nothing has their keys any more, nor will: keys are given once."""
        self._cache.drop_queues(keys)
        self.execute("DELETE FROM queue WHERE id IN (SELECT value FROM json_each(?))", (as_json([*keys]),))

    def serves(self, queue: int) -> bool:
        """Whether what is in the queue with this key is for this process."""
        if queue in self._cache.served:
            return True
        row = self.execute("SELECT name, application FROM queue WHERE id = ?", (queue,)).fetchone()
        if row is None or not self._cache.serving.may_run(*row):
            return False
        self._cache.served.add(queue)
        return True

    @property
    def foreign(self) -> str:
        """The keys of the queues that it does not serve, as JSON."""
        return as_json(foreign(self.db, self._cache.serving))

    def dead_letters(self, queue: int) -> int:
        """The key of the dead-letter queue of ``queue``, whatever its name."""
        found = self.execute(sql.DEAD_LETTERS, {"parent": queue}).fetchone()
        if found is not None:
            return int(found[0])
        name = self.execute("SELECT name FROM queue WHERE id = ?", (queue,)).fetchone()[0]
        return self.queue(f"{name}#dead", "dead_letter", queue)

    def ledger(
        self,
        event: str,
        record: SequenceRecord | None = None,
        *,
        number: int | None = None,
        position: int | None = None,
        attempt: int | None = None,
        reason: str | None = None,
        actor: str | None = None,
        is_told: bool = True,
    ) -> None:
        """Write down what an entry's own columns cannot tell. It is counted, and told once it is committed."""
        self.execute(
            sql.ADD_LEDGER,
            {
                "at": self.now,
                "event": event,
                "queue": record.queue if record else None,
                "sequence": record.id if record else None,
                "number": number,
                "position": position,
                "instance": self.instance_name,
                "attempt": attempt,
                "reason": reason,
                "actor": actor,
            },
        )

        self.count("ledger", record.queue if record else 0, event)
        self._counts_now = True
        if is_told and record is not None and event in FROM_LEDGER:
            self.notices.append(_notice(event, record, number, attempt, reason))

    def count(self, name: str, queue: int, label: str = "", by: int = 1) -> None:
        """Count something of a queue; see ``counting`` for when that is in the store."""
        key = (name, queue, label)
        self._counts[key] = self._counts.get(key, 0) + by

    def count_now(self) -> None:
        """What this process has counted until now is written with this transaction."""
        self._counts_now = True

    # the end

    def flush(self) -> None:
        """Write what is not written yet. Called once, before COMMIT."""
        self._write_rows()
        progressed: list[Row] = []
        steady: list[Row] = []
        ranges: list[Row] = []
        for original, working in self._touched.values():
            was_standing, was_progress = working.written
            working.written = standing, progress = working.standing, working.progress
            if standing != was_standing:
                self.db.execute(sql.SAVE_SEQUENCE, {**working.saved_row, "key": working.id})
            elif progress[_STEADY:] != was_progress[_STEADY:]:
                progressed.append((working.id, *progress))
            elif progress != was_progress:
                steady.append((working.id, *progress[:_STEADY]))
            before, after = original.value.received, working.value.received
            if before is not after:
                ranges += self._changed_ranges(working.id, before.ranges, after.ranges)
        PROGRESS.write(self.db.execute, progressed)
        STEADY.write(self.db.execute, steady)
        RANGES.write(self.db.execute, ranges)
        self._counts_now = self._counts_now or self._tally.is_due
        if self._counts_now:
            counts = self._tally.with_waiting(self._counts)
            COUNTERS.write(self.db.execute, counts)
            REFUSALS.write(self.db.execute, self._tally.refused())
            self.has_counted = bool(counts)

    def _changed_ranges(self, key: int, before: tuple[AckRange, ...], after: tuple[AckRange, ...]) -> list[Row]:
        """The rows to write; what is no longer there is deleted."""
        if before[:-1] == after[:-1] and before and after[-1][0] == before[-1][0]:  # in order: nearly every message
            return [(key, *after[-1])]
        same = _same_at_the_beginning(before, after)
        before, after = before[same:], after[same:]
        gone = {lower for lower, _ in before}.difference(lower for lower, _ in after)
        for lower in gone:
            self.db.execute(sql.DROP_RANGE, {"sequence": key, "key": lower})
        return [(key, *changed) for changed in set(after).difference(before)]

    def committed(self) -> None:
        """Keep what is now true for the next transaction. Called once, after COMMIT."""
        if self._counts_now:
            self._tally.written()
        else:
            self._tally.wait(self._counts)
        for original, working in self._touched.values():
            self._cache.put(working)
            if working.held != original.held or working.held_bytes != original.held_bytes:
                self._cache.held_changed(working.held - original.held, working.held_bytes - original.held_bytes)


_REASONS: Final = {"failed": "error", "blocked": "error", "dead": "error", "answered_with_fault": "error"}


def _notice(
    event: str, record: SequenceRecord, number: int | None, attempt: int | None, reason: str | None
) -> tuple[str, dict[str, Any]]:
    has_failed = event == "ended" and record.value.state is State.FAILED
    fields = {
        "sequence": record.value.terms.identifier,
        "number": number,
        "attempt": attempt,
        _REASONS.get(event, "reason"): reason,
    }
    name = "sequence.failed" if has_failed else FROM_LEDGER[event]
    told = EVENTS[name].fields
    return name, {field: value for field, value in fields.items() if value is not None and field in told}


def _same_at_the_beginning(one: tuple[AckRange, ...], other: tuple[AckRange, ...]) -> int:
    """How many ranges at the beginning are the same, about: found by comparing slices, which costs next to nothing for
    each range. What changes is mostly near the end, and there may be thousands before it."""
    same, step = 0, min(len(one), len(other))
    while step:
        if one[same : same + step] == other[same : same + step]:
            same += step
        step //= 2
    return same


def as_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
