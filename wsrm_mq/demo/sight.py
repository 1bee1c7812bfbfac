"""A look at the two databases: what the service did, and what our store holds back meanwhile."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Sight", "Watch", "service_saw"]


@dataclass(frozen=True, slots=True)
class Sight:
    """One moment. Numbers are message numbers; the demo's orders have the same."""

    effects: tuple[int, ...] = ()
    """In the order of commit."""
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


def service_saw(database: Path) -> tuple[tuple[int, ...], int]:
    """The orders in the order of their effect, and how many calls the inbox recognised."""
    with closing(sqlite3.connect(database, timeout=10)) as connection:
        effects = tuple(n for (n,) in connection.execute("SELECT n FROM effects ORDER BY rowid"))
        (redelivered,) = connection.execute("SELECT count(*) FROM calls WHERE redelivery = 1").fetchone()
        return effects, redelivered


@dataclass
class Watch:
    """Looks again and again, and remembers the most that was held at a time."""

    service_db: Path
    store: Path
    held_max: int = 0
    last: Sight = field(default_factory=Sight)

    def look(self) -> Sight:
        """The service first: what is unsettled in our store afterwards was so when the service had done it."""
        effects, redelivered = service_saw(self.service_db)
        accepted, cursor, limit = self._sequence()
        self.last = Sight(effects, redelivered, accepted, cursor, limit)
        self.held_max = max(self.held_max, self.last.held)
        return self.last

    def _sequence(self) -> tuple[tuple[tuple[int, int], ...], int, int]:
        with closing(sqlite3.connect(self.store, timeout=10)) as connection:
            connection.execute("BEGIN")  # one snapshot for both
            row = connection.execute('SELECT id, cursor, "limit" FROM sequence').fetchone()
            if row is None:
                return (), 1, 1
            ranges = connection.execute(
                "SELECT lower, upper FROM range WHERE sequence = ? ORDER BY lower", row[:1]
            ).fetchall()
            return tuple(ranges), row[1], row[2]
