"""Names in a query that the store does not know: what is mistyped would find nothing, and look like good news."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Table, bindparam, func, select

from wsrm_mq.errors import QueryError
from wsrm_mq.sequence.running import ENTRY
from wsrm_mq.store import published as views
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.driver import file_of
from wsrm_mq.store.loose import LOOSE_PARTNERS
from wsrm_mq.store.port import Database
from wsrm_mq.store.tables import EVENTS, REASONS
from wsrm_mq.views.query import Query, Term, meant
from wsrm_mq.views.refusals import REFUSED, refusals

LISTED: Final = 12
"""So many names are listed where none is near to what was written."""
_DEAD: Final = "#dead"
"""A queue of dead letters is made with the first of them, and known with the queue that it is of."""


LOOKED_AT: Final = 20_000
"""So many of the newest rows are looked at for a name that no index has."""
COMPARED: Final = 1_000
"""So many names are compared with one that is not known."""


class _Names(NamedTuple):
    """What the values of a key may be."""

    nothing: str
    """What is true of another name, which follows."""
    stands: Any
    """A statement: whether rows have the name."""
    stored: Any
    """A statement: all names of rows."""
    others: Callable[[Database, Query], Iterable[str]]
    """Names that are known where no row has them."""


def _names(nothing: str, column: ColumnElement[Any], others: Callable[[Database, Query], Iterable[str]]) -> _Names:
    one = select(column).where(column == bindparam("name")).limit(1)
    return _Names(nothing, compiled(one), compiled(select(column).where(column.is_not(None)).distinct()), others)


def _refused(db: Database, of: str) -> Iterable[str]:
    return (getattr(one, of) for one in refusals(db, file_of(db)))


def _of_loose(db: Database) -> Iterable[str]:
    """The partners of messages that are in no sequence."""
    return (name for (name,) in db.execute(LOOSE_PARTNERS))


_HELD: Final = [reason for (_state, reason), _row in ENTRY if reason is not None]
_KNOWN: Final = {
    "queue": _names("nothing came into", views.queues.c.queue, lambda _db, _query: ()),
    "partner": _names(
        "nothing came from",
        views.sequences.c.partner,
        lambda db, query: [*query.partners, *_refused(db, "partner"), *_of_loose(db)],
    ),
    "reason": _names(
        "no message is what it is because of",
        views.messages.c.reason,
        lambda db, _query: [*_HELD, *REASONS, *_refused(db, "reason")],
    ),
}


class _Seen(NamedTuple):
    """What the values of a key may be that no index has: names of the newest rows."""

    nothing: str
    looks: tuple[Any, ...]
    """Statements: names, each with the number of its rows."""
    separators: str = ""
    """A name may be written as what follows the last of these in it."""
    others: Callable[[Database], Iterable[str]] = lambda _db: ()

    def short(self, name: str) -> str:
        return re.split(f"[{re.escape(self.separators)}]", name)[-1] or name if self.separators else name

    def names(self, db: Database) -> tuple[set[str], bool]:
        """All that were seen, and whether there are rows that were not looked at."""
        found = [db.execute(look).fetchall() for look in self.looks]
        names = {name for rows in found for name, _count in rows if name}
        return names.union(self.others(db)), any(sum(count for _n, count in rows) >= LOOKED_AT for rows in found)

    def has(self, names: set[str], name: str) -> bool:
        ends = tuple(separator + name for separator in self.separators)
        return name in names or any(one.endswith(ends) for one in names if ends)


def _newest(column: ColumnElement[Any], key: ColumnElement[Any]) -> Any:
    rows = select(column.label("name")).order_by(key.desc()).limit(LOOKED_AT).subquery()
    return compiled(select(rows.c.name, func.count()).group_by(rows.c.name))


_SOAP_CODES: Final = ("Client", "Server", "Sender", "Receiver", "MustUnderstand", "VersionMismatch")
_message: Final = views.messages.c
_sequence: Final = views.sequences.c
_attempt: Final = views.attempts.c
_event: Final = views.ledger_events.c
_SEEN: Final = {
    "op": _Seen("no message has the action", (_newest(_message.action, _message.position),), "/:#"),
    "principal": _Seen(
        "nothing came from",
        (_newest(_sequence.principal, _sequence.key), _newest(_message.principal, _message.position)),
    ),
    "peer": _Seen(
        "nothing came from", (_newest(_sequence.peer, _sequence.key), _newest(_message.peer, _message.position))
    ),
    "fault": _Seen(
        "nothing was answered with",
        (_newest(_attempt.fault, _attempt.at),),
        ":}",
        lambda db: [*_SOAP_CODES, *_refused(db, "reason")],
    ),
    "exception": _Seen("nothing failed with", (_newest(_attempt.exception, _attempt.at),), "."),
    "event": _Seen(
        "nothing has the event", (_newest(_event.event, _event.key),), others=lambda _db: (*EVENTS, REFUSED)
    ),
}


def refuse_unknown(db: Database, query: Query, view: Table) -> None:
    """Raise ``QueryError`` for a name of ``query`` that nothing in the store has, nor could have. In the ledger a
    reason is a text. A store that has taken nothing yet knows no queues, one in which nothing failed no exceptions. Of
    a store with more rows than are looked at no name of ``_SEEN`` is refused: ``unseen`` tells of it. What does not fit
    one of these finds no less for it."""
    _refuse_unseen(db, query)
    for term in query.terms:
        if term.key not in _KNOWN or (term.key == "reason" and view is views.ledger_events):
            continue
        for count, name in enumerate(term.alternatives):
            known = _KNOWN[term.key]
            if _is_known(db, known, query, name.removesuffix(_DEAD) if term.key == "queue" else name):
                continue
            there = sorted({*known.others(db, query), *(row[0] for row in db.execute(known.stored))} - {""})
            if not there and term.key == "queue":
                continue
            error = QueryError(f"{term.key}: {known.nothing} {_unknown(name, there)}.")
            raise error.pointing(query.text, *term.places[count]) if term.places else error


def _refuse_unseen(db: Database, query: Query) -> None:
    for term, count, names, is_whole in _unseen(db, query):
        if not is_whole:
            continue
        error = QueryError(f"{_nothing_has(term, count, names)}.")
        raise error.pointing(query.text, *term.places[count]) if term.places else error


def unseen(db: Database, query: Query) -> list[str]:
    """What is to be said with an empty answer, of names that the newest rows do not have, where there are more rows."""
    return [
        f"{_nothing_has(term, count, names)}, as far as the newest {LOOKED_AT:,} rows say."
        for term, count, names, is_whole in _unseen(db, query)
        if not is_whole
    ]


def _nothing_has(term: Term, count: int, names: set[str]) -> str:
    known = _SEEN[term.key]
    there = sorted({known.short(name) for name in names})
    return f"{term.key}: {known.nothing} {_unknown(term.alternatives[count], there)}"


def _unseen(db: Database, query: Query) -> Iterator[tuple[Term, int, set[str], bool]]:
    """Each name that was not seen: its word, its place there, the names that were seen, and whether these are all."""
    looked: dict[str, tuple[set[str], bool]] = {}
    for term in query.terms:
        if term.key not in _SEEN or term.is_negated:
            continue
        known = _SEEN[term.key]
        if term.key not in looked:
            looked[term.key] = known.names(db)
        names, has_more = looked[term.key]
        for count, name in enumerate(term.alternatives):
            if names and not known.has(names, name):
                yield term, count, names, not has_more


def _is_known(db: Database, known: _Names, query: Query, name: str) -> bool:
    return name in known.others(db, query) or db.execute(known.stands, {"name": name}).fetchone() is not None


def _unknown(name: str, there: list[str]) -> str:
    near = meant(name, there[:COMPARED])
    if near or not there:
        return f"{name}{near}"
    return f"{name}; there are {', '.join(there[:LISTED])}{', …' * (len(there) > LISTED)}"
