"""Queues that programs consume: what waits in each, how fast it goes, who consumes it, and where that is in trouble.

Times are ms since the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from sqlalchemy import func, literal_column, not_, or_, select

from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.store import consuming
from wsrm_mq.store import published as views
from wsrm_mq.store.driver import file_of, instances_of
from wsrm_mq.store.port import Database
from wsrm_mq.store.queues import KEEPERS
from wsrm_mq.store.sql import compiled, of, p
from wsrm_mq.views.words import counted, span

BACKLOG: Final = 1_000
"""The fewest messages that are a backlog, which grows or gets less."""
LOST_WITHIN: Final = 3_600_000
"""Leases that ended in this time, in ms, are looked at."""
AGAIN: Final = 3
"""The number of lost leases that is a finding."""
LOOKED_AT: Final = 1_000
"""The most lost leases that are looked at."""


KEPT: Final = ("journal", "topic")
"""Kinds of queues that keep what is there: nobody has to consume it."""


class Consumed(NamedTuple):
    """A declared queue."""

    queue: str
    kind: str
    messages: int
    """The number of messages that are not settled."""
    bytes: int
    came: int
    """The number of messages that came within about the last minute."""
    went: int
    """The number that were settled within about the last minute."""
    next_at: int | None
    """When the message was received that the next consumer gets, or that one had which is gone; ``None``: nothing is
    ready."""
    policy: str
    """As JSON, without the options that are as by default."""

    @property
    def is_kept(self) -> bool:
        return self.kind in KEPT

    @property
    def is_express(self) -> bool:
        """Whether a message that is put there is express, unless it says otherwise."""
        return bool(json.loads(self.policy).get("durability") == "express")

    @property
    def is_full(self) -> bool:
        """No message is taken that does not push another one out."""
        policy = json.loads(self.policy)
        most, size = policy.get("max_messages"), policy.get("max_bytes")
        is_over = (most is not None and self.messages >= most) or (size is not None and self.bytes >= size)
        return is_over and policy.get("overflow") != "drop_head"

    @property
    def grows(self) -> bool:
        return self.messages >= BACKLOG and self.came > self.went and not self.is_kept

    @property
    def pace(self) -> str:
        """How long what waits will take, in words that go on a sentence about it; empty where nothing goes."""
        if not self.messages or not (self.came or self.went) or self.is_kept:
            return ""
        if self.went <= self.came:
            return f"it does not get less: {self.came} came within the last minute, and {self.went} went"
        takes = span(self.messages * 60_000 // (self.went - self.came))
        return f"it is empty in {takes}, as it goes: {self.went} went within the last minute, and {self.came} came"

    def waited(self, now: int) -> int:
        """How long, in ms, the message has waited that is next."""
        return 0 if self.next_at is None or self.is_kept else max(0, now - self.next_at)


class Subscription(NamedTuple):
    """A consumer's standing request to a queue; one to several is there for each of them. ``pattern`` is that of a
    durable one, which is called as its ``queue`` is."""

    key: int
    name: str | None
    client: str | None
    pid: int | None
    queue: str
    pattern: str | None
    filter: str | None
    backlog: int
    is_live: bool
    """A process that lives consumes by it."""
    seen_at: int
    """When it was last seen to be so, where it is not now."""

    @property
    def state(self) -> str:
        return "live" if self.is_live else "gone"


class Journal(NamedTuple):
    """A journal. ``queue``: that whose messages it records; ``last_at``: when it got the last one."""

    queue: str | None
    journal: str
    messages: int
    bytes: int
    last_at: int | None


class Binding(NamedTuple):
    """A pattern of topics that leads into a queue; ``kind``: that of the queue."""

    pattern: str
    filter: str | None
    queue: str
    kind: str
    created_at: int


class Lost(NamedTuple):
    """Leases that were lost again and again: of the message at a ``position``, else by one consumer."""

    queue: str
    position: int | None
    why: str
    """The reason of the last one."""
    times: int
    last_at: int


_queue: Final = views.queues.c
_sequence: Final = views.sequences.c
_attempt: Final = views.attempts.c
_IS_DELETED: Final = _queue.queue.like(literal_column("'%#'").op("||")(_queue.key))
_QUEUES: Final = (
    select(*of(views.queues, "queue, kind, messages, bytes, came_lately, went_lately, next_at, policy"))
    .where(_queue.policy.is_not(None))
    .order_by(_queue.queue)
)
_CONSUMED: Final = compiled(_QUEUES.where(not_(_IS_DELETED)))
_HALF_DELETED: Final = compiled(_QUEUES.where(_IS_DELETED, _queue.went_lately == 0))
_OLDEST_GROUP: Final = compiled(
    select(_sequence.queue, func.min(_sequence.oldest_at))
    .where(_sequence.consumed == 1, _sequence.delivery == DeliveryState.READY.value)
    .group_by(_sequence.queue)
)
_SUBSCRIPTIONS: Final = compiled(
    select(
        *of(views.subscriptions, "key, subscription, client, pid, queue, pattern, filter, granted"),
        *of(views.subscriptions, "seen_at, ended_at, instance, beside"),
    ).order_by(views.subscriptions.c.key)
)
_JOURNALS: Final = compiled(
    select(_queue.parent, _queue.queue, _queue.messages, _queue.bytes, _queue.last_put_at)
    .where(_queue.kind == "journal")
    .order_by(_queue.queue)
)
_binding: Final = views.bindings.c
_BINDINGS: Final = compiled(
    select(*(_binding[name] for name in Binding._fields)).order_by(_binding.pattern, _binding.key)
)
_DECLARED: Final = select(_queue.queue).where(_queue.policy.is_not(None))
_LOST: Final = compiled(
    select(_attempt.queue, _attempt.position, _attempt.reason, _attempt.at)
    .where(
        or_(_attempt.event == "lease_ended", _attempt.event == "holder_died"),
        *(_attempt.at > p("since"), _attempt.queue.in_(_DECLARED)),
    )
    .order_by(_attempt.at.desc())
    .limit(LOOKED_AT)
)


def consumed(db: Database) -> list[Consumed]:
    """The declared queues that are not deleted, by name."""
    found = {row[0]: Consumed(*row) for row in db.execute(_CONSUMED).fetchall()}
    lives = instances_of(file_of(db)).lives
    left = (
        row
        for key, name, _pid, has_ended in db.execute(consuming.HOLDERS).fetchall()
        if has_ended or lives(name) is False
        for row in db.execute(consuming.LEFT_BEHIND, {"owner": key}).fetchall()
    )
    for queue, at in (*db.execute(_OLDEST_GROUP).fetchall(), *left):
        if (one := found.get(queue)) is not None:
            found[queue] = one._replace(next_at=at if one.next_at is None else min(at, one.next_at))
    return list(found.values())


def half_deleted(db: Database) -> list[Consumed]:
    """The queues that are deleted, and of which a part is left that no process has given up within the last minute."""
    return [Consumed(*row) for row in db.execute(_HALF_DELETED).fetchall()]


def subscriptions(db: Database) -> list[Subscription]:
    """The durable subscriptions, whether a process consumes them or not, and others while one does: of each queue."""
    instances, rows = instances_of(file_of(db)), db.execute(_SUBSCRIPTIONS).fetchall()
    lives = {name: instances.lives(name) is not False for name in {row[-2] for row in rows} if name is not None}
    durable: dict[str, Subscription] = {}
    others: list[Subscription] = []
    for *facts, seen_at, ended_at, instance, beside in rows:
        is_live = ended_at is None and lives.get(instance, False)
        one = Subscription._make((*facts, is_live, ended_at or seen_at))
        if one.pattern is not None:
            if ended_at is None:
                durable[one.queue] = one._replace(is_live=False)
            continue
        for name in (one.queue, *json.loads(beside or "[]")):
            before = durable.get(name)
            if before is not None:
                durable[name] = before._replace(
                    is_live=before.is_live or is_live,
                    client=one.client if is_live else before.client,
                    pid=one.pid if is_live or not before.is_live else before.pid,
                    backlog=one.backlog,
                    seen_at=max(before.seen_at, one.seen_at),
                )
            elif is_live:
                others.append(one._replace(queue=name))
    return [*durable.values(), *others]


def journals(db: Database) -> list[Journal]:
    """The journals, by the names of their queues."""
    return [Journal(*row) for row in db.execute(_JOURNALS).fetchall()]


def bindings(db: Database) -> list[Binding]:
    """The bindings of topics to queues, by pattern."""
    return [Binding(*row) for row in db.execute(_BINDINGS).fetchall()]


def lost_leases(db: Database, now: int) -> list[Lost]:
    """Consumers' leases that were lost again and again lately, the most frequent first: by message; in a queue without
    such a message by consumer."""
    last: dict[tuple[str, int | str], Lost] = {}
    for queue, position, why, at in db.execute(_LOST, {"since": now - LOST_WITHIN}).fetchall():
        for which, about in ((position, position), (why, None)):
            one = last.setdefault((queue, which), Lost(queue, about, why, 0, at))
            last[queue, which] = one._replace(times=one.times + 1)
    found = sorted((one for one in last.values() if one.times >= AGAIN), key=lambda one: -one.times)
    told = {one.queue for one in found if one.position is not None}
    return [one for one in found if one.position is not None or one.queue not in told]


def absent(found: Iterable[Subscription], queues: Iterable[Consumed]) -> list[tuple[Subscription, Consumed]]:
    """The durable subscriptions for which something waits, and that no process consumes; each with its queue."""
    by_name = {one.queue: one for one in queues if one.next_at is not None}
    return [
        (one, by_name[one.queue])
        for one in found
        if one.pattern is not None and not one.is_live and one.queue in by_name
    ]


def unkept(db: Database, queues: Iterable[Consumed]) -> list[Consumed]:
    """The queues that are declared as express, and whose express messages no process keeps."""
    lives = instances_of(file_of(db)).lives
    found = db.execute(KEEPERS).fetchall()
    kept = {queue for queue, _key, name, _pid in found if name is not None and lives(name) is not False}
    return [one for one in queues if one.is_express and one.queue not in kept]


def told_of(one: Consumed) -> str:
    """``12 messages wait; it is empty in 3 min, as it goes: …``"""
    waits = counted(one.messages, *(("message", None) if one.is_kept else ("message waits", "messages wait")))
    return f"{waits}; {one.pace}" if one.pace else waits
