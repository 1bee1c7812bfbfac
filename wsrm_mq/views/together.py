"""What the sequences that fit a query need, by their verdicts: what fifty have in common is done by one command."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from wsrm_mq.errors import NotFound
from wsrm_mq.store.port import Database
from wsrm_mq.store.tables import ANSWERED_WITH_FAULT
from wsrm_mq.views.next_steps import Step
from wsrm_mq.views.query import Query
from wsrm_mq.views.reading import judged
from wsrm_mq.views.sentences import explanation
from wsrm_mq.views.typed import typed
from wsrm_mq.views.verdict import WORDS, Cause

LOOKED_AT: Final = 10_000
"""So many sequences, the newest, are judged."""
NAMED: Final = 5
"""So many sequences with a verdict are named."""

_WHICH: Final = Step("wsrm-mq sequence list {query}", "which they are")
_WHY: Final = Step("wsrm-mq failure list {query}", "what failed, in groups")
_END: Final = Step(
    "wsrm-mq sequence terminate {query} --drain --reason TEXT",
    "end them: what they hold is delivered past their gaps, or given up, as the behavior of each says",
)
_STEPS: Final[dict[str, tuple[Step, ...]]] = {
    "blocked": (
        Step("wsrm-mq sequence resume {query} --reason TEXT", "try them all again, when the cause is repaired"),
        *(_WHY, _WHICH),
    ),
    "held": (Step("wsrm-mq sequence resume {query} --reason TEXT", "let them all go on"), _WHICH),
    "faulted": (
        *(_WHY, _WHICH),
        Step(
            f"wsrm-mq message confirm {{query}} reason:{ANSWERED_WITH_FAULT} --reason TEXT",
            "they are dealt with, and alarm no more",
        ),
    ),
    "waiting": (_WHICH, _END),
    "incomplete": (
        _WHICH,
        Step("wsrm-mq dead-letter list {query} confirmed:no", "what came and was not delivered"),
    ),
    "silent": (_WHICH, _END),
    "expiring": (_WHICH, Step("wsrm-mq sequence hold {query} --reason TEXT", "keep what waits")),
}
_DOCTOR: Final = Step("wsrm-mq doctor", "what is wrong with processes, clock and store")
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
        which = typed(query.text, f"verdict:{word}")
        its.steps = tuple(one._replace(command=one.command.format(query=which)) for one in _steps(word, causes[word]))
    return [found[word] for word in _ORDER if word in found]


def _steps(word: str, causes: set[Cause]) -> tuple[Step, ...]:
    """What waits only for a process cannot be resumed."""
    return (_DOCTOR, _WHICH) if causes <= _WITHOUT_SERVICE else _STEPS.get(word, (_WHICH,))
