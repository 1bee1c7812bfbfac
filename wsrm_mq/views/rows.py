"""The rows that a store is read in: sequences, messages and events of the ledger, processes, refusals, plans, archives
and connections. Times are ms since the epoch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from sqlalchemy import and_, bindparam, exists, func, not_, or_, select

from wsrm_mq.errors import NotFound
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import plans as sql
from wsrm_mq.store import published as views
from wsrm_mq.store.applications import CONSUMES, FETCHED, OUTGOING, ROUTES, SENT, SOURCE, served
from wsrm_mq.store.counting import Refusal, in_files
from wsrm_mq.store.driver import file_of, instances_of
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import compiled, p
from wsrm_mq.views.words import ELLIPSIS, the_one

LIVE: Final = "live"
"""Asks for messages without an outcome."""


class SequenceView(NamedTuple):
    """A sequence as its columns and its ranges tell it."""

    key: int
    identifier: str
    queue: str
    principal: str | None
    peer: str | None
    partner: str | None
    """The configuration section that fits its source."""
    rm: str
    soap: str
    addressing: str
    behavior: str
    assurance: str
    ordered: bool
    created_at: int
    expires_at: int | None
    inactivity: int | None
    state: str
    ended: str | None
    ended_at: int | None
    active_at: int
    due_at: int | None
    last_number: int | None
    expected: int
    cursor: int
    limit: int
    discard_from: int | None
    discard_reason: str | None
    discarding: bool
    owner: str | None
    """Name of the instance that runs it."""
    running_since: int | None
    retry_from: int | None
    retry_at: int | None
    blocked: int | None
    """Position of the entry that stopped it."""
    redelivery_below: int
    duplicates: int
    kind: str
    """``rm``; ``connection``: messages without WS-RM, numbered here; ``replay``: messages that are delivered again;
    ``outgoing``: this side's own."""
    connection: str | None
    replay_of: str | None
    """The sequence whose messages it replays."""
    plan: str | None
    """Id of the plan that it replays them by."""
    sends_to: str | None
    """The address that its messages are sent to: they are this side's own."""
    answers: str | None
    """The sequence that they are about."""
    on_hold_since: int | None
    """Since when an operator holds it."""
    late: str | None
    """The fate of a missing number that comes after an operator has forced the sequence past a gap."""
    held: int
    """How many accepted numbers wait at or beyond the limit."""
    delivery: str
    """The state of its delivery, a word of ``DeliveryState``."""
    consumed: bool
    """Programs consume it; else the service is called with it, or it is sent."""
    received: AckRanges


class MessageView(NamedTuple):
    """A message in its place in a queue."""

    position: int
    queue: str
    sequence: str | None
    number: int | None
    message_id: str | None
    action: str | None
    state: str
    """``held``, ``ready`` or ``leased``; else the outcome."""
    reason: str | None
    received_at: int
    settled_at: int | None
    deliveries: int
    failures: int
    retry_at: int | None
    last_error: str | None
    principal: str | None
    connection: str | None
    body_size: int


class MessageDetail(NamedTuple):
    """The facts about a message that lists leave out."""

    view: MessageView
    environ: str
    """The part of the request that a replay needs, as JSON."""
    wants_reply: bool
    named: bool
    has_body: bool
    reply_status: str | None
    origin: str | None
    """The queue a dead letter comes from."""
    replay_of: int | None
    journal_of: int | None
    """The position of what it records, in a journal."""
    confirmed_at: int | None
    original_sequence: str | None
    """With ``original_number`` the key that the service knows the message by."""
    original_number: int | None
    priority: int | None
    """The priority of a message that programs consume; ``None``: an application is called with it."""
    expires_at: int | None
    leased_until: int | None
    holder: str | None
    """The instance that has leased it."""
    consumer: str | None
    """The name of the consumer there, where it subscribed."""
    topic: str | None
    properties: str | None
    """A JSON object."""
    content_type: str | None
    producer: str | None


class LedgerView(NamedTuple):
    at: int
    event: str
    number: int | None
    position: int | None
    instance: str | None
    attempt: int | None
    reason: str | None
    actor: str | None


# The processes of services that use a store. Whether one lives, its lock beside the store tells.


class Instance(NamedTuple):
    """A process that uses the store, or did; ``started_at``: ms since the epoch."""

    key: int
    name: str
    host: str
    pid: int
    started_at: int


_instance: Final = views.instances.c
_INSTANCES: Final = select(_instance.key, _instance.instance, _instance.host, _instance.pid, _instance.started_at)
_CONSUMES: Final = or_(*(_instance.paths.startswith(f'["{name}') for name in (CONSUMES, ROUTES)))
_SERVES: Final = or_(
    _instance.paths.is_(None), and_(not_(_instance.paths.startswith(f'["{OUTGOING}')), not_(_CONSUMES))
)
"""It neither runs a plan nor consumes queues: that is no service."""
_NOT_ENDED: Final = compiled(_INSTANCES.where(_instance.ended_at.is_(None), _SERVES).order_by(_instance.key))
_SENDS: Final = _instance.paths.startswith(f'["{SOURCE}')
_IS_SERVED: Final = compiled(
    select(
        or_(
            exists().where(_SERVES, or_(_instance.paths.is_(None), not_(_SENDS))),
            not_(exists().where(or_(_CONSUMES, _SENDS))),
        )
    )
)
_INSTANCE_NAMED: Final = compiled(_INSTANCES.where(_instance.instance == bindparam("name")))


def instance(db: Database, name: str) -> Instance | None:
    """The instance of this name, alive or not; ``None`` where retention has deleted its row."""
    row = db.execute(_INSTANCE_NAMED, {"name": name}).fetchone()
    return Instance._make(row) if row is not None else None


def lives(db: Database, one: Instance) -> bool:
    """Whether a process lives, whatever it does."""
    return instances_of(file_of(db)).lives(one.name) is not False


def is_served(db: Database) -> bool:
    """Whether the store is a service's. Of one that programs alone have opened, which put, consume or send requests, it
    is not."""
    return bool(db.execute(_IS_SERVED).fetchone()[0])


def live_instances(db: Database) -> list[Instance]:
    """The processes that use the store now: those with a row that hold their lock."""
    return [one for one, has_lock in known_instances(db) if has_lock]


def known_instances(db: Database) -> list[tuple[Instance, bool | None]]:
    """The processes that are not known to have ended, and whether each holds its lock. ``None``: its file is missing,
    so it lives elsewhere, as that of a copied store, or will be found out by one that lives here."""
    store = file_of(db)
    return [(one, instances_of(store).lives(one.name)) for one in map(Instance._make, db.execute(_NOT_ENDED))]


# Messages that wait for an application which no process serves.


class Unserved(NamedTuple):
    """A queue in which something waits that no live process may run."""

    queue: str
    application: str | None


_SERVED: Final = compiled(
    select(views.queues.c.queue, views.queues.c.application)
    .where(views.queues.c.kind == "app")
    .order_by(views.queues.c.queue)
)


def unserved(db: Database, waiting: set[str]) -> list[Unserved]:
    """The queues that no live process serves, of those in which something is ``waiting``; none where no process lives
    at all."""
    live = served(db)
    return [
        Unserved(name, application)
        for name, application in (db.execute(_SERVED) if live else ())
        if name in waiting and not any(one.may_run(name, application) for one in live)
    ]


# Refusals as operators read them: the store's counters, and what its processes have not written there yet.

NO_SEQUENCE: Final = "CreateSequenceRefused"
"""The reason of a refusal that keeps a partner from beginning."""
REFUSED: Final = "refused_before_storing"
"""The event of what left no row, only a count."""
_OPTION: Final = re.compile(r"\b(decoupled|max_\w+|window|application|require_rm)\b")

_STORED: Final = compiled(select(*(views.refusals.c[name] for name in Refusal._fields)))


def key_of(refusal: Refusal) -> str:
    """The key that ``failure show`` takes: ``CreateSequenceRefused@acme``."""
    return "@".join(filter(None, (refusal.reason, refusal.partner)))


def option_named(said: str) -> str | None:
    """The option that the sentence of a refusal names: another value would allow what was refused."""
    found = _OPTION.search(said)
    return found[1] if found is not None else None


def refusals(db: Database) -> list[Refusal]:
    """The refusals by reason and partner, the newest first."""
    found: dict[tuple[str, str], Refusal] = {}
    for row in [*map(Refusal._make, db.execute(_STORED).fetchall()), *in_files(file_of(db))]:
        known = found.get(row[:2])
        found[row[:2]] = row if known is None else row.after(known)
    return sorted(found.values(), key=lambda row: row.last_at, reverse=True)


# The plans of a store, and how far they have come.


class PlanView(NamedTuple):
    """A plan; times in ms since the epoch."""

    id: str
    digest: str
    file: str
    """Where it was written."""
    made_at: int
    actor: str | None
    reason: str | None
    query: str
    target: str
    as_new: bool
    messages: int
    state: str
    """``planned``, ``running``, ``stopped`` (it can be run again), ``done`` or ``cancelled``."""
    runner: str | None
    """Name of the instance that runs it."""
    pid: int | None
    line: int
    """How many of its lines were read."""
    skipped: int
    """How many of these lines were left alone: something became of their messages since the plan was made."""
    missing: int
    """How many of these lines have messages without a body by now."""
    begun_at: int | None
    ended_at: int | None


_plan: Final = views.plans.c
_PLANS: Final = compiled(
    select(*(_plan["plan" if field == "id" else field] for field in PlanView._fields)).order_by(
        _plan.made_at.desc(), _plan.plan
    )
)


def plans(db: Database) -> list[PlanView]:
    """Newest first."""
    return [_plan_viewed(db, row) for row in db.execute(_PLANS).fetchall()]


def find_plan(db: Database, text: str) -> PlanView:
    """The plan whose id ``text`` is, or is the beginning of, or ``NotFound``."""
    found = {one.id: one for one in plans(db) if one.id.startswith(text)}
    return found.get(text) or found[the_one([*found], text, "plans", f"There is no plan {text}.")]


def outcomes(db: Database, plan: str) -> dict[str, int]:
    """The number of messages that a plan has entered by what became of them: ``waiting``, ``known`` (the service had
    done it before) or an outcome."""
    counted: dict[str, int] = {}
    for outcome, reason, messages in db.execute(sql.OUTCOMES, {"plan": plan}):
        word = reason if outcome == "delivered" and reason is not None else outcome or "waiting"
        counted[word] = counted.get(word, 0) + messages
    return counted


def _plan_viewed(db: Database, row: tuple[object, ...]) -> PlanView:
    view = PlanView(*row)  # type: ignore[arg-type]
    lives = view.runner is not None and instances_of(file_of(db)).lives(view.runner) is not False
    state = "stopped" if view.state == "running" and not lives else view.state
    return view._replace(as_new=bool(view.as_new), state=state, runner=view.runner if lives else None)


# The contents of a store: how much it has of what, and the archives that were confirmed to hold it.


_sequence: Final = views.sequences.c
_message: Final = views.messages.c
_QUEUES: Final = compiled(select(func.count()).select_from(views.queues))
_STATES: Final = compiled(select(_sequence.state, func.count()).group_by(_sequence.state).order_by(_sequence.state))
_PRUNED: Final = compiled(select(func.coalesce(func.sum(_sequence.pruned), 0)))
# With a limit, so that the outcomes are read before they are counted: then SQLite reads no page of the messages.
_outcomes: Final = select(func.coalesce(_message.outcome, LIVE).label("outcome")).limit(-1).subquery()
_OUTCOMES: Final = compiled(
    select(_outcomes.c.outcome, func.count()).group_by(_outcomes.c.outcome).order_by(_outcomes.c.outcome)
)
_OLDEST: Final = compiled(
    select(_message.position, _message.received_at)
    .where(_message.outcome.is_(None))
    .order_by(_message.position)
    .limit(1)
)


def contents(db: Database) -> dict[str, Any]:
    """How much a store has of everything, in the words of ``store info``; counted, so a large one takes a moment."""
    oldest = db.execute(_OLDEST).fetchone()
    return {
        "queues": db.execute(_QUEUES).fetchone()[0],
        "sequences": dict(db.execute(_STATES).fetchall()),
        "messages": dict(db.execute(_OUTCOMES).fetchall()),
        "pruned": db.execute(_PRUNED).fetchone()[0],
        "oldest_undelivered": oldest and dict(zip(("position", "received_at"), oldest, strict=True)),
    }


# The archives that were confirmed to hold what a store has.


class ArchiveView(NamedTuple):
    """A row of the view ``archives``; times in ms since the epoch."""

    archive: str
    place: str
    number: int
    read_at: int
    confirmed_at: int
    actor: str
    ledger: int
    positions: int
    sequences: int


_ARCHIVES: Final = compiled(
    select(*(views.archives.c[name] for name in ArchiveView._fields)).order_by(views.archives.c.confirmed_at)
)


def archives(db: Database) -> list[ArchiveView]:
    """The one that was confirmed last comes last."""
    return [ArchiveView._make(row) for row in db.execute(_ARCHIVES)]


def find_archive(db: Database, named: str) -> ArchiveView:
    """The one whose id begins with what is ``named``, or that was confirmed at that path. Raises ``NotFound`` where
    there is none, or more than one."""
    path = os.path.abspath(named)
    found = {one.archive: one for one in archives(db) if one.archive.startswith(named) or one.place == path}
    nothing = f"no archive was confirmed that begins with or is at {named!r}; `wsrm-mq archive list` shows them."
    return found[the_one([*found], named, "archives", nothing)]


# Connections as the store knows them: by the messages that came on them.


class ConnectionView(NamedTuple):
    """A connection's inbound queue."""

    name: str
    peer: str | None
    """The address that its last message came from."""
    principal: str | None
    """The principal of its last message."""
    messages: int
    unsettled: int
    first_seen: int
    last_seen: int


_each: Final = views.connections.c
_its: Final = views.connection_messages.c
_ITS_POSITIONS: Final = select(_its.position).where(_its.connection == p("connection"))
# The newest requests, as far as they are stored: an examination of proxies and of the clock looks at them.

_NEWEST: Final = compiled(select(_each.connection).order_by(_each.last_position.desc()).limit(p("count")))
_NEXT_NAME: Final = compiled(
    select(_its.connection).where(_its.connection > p("after")).order_by(_its.connection).limit(1)
)
_ONE: Final = compiled(_ITS_POSITIONS.limit(1))
_MESSAGES: Final = compiled(
    _ITS_POSITIONS.with_only_columns(func.count(), func.min(_its.position), func.max(_its.position))
)
_UNSETTLED: Final = compiled(
    select(func.count()).where(_message.position.in_(_ITS_POSITIONS), _message.outcome.is_(None))
)
_MESSAGE: Final = compiled(
    select(_message.peer, _message.principal, _message.received_at).where(_message.position == p("position"))
)


def connections(db: Database, *, limit: int = 50) -> list[ConnectionView]:
    """The connections that sent something last, newest first."""
    return [connection(db, name) for (name,) in db.execute(_NEWEST, {"count": limit}).fetchall()]


def connection(db: Database, name: str) -> ConnectionView:
    """The connection with this name, or ``NotFound``."""
    count, first, last = db.execute(_MESSAGES, {"connection": name}).fetchone()
    if not count:
        raise NotFound(f"There is no connection {name}, or its messages were pruned.")
    (unsettled,) = db.execute(_UNSETTLED, {"connection": name}).fetchone()
    _peer, _principal, first_seen = db.execute(_MESSAGE, {"position": first}).fetchone()
    peer, principal, last_seen = db.execute(_MESSAGE, {"position": last}).fetchone()
    return ConnectionView(name, peer, principal, count, unsettled, first_seen, last_seen)


def find_connection(db: Database, text: str) -> str:
    """The name that ``text`` means: itself, or the only one that begins with it. Raises ``NotFound``."""
    part = text.strip(ELLIPSIS)
    if db.execute(_ONE, {"connection": part}).fetchone() is not None:
        return part
    nothing = f"There is no connection {text}; `wsrm-mq connection list` shows those there are."
    return the_one(list(islice(names_from(db, part), 4)), text, "connections", nothing)


def names_from(db: Database, part: str) -> Iterator[str]:
    """The names that begin with ``part``, in their order; read one by one."""
    name = part
    while (row := db.execute(_NEXT_NAME, {"after": name}).fetchone()) is not None and row[0].startswith(part):
        name = row[0]
        yield name


class StoredRequest(NamedTuple):
    """The HTTP request that brought a message, as far as the store keeps it."""

    position: int
    received_at: int
    """ms since the epoch."""
    environ: dict[str, Any]
    """The part that is stored, in the words of WSGI."""


_m: Final = views.messages.c
_NEWEST_REQUESTS: Final = compiled(
    select(_m.position, _m.received_at, _m.request)
    .where(_m.replay_of.is_(None), not_(or_(_m.queue.startswith(SENT), _m.queue.startswith(FETCHED))))
    .order_by(_m.position.desc())
    .limit(bindparam("count"))
)
_TOLD_AT: Final = compiled(select(views.ledger_events.c.at).order_by(views.ledger_events.c.key.desc()).limit(1))


_OVERDUE: Final = compiled(
    select(func.count(), func.min(views.sequences.c.due_at)).where(views.sequences.c.due_at < bindparam("before"))
)


def overdue(db: Database, before: int) -> tuple[int, int | None]:
    """How many sequences have not ended that were to before that, and when the first was; ms since the epoch."""
    count, first = db.execute(_OVERDUE, {"before": before}).fetchone()
    return count, first


def newest_requests(db: Database, count: int) -> list[StoredRequest]:
    """The newest first."""
    rows = db.execute(_NEWEST_REQUESTS, {"count": count})
    return [StoredRequest(position, at, json.loads(request)) for position, at, request in rows]


def last_told(db: Database) -> int | None:
    """When the last event of the ledger was written."""
    return next((at for (at,) in db.execute(_TOLD_AT)), None)
