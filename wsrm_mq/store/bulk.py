"""Bulk statements: what a transaction writes of one kind is one statement for many rows.

SQLite asks the same for a row either way. But each statement gives up the interpreter's lock and then waits for it: in
a busy process that costs more than the row itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import ClauseElement, Column, Integer, Table, update
from sqlalchemy.dialects.sqlite import Insert, insert

from wsrm_mq.store.entries import IS_LIVE
from wsrm_mq.store.lanes import PROGRESS_COLUMNS, PROTOCOL_COLUMNS, SAVED_COLUMNS, STEADY_COLUMNS
from wsrm_mq.store.loose import LOOSE_COLUMNS
from wsrm_mq.store.sql import p, standard, written
from wsrm_mq.store.tables import counter, entry, header, lane, message, range_, refusal, sequence

Row = Sequence[Any]
_FEW, _MANY = 16, 32
"""Rows in one statement: any number up to the one, else the other. So few sizes that each statement stays prepared."""


class Bulk:
    """``statement`` is the SQL for one row, its parameters positional; ``row`` the part of it that stands once for each
    row. ``alone``: a statement with the same parameters that costs less, for one row."""

    def __init__(self, statement: str, row: str, alone: str = "") -> None:
        head, _one, tail = statement.rpartition(row)
        self.text: Final = lru_cache(None)(
            lambda count: written(alone if alone and count == 1 else f"{head}{', '.join([row] * count)}{tail}")
        )
        """The statement for so many rows."""

    def write(self, execute: Callable[[str, Row], object], rows: Sequence[Row], *before: object) -> None:
        """``before`` are the parameters that stand before those of the rows."""
        start = 0
        while left := len(rows) - start:
            count = _MANY if left >= _MANY else min(left, _FEW)
            piece = rows[start : start + count]
            execute(self.text(count), [*before, *chain.from_iterable(piece)])
            start += count


class BulkInsert(Bulk):
    """An INSERT. ``row`` puts a mapping's values into the statement's order."""

    def __init__(
        self, table: Table, columns: str = "", *, conflict: Callable[[Insert], Insert] = lambda plain: plain
    ) -> None:
        names = [one.name for one in table.columns if not columns or one.name in columns.split(", ")]
        self.row: Callable[[dict[str, Any]], Row] = itemgetter(*names)
        one = insert(table).values({name: p(name) for name in names})
        super().__init__(_positional(conflict(one)), _row(len(names)))


def _row(columns: int) -> str:
    return f"({', '.join('?' * columns)})"


def _positional(statement: ClauseElement) -> str:
    """The text of ``statement``, with parameters as ``?`` in the order in which they stand."""
    return re.sub(r":\w+", "?", standard(statement))


def _changes(table: Table, key: str, columns: Sequence[str]) -> Bulk:
    """An UPDATE of many rows in one statement, written by hand: SQLAlchemy has none that joins VALUES for SQLite. It
    makes a table of the rows first, so a row that comes alone has a plain one."""
    names = [f'"{name}"' for name in columns]
    row = f"({', '.join(_typed(table.c[column]) for column in (*columns, key))})"
    changes = ", ".join(f"{name} = now_is.{name}" for name in names)
    values = f"WITH now_is ({', '.join(names)}, key) AS (VALUES {row})"
    return Bulk(
        f"{values} UPDATE {table.name} SET {changes} FROM now_is WHERE {table.name}.{key} = now_is.key",
        row,
        f"UPDATE {table.name} SET {' = ?, '.join(names)} = ? WHERE {key} = ?",
    )


def _typed(column: Column[Any]) -> str:
    return "a_number(?)" if isinstance(column.type, Integer) else "a_text(?)"


MESSAGES: Final = BulkInsert(message)
_PLACE: Final = "id, queue, message, lane, number"
ENTRIES: Final = BulkInsert(
    entry, f"{_PLACE}, wants_reply, named, waiter, outcome, reason, settled_at, priority, expires_at"
)
PUT: Final = BulkInsert(
    entry, f"{_PLACE}, priority, expires_at, retry_from, retry_at, hold, replay_of, journal_of, asks"
)
HEADERS: Final = BulkInsert(header)
REPLAYS: Final = BulkInsert(entry, f"{_PLACE}, wants_reply, replay_of, priority")
RANGES: Final = BulkInsert(
    range_,
    conflict=lambda plain: plain.on_conflict_do_update(
        index_elements=["lane", "lower"], set_={"upper": plain.excluded.upper}
    ),
)
DELIVERED: Final = Bulk(
    _positional(
        update(entry)
        .where(entry.c.id.in_([p("key")]), IS_LIVE)
        .values(settled_at=p("now"), outcome="delivered", named=1, owner=None, deliveries=entry.c.deliveries + 1)
    ),
    "?",
)
"""Rows of one: an entry's key. Before them, the time."""
PROGRESS: Final = _changes(lane, "id", PROGRESS_COLUMNS)
"""Rows: PROGRESS_COLUMNS, then the lane's key."""
STEADY: Final = _changes(lane, "id", STEADY_COLUMNS)
"""Rows: STEADY_COLUMNS, then the lane's key: the other columns are as they were."""
CHANGED: Final = _changes(lane, "id", SAVED_COLUMNS)
"""Rows: SAVED_COLUMNS, then the lane's key."""
PROTOCOL: Final = _changes(sequence, "lane", PROTOCOL_COLUMNS)
"""Rows: PROTOCOL_COLUMNS, then the key of the sequence's lane."""
LOOSE: Final = _changes(entry, "id", LOOSE_COLUMNS)
"""Rows: LOOSE_COLUMNS, then the position of the loose entry."""
COUNTERS: Final = BulkInsert(
    counter,
    conflict=lambda plain: plain.on_conflict_do_update(
        index_elements=["name", "queue", "label"], set_={"value": counter.c.value + plain.excluded.value}
    ),
)
REFUSALS: Final = BulkInsert(
    refusal,
    conflict=lambda plain: plain.on_conflict_do_update(
        index_elements=["reason", "partner"],
        set_={
            "times": refusal.c.times + plain.excluded.times,
            **{name: plain.excluded[name] for name in ("last_at", "said")},
        },
    ),
)
