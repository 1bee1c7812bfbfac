"""What the sequences that fit a query need, by their verdicts: what fifty have in common is done by one command."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from wsrm_mq.acts import Step, others
from wsrm_mq.acts import messages as on_messages
from wsrm_mq.acts import sequences as on_sequences
from wsrm_mq.errors import NotFound
from wsrm_mq.store.port import Database
from wsrm_mq.store.tables import ANSWERED_WITH_FAULT
from wsrm_mq.views.query import Query, asked_for
from wsrm_mq.views.reading import judged
from wsrm_mq.views.sentences import explanation
from wsrm_mq.views.verdict import WORDS, Cause

LOOKED_AT: Final = 10_000
"""So many sequences, the newest, are judged."""
NAMED: Final = 5
"""So many sequences with a verdict are named."""

_WHICH: Final = others.SEQUENCES.step("which they are")
_WHY: Final = others.FAILURES.step("what failed, in groups")
_END: Final = on_sequences.TERMINATE.step(
    "end them: what they hold is delivered past their gaps, or given up, as the behavior of each says", drain=True
)
_STEPS: Final[dict[str, tuple[Step, ...]]] = {
    "blocked": (
        on_sequences.RESUME.step("try them all again, when the cause is repaired"),
        *(_WHY, _WHICH),
    ),
    "held": (on_sequences.RESUME.step("let them all go on"), _WHICH),
    "faulted": (
        *(_WHY, _WHICH),
        on_messages.CONFIRM.step("they are dealt with, and alarm no more", f"reason:{ANSWERED_WITH_FAULT}"),
    ),
    "waiting": (_WHICH, _END),
    "incomplete": (
        _WHICH,
        others.LETTERS.step("what came and was not delivered", "confirmed:no"),
    ),
    "silent": (_WHICH, _END),
    "expiring": (_WHICH, on_sequences.HOLD.step("keep what waits")),
}
_DOCTOR: Final = others.DOCTOR.step("what is wrong with processes, clock and store")
_WITHOUT_SERVICE: Final = {Cause.STOPPED, Cause.UNSERVED, Cause.ORPHANED}
_ORDER: Final = (*_STEPS, *(word for word in WORDS if word not in _STEPS))


@dataclass(slots=True)
class Together:
    """The sequences with one verdict."""

    verdict: str
    sentence: str
    """Of the newest of them."""
    steps: tuple[Step, ...]
    """Commands for all of them."""
    sequences: int = 0
    held: int = 0
    """Messages behind gaps."""
    examples: list[str] = field(default_factory=list)
    """Identifiers of the newest ones."""


def together(db: Database, query: Query) -> list[Together]:
    """The sequences that fit ``query``, by their verdicts: what is to be done about comes first. Raises ``NotFound``
    where none does."""
    found: dict[str, Together] = {}
    causes: dict[str, set[Cause]] = {}
    for view, verdict in islice(judged(db, query), LOOKED_AT):
        word = verdict.word
        if word not in found:
            found[word] = Together(word, explanation(verdict).sentence, ())
        causes.setdefault(word, set()).add(verdict.cause)
        its = found[word]
        its.sequences += 1
        its.held += view.held
        if len(its.examples) < NAMED:
            its.examples.append(view.identifier)
    if not found:
        raise NotFound(f"No sequence fits {query.text}.")
    for word, its in found.items():
        which = asked_for(query.text, f"verdict:{word}")
        its.steps = tuple(_about(which, one) for one in _steps(word, causes[word]))
    return [found[word] for word in _ORDER if word in found]


def _steps(word: str, causes: set[Cause]) -> tuple[Step, ...]:
    """What waits only for a process cannot be resumed."""
    return (_DOCTOR, _WHICH) if causes <= _WITHOUT_SERVICE else _STEPS.get(word, (_WHICH,))


def _about(which: tuple[str, ...], step: Step) -> Step:
    """A proposal about all that the words of a query fit; its own words narrow that."""
    return step if step.command is others.DOCTOR else step._replace(which=(*which, *step.which))
