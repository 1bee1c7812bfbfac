"""The whole store at a glance: what metrics, ``status`` and ``check`` say. Only reads, in bounded pieces.

A look costs a few passes over the sequences, and none over messages. Times are ms since the epoch.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Integer, and_, case, func, literal, not_, or_, select, union_all

from wsrm_mq.acts import Step
from wsrm_mq.store import archiving
from wsrm_mq.store import published as views
from wsrm_mq.store.applications import FETCHED, SENT, SOURCE, Serving, served
from wsrm_mq.store.counting import ACK_NOT_SENT, SHOWN, Refusal, in_files
from wsrm_mq.store.driver import file_of, is_spent, log_bytes, space
from wsrm_mq.store.port import Database, Obstacle
from wsrm_mq.store.sql import compiled, p
from wsrm_mq.views.next_nodes import NextNode, is_forwarding, next_nodes, unplaced_since
from wsrm_mq.views.outgoing import OutgoingView, unacknowledged, unsent_since
from wsrm_mq.views.queues import (
    Consumed,
    Lost,
    Subscription,
    absent,
    consumed,
    half_deleted,
    lost_leases,
    subscriptions,
    unkept,
)
from wsrm_mq.views.reading import sequence
from wsrm_mq.views.requests import Requests, all_requests
from wsrm_mq.views.rows import (
    NO_SEQUENCE,
    Instance,
    PlanView,
    SequenceView,
    Unserved,
    is_served,
    known_instances,
    live_instances,
    refusals,
    unserved,
)
from wsrm_mq.views.verdict import UNREMARKABLE, Verdict, has_gaps, is_alarming, is_busy, is_quiet, is_to_judge, judge

FAULTED_WITHIN: Final = 86_400_000
"""How long a message alarms that was answered with a fault, in ms."""

REFUSED_WITHIN: Final = 300_000
"""How long a refusal alarms, in ms: what is refused comes again, and is refused again, within that."""

TURNED_AWAY_WITHIN: Final = 86_400_000
"""How long it is told that a sender was refused a sequence, in ms."""

STORE_WIDE: Final = ("max_store", "disk_full", "store_locked", "store_unavailable", "overloaded")
"""Reasons of refusals that say that nothing new is taken at all."""

_NO_ROOM: Final = ("max_", "window", "no_room", "misconfigured")
"""Beginnings of reasons that lie with this side too."""

LOST_WITHIN: Final = 86_400_000
"""How long a sequence alarms that ended without all of its numbers, in ms."""

LOST: Final = 100
"""The most such sequences, the last to end, that are told."""

JUDGED: Final = 1_000
"""The most sequences that get a verdict because something in them is undelivered."""


class Waiting(NamedTuple):
    """The messages that a queue has not delivered. ``held``: behind a gap; ``ready``: all else that is not settled."""

    held: int = 0
    ready: int = 0
    oldest: int | None = None
    """When the oldest of it was received."""


class Overview(NamedTuple):
    """The facts that ``status`` shows on one screen, read in one state of the store."""

    instances: list[Instance]
    """Live ones."""
    dead_instances: int
    """Dead ones that no live process has noticed yet."""
    is_served: bool
    """A service has used the store, not only programs that put and consume."""
    sequences: dict[tuple[str, str], int]
    """The number of sequences by queue and protocol state."""
    blocked: dict[str, int]
    """Sequences by queue that were stopped by a message, and wait for an operator."""
    waiting: dict[str, Waiting]
    """The undelivered messages by queue."""
    dead_letters: dict[str, int]
    """The number of dead letters by the queue that they come from."""
    dead_letters_unconfirmed: dict[str, int]
    """The number of dead letters that no operator has confirmed, by the same queue."""
    unacknowledged_replies: dict[str, int]
    """The number of replies by queue that were sent in an offered sequence which has not ended, and are not
    acknowledged."""
    faulted: dict[str, int]
    """The number of one-way messages by queue that were taken and answered with a fault, in the last
    ``FAULTED_WITHIN``, and that no operator has confirmed."""
    faulted_in_all: int
    refused: list[Refusal]
    """Since the store was made, the newest first."""
    file_bytes: int
    wal_bytes: int
    disk_free: int
    is_reserve_spent: bool
    """The disk was full, and there is no room yet."""
    used_bytes: int
    """The bytes of the file that hold something: ``max_store`` bounds them."""
    unserved: list[Unserved]
    unarchived: int | None = None
    """When the first of the settled messages that no archive holds was settled."""
    unsent: int | None = None
    """Since when something is to be sent to an address of a source, and no process sends it."""
    unwritten: frozenset[str] = frozenset()
    """Reasons of refusals that no process could write into the store yet."""
    consumed: Sequence[Consumed] = ()
    """Queues that programs consume."""
    absent: Sequence[tuple[Subscription, Consumed]] = ()
    """Durable subscriptions that no process consumes, where something waits for them."""
    lost_leases: Sequence[Lost] = ()
    requests: Sequence[Requests] = ()
    """The requests that this side sends, by sequence."""
    servings: Sequence[Serving] = ()
    """The paths and options that the live processes serve."""
    next_nodes: Sequence[NextNode] = ()
    """Nodes that routes lead to, or that something waits for."""
    is_forwarding: bool = False
    """A process lives that sends to them, and places what other nodes have handed over."""
    unplaced: int | None = None
    """When the oldest message came that another node has handed over and that waits for its place."""
    unkept: Sequence[Consumed] = ()
    """Queues of express messages that no process keeps."""
    half_deleted: Sequence[Consumed] = ()
    """Queues that a process deleted which ended before it was through."""
    newest_at: int = 0
    """When the newest message was received."""
    newest_sequences: Mapping[str, int] = {}
    """When the newest sequence of a partner was made that was refused one."""
    unacknowledged: Sequence[OutgoingView] = ()
    """Sequences of replies that their sources do not acknowledge."""

    @property
    def oldest(self) -> int | None:
        """When the oldest undelivered message was received."""
        return min((one.oldest for one in self.waiting.values() if one.oldest is not None), default=None)

    def refused_lately(self, now: int) -> list[Refusal]:
        """Refusals for lack of room, of a store, or for hooks that are at fault: not for what was wrong with a
        message."""
        return [
            one
            for one in self.refused
            if now - one.last_at <= REFUSED_WITHIN and one.reason.startswith((*_NO_ROOM, *STORE_WIDE))
        ]

    def turned_away(self, now: int) -> list[Refusal]:
        """Who was refused a sequence, and has none that is newer."""
        return [
            one
            for one in self.refused
            if one.reason == NO_SEQUENCE
            and now - one.last_at <= TURNED_AWAY_WITHIN
            and self.newest_sequences.get(one.partner, 0) <= one.last_at
        ]

    def not_sent_lately(self, now: int) -> list[Refusal]:
        """Messages of this side's own that the address which they are for did not take."""
        return [one for one in self.refused if now - one.last_at <= REFUSED_WITHIN and one.reason == ACK_NOT_SENT]

    def takes_nothing(self, now: int) -> list[Refusal]:
        """Refusals which say that nothing new is taken at all."""
        return [one for one in self.refused_lately(now) if one.reason in STORE_WIDE]


_sequence: Final = views.sequences.c

_STATES: Final = compiled(
    select(_sequence.queue, _sequence.state, func.count(), func.count(_sequence.blocked)).group_by(
        _sequence.queue, _sequence.state
    )
)
_parts: Final = union_all(
    select(
        _sequence.queue,
        _sequence.held,
        # What waits for a program is told with its queue.
        case((_sequence.consumed == 0, _sequence.ready), else_=0).label("ready"),
        # What waits to be fetched is as old as its client lets it be.
        case((and_(_sequence.consumed == 0, not_(_sequence.queue.startswith(FETCHED))), _sequence.oldest_at)).label(
            "oldest_at"
        ),
    ).where(is_busy, _sequence.kind != "group"),
    select(views.queues.c.queue, literal(0), views.queues.c.loose, views.queues.c.loose_oldest_at).where(
        views.queues.c.loose > 0
    ),
).subquery()
_WAITING: Final = compiled(
    select(_parts.c.queue, func.sum(_parts.c.held), func.sum(_parts.c.ready), func.min(_parts.c.oldest_at)).group_by(
        _parts.c.queue
    )
)
_DEAD_LETTERS: Final = compiled(select(views.queues.c.queue, views.queues.c.dead_letters, views.queues.c.unconfirmed))
_UNACKNOWLEDGED_REPLIES: Final = compiled(
    select(views.outgoing_sequences.c.queue, func.sum(views.outgoing_sequences.c.unacknowledged))
    .where(views.outgoing_sequences.c.state != "ended")
    .group_by(views.outgoing_sequences.c.queue)
)
_FAULTED: Final = compiled(
    select(views.faulted.c.queue, func.count())
    .where(is_alarming, views.faulted.c.settled_at > p("since"))
    .group_by(views.faulted.c.queue)
)
_FAULTED_IN_ALL: Final = compiled(
    select(func.count()).select_from(views.faulted).where(views.faulted.c.outcome == "delivered")
)


_NEWEST_MESSAGE: Final = compiled(
    select(views.messages.c.received_at).order_by(views.messages.c.position.desc()).limit(1)
)
_NEWEST_OF: Final = compiled(
    select(func.coalesce(func.max(_sequence.created_at), 0)).where(
        _sequence.partner.is_not_distinct_from(p("partner")), _sequence.kind == "rm"
    )
)


def waiting(db: Database) -> dict[str, Waiting]:
    """The undelivered messages, by the queues of wrapped services and those to targets."""
    return {queue: Waiting(*counts) for queue, *counts in db.execute(_WAITING)}


def overview(db: Database, now: int) -> Overview:
    """Read the overview of a store; to be called in a ``snapshot``."""
    known, queues = known_instances(db), consumed(db)
    path = file_of(db)
    states = db.execute(_STATES).fetchall()
    undelivered = waiting(db)
    blocked: Counter[str] = Counter()
    for queue, _state, _count, stopped in states:
        blocked[queue] += stopped
    letters = [row for row in db.execute(_DEAD_LETTERS) if row[1]]
    disk = os.statvfs(path.parent)
    refused = refusals(db)
    turned_away = {one.partner for one in refused if one.reason == NO_SEQUENCE}
    newest = {one: at for one in turned_away for (at,) in db.execute(_NEWEST_OF, {"partner": one or None})}
    return Overview(
        instances=[one for one, holds_lock in known if holds_lock],
        dead_instances=sum(holds_lock is False for _one, holds_lock in known),
        is_served=is_served(db),
        sequences={(queue, state): count for queue, state, count, _stopped in states},
        blocked=dict(blocked),
        waiting=undelivered,
        dead_letters={queue: count for queue, count, _unconfirmed in letters},
        dead_letters_unconfirmed={queue: unconfirmed for queue, _count, unconfirmed in letters},
        unacknowledged_replies=dict(db.execute(_UNACKNOWLEDGED_REPLIES).fetchall()),
        faulted=dict(db.execute(_FAULTED, {"since": now - FAULTED_WITHIN}).fetchall()),
        faulted_in_all=db.execute(_FAULTED_IN_ALL).fetchone()[0],
        refused=refused,
        file_bytes=path.stat().st_size if path.exists() else 0,
        wal_bytes=log_bytes(path),
        disk_free=disk.f_bavail * disk.f_frsize,
        is_reserve_spent=is_spent(path),
        used_bytes=space(db).used,
        unserved=unserved(db, {queue for queue, one in undelivered.items() if one.held or one.ready}),
        unarchived=next((at for (at,) in db.execute(archiving.OLDEST_UNARCHIVED)), None),
        unsent=unsent_since(db, now),
        unacknowledged=unacknowledged(db),
        unwritten=frozenset(one.reason for one in in_files(path)),
        consumed=queues,
        absent=absent(subscriptions(db), queues),
        lost_leases=lost_leases(db, now),
        requests=all_requests(db),
        servings=served(db),
        next_nodes=next_nodes(db),
        is_forwarding=is_forwarding(db),
        unplaced=unplaced_since(db),
        unkept=unkept(db, queues),
        half_deleted=half_deleted(db),
        newest_at=next((at for (at,) in db.execute(_NEWEST_MESSAGE)), 0),
        newest_sequences=newest,
    )


# verdicts


class Verdicts(NamedTuple):
    words: dict[str, int]
    found: list[Verdict]
    """Verdicts on sequences that are neither ok nor ended."""
    is_whole: bool
    """Otherwise there are more sequences than were judged."""
    lost: Sequence[Verdict] = ()
    """Verdicts on sequences that ended lately, and lack numbers."""


_ENDED: Final = compiled(select(func.count(), func.coalesce(func.sum(_sequence.state == "ended"), 0)))
_recently_faulted: Final = (
    select(views.faulted.c.sequence)
    .where(is_alarming, views.faulted.c.sequence.is_not(None))
    .order_by(views.faulted.c.settled_at.desc())
    .limit(JUDGED)
    .subquery()
)
_now: Final = p("now", type_=Integer)
_is_to_judge: Final = is_to_judge(_now, select(_recently_faulted.c.sequence))
_SILENT: Final = compiled(select(func.count()).where(is_quiet(_now), not_(_is_to_judge)))
_TO_JUDGE: Final = compiled(
    select(_sequence.sequence, _sequence.state)
    .where(_is_to_judge)
    .order_by(_sequence.blocked.is_(None), _sequence.retry_at.is_(None), _sequence.key)
    .limit(JUDGED + 1)
)


_LOST: Final = compiled(
    select(_sequence.sequence)
    .where(_sequence.kind == "rm", _sequence.ended_at > p("since"), has_gaps)
    .order_by(_sequence.ended_at.desc())
    .limit(LOST)
)


def verdicts(db: Database, now: int) -> Verdicts:
    """How many sequences have which verdict. Only those in which something is undelivered, runs, is about to expire or
    was answered with a fault are judged, at most so many; the others are ``ended`` or ``ok``. To be called in a
    ``snapshot``."""
    total, ended = db.execute(_ENDED).fetchone()
    rows = db.execute(_TO_JUDGE, {"now": now}).fetchall()
    live = live_instances(db)
    words: Counter[str] = Counter()
    judged = []
    for identifier, state in rows[:JUDGED]:
        found = judge(db, sequence(db, identifier), now, live=live)
        words[found.word] += 1
        total, ended = total - 1, ended - (state == "ended")
        if found.word not in UNREMARKABLE:
            judged.append(found)
    (silent,) = db.execute(_SILENT, {"now": now}).fetchone()
    words["ended"] += ended
    words["silent"] += silent
    words["ok"] += total - ended - silent
    lost = [
        judge(db, sequence(db, identifier), now, live=live)
        for (identifier,) in db.execute(_LOST, {"since": now - LOST_WITHIN}).fetchall()
    ]
    return Verdicts({word: count for word, count in words.items() if count}, judged, len(rows) <= JUDGED, lost)


# counters


class Counted(NamedTuple):
    """``queue`` is empty where it is none's."""

    name: str
    queue: str
    label: str
    value: int


OTHER: Final = "(other)"


_queue: Final = views.queues.c
_SHOWN_QUEUES: Final = compiled(
    select(_queue.queue).where(
        or_(_queue.kind == "app", _queue.kind == "subscription", _queue.queue.startswith(SENT + SOURCE)),
        _queue.key <= p("last"),
    )
)
_COUNTERS: Final = compiled(select(*(views.counters.c[name] for name in Counted._fields)))


def shown_queues(db: Database) -> frozenset[str]:
    """Names of the queues that are told apart."""
    return frozenset(name for (name,) in db.execute(_SHOWN_QUEUES, {"last": SHOWN}))


def counters(db: Database) -> list[Counted]:
    """All that was counted since the store was made, by whatever process. No value ever falls; that of a queue
    that is gone ends."""
    shown = shown_queues(db) | {""}
    total: Counter[tuple[str, str, str]] = Counter()
    for name, queue, label, value in db.execute(_COUNTERS):
        total[name, queue if queue in shown else OTHER, label] += value
    return [Counted(*key, value) for key, value in sorted(total.items())]


def rates(before: list[Counted], after: list[Counted], seconds: float) -> dict[str, float]:
    """The growth of each counter between two looks, by name, for each second."""
    grown: Counter[str] = Counter()
    for sign, all_ in ((-1, before), (1, after)):
        for one in all_:
            grown[one.name] += sign * one.value
    return {name: grown[name] / seconds for name in ("accepted", "held", "put", "delivered", "replayed", "failed")}


# All that was seen of a store, and what is told of it.

LITTLE_SPACE: Final = 100_000_000
"""Bytes on the disk: with less, what would make room is looked for."""
_WITHOUT_ROOM: Final = ("max_store", "disk_full")


class Room(NamedTuple):
    """The room that pruning would make in the store."""

    older_than: str = ""
    """The age to name; empty: nothing may be pruned."""
    messages: int = 0
    """At least so many go."""
    size: int = 0
    """Bytes of their bodies."""


class Sight(NamedTuple):
    """All that was seen of a store, in one state of it."""

    now: int
    at: Overview
    verdicts: Verdicts
    obstacle: Obstacle | None = None
    """Why it cannot be written."""
    doubt: str | None = None
    """Why it is not served before an operator adopts it."""
    plans: Sequence[PlanView] = ()
    """The plans of replays."""
    max_store: int | None = None
    """The option, as it is configured where the question is asked."""
    archive_within: int | None = None
    """The shortest ``retain``, in ms, of what is kept until it is archived, as it is configured there."""

    room: Room | None = None
    """Looked for where it ``lacks_room``."""

    @property
    def lacks_room(self) -> bool:
        """Nothing is taken for want of room, or that is near."""
        refused = any(one.reason in _WITHOUT_ROOM for one in self.at.takes_nothing(self.now))
        return refused or self.is_over or self.at.is_reserve_spent or self.at.disk_free < LITTLE_SPACE

    @property
    def is_locked(self) -> bool:
        return self.obstacle is not None and not self.obstacle.is_of_asker

    @property
    def overdue(self) -> int:
        """ms that a settled message is kept beyond its ``retain``, because no archive holds it."""
        if self.archive_within is None or self.at.unarchived is None:
            return 0
        return max(0, self.now - self.at.unarchived - self.archive_within)

    @property
    def is_over(self) -> bool:
        return self.max_store is not None and self.at.used_bytes >= self.max_store


class Fact(NamedTuple):
    """``view`` and ``verdict``: the sequence that it is about, and the word; ``queue``: where it is about none."""

    sentence: str
    steps: tuple[Step, ...] = ()
    messages: int = 1
    """How many it is about."""
    since: int | None = None
    view: SequenceView | None = None
    verdict: str | None = None
    queue: str | None = None
    target: str | None = None
    """Where a sequence is replayed to that is not for the service."""
