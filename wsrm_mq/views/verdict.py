"""The verdict on a sequence: its cause, and the facts that this rests on. ``sentences`` has the words.

Only reads the published views; whether a process lives is told by its lock beside the store.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, func, select

from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.store import published as views
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.port import Database
from wsrm_mq.views.applications import Unserved, unserved
from wsrm_mq.views.instances import Instance, instance, live_instances
from wsrm_mq.views.reading import ANSWERED_WITH_FAULT, SequenceView

__all__ = ["EXPIRING_WITHIN", "WORDS", "Cause", "Faults", "Head", "Situation", "Verdict", "judge"]

EXPIRING_WITHIN: Final = 600_000
"""A sequence expires soon if it does so within these ms, or within a tenth of its life where that is shorter."""

COUNTED: Final = 10_000
"""So many held messages are looked at for the time of the oldest, and so many faults are counted."""


# facts


class Head(NamedTuple):
    """The message that is next, or the one that stopped the sequence."""

    position: int
    number: int
    deliveries: int
    failures: int
    last_error: str | None


class Faults(NamedTuple):
    """What the service took and answered with a fault that nothing else has read."""

    messages: int
    last_number: int
    last_at: int
    last_error: str


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
    """The numbers that delivery waits for."""
    held_since: int | None
    faults: Faults | None
    unserved: Unserved | None
    """Something waits, and it is for an application that no live process serves."""

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


_message: Final = views.messages.c
_attempt: Final = views.attempts.c
p = bindparam
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
    select(_attempt.number, _attempt.at, func.coalesce(_attempt.reason, ""))
    .where(_attempt.sequence == p("sequence"), _attempt.event == ANSWERED_WITH_FAULT)
    .order_by(_attempt.key.desc())
    .limit(COUNTED)
)


def _situation(db: Database, view: SequenceView, now: int) -> Situation:
    identifier = view.identifier
    live = live_instances(db)
    owner = instance(db, view.owner) if view.owner is not None else None
    if view.blocked is not None:
        head = db.execute(_HEAD_BY_POSITION, {"sequence": identifier, "position": view.blocked}).fetchone()
    else:
        head = db.execute(_HEAD_BY_NUMBER, {"sequence": identifier, "number": view.cursor}).fetchone()
    missing = AckRanges(((view.limit, view.received.highest),)) if view.held else AckRanges()
    held_since = None
    if view.held:
        (held_since,) = db.execute(_HELD_SINCE, {"sequence": identifier, "limit": view.limit}).fetchone()
    faults = db.execute(_FAULTS, {"sequence": identifier}).fetchall()
    waits = view.held > 0 or view.delivery in (DeliveryState.READY, DeliveryState.RETRYING)
    return Situation(
        view,
        now,
        Head(*head) if head is not None else None,
        owner,
        owner in live,
        len(live),
        missing.without(view.received),
        held_since,
        Faults(len(faults), *faults[0]) if faults else None,
        next(iter(unserved(db, {view.queue})), None) if waits else None,
    )


# what is true of it


class Cause(enum.Enum):
    """Why a verdict is what it is; one for each sentence."""

    BLOCKED = enum.auto()
    RUNNING = enum.auto()
    TAKEN_OVER = enum.auto()
    ORPHANED = enum.auto()
    UNSERVED = enum.auto()
    RETRYING = enum.auto()
    READY = enum.auto()
    STOPPED = enum.auto()
    FAULTED = enum.auto()
    ENDED = enum.auto()
    EXPIRING = enum.auto()
    WAITING = enum.auto()
    SETTLED = enum.auto()


def _delivers(*states: DeliveryState) -> Callable[[Situation], bool]:
    return lambda at: at.view.delivery in states


_owned: Final = _delivers(DeliveryState.RUNNING)
_retries: Final = _delivers(DeliveryState.RETRYING)
_deliverable: Final = _delivers(DeliveryState.READY, DeliveryState.RETRYING)

_RULES: Final[tuple[tuple[Callable[[Situation], bool], Cause, str], ...]] = (
    (_delivers(DeliveryState.BLOCKED), Cause.BLOCKED, "blocked"),
    (lambda at: _owned(at) and at.owner_lives, Cause.RUNNING, "running"),
    (lambda at: _owned(at) and at.live > 0, Cause.TAKEN_OVER, "running"),
    (_owned, Cause.ORPHANED, "blocked"),
    (lambda at: at.unserved is not None, Cause.UNSERVED, "blocked"),
    (lambda at: _retries(at) and at.head is not None, Cause.RETRYING, "blocked"),
    (lambda at: _deliverable(at) and at.live > 0, Cause.READY, "ok"),
    (_deliverable, Cause.STOPPED, "blocked"),
    # Only where nothing else is wrong: what waits or is discarded is told first.
    (
        lambda at: at.faults is not None and not at.view.held and at.view.discard_from is None,
        Cause.FAULTED,
        "faulted",
    ),
    (lambda at: at.view.state == "ended", Cause.ENDED, "ended"),
    (lambda at: at.is_expiring, Cause.EXPIRING, "expiring"),
    (lambda at: at.view.held > 0, Cause.WAITING, "waiting"),
    (lambda _at: True, Cause.SETTLED, "ok"),
)
"""The first rule that holds gives the cause, and the word of the verdict."""

WORDS: Final = ("ok", "running", "waiting", "blocked", "faulted", "expiring", "ended")


@dataclass(frozen=True, slots=True)
class Verdict:
    word: str
    cause: Cause
    at: Situation

    @property
    def facts(self) -> dict[str, Any]:
        """Always the same keys; numbers, ms and texts."""
        at, view, head, owner = self.at, self.at.view, self.at.head, self.at.owner
        return {
            "state": view.state,
            "ended": view.ended,
            "ended_at": view.ended_at,
            "received": [list(one) for one in view.received],
            "expected": view.expected,
            "cursor": view.cursor,
            "limit": view.limit,
            "last_number": view.last_number,
            "missing": [list(one) for one in at.missing],
            "held": view.held,
            "held_since": at.held_since,
            "due_at": view.due_at,
            "retry_at": view.retry_at,
            "blocked": head.number if head is not None and view.blocked is not None else None,
            "head": head._asdict() if head is not None else None,
            "running_since": view.running_since,
            "owner": {**owner._asdict(), "lives": at.owner_lives} if owner is not None else None,
            "live_instances": at.live,
            "faulted": at.faults.messages if at.faults is not None else 0,
            "behavior": view.behavior,
            "discard_from": view.discard_from,
            "discard_reason": view.discard_reason,
        }


def judge(db: Database, view: SequenceView, now: int) -> Verdict:
    """The verdict on a sequence that was read in the same snapshot."""
    at = _situation(db, view, now)
    cause, word = next((cause, word) for holds, cause, word in _RULES if holds(at))
    return Verdict(word, cause, at)
