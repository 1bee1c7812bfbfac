"""The whole store at a glance: what metrics, ``status`` and ``check`` say. Only reads, in bounded pieces.

A look costs a few passes over the sequences, and none over messages. Times are ms since the epoch.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from wsrm_mq.store import reserve
from wsrm_mq.store.counting import SHOWN
from wsrm_mq.store.database import file_of
from wsrm_mq.store.space import room
from wsrm_mq.views.applications import Unserved, unserved
from wsrm_mq.views.reading import FAULTED, sequence
from wsrm_mq.views.refusals import Refused, refusals
from wsrm_mq.views.verdict import Instance, Verdict, judge, known_instances

__all__ = [
    "OTHER",
    "Blocked",
    "Counted",
    "Overview",
    "Verdicts",
    "Waiting",
    "counted",
    "overview",
    "rates",
    "shown_queues",
    "verdicts",
]

FAULTED_WITHIN: Final = 86_400_000
"""So long, in ms, a message that was answered with a fault alarms."""

REFUSED_WITHIN: Final = 300_000
"""So long, in ms, a refusal alarms: what is refused comes again, and is refused again, within that."""

STORE_WIDE: Final = ("max_store", "disk_full", "store_locked", "store_unavailable", "overloaded")
"""Reasons of refusals that say that nothing new is taken at all."""

_NO_ROOM: Final = ("max_", "window", "no_room", "misconfigured")
"""Beginnings of reasons that lie with this side too."""

LOOKED_AT: Final = 1_000
"""So many undelivered messages of a sequence are looked at for the oldest."""

JUDGED: Final = 1_000
"""So many sequences in which something is undelivered get a verdict."""


class Waiting(NamedTuple):
    """What a queue has not delivered. ``held``: behind a gap; ``ready``: all else that is not settled."""

    held: int = 0
    ready: int = 0
    oldest: int | None = None
    """When the oldest of it was received."""


class Overview(NamedTuple):
    instances: list[Instance]
    """Those that live."""
    dead_instances: int
    """Those that died, and nobody has noticed yet: where none lives, nobody does."""
    sequences: dict[tuple[str, str], int]
    """By queue and protocol state."""
    blocked: dict[str, int]
    """Sequences by queue that were stopped by a message, and wait for an operator."""
    waiting: dict[str, Waiting]
    """By queue."""
    dead_letters: dict[str, int]
    """By the queue that they come from."""
    faulted: dict[str, int]
    """By queue: one-way messages that were taken and answered with a fault, in the last ``FAULTED_WITHIN``."""
    faulted_in_all: int
    refused: list[Refused]
    """Since the store was made, the newest first."""
    file_bytes: int
    wal_bytes: int
    disk_free: int
    is_reserve_spent: bool
    """The disk was full, and there is no room yet."""
    used_bytes: int
    """Of the file, what holds something: what ``max_store`` bounds."""
    unserved: list[Unserved]

    @property
    def oldest(self) -> int | None:
        """When the oldest undelivered message was received."""
        return min((one.oldest for one in self.waiting.values() if one.oldest is not None), default=None)

    def is_over(self, max_store: int | None) -> bool:
        return max_store is not None and self.used_bytes >= max_store

    def refused_lately(self, now: int) -> list[Refused]:
        """What found no room, no store, or hooks that are at fault: not what was wrong with a message."""
        return [
            one
            for one in self.refused
            if now - one.last_at <= REFUSED_WITHIN and one.reason.startswith((*_NO_ROOM, *STORE_WIDE))
        ]

    def takes_nothing(self, now: int) -> list[Refused]:
        """Those of them that say that nothing new is taken at all."""
        return [one for one in self.refused_lately(now) if one.reason in STORE_WIDE]


def overview(db: sqlite3.Connection, now: int) -> Overview:
    """To be called in a ``snapshot``."""
    known = known_instances(db)
    path = file_of(db)
    states = db.execute(
        """SELECT q.name, s.state, count(*), sum(s.blocked IS NOT NULL)
        FROM sequence s JOIN queue q ON q.id = s.queue GROUP BY s.queue, s.state"""
    ).fetchall()
    blocked: Counter[str] = Counter()
    for queue, _state, _count, stopped in states:
        blocked[queue] += stopped
    waiting = _waiting(db)
    disk = os.statvfs(path.parent)
    return Overview(
        instances=[one for one, holds_lock in known if holds_lock],
        dead_instances=sum(holds_lock is False for _one, holds_lock in known),
        sequences={(queue, state): count for queue, state, count, _stopped in states},
        blocked=dict(blocked),
        waiting=waiting,
        dead_letters=_dead_letters(db),
        faulted=_faulted(db, now - FAULTED_WITHIN),
        faulted_in_all=db.execute(f"SELECT count(*) FROM entry WHERE {FAULTED}").fetchone()[0],
        refused=refusals(db, path),
        file_bytes=_size(path),
        wal_bytes=_size(path.with_name(path.name + "-wal")),
        disk_free=disk.f_bavail * disk.f_frsize,
        is_reserve_spent=reserve.is_spent(path),
        used_bytes=room(db).used,
        unserved=unserved(db, {queue for queue, one in waiting.items() if one.held or one.ready}),
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


_UNDELIVERED: Final = """
SELECT s.id, s.queue, s.cursor, s."limit" AS below, s.discard_from FROM sequence s
WHERE s.cursor < s."limit" OR EXISTS (SELECT 1 FROM range r WHERE r.sequence = s.id AND r.upper >= s."limit")
"""
"""Sequences in which something accepted may not be settled."""


def _waiting(db: sqlite3.Connection) -> dict[str, Waiting]:
    rows = db.execute(
        f"""WITH u AS MATERIALIZED ({_UNDELIVERED})
        SELECT q.name,
          sum((SELECT coalesce(sum(r.upper - max(r.lower, u.below) + 1), 0) FROM range r
               WHERE r.sequence = u.id AND r.upper >= u.below AND u.discard_from IS NULL)),
          sum((SELECT coalesce(sum(min(r.upper, u.below - 1) - max(r.lower, u.cursor) + 1), 0) FROM range r
               WHERE r.sequence = u.id AND r.upper >= u.cursor AND r.lower < u.below)),
          min((SELECT m.received_at FROM message m WHERE m.id = (
               SELECT min(e.message) FROM (
                 SELECT message FROM entry WHERE sequence = u.id AND number >= u.cursor AND outcome IS NULL
                 ORDER BY number LIMIT {LOOKED_AT}) e)))
        FROM u JOIN queue q ON q.id = u.queue GROUP BY u.queue"""
    )
    return {queue: Waiting(held, ready, oldest) for queue, held, ready, oldest in rows}


def _dead_letters(db: sqlite3.Connection) -> dict[str, int]:
    rows = db.execute(
        """SELECT coalesce(p.name, q.name), sum(d.count) FROM (
            SELECT queue, count(*) AS count FROM entry WHERE outcome = 'dead' GROUP BY queue
        ) d JOIN queue q ON q.id = d.queue LEFT JOIN queue p ON p.id = q.parent GROUP BY 1"""
    )
    return dict(rows.fetchall())


def _faulted(db: sqlite3.Connection, since: int) -> dict[str, int]:
    rows = db.execute(
        f"""SELECT q.name, count(*) FROM entry e JOIN queue q ON q.id = e.queue
        WHERE e.{FAULTED} AND e.settled_at > ? GROUP BY e.queue""",
        (since,),
    )
    return dict(rows.fetchall())


# verdicts


class Blocked(NamedTuple):
    identifier: str
    verdict: Verdict


class Verdicts(NamedTuple):
    words: dict[str, int]
    blocked: list[Blocked]
    """Those that somebody has to do something about."""
    is_whole: bool
    """Otherwise there are more sequences than were judged."""


def verdicts(db: sqlite3.Connection, now: int) -> Verdicts:
    """How many sequences have which verdict. Only those in which something is undelivered, runs, is about to expire or
    was answered with a fault are judged, at most so many; the others are ``ended`` or ``ok``. To be called in a
    ``snapshot``."""
    (total,), (ended,) = (
        db.execute(f"SELECT count(*) FROM sequence {where}").fetchone() for where in ("", "WHERE state = 'ended'")
    )
    rows = db.execute(
        f"""SELECT s.id, s.state FROM sequence s
        WHERE s.owner IS NOT NULL OR s.due_at <= :soon AND s.state <> 'ended' OR s.id IN (
            SELECT id FROM ({_UNDELIVERED})) OR s.id IN (
            SELECT sequence FROM (
              SELECT sequence FROM entry WHERE {FAULTED} ORDER BY settled_at DESC LIMIT {JUDGED}))
        ORDER BY s.blocked IS NULL, s.retry_at IS NULL, s.id LIMIT {JUDGED + 1}""",
        {"soon": now + 600_000},
    ).fetchall()
    words: Counter[str] = Counter()
    blocked = []
    for key, state in rows[:JUDGED]:
        view = sequence(db, key)
        found = judge(db, view, now)
        words[found.word] += 1
        total, ended = total - 1, ended - (state == "ended")
        if found.word == "blocked":
            blocked.append(Blocked(view.identifier, found))
    words["ended"] += ended
    words["ok"] += total - ended
    return Verdicts({word: count for word, count in words.items() if count}, blocked, len(rows) <= JUDGED)


# counters


class Counted(NamedTuple):
    """``queue`` is empty where it is none's."""

    name: str
    queue: str
    label: str
    value: int


OTHER: Final = "(other)"


def shown_queues(db: sqlite3.Connection) -> dict[int, str]:
    """Key and name of the queues that are told apart."""
    return dict(db.execute(f"SELECT id, name FROM queue WHERE kind = 'app' AND id <= {SHOWN} ORDER BY id").fetchall())


def counted(db: sqlite3.Connection) -> list[Counted]:
    """All that was counted since the store was made, by whatever process. No value ever falls; that of a queue
    that is gone ends."""
    shown = shown_queues(db)
    total: Counter[tuple[str, str, str]] = Counter()
    for name, queue, label, value in db.execute("SELECT name, queue, label, value FROM counter"):
        total[name, shown.get(queue, OTHER) if queue else "", label] += value
    return [Counted(*key, value) for key, value in sorted(total.items())]


def rates(before: list[Counted], after: list[Counted], seconds: float) -> dict[str, float]:
    """What happened between two looks, by name, for each second."""
    grown: Counter[str] = Counter()
    for sign, all_ in ((-1, before), (1, after)):
        for one in all_:
            grown[one.name] += sign * one.value
    return {name: grown[name] / seconds for name in ("accepted", "held", "delivered", "replayed", "failed")}
