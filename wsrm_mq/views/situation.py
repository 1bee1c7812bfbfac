"""The facts that the verdict on a sequence rests on: its row, and what messages, ledger, processes and plans say of it.

Only reads the published views, and what a run is at; whether a process lives is told by its lock beside the store.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import func, literal, select

from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.sequence.states import State
from wsrm_mq.store import published as views
from wsrm_mq.store.applications import OUTGOING
from wsrm_mq.store.entries import RUN_IS_AT
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import compiled, p
from wsrm_mq.store.words import ANSWERED_WITH_FAULT
from wsrm_mq.views.rows import Instance, SequenceView, Unserved, instance, lives, unserved

EXPIRING_WITHIN: Final = 600_000
"""A sequence expires soon if it does so within these ms, or within a tenth of its life where that is shorter."""

SILENT_WITH_GAP: Final = 2 * 3_600_000
SILENT_WITHOUT: Final = 24 * 3_600_000
"""A source is silent once nothing has come from it for so long, in ms: of a sequence that lacks numbers, and of another
that is open."""

OVERDUE_WITHIN: Final = 10_000
"""A process that lives has ended a sequence so long after its time, in ms, unless it doubts the clock."""

BACKLOG: Final = 1_000
"""The fewest messages that are a backlog, of which it is told how long it will take."""

PACE_OF: Final = 100
"""The number of settled messages, the last of a sequence, that tell its pace, if that was within ``PACE_WITHIN`` ms."""
PACE_WITHIN: Final = 60_000

COUNTED: Final = 10_000
"""The most rows of a sequence that are read for one fact; what is beyond them is not looked at."""


class Head(NamedTuple):
    """The message that is next, or the one that stopped the sequence."""

    position: int
    number: int
    deliveries: int
    failures: int
    deaths: int
    """The number of processes in a row that ran it and have died of it, or with it."""
    last_error: str | None
    action: str | None
    received_at: int


class Act(NamedTuple):
    """Who did something to a sequence, and why."""

    at: int
    actor: str | None
    reason: str | None


class Faults(NamedTuple):
    """Messages that the service took and answered with a fault, which their source has not read and no operator has
    confirmed."""

    messages: int
    last_number: int
    last_at: int
    last_error: str | None


class Undelivered(NamedTuple):
    """Messages that came, were settled, and were not delivered, nor was any replay of them."""

    open: AckRanges
    """The numbers that no operator has confirmed."""
    written_off: AckRanges
    """The numbers that an operator has confirmed or discarded."""
    reason: str
    """The reason of the last number that is open: ``skipped``, ``max_failures``, ``replayed`` where its replay is not
    delivered, …"""
    letters: int
    """The count of the open numbers whose messages are dead letters."""


class Situation(NamedTuple):
    """All that a verdict rests on, read in one state of the store."""

    view: SequenceView
    now: int
    head: Head | None
    owner: Instance | None
    owner_lives: bool
    live: int
    """How many instances live."""
    missing: AckRanges
    """The numbers that did not come, and may still: delivery waits for them, or would take them."""
    unsettled: int
    """The number of its messages that came and are neither delivered nor given up; not all of those before the last
    number are, where some were replayed or skipped before their turn."""
    held_since: int | None
    faults: Faults | None
    hold: Act | None
    ending: Act | None
    """An operator has ended it."""
    ended_because: str | None
    """The reason that the ledger gives for its end, where that is more than its state."""
    replayed_by: str | None
    """The plan, not at its end, that holds it; ``None`` too where an operator does."""
    given_up: AckRanges
    """The numbers that an operator has forced it past and that did not come."""
    late: AckRanges
    """The numbers among ``given_up`` that came late."""
    undelivered: Undelivered
    unserved: Unserved | None
    """Something waits, and it is for an application that no live process serves."""
    target: str | None
    """Where it is replayed to: what is there takes its messages or does not. ``None``: the service."""
    exception: str | None
    """The type of what its head failed with last, where the service told of one."""
    pace: float | None
    """The messages that are delivered in a second now, where many wait for that."""

    @property
    def noun(self) -> str:
        return "group" if self.view.kind == "group" else "sequence"

    @property
    def deaths(self) -> int:
        """The deaths of its head, with the last one, after which no process has taken it up yet."""
        if self.head is None:
            return 0
        return self.head.deaths + (self.view.owner is not None and not self.owner_lives)

    @property
    def is_deadly(self) -> bool:
        """Once is no evidence against a message."""
        return self.deaths > 1

    @property
    def is_run_again(self) -> bool:
        """A process that lives, or the next that starts, runs its head without being told to."""
        return self.view.blocked is None and self.view.on_hold_since is None

    @property
    def ready(self) -> int:
        """The number of its messages that are deliverable, one after the other."""
        return max(0, self.unsettled - self.view.held)

    @property
    def never_came(self) -> AckRanges:
        """Numbers below the highest received, or up to the last that the source has named."""
        return _never_came(self.view)

    @property
    def lost(self) -> AckRanges:
        """The numbers that never came and are not waited for, where no operator has given them up."""
        if self.view.kind != "rm" or self.ending is not None:
            return AckRanges()
        return self.never_came.without(self.missing).without(self.given_up)

    @property
    def is_lossy(self) -> bool:
        """Something that was sent is not delivered, and neither the source nor an operator has said that it may
        be missing."""
        lost = self.never_came.without(self.given_up)
        return (self.view.kind == "rm" and bool(lost)) or bool(self.undelivered.open) or self.view.discarding

    @property
    def is_doubted(self) -> bool:
        """Its time is over by the clock here, and a process that lives has not ended it: it doubts that clock."""
        return self.live > 0 and self.view.due_at is not None and self.now - self.view.due_at > OVERDUE_WITHIN

    @property
    def is_idle(self) -> bool:
        """Its time is over for want of traffic, not by its Expires."""
        return self.view.due_at != self.view.expires_at

    @property
    def is_expiring(self) -> bool:
        view = self.view
        if view.due_at is None:
            return False
        life = (view.inactivity if self.is_idle else (view.expires_at or 0) - view.created_at) or 0
        return view.due_at - self.now <= min(EXPIRING_WITHIN, life // 10)

    @property
    def quiet_for(self) -> int:
        """The time since something came from its source, in ms."""
        return max(0, self.now - self.view.active_at)

    @property
    def is_sent(self) -> bool:
        """Its first message has left, was taken, and is not acknowledged."""
        head = self.head
        return self.view.sends_to is not None and head is not None and head.deliveries > 0 and not head.failures

    @property
    def is_silent(self) -> bool:
        is_open = self.view.kind == "rm" and self.view.state == "created"
        return is_open and self.quiet_for >= (SILENT_WITH_GAP if self.missing else SILENT_WITHOUT)


_message: Final = views.messages.c
_attempt: Final = views.attempts.c
_event: Final = views.ledger_events.c
_HEADS: Final = select(*(_message[name] for name in Head._fields)).where(
    _message.sequence == p("sequence"), _message.outcome.is_(None)
)
_HEAD_BY_NUMBER: Final = compiled(_HEADS.where(_message.number == p("number")))
_HEAD_BY_POSITION: Final = compiled(_HEADS.where(_message.position == p("position")))
_held: Final = (
    select(_message.received_at)
    .where(_message.sequence == p("sequence"), _message.outcome.is_(None), _message.number >= p("limit"))
    .order_by(_message.number)
    .limit(COUNTED)
    .subquery()
)
_HELD_SINCE: Final = compiled(select(func.min(_held.c.received_at)))
_FAULTS: Final = compiled(
    select(_attempt.number, _attempt.at, _attempt.reason)
    .join(views.messages, _message.position == _attempt.position)
    .where(
        _attempt.sequence == p("sequence"),
        _attempt.event == ANSWERED_WITH_FAULT,
        _message.confirmed_at.is_(None),
        _message.outcome == "delivered",
    )
    .order_by(_attempt.key.desc())
    .limit(COUNTED)
)
_unsettled: Final = (
    select(_message.position)
    .where(_message.sequence == p("sequence"), _message.outcome.is_(None))
    .limit(COUNTED)
    .subquery()
)
_UNSETTLED: Final = compiled(select(func.count()).select_from(_unsettled))
_undelivered: Final = views.undelivered.c
_UNDELIVERED: Final = compiled(
    select(_undelivered.number, _undelivered.reason, _undelivered.outcome)
    .where(_undelivered.key == p("key"), _undelivered.confirmed == p("confirmed"))
    .order_by(_undelivered.number)
    .limit(COUNTED)
)
_LAST_ACT: Final = compiled(
    select(_event.at, _event.actor, _event.reason)
    .where(_event.sequence == p("sequence"), _event.event == p("event"))
    .order_by(_event.key.desc())
    .limit(1)
)

_EXCEPTION: Final = compiled(
    select(_attempt.exception).where(_attempt.position == p("position")).order_by(_attempt.key.desc()).limit(1)
)
_its: Final = views.sequence_messages.c
_SETTLED: Final = compiled(
    select(_message.settled_at)
    .where(
        _message.position.in_(
            select(_its.position).where(_its.sequence == p("sequence"), _its.number.in_((p("first"), p("last"))))
        ),
        _message.settled_at.is_not(None),
    )
    .order_by(_message.settled_at)
)
_TARGET: Final = compiled(select(views.plans.c.target).where(views.plans.c.plan == p("plan")))


_REPLAYED_BY: Final = compiled(
    select(views.sequences.c.plan)
    .join(views.plans, views.plans.c.plan == views.sequences.c.plan)
    .where(
        views.sequences.c.replay_of == p("sequence"),
        views.plans.c.state == "running",
        literal("plan ") + views.sequences.c.plan == p("actor"),
    )
    .order_by(views.sequences.c.key.desc())
    .limit(1)
)
_LATE: Final = compiled(
    select(_message.number)
    .where(
        _message.position.in_(select(_its.position).where(_its.sequence == p("sequence"), _its.number < p("limit"))),
        _message.late == 1,
    )
    .limit(COUNTED)
)


def situation(db: Database, view: SequenceView, now: int, live: list[Instance]) -> Situation:
    """The facts about a sequence that was read in the same snapshot; ``live``: the processes that live."""
    its = {"sequence": view.identifier}
    head = _head_of(db, view)
    owner = instance(db, view.owner) if view.owner is not None else None
    hold = _last_act(db, view, "held") if view.on_hold_since is not None else None
    late = db.execute(_LATE, {**its, "limit": view.limit}) if view.late is not None else ()
    waits = view.held > 0 or view.delivery in (DeliveryState.READY, DeliveryState.RETRYING)
    return Situation(
        view=view,
        now=now,
        head=head,
        owner=owner,
        owner_lives=owner in live or (owner is not None and view.consumed and lives(db, owner)),
        live=len(live),
        missing=_missing(view),
        unsettled=_unsettled_of(db, view),
        held_since=_one(db.execute(_HELD_SINCE, {**its, "limit": view.limit})) if view.held else None,
        faults=_faults_of(db, view),
        hold=hold,
        ending=_last_act(db, view, "terminated") if view.ended == State.FAILED.value else None,
        ended_because=_ended_because(db, view),
        replayed_by=_one(db.execute(_REPLAYED_BY, {**its, "actor": hold.actor})) if hold is not None else None,
        given_up=view.received.gaps(view.limit - 1) if view.late is not None else AckRanges(),
        late=AckRanges.of(number for (number,) in late),
        undelivered=_undelivered_of(db, view),
        unserved=next(iter(unserved(db, {view.queue})), None) if waits else None,
        target=_one(db.execute(_TARGET, {"plan": view.plan})) if view.queue.startswith(OUTGOING) else None,
        exception=_one(db.execute(_EXCEPTION, {"position": head.position})) if head and head.failures else None,
        pace=_pace(db, view, now),
    )


def _head_of(db: Database, view: SequenceView) -> Head | None:
    its = {"sequence": view.identifier}
    if view.blocked is not None:
        row = db.execute(_HEAD_BY_POSITION, {**its, "position": view.blocked}).fetchone()
    else:
        row = db.execute(_HEAD_BY_NUMBER, {**its, "number": _next_number(db, view)}).fetchone()
    return None if row is None else Head(*row)


def _unsettled_of(db: Database, view: SequenceView) -> int:
    """Count the unsettled messages; of more than are counted the ranges tell it, as if each were settled in its
    turn."""
    (count,) = db.execute(_UNSETTLED, {"sequence": view.identifier}).fetchone()
    return int(count) if count < COUNTED else view.received.count(view.cursor)


def _faults_of(db: Database, view: SequenceView) -> Faults | None:
    rows = db.execute(_FAULTS, {"sequence": view.identifier}).fetchall()
    return Faults(len(rows), *rows[0]) if rows else None


def _one(rows: Any) -> Any:
    """The value that a statement of one column answers; ``None`` where it answers nothing."""
    found = rows.fetchone()
    return None if found is None else found[0]


def _pace(db: Database, view: SequenceView, now: int) -> float | None:
    """Only of what is a backlog."""
    first, last = view.cursor - PACE_OF, view.cursor - 1
    if first < 1 or view.received.count(view.cursor) - view.held < BACKLOG:
        return None
    times: list[int] = [
        at for (at,) in db.execute(_SETTLED, {"sequence": view.identifier, "first": first, "last": last})
    ]
    if len(times) < 2 or now - times[-1] > PACE_WITHIN:
        return None
    return (PACE_OF - 1) * 1000 / max(1, times[-1] - times[0])


def _never_came(view: SequenceView) -> AckRanges:
    return view.received.gaps(max(view.received.highest, view.last_number or 0))


def _missing(view: SequenceView) -> AckRanges:
    if view.state != State.CREATED.value:
        return AckRanges()
    lowest = view.limit if view.ordered or view.late is not None else 1
    return _never_came(view).within(AckRanges(((lowest, max(lowest, view.received.highest)),)))


def _undelivered_of(db: Database, view: SequenceView) -> Undelivered:
    still, written_off = (
        db.execute(_UNDELIVERED, {"key": view.key, "confirmed": confirmed}).fetchall() for confirmed in (0, 1)
    )
    return Undelivered(
        AckRanges.of(number for number, *_ in still),
        AckRanges.of(number for number, *_ in written_off),
        still[-1][1] if still else "",
        sum(outcome == "dead" for *_, outcome in still),
    )


def _last_act(db: Database, view: SequenceView, event: str) -> Act | None:
    row = db.execute(_LAST_ACT, {"sequence": view.identifier, "event": event}).fetchone()
    return Act(*row) if row is not None else None


def _ended_because(db: Database, view: SequenceView) -> str | None:
    act = _last_act(db, view, "ended") if view.ended in (State.TERMINATED.value, State.EXPIRED.value) else None
    return None if act is None or act.reason == view.ended else act.reason


def _next_number(db: Database, view: SequenceView) -> int:
    """The number that runs, else the one that is next."""
    if view.late is None or view.running_since is None:
        return view.cursor
    run = {"lane": view.key, "limit": view.limit, "since": view.running_since}
    (number,) = db.execute(RUN_IS_AT, run).fetchone()
    return view.cursor if number is None else int(number)
