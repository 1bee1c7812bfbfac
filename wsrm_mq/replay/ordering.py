"""The messages of a plan, put in order: a table of its own in a temporary file, so that a million take no memory.

A message runs where it was released when it was received: behind all that precede it in its sequence, else in the order
of receipt.
"""

from __future__ import annotations

import enum
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_TABLES: Final = """
CREATE TABLE candidate (
    message INTEGER PRIMARY KEY, position INTEGER, sequence INTEGER, number INTEGER, queue TEXT, identifier TEXT,
    message_id TEXT, action TEXT, size INTEGER, received_at INTEGER, state TEXT, standing INTEGER
);
CREATE TABLE bounds (sequence INTEGER PRIMARY KEY, unsettled INTEGER, settled INTEGER);
"""
_ADD: Final = """
INSERT INTO candidate VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (message) DO UPDATE SET position = excluded.position, state = excluded.state, standing = excluded.standing
WHERE excluded.standing > candidate.standing
"""
_SEQUENCES: Final = "SELECT DISTINCT sequence FROM candidate WHERE sequence > ? ORDER BY sequence LIMIT 500"
_LIVE: Final = "SELECT number FROM candidate WHERE sequence = ? AND standing = 2 ORDER BY number"
_DOWNWARDS: Final = "SELECT number FROM candidate WHERE sequence = ? ORDER BY number DESC"
_ORDERED: Final = """
SELECT c.*, coalesce(iif(standing = 2, number > b.unsettled, number < b.settled), 0),
       max(position) OVER (PARTITION BY c.sequence ORDER BY number ROWS UNBOUNDED PRECEDING) AS released
FROM candidate c LEFT JOIN bounds b ON b.sequence = c.sequence
ORDER BY released, c.sequence, number
"""


class Standing(enum.IntEnum):
    """The rank of an entry. Where a message has two entries, the one of higher rank is replayed."""

    SETTLED = 0
    DEAD = 1
    LIVE = 2


class Candidate(NamedTuple):
    """``sequence`` is the key of the sequence that the message came in, and ``number`` its number there; see
    ``store.plans.PLANNABLE`` for one that came in no lane."""

    message: int
    position: int
    sequence: int
    number: int
    queue: str
    identifier: str
    message_id: str | None
    action: str | None
    size: int
    received_at: int
    state: str
    standing: Standing


class Ordering:
    """Closed at the end of its block; nothing is left of it."""

    def __init__(self, directory: Path) -> None:
        self._file = tempfile.NamedTemporaryFile(dir=directory, prefix=".wsrm-mq-plan-")  # noqa: SIM115
        self._db = sqlite3.connect(self._file.name, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("PRAGMA temp_store = FILE")
        self._db.executescript(_TABLES)
        self._db.execute("BEGIN")

    def __enter__(self) -> Ordering:
        return self

    def __exit__(self, *_error: object) -> None:
        self._db.close()
        self._file.close()

    def add(self, candidates: Iterable[Candidate]) -> None:
        self._db.executemany(_ADD, candidates)

    def end(self) -> None:
        """All are there."""
        self._db.execute("CREATE INDEX by_sequence ON candidate (sequence, number)")

    def sequences(self) -> Iterator[int]:
        """The key of each sequence."""
        after = 0
        while rows := self._db.execute(_SEQUENCES, (after,)).fetchall():
            yield from (key for (key,) in rows)
            (after,) = rows[-1]

    def live(self, sequence: int) -> Iterator[int]:
        """The numbers of its messages that are not settled, upwards."""
        return (number for (number,) in self._db.execute(_LIVE, (sequence,)))

    def downwards(self, sequence: int) -> Iterator[int]:
        """The numbers of all its messages, downwards."""
        return (number for (number,) in self._db.execute(_DOWNWARDS, (sequence,)))

    def bound(self, sequence: int, unsettled: int | None, settled: int) -> None:
        """Note the messages of a sequence in order that the plan leaves out: one that is not settled should come before
        the numbers above ``unsettled``; the plan's own numbers below ``settled`` come after one that was delivered."""
        self._db.execute("INSERT INTO bounds VALUES (?, ?, ?)", (sequence, unsettled, settled))

    def ordered(self) -> Iterator[tuple[Candidate, bool]]:
        """Every message in the order in which it runs, and whether that breaks the order of its sequence."""
        for *columns, breaks_order, _released in self._db.execute(_ORDERED):
            yield Candidate._make(columns), bool(breaks_order)
