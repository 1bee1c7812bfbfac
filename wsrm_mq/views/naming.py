"""Names by a part of them: identifiers of sequences that are short enough to read and to type, and what a beginning may
mean; and names in a query that the store does not know: what is mistyped would find nothing, and look like good news.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Table, bindparam, func, literal, select

from wsrm_mq.errors import NotFound, QueryError
from wsrm_mq.sequence.running import ENTRY
from wsrm_mq.store import published as views
from wsrm_mq.store.loose import LOOSE_PARTNERS
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import compiled, p
from wsrm_mq.store.words import EVENTS, REASONS
from wsrm_mq.views.query import PART, Query, Term, meant
from wsrm_mq.views.rows import REFUSED, refusals
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
    looks: tuple[Any, ...]
    """Statements: names, each with the number of rows that were looked at for it."""
    separators: str = ""
    """A name may be written as what follows the last of these in it."""
    others: Callable[[Database, Query], Iterable[str]] = lambda _db, _query: ()
    """Names that are known where no row has them."""
    stands: Any = None
    """A statement: whether rows have the name; ``None``: no index has that."""

    def short(self, name: str) -> str:
        return re.split(f"[{re.escape(self.separators)}]", name)[-1] or name if self.separators else name

    def seen(self, db: Database, others: set[str]) -> tuple[set[str], bool]:
        """All names with the ``others``, and whether there are rows that were not looked at."""
        found = [db.execute(look).fetchall() for look in self.looks]
        names = others.union(name for rows in found for name, _count in rows) - {None, ""}
        return names, any(sum(count for _n, count in rows) >= LOOKED_AT for rows in found)

    def has(self, names: set[str], name: str) -> bool:
        ends = tuple(separator + name for separator in self.separators)
        return name in names or any(one.endswith(ends) for one in names if ends)


def _indexed(column: ColumnElement[Any]) -> dict[str, Any]:
    """All names of rows: an index has them."""
    every = select(column, literal(0)).where(column.is_not(None)).distinct()
    one = select(column).where(column == bindparam("name")).limit(1)
    return {"looks": (compiled(every),), "stands": compiled(one)}


def _newest(column: ColumnElement[Any], key: ColumnElement[Any]) -> Any:
    rows = select(column.label("name")).order_by(key.desc()).limit(LOOKED_AT).subquery()
    return compiled(select(rows.c.name, func.count()).group_by(rows.c.name))


def _refused(db: Database, of: str) -> Iterable[str]:
    return (getattr(one, of) for one in refusals(db))


_HELD: Final = [reason for (_state, reason), _row in ENTRY if reason is not None]
_SOAP_CODES: Final = ("Client", "Server", "Sender", "Receiver", "MustUnderstand", "VersionMismatch")
_message: Final = views.messages.c
_sequences: Final = views.sequences.c
_attempt: Final = views.attempts.c
_event: Final = views.ledger_events.c
_NAMES_OF: Final = {
    "queue": _Names("nothing came into", **_indexed(views.queues.c.queue)),
    "partner": _Names(
        "nothing came from",
        others=lambda db, query: [
            *(*query.partners, *_refused(db, "partner")),
            *(one for (one,) in db.execute(LOOSE_PARTNERS)),
        ],
        **_indexed(_sequences.partner),
    ),
    "reason": _Names(
        "no message is what it is because of",
        others=lambda db, _query: [*_HELD, *REASONS, *_refused(db, "reason")],
        **_indexed(_message.reason),
    ),
    "op": _Names("no message has the action", (_newest(_message.action, _message.position),), "/:#"),
    "principal": _Names(
        "nothing came from",
        (_newest(_sequences.principal, _sequences.key), _newest(_message.principal, _message.position)),
    ),
    "peer": _Names(
        "nothing came from", (_newest(_sequences.peer, _sequences.key), _newest(_message.peer, _message.position))
    ),
    "fault": _Names(
        "nothing was answered with",
        (_newest(_attempt.fault, _attempt.at),),
        ":}",
        lambda db, _query: [*_SOAP_CODES, *_refused(db, "reason")],
    ),
    "exception": _Names("nothing failed with", (_newest(_attempt.exception, _attempt.at),), "."),
    "event": _Names(
        "nothing has the event", (_newest(_event.event, _event.key),), others=lambda _db, _query: (*EVENTS, REFUSED)
    ),
}


def refuse_unknown(db: Database, query: Query, view: Table) -> None:
    """Raise ``QueryError`` for a name of ``query`` that nothing in the store has, nor could have. In the ledger a
    reason is a text. A store that has taken nothing yet knows no queues, one in which nothing failed no exceptions. Of
    a store with more rows than are looked at no name is refused that no index has: ``unseen`` tells of it. What does
    not fit one of these finds no less for it."""
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
        its = _NAMES_OF.get(term.key)
        is_text = term.key == "reason" and view is views.ledger_events
        if its is None or is_text or (its.stands is None and term.is_negated):
            continue
        others = {*its.others(db, query)}
        unknown = [(at, name) for at, name in enumerate(term.alternatives) if name not in others]
        asked = [one for one in unknown if its.stands is None or not _stands(db, its.stands, one[1])]
        names, has_more = its.seen(db, others) if asked else (others, False)
        for at, name in asked:
            if (names or term.key == "partner") and not its.has(names, name):
                yield term, at, sorted({*map(its.short, names)}), not has_more


def _stands(db: Database, statement: Any, name: str) -> bool:
    return db.execute(statement, {"name": name.removesuffix(_DEAD)}).fetchone() is not None


def _nothing_has(term: Term, count: int, there: list[str]) -> str:
    """The sentence about a name that nothing has, with one that is near to it, or those that there are."""
    name, nothing = term.alternatives[count], _NAMES_OF[term.key].nothing
    if (near := meant(name, there[:COMPARED])) or not there:
        return f"{term.key}: {nothing} {name}{near}"
    return f"{term.key}: {nothing} {name}; there are {', '.join(there[:LISTED])}{', …' * (len(there) > LISTED)}"
