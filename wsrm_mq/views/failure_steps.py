"""What an operator may do about a failure: command lines to type as they are printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from wsrm_mq.store.tables import ANSWERED_WITH_FAULT
from wsrm_mq.views.failures import Failure
from wsrm_mq.views.next_steps import Step
from wsrm_mq.views.refusals import REFUSED
from wsrm_mq.views.typed import typed


class _Choice(NamedTuple):
    """``command`` has a place for the ``messages`` that it is about, as a query of which ``words`` are a part, or for
    the ``position`` of the newest."""

    command: str
    effect: str
    applies: Callable[[Failure], bool]
    words: tuple[str, ...] = ()


def _is_taken(one: Failure) -> bool:
    return one.event == ANSWERED_WITH_FAULT and one.taken > 0


_ALARMING: Final = ("outcome:delivered", "confirmed:no")
_CHOICES: Final = (
    _Choice("wsrm-mq message list {messages}", "its messages", lambda one: one.messages > 0),
    _Choice("wsrm-mq message body {position}", "the newest of them", lambda one: one.messages > 0),
    _Choice(
        "wsrm-mq message retry {messages} --reason TEXT",
        "when the cause is repaired: try again what waits",
        lambda one: one.live > 0,
        ("outcome:live",),
    ),
    _Choice(
        "wsrm-mq dead-letter redrive {messages} --reason TEXT",
        "when the cause is repaired: deliver the dead letters again",
        lambda one: one.dead > 0,
    ),
    _Choice(
        "wsrm-mq replay plan {messages} -o plan.json --reason TEXT",
        "when the cause is repaired: deliver again what was answered with a fault",
        _is_taken,
        _ALARMING,
    ),
    _Choice(
        "wsrm-mq message confirm {messages} --reason TEXT",
        "you know of it: it stays as it is, and alarms no more",
        _is_taken,
        _ALARMING,
    ),
    _Choice("wsrm-mq config show", "what {option} is now: another value allows it", lambda one: one.option is not None),
    _Choice("wsrm-mq status", "what is refused now, and what to do", lambda one: one.event == REFUSED),
)


def failure_steps(failure: Failure, query: str = "") -> tuple[Step, ...]:
    """For the messages that failed so, of those that ``query`` asks for."""

    def command(one: _Choice) -> str:
        which = typed(f"failure:{failure.key} {query}", *one.words)
        return one.command.format(messages=which, position=failure.position)

    return tuple(
        Step(command(one), one.effect.format(option=failure.option)) for one in _CHOICES if one.applies(failure)
    )
