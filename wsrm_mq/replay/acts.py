"""The acts of an operator, done to one thing or to all that fit a query.

The things are chosen first, so that they can be counted and shown; then the act is done in short transactions. A thing
that the act no longer fits by then is refused and reported. An interruption leaves the finished part as it is: the same
act on the same query does the rest. Acts work while the service runs, and while it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from wsrm_mq.acts import Act, messages, sequences
from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.store.driver import connect_looker, store_errors
from wsrm_mq.store.outside import run_once
from wsrm_mq.store.port import Database
from wsrm_mq.store.store import store_path
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.views import reading
from wsrm_mq.views.naming import is_sequence, named_alone
from wsrm_mq.views.query import parse
from wsrm_mq.views.reading import originals
from wsrm_mq.views.rows import live_instances

REPORTED: Final = 100
"""The largest number of refused messages that are reported, each with the reason."""

Store = str | PathLike[str]
OnProgress = Callable[[int], object]
"""A function that is called after each transaction with the number of things in it."""


class Done(NamedTuple):
    """The result of an act for one thing."""

    thing: Any
    """A sequence by its identifier, a message by its position."""
    result: Any = None
    """The answer of the act's verb."""
    refused: str = ""
    """The reason why the act does not fit it; then nothing of it was changed."""


def _ignored(_things: int) -> None:
    pass


def perform(
    store: Store,
    act: Act,
    things: Sequence[Any],
    *,
    dry_run: bool = False,
    on_progress: OnProgress = _ignored,
    **how: Any,
) -> Iterator[Done]:
    """Do an act to each of the things, in the order in which they are given. ``how``: ``actor``, ``reason`` and the
    act's own arguments. ``dry_run``: each transaction is rolled back. Raises ``NotAllowed`` or ``NotFound`` where the
    only thing is refused; of many, each that is refused is reported."""
    path, verb = store_path(store), partial(act.load(), **how)
    if len(things) == 1:
        yield Done(things[0], run_once(path, lambda tx: verb(tx, things[0]), dry_run=dry_run))
    else:
        for start in range(0, len(things), act.batch):
            batch = things[start : start + act.batch]
            yield from run_once(path, partial(_each, verb, batch), dry_run=dry_run)
            on_progress(len(batch))
    if act.remainder is not None and not dry_run and not _is_served(path):
        do_remainder(path, act.remainder)


def _each(verb: Callable[..., Any], things: Sequence[Any], tx: Transaction) -> list[Done]:
    done = []
    for thing in things:
        try:
            done.append(Done(thing, verb(tx, thing)))
        except (NotAllowed, NotFound) as error:
            done.append(Done(thing, refused=str(error)))
    return done


def _is_served(path: Path) -> bool:
    with closing(connect_looker(path)) as db, store_errors(path):
        return bool(live_instances(db))


def do_remainder(path: Path, verb: Callable[[Transaction], int]) -> None:
    """Do the rest of an act, in one transaction after the other, as a process of the service does it."""
    while run_once(path, verb):
        pass


# sequences


class SequenceAct(NamedTuple):
    """An act on sequences, which is called: ``act(store, which, actor=, reason=)``."""

    act: Act

    def __call__(
        self,
        store: Store,
        which: str | Sequence[str],
        *unnamed: Any,
        actor: str,
        reason: str,
        dry_run: bool = False,
        **arguments: Any,
    ) -> list[Done]:
        """Do it to the sequences that ``which`` means: a query, of which a part of one identifier is the simplest; or
        identifiers. ``unnamed``: the values of arguments that a command line has no option for, in their order.
        ``dry_run``: nothing is changed. Raises ``NotAllowed`` or ``NotFound`` where it does not fit the only one; of
        many, each that it does not fit is in the answer."""
        if isinstance(which, str):
            path = store_path(store)
            with closing(connect_looker(path)) as db, store_errors(path):
                which = which_sequences(db, which)
        names = [one.name for one in self.act.arguments if not one.is_named]
        how = {"actor": actor, "reason": reason, **dict(zip(names, unnamed, strict=False)), **arguments}
        return list(perform(store, self.act, which, dry_run=dry_run, **how))


hold: Final = SequenceAct(sequences.HOLD)
"""Deliver nothing more of sequences until they are resumed, also after their end. New messages are still accepted and
acknowledged. A delivery that is under way is let end: its number is the result."""
resume: Final = SequenceAct(sequences.RESUME)
"""Try sequences again now that are held, are blocked, wait for a retry, or were run by a process that died, from the
first step of the ladder of waits. The result is the number that will be tried, if there is one."""
skip: Final = SequenceAct(sequences.SKIP)
"""Send message ``number``, which stops a sequence, to the dead letters; the sequence goes on. The result is its
position."""
force: Final = SequenceAct(sequences.FORCE)
"""Deliver held messages across the next gap, in which the number ``past`` is missing, so that the same act done twice
crosses one gap; or across every gap up to number ``to``. The messages behind that follow up to the next gap. A missing
number that comes later is delivered at once, marked ``wsrm.late`` (``late="accept"``), or goes to the dead letters
(``late="refuse"``). The result is an ``operate.Forced``."""
close: Final = SequenceAct(sequences.CLOSE)
"""Close sequences: they take no new number, and their held messages are delivered across the gaps or given up, as the
behavior of each says. The source learns of it by SequenceClosed, and by CloseSequence where it has an address for
acknowledgements. The result is an ``operate.Ended``."""
terminate: Final = SequenceAct(sequences.TERMINATE)
"""End sequences. The source learns of it by SequenceTerminated, and by TerminateSequence where it has an address for
acknowledgements. With ``drain=True`` the accepted messages are delivered, as the behavior of each says; with
``drain=False`` they go to the dead letters, but for one that is being run. The result is an ``operate.Ended``."""
note: Final = SequenceAct(sequences.NOTE)
"""Write the reason down with sequences, as something worth knowing."""


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


# messages


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


class MessageAct(NamedTuple):
    """An act on messages, which is called: ``act(store, which, actor=, reason=)``."""

    act: Act

    def __call__(
        self,
        store: Store,
        which: int | Iterable[int] | str,
        *,
        actor: str,
        reason: str,
        dry_run: bool = False,
        on_progress: OnProgress = _ignored,
        **arguments: Any,
    ) -> Acted:
        """Do it to the messages that ``which`` means: a position, positions, or a query; ``arguments`` are the act's
        own. ``dry_run``: nothing is changed. Raises ``NotAllowed`` or ``NotFound`` where it does not fit the only one;
        of many, each that it does not fit is in the answer."""
        if isinstance(which, str):
            which = fitting(store, self.act, which)
        positions = [which] if isinstance(which, int) else [*which]
        how = {"actor": actor, "reason": reason, **arguments}
        done = perform(store, self.act, positions, dry_run=dry_run, on_progress=on_progress, **how)
        refused = [Refused(one.thing, one.refused) for one in done if one.refused]
        return Acted(len(positions) - len(refused), len(refused), tuple(refused[:REPORTED]))


redrive: Final = MessageAct(messages.REDRIVE)
"""Deliver dead letters again, each under the key that the service knows it by, so that ``once`` recognises finished
work. One that fails for good is a dead letter again."""
retry: Final = MessageAct(messages.RETRY)
"""Try messages now that wait for a retry or stop their sequence, from the first step of the ladder of waits."""
discard: Final = MessageAct(messages.DISCARD)
"""Give up dead letters, and messages that are neither delivered nor run now. ``restore`` undoes it while ``retain``
lasts."""
restore: Final = MessageAct(messages.RESTORE)
"""Bring back messages that an operator has discarded, in the state that they had. In a sequence in order that is
possible only while no later message was delivered."""
confirm: Final = MessageAct(messages.CONFIRM)
"""Say that dead letters, and messages that were answered with a fault, are known: they stay, and alarm no more."""

_BY_NAME: Final = {one.act.name: one.act for one in (redrive, retry, discard, restore, confirm)}


def which_messages(store: Store, act: str, query: str) -> list[int]:
    """Positions of the messages that fit ``query`` and ``act``, the name of an act on messages: each sequence's by
    number, which is the order in which they are redriven. Raises ``QueryError``."""
    return fitting(store, _BY_NAME[act], query)


def fitting(store: Store, act: Act, query: str) -> list[int]:
    """Positions of the messages that fit ``query`` and ``act``, as ``which_messages`` answers them."""
    path, asked = store_path(store), parse(query)
    with closing(connect_looker(path)) as db, store_errors(path):
        found = {
            one.position
            for fits in act.fits
            for one in reading.messages(db, asked.having(**fits))
            if one.failures or not act.has_failed
        }
        places: dict[str, int] = {}  # of sequences, in the order of their first messages
        keys = [
            (places.setdefault(sequence, len(places)), number, position)
            for sequence, number, position in originals(db, sorted(found))
        ]
    return [position for *_key, position in sorted(keys)]
