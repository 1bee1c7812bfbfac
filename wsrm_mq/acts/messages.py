"""The acts of an operator on messages, and on dead letters, which are messages too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from wsrm_mq.acts.act import Act, Argument, Arguments, Choice, Kind
from wsrm_mq.errors import NotFound

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

MESSAGE: Final = "message"
LETTER: Final = "dead-letter"

EXAMPLES: Final = ('42 43 --reason "the service is repaired"', 'queue:/orders age:1h --reason "ticket 17"')

_DEAD: Final = {"outcome": "dead"}
_LIVE: Final = {"outcome": "live"}
_ALARMS: Final = {"outcome": "dead", "confirmed": "no"}


def _told(words: str) -> Any:
    """A wording that is the same for one message and for many."""

    def does(_result: None, _arguments: Arguments) -> str:
        return words

    return does


RETRY: Final = Act(
    MESSAGE,
    "retry",
    verb="wsrm_mq.queue.dead_letters:retry",
    does=_told("try {these} {when}"),
    fits=(_LIVE,),
    has_failed=True,
    help="""Try now what waits for a retry, or stops its sequence.

    It is tried from the first step of the ladder of waits.""",
    examples=EXAMPLES,
)

DISCARD: Final = Act(
    MESSAGE,
    "discard",
    verb="wsrm_mq.queue.dead_letters:discard",
    does=_told("give {these} up; `wsrm-mq message restore` undoes that while they are kept"),
    fits=(_DEAD, _LIVE),
    help="""Give up messages that are not delivered.

    Dead letters, and what is not settled and does not run now: its sequence goes on without it. `message restore`
    undoes it as long as the message is kept (`retain`).""",
    examples=EXAMPLES,
)

RESTORE: Final = Act(
    MESSAGE,
    "restore",
    verb="wsrm_mq.queue.dead_letters:restore",
    does=_told("bring {these} back as what they were"),
    fits=({"outcome": "discarded", "reason": "by_operator"},),
    help="""Bring back what an operator has discarded.

    It is what it was: a dead letter, or a message that waits. Into a sequence in order only where nothing behind it
    was delivered.""",
    examples=EXAMPLES,
)

CONFIRM: Final = Act(
    MESSAGE,
    "confirm",
    verb="wsrm_mq.queue.dead_letters:confirm",
    does=_told("confirm {these}: they stay, and alarm no more"),
    fits=(_ALARMS, {"reason": "answered_with_fault", "confirmed": "no"}),
    help="""Say that messages are known: they alarm no more.

    Dead letters, and messages that were answered with a fault. They stay as they are.""",
    examples=EXAMPLES,
)


REDRIVE: Final = Act(
    LETTER,
    "redrive",
    verb="wsrm_mq.queue.dead_letters:redrive",
    does=_told("deliver {these} again {when}"),
    fits=(_DEAD,),
    arguments=(
        Argument("to", Kind.TEXT, "Into this queue, in place of the one that they came from."),
        Argument(
            "counts",
            Kind.ONE_OF,
            "Their failures and cancels are counted anew, or on.",
            (Choice("reset", True), Choice("keep", False)),
            default="reset",
        ),
    ),
    help="""Deliver dead letters again.

    Those of a sequence go in its order. Each keeps the key that the service knows it by, so that what it has done
    already is recognised. One that fails for good is a dead letter again.""",
    examples=(*EXAMPLES, '42 --to repairs --counts keep --reason "to look"'),
)


def _check_dead(tx: Transaction, position: int) -> None:
    from wsrm_mq.queue import withdrawing

    if withdrawing.stored(tx, position).outcome != "dead":
        more = f"`wsrm-mq message show {position}` says more."
        raise NotFound(f"There is no dead letter at position {position}: {more}")


def discard_letter(tx: Transaction, position: int, *, actor: str, reason: str) -> None:
    """Discard a dead letter. Raises ``NotFound`` where none is at the position."""
    _check_dead(tx, position)
    DISCARD.load()(tx, position, actor=actor, reason=reason)


def confirm_letter(tx: Transaction, position: int, *, actor: str, reason: str) -> None:
    """Confirm a dead letter. Raises ``NotFound`` where none is at the position."""
    _check_dead(tx, position)
    CONFIRM.load()(tx, position, actor=actor, reason=reason)


DISCARD_LETTER: Final = replace(DISCARD, subject=LETTER, verb="wsrm_mq.acts.messages:discard_letter", fits=(_DEAD,))
CONFIRM_LETTER: Final = replace(CONFIRM, subject=LETTER, verb="wsrm_mq.acts.messages:confirm_letter", fits=(_ALARMS,))

ACTS: Final = (RETRY, DISCARD, RESTORE, CONFIRM, REDRIVE, DISCARD_LETTER, CONFIRM_LETTER)
