"""Names by a part of them: identifiers of sequences that are short enough to read and to type, and what a beginning may
mean; and names in a query that the store does not know: what is mistyped would find nothing, and look like good news.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Table, bindparam, func, select

from wsrm_mq.errors import NotFound, QueryError
from wsrm_mq.sequence.running import ENTRY
from wsrm_mq.store import published as views
from wsrm_mq.store.driver import file_of
from wsrm_mq.store.loose import LOOSE_PARTNERS
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import compiled, p
from wsrm_mq.store.words import EVENTS, REASONS
from wsrm_mq.views.query import PART, Query, Term, meant
from wsrm_mq.views.rows import (
    REFUSED,
    refusals,
)
from wsrm_mq.views.words import ELLIPSIS, the_one

SHORTEST: Final = 6
"""The fewest characters of an identifier that may stand for it."""

SHOWN: Final = 8
"""The fewest characters of an identifier that are shown."""

_UUID: Final = "urn:uuid:"
_SCHEMES: Final = ("", _UUID, "uuid:")
_BEYOND: Final = chr(0x10FFFF)

_identifier: Final = views.sequences.c.sequence
_NAMES: Final = select(_identifier).order_by(_identifier)
_EXISTS: Final = compiled(_NAMES.where(_identifier == p("part")))
_BEGINNING: Final = compiled(_NAMES.where(_identifier >= p("first"), _identifier < p("last")).limit(p("count")))
_queue: Final = views.queues.c.queue
_QUEUES: Final = compiled(
    select(_queue).where(_queue >= p("first"), _queue < p("last")).order_by(_queue).limit(p("count"))
)
_ENDING: Final = compiled(
    _NAMES.where(func.substr(_identifier, -func.length(p("part"))) == p("part")).limit(4),
)
_outgoing: Final = views.outgoing_sequences.c
_ANSWERED: Final = compiled(
    select(_outgoing.answers).where(_outgoing.sequence >= p("first"), _outgoing.sequence < p("last")).limit(4)
)
_BEFORE: Final = compiled(select(_identifier).where(_identifier < p("name")).order_by(_identifier.desc()).limit(1))
_BEHIND: Final = compiled(_NAMES.where(_identifier > p("name")).limit(1))


def find_sequence(db: Database, text: str) -> str:
    """The identifier that ``text`` means: itself, the only one that begins with it (the beginning of a UUID counts
    too), or the only one that ends with it; else the one whose replies go out in an outgoing sequence that begins so.
    Raises ``NotFound``, also where it fits several."""
    part = text.strip(ELLIPSIS)
    if is_sequence(db, part):
        return part
    if len(part) < SHORTEST:
        raise NotFound(f"There is no sequence {text}; a part of an identifier needs {SHORTEST} characters.")
    found = [name for scheme in _SCHEMES for name in _from(db, _BEGINNING, scheme + part, 4)]
    found = found or [name for (name,) in db.execute(_ENDING, {"part": part})]
    found = found or [name for (name,) in db.execute(_ANSWERED, {"first": part, "last": part + _BEYOND})]
    return the_one(found, text, "sequences", f"There is no sequence {text}.")


def is_sequence(db: Database, text: str) -> bool:
    """Whether it is the identifier of one, whatever else it looks like."""
    return db.execute(_EXISTS, {"part": text}).fetchone() is not None


def named_alone(db: Database, query: Query) -> str | None:
    """The sequence that ``query`` names, where it is one word and that a name. Raises ``NotFound``."""
    (first, *others) = query.terms
    is_name = first.key == PART and not first.is_negated and not others
    return find_sequence(db, first.alternatives[0]) if is_name else None


def names(db: Database, part: str, most: int) -> list[str]:
    """Identifiers whose UUID begins with ``part``, at most so many."""
    return _from(db, _BEGINNING, _UUID + part, most)


def queues(db: Database, part: str, most: int) -> list[str]:
    """Names of queues that begin with ``part``, at most so many."""
    return _from(db, _QUEUES, part, most)


def _from(db: Database, statement: str, part: str, most: int) -> list[str]:
    return [name for (name,) in db.execute(statement, {"first": part, "last": part + _BEYOND, "count": most})]


def shortened(db: Database, identifiers: Iterable[str | None]) -> dict[str, str]:
    """For each identifier of a sequence the beginning of its UUID that no other has; one without a UUID stays."""
    return {name: _shortened(db, name) for name in set(identifiers) if name is not None}


def _shortened(db: Database, name: str) -> str:
    if not name.startswith(_UUID):
        return name
    neighbours = [db.execute(statement, {"name": name}).fetchone() for statement in (_BEFORE, _BEHIND)]
    shared = max((_shared(name, row[0]) for row in neighbours if row is not None), default=0)
    return name[len(_UUID) : max(len(_UUID) + SHOWN, shared + 1)]


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


LISTED: Final = 12
"""The most names that are listed where none is near to what was written."""
_DEAD: Final = "#dead"
"""A queue of dead letters is made with the first of them, and known with the queue that it is of."""


LOOKED_AT: Final = 20_000
"""The most rows, the newest, that are looked at for a name that no index has."""
COMPARED: Final = 1_000
"""The most names that are compared with one that is not known."""


class _Names(NamedTuple):
    """The values that a key may have."""

    nothing: str
    """The sentence about another name, which follows it."""
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


_HELD: Final = [reason for (_state, reason), _row in ENTRY if reason is not None]
_KNOWN: Final = {
    "queue": _names("nothing came into", views.queues.c.queue, lambda _db, _query: ()),
    "partner": _names(
        "nothing came from",
        views.sequences.c.partner,
        lambda db, query: [*query.partners, *_refused(db, "partner"), *(one for (one,) in db.execute(LOOSE_PARTNERS))],
    ),
    "reason": _names(
        "no message is what it is because of",
        views.messages.c.reason,
        lambda db, _query: [*_HELD, *REASONS, *_refused(db, "reason")],
    ),
}


class _Seen(NamedTuple):
    """The values of a key that no index has: names of the newest rows."""

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
_sequences: Final = views.sequences.c
_attempt: Final = views.attempts.c
_event: Final = views.ledger_events.c
_SEEN: Final = {
    "op": _Seen("no message has the action", (_newest(_message.action, _message.position),), "/:#"),
    "principal": _Seen(
        "nothing came from",
        (_newest(_sequences.principal, _sequences.key), _newest(_message.principal, _message.position)),
    ),
    "peer": _Seen(
        "nothing came from", (_newest(_sequences.peer, _sequences.key), _newest(_message.peer, _message.position))
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
    for term, count, there, is_whole in _lacking(db, query, view):
        if is_whole:
            error = QueryError(f"{_nothing_has(term, count, there)}.")
            raise error.pointing(query.text, *term.places[count]) if term.places else error


def unseen(db: Database, query: Query) -> list[str]:
    """Sentences that go with an empty answer, about names that the newest rows do not have, where there are more
    rows."""
    return [
        f"{_nothing_has(term, count, there)}, as far as the newest {LOOKED_AT:,} rows say."
        for term, count, there, is_whole in _lacking(db, query, views.messages)
        if not is_whole
    ]


def _lacking(db: Database, query: Query, view: Table) -> Iterator[tuple[Term, int, list[str], bool]]:
    """Each name that was not found: its word, its place there, the names that there are, and whether these are all."""
    for term in query.terms:
        if term.key in _KNOWN and (term.key != "reason" or view is not views.ledger_events):
            known = _KNOWN[term.key]
            for count, name in enumerate(term.alternatives):
                if _is_known(db, known, query, name.removesuffix(_DEAD) if term.key == "queue" else name):
                    continue
                there = sorted({*known.others(db, query), *(row[0] for row in db.execute(known.stored))} - {""})
                if there or term.key != "queue":
                    yield term, count, there, True
        elif term.key in _SEEN and not term.is_negated:
            seen = _SEEN[term.key]
            names, has_more = seen.names(db)
            for count, name in enumerate(term.alternatives):
                if names and not seen.has(names, name):
                    yield term, count, sorted({*map(seen.short, names)}), not has_more


def _is_known(db: Database, known: _Names, query: Query, name: str) -> bool:
    return name in known.others(db, query) or db.execute(known.stands, {"name": name}).fetchone() is not None


def _nothing_has(term: Term, count: int, there: list[str]) -> str:
    """The sentence about a name that nothing has, with one that is near to it, or those that there are."""
    name, nothing = term.alternatives[count], (_KNOWN.get(term.key) or _SEEN[term.key]).nothing
    if (near := meant(name, there[:COMPARED])) or not there:
        return f"{term.key}: {nothing} {name}{near}"
    return f"{term.key}: {nothing} {name}; there are {', '.join(there[:LISTED])}{', …' * (len(there) > LISTED)}"
