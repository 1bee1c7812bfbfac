"""Two indexes that are filled later: the messages of a connection, and the entries of a lane, settled ones too. A
delivery needs neither of them: unsettled entries have an index of their own, ``entry_live``, which is written with
every message and small.

Each connection and each lane has its own leaf in these indexes. Written with every message, they cost 4 to 8 % more CPU
and 6 to 16 % of the rate at 1 to 32 connections; a restart and a large gap are as fast either way. So they are brought
forward afterwards, many rows at a time in their own order, and a watermark says how far each is. Rows behind the
watermark are found in the tables themselves: a few thousand at most while a process serves, because a larger backlog is
indexed in larger pieces. One statement or one transaction reads both parts, so an answer is right at any moment,
although others write meanwhile or a process has died.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from wsrm_mq.store.sql import written

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

BATCH: Final = 200
"""Rows in one transaction, at least: half a millisecond, and where each is of another connection some for the disk."""
_SHARE: Final = 8
"""An eighth of the rows behind is brought forward at once."""
_MOST: Final = 4_000
"""The largest number of rows at once. A piece goes along with every third commit at worst, and a commit accepts 512
messages: under any load the index stays near."""


def piece(behind: int) -> int:
    """How many rows are brought forward at once, of an index that is so far behind."""
    return max(BATCH, min(behind // _SHARE, _MOST))


class LateIndex:
    """``columns`` of ``table`` are ``values`` of the rows of ``of``, where the first of them is not NULL. It has all of
    them up to the watermark with the table's name, and none behind it. The last column is the row's key; the first two
    are the index's own, which is the same where there are but two."""

    def __init__(self, table: str, of: str, columns: tuple[str, ...], values: tuple[str, ...]) -> None:
        self.table, self.of, self.columns, self.values = table, of, columns, values
        self.upto: Final = f"(SELECT upto FROM watermark WHERE name = '{table}')"
        """SQL: the key of the last row that it has, where it is to have that."""
        self.behind: Final = f"coalesce((SELECT max(id) FROM {of}), 0) - {self.upto}"
        """SQL: how many keys there are behind it."""
        self.how_far: Final = f"SELECT {self.behind}"
        """The statement that answers that."""
        self._next: Final = (
            f"SELECT max(id), count(*) FROM (SELECT id FROM {of} WHERE id > {self.upto} ORDER BY id LIMIT ?) piece"
        )
        self._add: Final = f"""
            INSERT INTO {table} ({", ".join(columns)})
            SELECT {", ".join(values)} FROM {of} WHERE id > {self.upto} AND id <= ? AND {values[0]} IS NOT NULL
            ORDER BY {", ".join(values)} ON CONFLICT DO NOTHING
        """
        self._move: Final = f"UPDATE watermark SET upto = ? WHERE name = '{table}'"
        self._drop: Final = written(
            f"DELETE FROM {table} WHERE {columns[0]} = ? AND {columns[1]} IN (SELECT value FROM keys_in(?) k)"
        )

    def bring_forward(self, tx: Transaction, most: int | None = None) -> bool:
        """Index the next rows, ``most`` of them if that is said; answers whether there may be more. Writes nothing
        where there are none."""
        if most is None:
            most = piece(tx.execute(self.how_far).fetchone()[0])
        last, count = tx.execute(self._next, (most,)).fetchone()
        if count:
            tx.execute(self._add, (last,))
            tx.execute(self._move, (last,))
        return bool(count == most)

    def forget(self, tx: Transaction, gone: Iterable[tuple[object | None, int]]) -> None:
        """The rows with these values of the first two columns were deleted."""
        values: dict[object, list[int]] = {}
        for first, second in gone:
            if first is not None:
                values.setdefault(first, []).append(second)
        for first, its in values.items():
            tx.execute(self._drop, (first, json.dumps(its)))


BY_CONNECTION: Final = LateIndex("connection_message", "message", ("connection", "message"), ("connection", "id"))
BY_LANE: Final = LateIndex("lane_entry", "entry", ("lane", "number", "entry"), ("lane", "number", "id"))
OF_LANE: Final = f"""(
    SELECT number, entry FROM lane_entry WHERE lane = :lane
    UNION ALL SELECT number, id FROM entry WHERE id > {BY_LANE.upto} AND lane = :lane
)"""
"""SQL: the numbers and entries of a lane, out of both parts."""
LOOK: Final = written(
    f"SELECT {BY_CONNECTION.upto}, {BY_LANE.upto}, greatest({BY_CONNECTION.behind}, {BY_LANE.behind})"
)
"""Both watermarks, and how many keys the index that is further behind has to come."""
