"""Names in a query that the store does not know: what is mistyped would find nothing, and look like good news."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Table, bindparam, select

from wsrm_mq.errors import QueryError
from wsrm_mq.sequence.running import ENTRY
from wsrm_mq.store import published as views
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.driver import file_of
from wsrm_mq.store.loose import LOOSE_PARTNERS
from wsrm_mq.store.port import Database
from wsrm_mq.store.tables import REASONS
from wsrm_mq.views.query import Query, meant
from wsrm_mq.views.refusals import refusals

LISTED: Final = 12
"""So many names are listed where none is near to what was written."""
_DEAD: Final = "#dead"
"""A queue of dead letters is made with the first of them, and known with the queue that it is of."""


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


def refuse_unknown(db: Database, query: Query, view: Table) -> None:
    """Raise ``QueryError`` for a queue, a partner or a reason of ``query`` that nothing in the store has, nor could
    have. In the ledger a reason is a text. A store that has taken nothing yet knows no queues."""
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


def _is_known(db: Database, known: _Names, query: Query, name: str) -> bool:
    return name in known.others(db, query) or db.execute(known.stands, {"name": name}).fetchone() is not None


def _unknown(name: str, there: list[str]) -> str:
    near = meant(name, there)
    if near or not there:
        return f"{name}{near}"
    return f"{name}; there are {', '.join(there[:LISTED])}{', …' * (len(there) > LISTED)}"
