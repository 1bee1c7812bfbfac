"""Bulk statements: what a transaction writes of one kind is one statement for many rows.

SQLite asks the same for a row either way. But each statement gives up the interpreter's lock and then waits for it: in
a busy process that costs more than the row itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import BindParameter, Table, bindparam, update
from sqlalchemy.dialects.sqlite import Insert, insert

from wsrm_mq.store.statements import PROGRESS_COLUMNS, SAVED_COLUMNS, STEADY_COLUMNS, positional
from wsrm_mq.store.tables import counter, entry, message, range_, refusal, sequence

__all__ = [
    "COUNTERS",
    "DELIVERED",
    "ENTRIES",
    "MESSAGES",
    "PROGRESS",
    "RANGES",
    "REFUSALS",
    "STEADY",
    "Bulk",
    "BulkInsert",
    "Row",
]

Row = Sequence[Any]
_FEW, _MANY = 16, 32
"""Rows in one statement: any number up to the one, else the other. So few sizes that each statement stays prepared."""


class Bulk:
    """``text(n)`` is the SQL of a statement for ``n`` rows, its parameters positional."""

    def __init__(self, text: Callable[[int], str]) -> None:
        self._text = lru_cache(None)(text)

    def write(self, execute: Callable[[str, Row], object], rows: Sequence[Row], *before: object) -> None:
        for piece in _pieces(rows):
            execute(self._text(len(piece)), [*before, *chain.from_iterable(piece)])


class BulkInsert(Bulk):
    """An INSERT. ``row`` puts a mapping's values into the statement's order."""

    def __init__(self, table: Table, *columns: str, conflict: Callable[[Insert], Insert] = lambda plain: plain) -> None:
        names = tuple(column.name for column in table.columns if not columns or column.name in columns)
        self.row: Callable[[dict[str, Any]], Row] = itemgetter(*names)

        def text(count: int) -> str:
            rows: list[dict[str, Any]] = [
                {name: bindparam(f"{name}_{number}") for name in names} for number in range(count)
            ]
            return positional(conflict(insert(table).values(rows)))

        super().__init__(text)


def _pieces(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    start = 0
    while left := len(rows) - start:
        size = _MANY if left >= _MANY else min(left, _FEW)
        yield rows[start : start + size]
        start += size


def _delivered(count: int) -> str:
    keys: list[BindParameter[int]] = [bindparam(f"key_{number}") for number in range(count)]
    statement = (
        update(entry)
        .where(entry.c.id.in_(keys), entry.c.outcome.is_(None))
        .values(settled_at=bindparam("now"), outcome="delivered", named=1, deliveries=entry.c.deliveries + 1)
    )
    return positional(statement)


def _changes_of_sequences(columns: Sequence[str]) -> Callable[[int], str]:
    """Written by hand: SQLAlchemy has no UPDATE that joins VALUES for SQLite."""
    names = [f'"{name}"' for name in columns]
    row = f"({', '.join('?' * (len(names) + 1))})"
    changes = ", ".join(f"{name} = now_is.{name}" for name in names)

    def text(count: int) -> str:
        return (
            f"WITH now_is (key, {', '.join(names)}) AS (VALUES {', '.join([row] * count)}) "
            f"UPDATE {sequence.name} SET {changes} FROM now_is WHERE {sequence.name}.id = now_is.key"
        )

    return text


MESSAGES: Final = BulkInsert(message)
ENTRIES: Final = BulkInsert(
    entry,
    "id",
    "queue",
    "message",
    "sequence",
    "number",
    "wants_reply",
    "named",
    "waiter",
    "outcome",
    "reason",
    "settled_at",
)
RANGES: Final = BulkInsert(
    range_,
    conflict=lambda plain: plain.on_conflict_do_update(
        index_elements=["sequence", "lower"], set_={"upper": plain.excluded.upper}
    ),
)
DELIVERED: Final = Bulk(_delivered)
"""Rows of one: an entry's key. Before them, the time."""
PROGRESS: Final = Bulk(_changes_of_sequences(PROGRESS_COLUMNS))
"""Rows: a sequence's key, then PROGRESS_COLUMNS."""
STEADY: Final = Bulk(_changes_of_sequences(STEADY_COLUMNS))
"""Rows: a sequence's key, then STEADY_COLUMNS: the others are as they were."""
CHANGED: Final = Bulk(_changes_of_sequences(SAVED_COLUMNS))
"""Rows: a sequence's key, then SAVED_COLUMNS."""
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
        set_={"times": refusal.c.times + plain.excluded.times, "last_at": plain.excluded.last_at},
    ),
)
