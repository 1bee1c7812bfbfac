"""Proposals to an operator about a sequence, by the cause of its verdict. The first is the one to begin with, the
others are choices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from wsrm_mq.acts import Command, Step, others
from wsrm_mq.acts import messages as on_messages
from wsrm_mq.acts import sequences as on_sequences
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.store.applications import OUTGOING
from wsrm_mq.store.words import ANSWERED_WITH_FAULT
from wsrm_mq.views.situation import Situation
from wsrm_mq.views.verdict import Cause

Words = Callable[[Situation], tuple[str, ...]]
Arguments = Callable[[Situation], dict[str, Any]]


def _identifier(at: Situation) -> tuple[str, ...]:
    return (at.view.identifier,)


def _position(at: Situation) -> tuple[str, ...]:
    return () if at.head is None else (str(at.head.position),)


def _of_it(*words: str) -> Words:
    """The words of a query for what is of the sequence, and more of them."""
    return lambda at: (f"seq:{at.view.identifier}", *words)


class _Choice(NamedTuple):
    """A proposal about any sequence that it ``applies`` to."""

    command: Command
    effect: str
    applies: Callable[[Situation], bool] = lambda _at: True
    which: Words = _identifier
    arguments: Arguments = lambda _at: {}


def _has_head(at: Situation) -> bool:
    return at.head is not None


def _holds(at: Situation) -> bool:
    return at.view.held > 0


def _has_letters(at: Situation) -> bool:
    return at.undelivered.letters > 0


def _may_be_forced(at: Situation) -> bool:
    return bool(at.missing) and _holds(at) and at.view.behavior == IncompleteSequenceBehavior.NO_DISCARD.value


# what to do

_RESUME_IT: Final = _Choice(
    on_sequences.RESUME,
    "try it again, when its cause is repaired",
    lambda at: at.head is not None and at.head.failures > 0,
)
_TRY: Final = _RESUME_IT._replace(
    effect="try it now, without waiting", applies=lambda at: at.head is not None and not at.head.failures
)
_PLAN: Final = _Choice(
    others.PLAN,
    "the plan that it is of: `replay run` with its file tries it again",
    lambda at: at.view.queue.startswith(OUTGOING),
    lambda at: (str(at.view.plan),),
)
_REPLAYED: Final = _Choice(
    others.PLAN,
    "the plan that replays what it had not delivered: it goes on when that has ended",
    lambda at: at.replayed_by is not None,
    lambda at: (str(at.replayed_by),),
)
_SHOW: Final = _Choice(others.MESSAGE, "the message, and the whole error", _has_head, _position)
_SKIP: Final = _Choice(
    on_sequences.SKIP,
    "give this message up: it goes to the dead letters",
    _has_head,
    arguments=lambda at: {} if at.head is None else {"number": at.head.number},
)
_VERIFY: Final = _Choice(others.VERIFY, "check the store", lambda at: at.head is None, lambda _at: ())
_AGAIN: Final = _Choice(others.EXPLAIN, "look again")
_ASK_DOCTOR: Final = _Choice(others.DOCTOR, "what is wrong with processes, clock and store", which=lambda _at: ())
_QUEUE: Final = _Choice(
    others.QUEUE, "who consumes it, and its policy", lambda at: at.view.consumed, lambda at: (at.view.queue,)
)
_TO_PARTNER: Final = _Choice(
    others.EXPLAIN,
    "write what to send to the partner",
    lambda at: bool(at.missing),
    arguments=lambda _at: {"for_partner": True},
)
_LOST_THERE: Final = _TO_PARTNER._replace(
    effect="write to the partner what never came", applies=lambda at: bool(at.lost)
)
_LIVE: Final = _Choice(
    others.MESSAGES,
    "what waits",
    _holds,
    lambda _at: (),
    lambda at: {"sequence": at.view.identifier, "outcome": "live"},
)
_FORCE: Final = _Choice(
    on_sequences.FORCE,
    "deliver what is held, past the gap",
    _may_be_forced,
    arguments=lambda at: {"past": next(first for first, _last in at.missing)},
)
_CLOCK: Final = _ASK_DOCTOR._replace(
    effect="which clock is right: by a wrong one it ends", applies=lambda at: at.is_doubted
)
_HOLD: Final = _Choice(on_sequences.HOLD, "keep what waits, beyond the end", _holds)
_END_IT: Final = _Choice(
    on_sequences.TERMINATE,
    "end it, as its behavior says; its source is told by its next message",
    lambda at: at.view.state != "ended",
    arguments=lambda _at: {"drain": True},
)
_DEADLY: Final = (
    _SKIP._replace(applies=lambda at: at.is_deadly and not at.owner_lives),
    _Choice(on_sequences.HOLD, "nothing of it runs until it is resumed", lambda at: at.is_deadly and at.is_run_again),
    _SHOW._replace(applies=lambda at: at.is_deadly),
)
"""Before anything else."""
_UNDELIVERED: Final = (
    _Choice(others.LETTERS, "its dead letters", lambda at: _has_letters(at) or at.view.discarding, _of_it()),
    _Choice(
        others.MESSAGES,
        "what was not delivered, and why",
        lambda at: at.undelivered.open.count() > at.undelivered.letters,
        _of_it("outcome:discarded"),
    ),
    _Choice(on_messages.REDRIVE, "deliver them again", _has_letters, _of_it("confirmed:no")),
    _Choice(on_messages.CONFIRM_LETTER, "they are dealt with, and alarm no more", _has_letters, _of_it("confirmed:no")),
    _LOST_THERE,
)
"""Whatever else is to be done about it."""

_CHOICES: Final[dict[Cause, tuple[_Choice, ...]]] = {
    Cause.ON_HOLD: (_REPLAYED, _Choice(on_sequences.RESUME, "let it go on")),
    Cause.TO_FETCH: (_LIVE._replace(applies=lambda _at: True),),
    Cause.BLOCKED: (_PLAN, _RESUME_IT, _TRY, _SHOW, _SKIP, _VERIFY),
    Cause.RUNNING: (_SHOW._replace(effect="the message that runs"), _AGAIN),
    Cause.TAKEN_OVER: (_AGAIN, _QUEUE),
    Cause.ORPHANED: (_ASK_DOCTOR._replace(applies=lambda at: not at.view.consumed), _QUEUE),
    Cause.UNSERVED: (
        _ASK_DOCTOR,
        _Choice(
            others.RENAME,
            "the application has a new name",
            which=lambda at: ((at.unserved.application if at.unserved is not None else None) or "none",),
        ),
    ),
    Cause.RETRYING: (_PLAN, _RESUME_IT, _TRY, _SHOW, _SKIP),
    Cause.READY: (_PLAN, _QUEUE),
    Cause.SENT: (),
    Cause.STOPPED: (_ASK_DOCTOR,),
    Cause.FAULTED: (
        _Choice(
            others.FAILURE,
            "what the service said and where, and how to have them delivered again",
            which=_of_it(f"event:{ANSWERED_WITH_FAULT}", "confirmed:no"),
        ),
        _Choice(
            others.MESSAGES,
            "which messages",
            which=lambda _at: (),
            arguments=lambda at: {"sequence": at.view.identifier, "reason": ANSWERED_WITH_FAULT},
        ),
        _Choice(
            on_messages.CONFIRM,
            "they are dealt with, and alarm no more",
            which=_of_it(f"reason:{ANSWERED_WITH_FAULT}"),
        ),
    ),
    Cause.ENDED: (),
    Cause.EXPIRING: (_CLOCK, _TO_PARTNER, _LIVE, _FORCE, _HOLD),
    Cause.SILENT: (_TO_PARTNER, _LIVE, _FORCE, _END_IT),
    Cause.WAITING: (_TO_PARTNER, _LIVE, _FORCE, _END_IT),
    Cause.SETTLED: (),
}


def steps(cause: Cause, at: Situation) -> tuple[Step, ...]:
    """Propose what may be done about a sequence that is so for this cause; nothing where there is nothing to do."""
    found: list[Step] = []
    for choice in (*_DEADLY, *_CHOICES[cause], *_UNDELIVERED):
        if choice.applies(at):
            step = choice.command.step(choice.effect, *choice.which(at), **choice.arguments(at))
            if not any(step._replace(effect=other.effect) == other for other in found):
                found.append(step)
    return tuple(found)
