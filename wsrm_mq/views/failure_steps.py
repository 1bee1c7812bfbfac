"""Proposals to an operator about a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from wsrm_mq.acts import Command, Step, others
from wsrm_mq.acts import messages as on_messages
from wsrm_mq.store.tables import ANSWERED_WITH_FAULT
from wsrm_mq.views.failures import Failure
from wsrm_mq.views.query import asked_for
from wsrm_mq.views.refusals import REFUSED


class _Choice(NamedTuple):
    """A proposal about any failure that it ``applies`` to."""

    command: Command
    effect: str
    applies: Callable[[Failure], bool]
    words: tuple[str, ...] | None = ()
    """More words of the query for its messages; ``None``: it is not about them."""
    arguments: Mapping[str, Any] = {}


def _is_taken(one: Failure) -> bool:
    return one.event == ANSWERED_WITH_FAULT and one.taken > 0


_ALARMING: Final = ("outcome:delivered", "confirmed:no")
_CHOICES: Final = (
    _Choice(others.MESSAGES, "its messages", lambda one: one.messages > 0),
    _Choice(others.BODY, "the newest of them", lambda one: one.messages > 0),
    _Choice(
        on_messages.RETRY,
        "when the cause is repaired: try again what waits",
        lambda one: one.live > 0,
        ("outcome:live",),
    ),
    _Choice(
        on_messages.REDRIVE,
        "when the cause is repaired: deliver the dead letters again",
        lambda one: one.dead > 0,
    ),
    _Choice(
        others.MAKE_PLAN,
        "when the cause is repaired: deliver again what was answered with a fault",
        _is_taken,
        _ALARMING,
        {"o": "plan.json"},
    ),
    _Choice(on_messages.CONFIRM, "you know of it: it stays as it is, and alarms no more", _is_taken, _ALARMING),
    _Choice(
        others.CONFIGURATION,
        "what {option} is now: another value allows it",
        lambda one: one.option is not None,
        None,
    ),
    _Choice(others.STATUS, "what is refused now, and what to do", lambda one: one.event == REFUSED, None),
)


def failure_steps(failure: Failure, query: str = "") -> tuple[Step, ...]:
    """Propose what may be done about a failure: with its messages, of those that ``query`` asks for."""

    def which(one: _Choice) -> tuple[str, ...]:
        if one.command is others.BODY:
            return (str(failure.position),)
        return () if one.words is None else asked_for(f"failure:{failure.key} {query}", *one.words)

    return tuple(
        one.command.step(one.effect.format(option=failure.option), *which(one), **one.arguments)
        for one in _CHOICES
        if one.applies(failure)
    )
