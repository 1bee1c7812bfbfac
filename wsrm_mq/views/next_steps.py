"""What an operator may do about a sequence: command lines to type as they are printed, by the cause of its verdict.

The first is what to begin with; the others are choices.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Final, NamedTuple

from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.store.applications import OUTGOING
from wsrm_mq.store.tables import ANSWERED_WITH_FAULT
from wsrm_mq.views.situation import Situation
from wsrm_mq.views.verdict import Cause


class Step(NamedTuple):
    """A command line, and what it is good for."""

    command: str
    effect: str


REHEARSE: Final = Step("wsrm-mq store rehearse", "first: this is a copy; let repairs be tried on it")
ADOPT: Final = Step("wsrm-mq store adopt --dry-run", "no act works before it is adopted: what that loses")


class _Choice(NamedTuple):
    """``command`` names the sequence, and the number and position of its head; ``applies``: where it makes sense."""

    command: str
    effect: str
    applies: Callable[[Situation], bool] = lambda _at: True


def _has_head(at: Situation) -> bool:
    return at.head is not None


def _has_failed(at: Situation) -> bool:
    return at.head is not None and at.head.failures > 0


def _is_untried(at: Situation) -> bool:
    return at.head is not None and not at.head.failures


def _goes_to_a_target(at: Situation) -> bool:
    return at.view.queue.startswith(OUTGOING)


def _is_deadly_and_stands(at: Situation) -> bool:
    return at.is_deadly and not at.owner_lives


def _is_deadly_and_runs_again(at: Situation) -> bool:
    return at.is_deadly and at.is_run_again


def _lacks_numbers(at: Situation) -> bool:
    return bool(at.missing)


def _has_lost(at: Situation) -> bool:
    return bool(at.lost)


def _holds(at: Situation) -> bool:
    return at.view.held > 0


def _may_be_forced(at: Situation) -> bool:
    return bool(at.missing) and _holds(at) and at.view.behavior == IncompleteSequenceBehavior.NO_DISCARD.value


def _is_open(at: Situation) -> bool:
    return at.view.state != "ended"


def _has_letters(at: Situation) -> bool:
    return at.undelivered.letters > 0


def _gave_up(at: Situation) -> bool:
    return _has_letters(at) or at.view.discarding


def _has_discarded(at: Situation) -> bool:
    return at.undelivered.open.count() > at.undelivered.letters


_RESUME: Final = _Choice(
    "wsrm-mq sequence resume {sequence} --reason TEXT", "try it again, when its cause is repaired", _has_failed
)
_TRY: Final = _Choice("wsrm-mq sequence resume {sequence} --reason TEXT", "try it now, without waiting", _is_untried)
_PLAN: Final = _Choice(
    "wsrm-mq replay status {plan}",
    "the plan that it is of: `replay run` with its file tries it again",
    _goes_to_a_target,
)
_REPLAYED: Final = _Choice(
    "wsrm-mq replay status {replayed_by}",
    "the plan that replays what it had not delivered: it goes on when that has ended",
    lambda at: at.replayed_by is not None,
)
_SHOW: Final = _Choice("wsrm-mq message show {position}", "the message, and the whole error", _has_head)
_SKIP: Final = _Choice(
    "wsrm-mq sequence skip {sequence} {number} --reason TEXT",
    "give this message up: it goes to the dead letters",
    _has_head,
)
_VERIFY: Final = _Choice("wsrm-mq store verify", "check the store", lambda at: not _has_head(at))
_AGAIN: Final = _Choice("wsrm-mq sequence explain {sequence}", "look again")
_DOCTOR: Final = _Choice("wsrm-mq doctor", "what is wrong with processes, clock and store")
_TO_PARTNER: Final = _Choice(
    "wsrm-mq sequence explain {sequence} --for-partner", "write what to send to the partner", _lacks_numbers
)
_LOST_THERE: Final = _Choice(
    "wsrm-mq sequence explain {sequence} --for-partner", "write to the partner what never came", _has_lost
)
_LIVE: Final = _Choice("wsrm-mq message list --sequence {sequence} --outcome live", "what waits", _holds)
_FORCE: Final = _Choice(
    "wsrm-mq sequence force {sequence} --past {missing} --reason TEXT",
    "deliver what is held, past the gap",
    _may_be_forced,
)
_CLOCK: Final = _Choice("wsrm-mq doctor", "which clock is right: by a wrong one it ends", lambda at: at.is_doubted)
_HOLD: Final = _Choice("wsrm-mq sequence hold {sequence} --reason TEXT", "keep what waits, beyond the end", _holds)
_END: Final = _Choice(
    "wsrm-mq sequence terminate {sequence} --drain --reason TEXT",
    "end it, as its behavior says; its source is told by its next message",
    _is_open,
)
_DEADLY: Final = (
    _SKIP._replace(applies=_is_deadly_and_stands),
    _Choice(
        "wsrm-mq sequence hold {sequence} --reason TEXT",
        "nothing of it runs until it is resumed",
        _is_deadly_and_runs_again,
    ),
    _SHOW._replace(applies=lambda at: at.is_deadly),
)
"""Before anything else."""
_UNDELIVERED: Final = (
    _Choice("wsrm-mq dead-letter list seq:{sequence}", "its dead letters", _gave_up),
    _Choice("wsrm-mq message list seq:{sequence} outcome:discarded", "what was not delivered, and why", _has_discarded),
    _Choice(
        "wsrm-mq dead-letter redrive seq:{sequence} confirmed:no --reason TEXT", "deliver them again", _has_letters
    ),
    _Choice(
        "wsrm-mq dead-letter confirm seq:{sequence} confirmed:no --reason TEXT",
        "they are dealt with, and alarm no more",
        _has_letters,
    ),
    _LOST_THERE,
)
"""Whatever else is to be done about it."""

_CHOICES: Final[dict[Cause, tuple[_Choice, ...]]] = {
    Cause.ON_HOLD: (_REPLAYED, _Choice("wsrm-mq sequence resume {sequence} --reason TEXT", "let it go on")),
    Cause.TO_FETCH: (_Choice("wsrm-mq message list --sequence {sequence} --outcome live", "what waits"),),
    Cause.BLOCKED: (_PLAN, _RESUME, _TRY, _SHOW, _SKIP, _VERIFY),
    Cause.RUNNING: (_Choice("wsrm-mq message show {position}", "the message that runs", _has_head), _AGAIN),
    Cause.TAKEN_OVER: (_AGAIN,),
    Cause.ORPHANED: (_DOCTOR,),
    Cause.UNSERVED: (
        _DOCTOR,
        _Choice("wsrm-mq store application {application} NEW --reason TEXT", "the application has a new name"),
    ),
    Cause.RETRYING: (_PLAN, _RESUME, _TRY, _SHOW, _SKIP),
    Cause.READY: (_PLAN,),
    Cause.SENT: (),
    Cause.STOPPED: (_DOCTOR,),
    Cause.FAULTED: (
        _Choice(
            f"wsrm-mq failure show seq:{{sequence}} event:{ANSWERED_WITH_FAULT} confirmed:no",
            "what the service said and where, and how to have them delivered again",
        ),
        _Choice(f"wsrm-mq message list --sequence {{sequence}} --reason {ANSWERED_WITH_FAULT}", "which messages"),
        _Choice(
            f"wsrm-mq message confirm seq:{{sequence}} reason:{ANSWERED_WITH_FAULT} --reason TEXT",
            "they are dealt with, and alarm no more",
        ),
    ),
    Cause.ENDED: (),
    Cause.EXPIRING: (_CLOCK, _TO_PARTNER, _LIVE, _FORCE, _HOLD),
    Cause.SILENT: (_TO_PARTNER, _LIVE, _FORCE, _END),
    Cause.WAITING: (_TO_PARTNER, _LIVE, _FORCE, _END),
    Cause.SETTLED: (),
}


def steps(cause: Cause, at: Situation) -> tuple[Step, ...]:
    """Nothing where there is nothing to do."""
    head = at.head
    names = {
        "sequence": shlex.quote(at.view.identifier),
        "plan": at.view.plan,
        "application": shlex.quote((at.unserved.application if at.unserved is not None else None) or "none"),
        "replayed_by": at.replayed_by,
        "missing": next((first for first, _last in at.missing), ""),
        "number": head.number if head is not None else "",
        "position": head.position if head is not None else "",
    }
    found = (
        Step(choice.command.format_map(names), choice.effect)
        for choice in (*_DEADLY, *_CHOICES[cause], *_UNDELIVERED)
        if choice.applies(at)
    )
    told: dict[str, Step] = {}
    for one in found:
        told.setdefault(one.command, one)
    return tuple(told.values())
