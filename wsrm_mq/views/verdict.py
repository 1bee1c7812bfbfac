"""The verdict on a sequence, by the facts of ``views.situation``. ``sentences`` has the words for people."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, func, or_, select

from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.store import published as views
from wsrm_mq.store.applications import FETCHED
from wsrm_mq.store.port import Database
from wsrm_mq.views.rows import Instance, SequenceView, live_instances
from wsrm_mq.views.situation import EXPIRING_WITHIN, SILENT_WITHOUT, Situation, situation


class Cause(enum.Enum):
    """Why a verdict is what it is; one for each sentence."""

    ON_HOLD = enum.auto()
    """An operator, or a plan, holds it."""
    TO_FETCH = enum.auto()
    """The messages that it has wait for a client that polls."""
    BLOCKED = enum.auto()
    """A message stopped it, and waits for an operator."""
    RUNNING = enum.auto()
    """A live process runs it."""
    TAKEN_OVER = enum.auto()
    """The process that ran it died; a live one takes it over."""
    ORPHANED = enum.auto()
    """The process that ran it died, and none lives."""
    UNSERVED = enum.auto()
    """No live process serves the application that it is for."""
    SENT = enum.auto()
    """Its first message was sent, and is not acknowledged yet."""
    RETRYING = enum.auto()
    """Its first message failed, and is tried again later."""
    READY = enum.auto()
    """A live process, or the next consumer of a group, is about to run it."""
    STOPPED = enum.auto()
    """It could run, and no process lives."""
    FAULTED = enum.auto()
    """The service answered with faults, which no operator has confirmed."""
    ENDED = enum.auto()
    """It is over, and nothing of it waits."""
    EXPIRING = enum.auto()
    """It ends soon."""
    SILENT = enum.auto()
    """Its source has sent nothing for long."""
    WAITING = enum.auto()
    """A number is missing, or what is held waits for the end."""
    SETTLED = enum.auto()
    """All that came is settled."""


class Rule(NamedTuple):
    """Where ``holds`` is true, ``cause`` is why, and ``word`` the verdict."""

    cause: Cause
    word: str
    holds: Callable[[Situation], bool]


def _delivers(*states: DeliveryState) -> Callable[[Situation], bool]:
    return lambda at: at.view.delivery in states


_is_owned: Final = _delivers(DeliveryState.RUNNING)
_is_retried: Final = _delivers(DeliveryState.RETRYING)
_is_deliverable: Final = _delivers(DeliveryState.READY, DeliveryState.RETRYING)


def _is_faulted(at: Situation) -> bool:
    """Only where nothing else is wrong: what waits or is discarded is told first."""
    return at.faults is not None and not at.view.held and at.view.discard_from is None


_RULES: Final = (
    Rule(Cause.ON_HOLD, "held", lambda at: at.view.on_hold_since is not None),
    Rule(Cause.TO_FETCH, "ok", lambda at: _is_deliverable(at) and at.view.queue.startswith(FETCHED)),
    Rule(Cause.BLOCKED, "blocked", _delivers(DeliveryState.BLOCKED)),
    # A process has it.
    Rule(Cause.RUNNING, "running", lambda at: _is_owned(at) and at.owner_lives),
    Rule(Cause.TAKEN_OVER, "running", lambda at: _is_owned(at) and at.live > 0),
    Rule(Cause.ORPHANED, "blocked", _is_owned),
    # Something is deliverable, or is held, and no process has it.
    Rule(Cause.UNSERVED, "blocked", lambda at: at.unserved is not None),
    Rule(Cause.SENT, "ok", lambda at: _is_retried(at) and at.is_sent),
    Rule(Cause.RETRYING, "blocked", lambda at: _is_retried(at) and at.head is not None),
    Rule(Cause.READY, "ok", lambda at: _is_deliverable(at) and (at.live > 0 or at.view.consumed)),
    Rule(Cause.STOPPED, "blocked", _is_deliverable),
    # Nothing is deliverable.
    Rule(Cause.FAULTED, "faulted", _is_faulted),
    Rule(Cause.ENDED, "ended", lambda at: at.view.state == "ended"),
    Rule(Cause.EXPIRING, "expiring", lambda at: at.is_expiring),
    Rule(Cause.SILENT, "silent", lambda at: at.is_silent),
    Rule(Cause.WAITING, "waiting", lambda at: at.view.held > 0 or bool(at.missing)),
    Rule(Cause.SETTLED, "ok", lambda _at: True),
)
"""The first rule that holds is taken. ``ok`` is said only where nothing is missing or lost (``_word``)."""


def _word(word: str, at: Situation) -> str:
    if word != "ok":
        return word
    return "waiting" if at.missing else "incomplete" if at.is_lossy else "ok"


UNREMARKABLE: Final = ("ok", "ended")
"""Verdicts that any sequence may have; of the others see ``is_to_judge`` and ``is_quiet``."""

WORDS: Final = (
    *("ok", "running", "waiting", "blocked", "held", "faulted", "incomplete", "silent", "expiring", "ended"),
)


_sequence: Final = views.sequences.c
_fault: Final = views.faulted.c
_lacking: Final = views.undelivered.c
is_busy: Final = _sequence.delivery != DeliveryState.IDLE.value
"""The sequence runs or is held, or something accepted in it is not settled."""
is_alarming: Final = and_(_fault.outcome == "delivered", _fault.confirmed_at.is_(None))
"""The message was answered with a fault that no operator has confirmed. One that was put aside counts as a dead
letter."""
_WITH_FAULTS: Final = select(_fault.sequence).where(is_alarming, _fault.sequence.is_not(None))


has_gaps: Final = or_(
    _sequence.key.in_(select(views.ranges.c.key).where(views.ranges.c.lower > 1)),
    func.coalesce(_sequence.last_number >= _sequence.expected, False),
)
"""The sequence has a gap, or has not all up to the last number that its source has named."""
_is_incomplete: Final = and_(
    _sequence.state != "ended",
    or_(has_gaps, select(_lacking.key).where(_lacking.key == _sequence.key, _lacking.confirmed == 0).exists()),
)
"""The sequence lacks a number, or has one that came and was not delivered."""


def is_to_judge(now: ColumnElement[int], faulted: Select[Any] = _WITH_FAULTS) -> ColumnElement[bool]:
    """The condition that rows of ``published.sequences`` fulfil which have another verdict than ``UNREMARKABLE`` ones,
    but for those that are only silent (``is_quiet``): few do, and only those have to be judged to find them.
    ``faulted``: identifiers of sequences with alarming messages."""
    return or_(
        is_busy,
        _is_incomplete,
        func.coalesce(_sequence.due_at <= now + EXPIRING_WITHIN, False),
        _sequence.sequence.in_(faulted),
    )


def is_quiet(now: ColumnElement[int]) -> ColumnElement[bool]:
    """The condition on sequences that are open and had nothing received for ``SILENT_WITHOUT``."""
    return and_(_sequence.state == "created", _sequence.kind == "rm", _sequence.active_at <= now - SILENT_WITHOUT)


@dataclass(frozen=True, slots=True)
class Verdict:
    word: str
    cause: Cause
    at: Situation

    @property
    def facts(self) -> dict[str, Any]:
        """Always the same keys; numbers, ms and texts."""
        at, view, head, owner = self.at, self.at.view, self.at.head, self.at.owner
        numbers = {
            **{"received": view.received, "missing": at.missing, "never_came": at.never_came},
            **{"undelivered": at.undelivered.open, "written_off": at.undelivered.written_off},
            **{"given_up": at.given_up, "late": at.late},
        }
        return {
            **{name: getattr(view, name) for name in _OF_ITS_ROW},
            **{name: [list(one) for one in its] for name, its in numbers.items()},
            "held_since": at.held_since,
            "blocked": head.number if head is not None and view.blocked is not None else None,
            "head": head._asdict() if head is not None else None,
            "on_hold": at.hold._asdict() if at.hold is not None else None,
            "owner": {**owner._asdict(), "lives": at.owner_lives} if owner is not None else None,
            "live_instances": at.live,
            "faulted": at.faults.messages if at.faults is not None else 0,
        }


_OF_ITS_ROW: Final = (
    *("state", "ended", "ended_at", "expected", "cursor", "limit", "last_number", "held", "due_at", "retry_at"),
    *("active_at", "running_since", "behavior", "discard_from", "discard_reason"),
)
"""Facts that are columns of the sequence."""


def judge(db: Database, view: SequenceView, now: int, *, live: list[Instance] | None = None) -> Verdict:
    """The verdict on a sequence that was read in the same snapshot. ``live``: the processes that live, where that is
    known."""
    at = situation(db, view, now, live_instances(db) if live is None else live)
    cause, word, _holds = next(rule for rule in _RULES if rule.holds(at))
    return Verdict(_word(word, at), cause, at)
