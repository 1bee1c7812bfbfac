"""The acts of an operator on messages, on one or on all that fit a query.

The messages are chosen first, so that they can be counted and shown; then the act is done in short transactions. A
message that the act no longer fits by then is refused and reported. An interruption leaves the finished part as it is:
the same act on the same query does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue import dead_letters
from wsrm_mq.store.driver import connect_looker, store_errors
from wsrm_mq.store.store import run_once, store_path
from wsrm_mq.store.tables import ANSWERED_WITH_FAULT
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.views import reading
from wsrm_mq.views.dead_letters import originals
from wsrm_mq.views.query import parse
from wsrm_mq.views.rows import LIVE

BATCH: Final = 200
"""Messages in one transaction."""
REPORTED: Final = 100
"""The largest number of refused messages that are reported, each with the reason."""

Which = int | Iterable[int] | str
"""A position, positions, or a query."""
OnProgress = Callable[[int], object]
"""A function that is called after each transaction with its number of messages."""


class Refused(NamedTuple):
    """A message that an act did not fit, by its position in the store, and why."""

    position: int
    why: str


class Acted(NamedTuple):
    """The result of an act: how many messages it changed, how many it refused (``refusals``), and the first of these
    (``refused``)."""

    done: int
    refusals: int = 0
    refused: tuple[Refused, ...] = ()


def _ignored(_done: int) -> None:
    pass


class MessageAct(NamedTuple):
    """An act on messages, which is called: ``act(store, which, actor=, reason=)``."""

    verb: dead_letters.Act
    fits: tuple[dict[str, str], ...]
    """The messages that it fits, each alternative as values of a query by their keys."""
    has_failed: bool = False
    """It fits only messages that have failed."""

    def __call__(
        self,
        store: str | PathLike[str],
        which: Which,
        *,
        actor: str,
        reason: str,
        dry_run: bool = False,
        on_progress: OnProgress = _ignored,
    ) -> Acted:
        """Do it. Raises ``NotFound`` or ``NotAllowed`` where it does not fit the one position that ``which`` is; of
        many, each that it does not fit is in the answer. ``dry_run``: nothing is changed."""
        path = store_path(store)
        if isinstance(which, int):
            run_once(path, lambda tx: self.verb(tx, which, actor=actor, reason=reason), dry_run=dry_run)
            return Acted(1)
        positions = _fitting(path, self, which) if isinstance(which, str) else [*which]
        done, refused = 0, list[Refused]()
        refusals = 0
        for start in range(0, len(positions), BATCH):
            batch = positions[start : start + BATCH]
            not_done = run_once(path, partial(_each, self.verb, batch, actor, reason), dry_run=dry_run)
            done += len(batch) - len(not_done)
            refusals += len(not_done)
            refused += not_done[: REPORTED - len(refused)]
            on_progress(len(batch))
        return Acted(done, refusals, tuple(refused))


redrive: Final = MessageAct(dead_letters.redrive, ({"outcome": "dead"},))
"""Deliver dead letters again, each under the key that the service knows it by, so that ``once`` recognises what was
done. One that fails for good is a dead letter again."""
retry: Final = MessageAct(dead_letters.retry, ({"outcome": LIVE},), has_failed=True)
"""Try messages now that wait for a retry or stop their sequence, from the first step of the ladder of waits."""
discard: Final = MessageAct(dead_letters.discard, ({"outcome": "dead"}, {"outcome": LIVE}))
"""Give up dead letters, and messages that are neither delivered nor run now. ``restore`` undoes it while ``retain``
lasts."""
restore: Final = MessageAct(dead_letters.restore, ({"outcome": "discarded", "reason": dead_letters.BY_OPERATOR},))
"""Bring back messages that an operator has discarded, in the state that they had. In a sequence in order that is
possible only while no later message was delivered."""
confirm: Final = MessageAct(
    dead_letters.confirm,
    ({"outcome": "dead", "confirmed": "no"}, {"reason": ANSWERED_WITH_FAULT, "confirmed": "no"}),
)
"""Say that dead letters, and messages that were answered with a fault, are known: they stay, and alarm no more."""

ACTS: Final = {"redrive": redrive, "retry": retry, "discard": discard, "restore": restore, "confirm": confirm}
"""Each act by its name."""


def which_messages(store: str | PathLike[str], act: str, query: str) -> list[int]:
    """Positions of the messages that fit ``query`` and ``act``, a key of ``ACTS``: each sequence's by number, which is
    the order in which they are redriven. Raises ``QueryError``."""
    return _fitting(store_path(store), ACTS[act], query)


def _fitting(path: Path, act: MessageAct, query: str) -> list[int]:
    asked = parse(query)
    with closing(connect_looker(path)) as db, store_errors(path):
        fitting = (one for fits in act.fits for one in reading.messages(db, asked.having(**fits)))
        found = {one.position for one in fitting if one.failures or not act.has_failed}
        sequences: dict[str, int] = {}  # in the order of their first messages
        keys = [
            (sequences.setdefault(sequence, len(sequences)), number, position)
            for sequence, number, position in originals(db, sorted(found))
        ]
    return [position for *_key, position in sorted(keys)]


def _each(verb: dead_letters.Act, positions: Sequence[int], actor: str, reason: str, tx: Transaction) -> list[Refused]:
    refused = []
    for position in positions:
        try:
            verb(tx, position, actor=actor, reason=reason)
        except (NotAllowed, NotFound) as error:
            refused.append(Refused(position, str(error)))
    return refused
