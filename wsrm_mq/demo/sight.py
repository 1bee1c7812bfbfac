"""A look at the two databases: the effects of the service, and the messages that our store holds back."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sight:
    """One moment. Numbers are message numbers; the demo's orders have the same."""

    effects: tuple[int, ...] = ()
    """The orders that were done, in the order of commit."""
    newest_at: float = 0.0
    """The time of the last of them, in seconds since the epoch."""
    redelivered: int = 0
    """Calls that the inbox recognised."""
    accepted: tuple[tuple[int, int], ...] = ()
    """Ranges received, both ends included."""
    cursor: int = 1
    """The lowest number accepted and not settled."""
    limit: int = 1
    """Everything accepted below it is delivered or being delivered; above it is held."""

    @property
    def count(self) -> int:
        """Messages accepted."""
        return sum(upper + 1 - lower for lower, upper in self.accepted)

    @property
    def held(self) -> int:
        return sum(max(0, upper + 1 - max(lower, self.limit)) for lower, upper in self.accepted)

    def is_accepted(self, number: int) -> bool:
        return any(lower <= number <= upper for lower, upper in self.accepted)

    @property
    def has_unsettled_effect(self) -> bool:
        """The service has committed an order that our store does not know to be done."""
        return bool(self.effects) and self.effects[-1] >= self.cursor


class Observer:
    """Takes sights, and remembers the most messages that were held at a time.

    It only reads: a connection that could write would, as the last one, tidy up after a crash.
    """

    def __init__(self, service_db: Path, store: Path) -> None:
        self.held_max = 0
        self._service_db = service_db
        self._store = store
        self._open: dict[Path, sqlite3.Connection] = {}

    def look(self) -> Sight:
        """Take a sight. The service's database is read first: an order that is unsettled in our store afterwards was so
        when the service had done it."""
        sight = service_saw(self._connection(self._service_db))
        accepted, cursor, limit = _sequence(self._connection(self._store))
        sight = replace(sight, accepted=accepted, cursor=cursor, limit=limit)
        self.held_max = max(self.held_max, sight.held)
        return sight

    def close(self) -> None:
        """Let go of both files; the next look opens them again."""
        while self._open:
            self._open.popitem()[1].close()

    def _connection(self, database: Path) -> sqlite3.Connection:
        if database not in self._open:
            connection = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=10)
            connection.isolation_level = None
            self._open[database] = connection
        return self._open[database]


def service_saw(connection: sqlite3.Connection) -> Sight:
    """The part of a sight that the service's own database tells."""
    effects = connection.execute("SELECT n, at FROM effects ORDER BY rowid").fetchall()
    (redelivered,) = connection.execute("SELECT count(*) FROM calls WHERE redelivery = 1").fetchone()
    return Sight(tuple(n for n, _ in effects), effects[-1][1] if effects else 0.0, redelivered)


def _sequence(store: sqlite3.Connection) -> tuple[tuple[tuple[int, int], ...], int, int]:
    """Ranges, cursor and limit of the demo's sequence, of one moment."""
    store.execute("BEGIN")
    try:
        row = store.execute('SELECT id, cursor, "limit" FROM lane').fetchone()
        if row is None:
            return (), 1, 1
        ranges = store.execute("SELECT lower, upper FROM range WHERE lane = ? ORDER BY lower", row[:1]).fetchall()
        return tuple(ranges), row[1], row[2]
    finally:
        store.execute("COMMIT")
