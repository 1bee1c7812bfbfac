"""The acts of an operator on sequences, on one or on all that fit a query.

The sequences are chosen first, so that they can be counted and shown; then the act is done in short transactions. A
sequence that the act no longer fits by then is refused and reported. Acts work while the service runs, and while it
does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from wsrm_mq.delivery.outgoing_messages import tell_end
from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue import operate
from wsrm_mq.queue.ending import bury_tails
from wsrm_mq.sequence.elements import CloseSequence, TerminateSequence
from wsrm_mq.sequence.inbound import Late
from wsrm_mq.store.driver import connect_looker, store_errors
from wsrm_mq.store.port import Database
from wsrm_mq.store.store import run_once, store_path
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.views import reading
from wsrm_mq.views.instances import live_instances
from wsrm_mq.views.naming import is_sequence, named_alone
from wsrm_mq.views.query import parse

BATCH: Final = 50
"""Sequences in one transaction."""
BURIED: Final = 500
"""Messages moved to the dead letters in one transaction."""

Sequences = str | Sequence[str]
"""A query, of which a part of one identifier is the simplest; or identifiers."""
Verb = Callable[[Transaction, str], Any]
"""A verb of ``queue.operate`` with its actor and reason, for a sequence with this identifier."""


class SequenceAct(NamedTuple):
    """The result of an act for one sequence."""

    sequence: str
    """Its identifier."""
    result: Any = None
    """The answer of the verb of this name in ``queue.operate``."""
    refused: str = ""
    """The reason why the act does not fit it; then nothing of it was changed."""


def which_sequences(db: Database, query: str) -> list[str]:
    """Identifiers of the sequences that fit, newest first. A part of an identifier alone has to fit one only. Raises
    ``NotFound`` where none does, ``QueryError``."""
    if is_sequence(db, query):
        return [query]
    asked = parse(query)
    if not asked.terms:
        raise NotAllowed("which sequences? Name one, or say a query: verdict:waiting partner:acme.")
    if (name := named_alone(db, asked)) is not None:
        return [name]
    found = [view.identifier for view in reading.sequences(db, asked)]
    if not found:
        raise NotFound(f"No sequence fits {query}.")
    return found


def hold(
    store: str | PathLike[str], which: Sequences, *, actor: str, reason: str, dry_run: bool = False
) -> list[SequenceAct]:
    """Deliver nothing more of the sequences until they are resumed, also after their end. New messages are still
    accepted and acknowledged. A delivery that is under way is let end: its number is the result."""
    return perform(store, which, partial(operate.hold, actor=actor, reason=reason), dry_run=dry_run)


def resume(
    store: str | PathLike[str], which: Sequences, *, actor: str, reason: str, dry_run: bool = False
) -> list[SequenceAct]:
    """Try sequences again now that are held, are blocked, wait for a retry, or were run by a process that died, from
    the first step of the ladder of waits. The result is the number that will be tried, if there is one."""
    return perform(store, which, partial(operate.resume, actor=actor, reason=reason), dry_run=dry_run)


def skip(
    store: str | PathLike[str], which: Sequences, number: int, *, actor: str, reason: str, dry_run: bool = False
) -> list[SequenceAct]:
    """Send message ``number``, which stops a sequence, to the dead letters; the sequence goes on. The result is its
    position."""

    def verb(tx: Transaction, identifier: str) -> int:
        return operate.skip(tx, identifier, number, actor=actor, reason=reason)

    return perform(store, which, verb, dry_run=dry_run)


def force(
    store: str | PathLike[str],
    which: Sequences,
    *,
    past: int | None = None,
    to: int | None = None,
    late: Late | str = Late.ACCEPT,
    actor: str,
    reason: str,
    dry_run: bool = False,
) -> list[SequenceAct]:
    """Deliver held messages across the next gap, in which the number ``past`` is missing, so that the same act done
    twice crosses one gap; or across every gap up to number ``to``. The messages behind that follow up to the next gap.
    A missing number that comes later is delivered at once, marked ``wsrm.late`` (``accept``), or goes to the dead
    letters (``refuse``). The result is an ``operate.Forced``."""
    verb = partial(operate.force, past=past, to=to, late=Late(late), actor=actor, reason=reason)
    return perform(store, which, verb, dry_run=dry_run)


def close(
    store: str | PathLike[str], which: Sequences, *, actor: str, reason: str, dry_run: bool = False
) -> list[SequenceAct]:
    """Close sequences: they take no new number, and their held messages are delivered across the gaps or given up, as
    the behavior of each says. The source learns of it by SequenceClosed, and by CloseSequence where it has an address
    for acknowledgements. The result is an ``operate.Ended``."""

    def verb(tx: Transaction, identifier: str) -> operate.Ended:
        left = operate.close(tx, identifier, actor=actor, reason=reason)
        tell_end(tx, CloseSequence(identifier))
        return left

    return _giving_up(store, which, verb, dry_run=dry_run)


def terminate(
    store: str | PathLike[str], which: Sequences, *, drain: bool, actor: str, reason: str, dry_run: bool = False
) -> list[SequenceAct]:
    """End sequences. The source learns of it by SequenceTerminated, and by TerminateSequence where it has an address
    for acknowledgements. With ``drain`` the accepted messages are delivered, as the behavior of each says; otherwise
    they go to the dead letters, but for one that is being run. The result is an ``operate.Ended``."""

    def verb(tx: Transaction, identifier: str) -> operate.Ended:
        left = operate.terminate(tx, identifier, drain=drain, actor=actor, reason=reason)
        tell_end(tx, TerminateSequence(identifier))
        return left

    return _giving_up(store, which, verb, dry_run=dry_run)


def note(
    store: str | PathLike[str], which: Sequences, *, actor: str, reason: str, dry_run: bool = False
) -> list[SequenceAct]:
    """Write the reason down with them, as something worth knowing."""
    return perform(store, which, partial(operate.note, actor=actor, reason=reason), dry_run=dry_run)


# how


def perform(store: str | PathLike[str], which: Sequences, verb: Verb, *, dry_run: bool = False) -> list[SequenceAct]:
    """Do an act. Where it does not fit the only one, it raises ``NotAllowed`` or ``NotFound``. ``dry_run``: nothing is
    changed."""
    path = store_path(store)
    if isinstance(which, str):
        with closing(connect_looker(path)) as db, store_errors(path):
            which = which_sequences(db, which)
    if len(which) == 1:
        return [SequenceAct(which[0], run_once(path, lambda tx: verb(tx, which[0]), dry_run=dry_run))]
    done: list[SequenceAct] = []
    for start in range(0, len(which), BATCH):
        batch = which[start : start + BATCH]
        done += run_once(path, partial(_each, verb, batch), dry_run=dry_run)
    return done


def _each(verb: Verb, identifiers: Sequence[str], tx: Transaction) -> list[SequenceAct]:
    acts = []
    for identifier in identifiers:
        try:
            acts.append(SequenceAct(identifier, verb(tx, identifier)))
        except (NotAllowed, NotFound) as error:
            acts.append(SequenceAct(identifier, refused=str(error)))
    return acts


def _giving_up(store: str | PathLike[str], which: Sequences, verb: Verb, *, dry_run: bool) -> list[SequenceAct]:
    """Do an act with ``perform``, and move given up messages to the dead letters where no living process does."""
    acts = perform(store, which, verb, dry_run=dry_run)
    path = store_path(store)
    with closing(connect_looker(path)) as db, store_errors(path):
        is_served = bool(live_instances(db))
    if not (dry_run or is_served):
        move_given_up(path)
    return acts


def move_given_up(path: Path) -> None:
    """Move given up messages to the dead letters, as a living process does."""
    while run_once(path, lambda tx: bury_tails(tx, BURIED)):
        pass
