"""What the oracle and the steps ask of the store, through a connection of their own: outcomes of entries, states of
sequences, and what is left to do. All SQL of the simulator that names columns stands here."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Final, NamedTuple

from wsrm_mq.store import lanes
from wsrm_mq.store.invariants import INVARIANTS, Invariant
from wsrm_mq.store.transaction import Transaction

_TABLES: Final = ("lane", "sequence", "entry", "message", "queue", "outbound_sequence")
CHECKED: Final[tuple[Invariant, ...]] = tuple(one for one in INVARIANTS if one.table in _TABLES)


class Entry(NamedTuple):
    number: int
    outcome: str | None
    is_late: int
    reason: str | None


class Request(NamedTuple):
    """``position``: where it was stored, whatever sequence has it now."""

    position: int
    body: bytes
    to: str
    is_two_way: int


class Standing(NamedTuple):
    """A request as it stands in a sequence."""

    position: int
    entry: int
    identifier: str
    number: int
    outcome: str | None
    reason: str | None
    is_given_up: int
    """Its sequence was ended with it; who is at it may not be through yet."""


def outcomes_in(tx: Transaction, positions: Iterable[int]) -> dict[int, str | None]:
    """The outcomes of these positions, as a transaction sees them."""
    found = tx.execute(
        "SELECT id, outcome FROM entry WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(positions)),)
    )
    return dict(found.fetchall())


class Stored:
    def __init__(self, reader: sqlite3.Connection) -> None:
        self._reader = reader

    def entries(self, identifier: str) -> list[Entry]:
        """Those that came in a sequence."""
        found = self._reader.execute(
            "SELECT e.number, e.outcome, e.late, e.reason FROM lane l JOIN entry e ON e.lane = l.id "
            "WHERE l.identifier = ?",
            (identifier,),
        )
        return list(map(Entry._make, found))

    def state(self, identifier: str) -> str | None:
        found = self._reader.execute(
            "SELECT iif(l.ended IS NULL, s.state, 'ended') FROM lane l JOIN sequence s ON s.lane = l.id "
            "WHERE l.identifier = ?",
            (identifier,),
        ).fetchone()
        return None if found is None else found[0]

    def outcome(self, position: int) -> str | None:
        """``nowhere`` for an entry that is not there."""
        found = self._reader.execute("SELECT outcome FROM entry WHERE id = ?", (position,)).fetchone()
        return "nowhere" if found is None else found[0]

    def place(self, position: int) -> tuple[str, int] | None:
        """The identifier of its sequence, and its number."""
        return self._reader.execute(
            "SELECT l.identifier, e.number FROM entry e JOIN lane l ON l.id = e.lane WHERE e.id = ?",
            (position,),
        ).fetchone()  # type: ignore[no-any-return]

    def unsettled_of_others(self, instance: int) -> list[int]:
        """Positions in sequences that other instances have claimed."""
        found = self._reader.execute(
            "SELECT e.id FROM entry e JOIN lane l ON l.id = e.lane WHERE e.outcome IS NULL AND l.owner <> ?",
            (instance,),
        )
        return [position for (position,) in found]

    def for_acts(self) -> list[int]:
        """Positions that an operator may act on."""
        found = self._reader.execute(
            "SELECT id FROM entry WHERE outcome IS NULL OR outcome IN ('dead', 'discarded') ORDER BY id"
        )
        return [position for (position,) in found]

    def blocked(self, identifier: str) -> int | None:
        """The number that blocks a sequence."""
        found = self._reader.execute(
            "SELECT e.number FROM lane l JOIN entry e ON e.id = l.blocked WHERE l.identifier = ?", (identifier,)
        ).fetchone()
        return None if found is None else found[0]

    def delivers_below(self, identifier: str) -> int:
        """0 where the sequence is stopped: by an operator, a failure, a retry that is to come, or its end."""
        return self._reader.execute(  # type: ignore[no-any-return]
            "SELECT iif(on_hold_since IS NULL AND blocked IS NULL AND retry_at IS NULL AND discard_from IS NULL, "
            '"limit", 0) FROM lane WHERE identifier = ?',
            (identifier,),
        ).fetchone()[0]

    def runnable(self, now: int) -> list[int]:
        """Keys of free sequences that have something to deliver."""
        search = {"now": now, "count": 10, "foreign": "[]", "after": 0}
        return [key for key, *_ in self._reader.execute(lanes.RUNNABLE, search)]

    def next_retry(self) -> int | None:
        return self._reader.execute(lanes.NEXT_RETRY, {"foreign": "[]"}).fetchone()[0]  # type: ignore[no-any-return]

    def owned(self) -> list[int]:
        """Keys of the sequences that a process has claimed."""
        return [key for (key,) in self._reader.execute("SELECT id FROM lane WHERE owner IS NOT NULL")]

    # queues

    def version(self) -> int:
        """It is another one whenever another connection has written."""
        return self._reader.execute("PRAGMA data_version").fetchone()[0]  # type: ignore[no-any-return]

    def unsettled(self, positions: Iterable[int]) -> list[int]:
        """The positions among these that have no outcome."""
        found = self._reader.execute(
            "SELECT id FROM entry WHERE outcome IS NULL AND id IN (SELECT value FROM json_each(?)) ORDER BY id",
            (json.dumps(list(positions)),),
        )
        return [position for (position,) in found]

    def unsettled_in(self, queue: int, upto: int) -> set[int]:
        """The positions of a queue up to one that have no outcome."""
        found = self._reader.execute(
            "SELECT id FROM entry WHERE queue = ? AND id <= ? AND outcome IS NULL AND journal_of IS NULL", (queue, upto)
        )
        return {position for (position,) in found}

    def entries_of(self, action: str) -> list[tuple[int, int]]:
        """Positions and queues of the messages with this action."""
        return self._reader.execute(
            "SELECT e.id, e.queue FROM message m JOIN entry e ON e.message = m.id "
            "WHERE m.action = ? AND e.journal_of IS NULL ORDER BY e.id",
            (action,),
        ).fetchall()

    def positions(self) -> set[int]:
        """All but those in journals."""
        found = self._reader.execute("SELECT id FROM entry WHERE journal_of IS NULL")
        return {position for (position,) in found}

    def recorded(self) -> list[tuple[int, bytes]]:
        """What journals record: position, and body."""
        return self._reader.execute(
            "SELECT e.journal_of, m.body FROM entry e JOIN message m ON m.id = e.message "
            "WHERE e.journal_of IS NOT NULL ORDER BY 1"
        ).fetchall()

    def outcomes(self) -> dict[int, str]:
        """Of all that has one, by position."""
        return dict(self._reader.execute("SELECT id, outcome FROM entry WHERE outcome IS NOT NULL"))

    def told(self) -> set[int]:
        """Positions that the ledger has a row about."""
        return {position for (position,) in self._reader.execute("SELECT position FROM ledger")}

    def leased(self) -> list[int]:
        """Keys of entries and groups that are leased."""
        found = self._reader.execute(
            "SELECT id FROM entry WHERE owner IS NOT NULL UNION ALL SELECT id FROM lane WHERE leased_until IS NOT NULL"
        )
        return [key for (key,) in found]

    # what a source sends, and what of it arrives

    def sent(self, after: int) -> list[Request]:
        """The requests that were stored behind the position ``after``."""
        found = self._reader.execute(
            "SELECT m.id, m.body, c.address, e.wants_reply FROM message m "
            "JOIN entry e ON e.id = m.id JOIN channel c ON c.lane = e.lane AND c.is_numbered = 1 "
            "WHERE m.id > ? ORDER BY m.id",
            (after,),
        )
        return list(map(Request._make, found))

    def requests(self) -> list[Standing]:
        """Where each request stands, by the last sequence that has it, the first stored first."""
        found = self._reader.execute(
            "SELECT e.message, max(e.id), o.identifier, e.number, e.outcome, e.reason, "
            "l.discard_reason IS NOT NULL AND l.discard_reason <> 'replayed' FROM entry e JOIN lane l ON l.id = e.lane "
            "JOIN channel c ON c.lane = e.lane AND c.is_numbered = 1 JOIN outbound_sequence o ON o.id = c.outbound "
            "GROUP BY e.message ORDER BY e.message"
        )
        return list(map(Standing._make, found))

    def heard(self, identifier: str) -> tuple[str, str]:
        """The state of a sequence of a source, and its numbers that are acknowledged."""
        found = self._reader.execute(
            "SELECT state, acknowledged FROM outbound_sequence WHERE identifier = ?", (identifier,)
        )
        state, acknowledged = found.fetchone() or ("", "")
        return state, acknowledged

    def in_doubt(self) -> list[str]:
        """What the ledger says of requests that may be done twice."""
        found = self._reader.execute("SELECT reason FROM ledger WHERE event = 'requests_in_doubt'")
        return [reason for (reason,) in found]

    def arrived(self, after: int) -> list[tuple[int, str, int, bytes]]:
        """What came in sequences behind the position ``after``: position, identifier, number, body."""
        return self._reader.execute(
            "SELECT e.id, l.identifier, e.number, m.body FROM entry e JOIN lane l ON l.id = e.lane "
            "JOIN message m ON m.id = e.message WHERE e.id > ? AND l.kind = 'rm' ORDER BY e.id",
            (after,),
        ).fetchall()

    def sequences(self) -> list[tuple[str, str]]:
        """Identifiers and partners of the sequences that came."""
        return self._reader.execute("SELECT identifier, partner FROM lane WHERE kind = 'rm'").fetchall()

    def leased_by_subscriptions(self, now: int) -> list[tuple[int, int]]:
        """Keys of subscriptions, and the positions that they have leased, by themselves or in groups. What comes later
        among what is leased of a sequence is not marked with the fence of that: it waits for another lease."""
        return self._reader.execute(
            "SELECT e.lessee, e.id FROM entry e WHERE e.outcome IS NULL AND e.lessee IS NOT NULL "
            "AND e.owner IS NOT NULL AND e.leased_until > :now UNION ALL "
            "SELECT l.lessee, e.id FROM lane l JOIN entry e ON e.lane = l.id AND e.outcome IS NULL "
            "AND e.number < l.leased_below AND (l.kind = 'group' OR e.fence = l.fence) "
            "WHERE l.lessee IS NOT NULL AND l.leased_until > :now",
            {"now": now},
        ).fetchall()

    def broken(self) -> str | None:
        """The first invariant of the store that does not hold, and where."""
        for one in CHECKED:
            found = self._reader.execute(one.question, {"lower": 0, "upper": 2**62}).fetchone()
            if found is not None:
                return f"{one.name}: {one.table} {found[0]}, {found[1]}"
        return None
