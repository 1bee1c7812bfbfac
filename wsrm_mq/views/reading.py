"""Reads of the store for people and their tools: sequences, messages and the ledger, by names or parts of them.

Everything here only reads the published views, on any connection to the store, and in pieces. Times are ms since the
epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, Table, bindparam, func, literal, or_, select

from wsrm_mq.errors import NotFound
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import published as views
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import bound, compiled, p
from wsrm_mq.views.conditions import conditions
from wsrm_mq.views.naming import find_sequence, refuse_unknown
from wsrm_mq.views.query import Query, Term
from wsrm_mq.views.rows import (
    LedgerView,
    MessageDetail,
    MessageView,
    SequenceView,
    find_connection,
    live_instances,
)
from wsrm_mq.views.verdict import UNREMARKABLE, Verdict, is_quiet, is_to_judge, judge

PIECE: Final = 200
"""Rows of a statement; of one about messages, of the first, and each next one reads twice as many."""
LARGEST_PIECE: Final = 10_000
"""A statement about messages reads no more. Few statements are better: each asks an index anew for its condition."""
LAST: Final = 2**63 - 1
"""No key is beyond it."""


def _of(view: Table, fields: tuple[str, ...], **named: str) -> Select[Any]:
    """The columns with the names of ``fields``; ``named``: those that have another name in the view."""
    return select(*(view.c[named.get(field, field)] for field in fields))


# sequences


_sequence: Final = views.sequences.c
_message: Final = views.messages.c
_event: Final = views.ledger_events.c
_SEQUENCE: Final = _of(views.sequences, SequenceView._fields[:-1], identifier="sequence")
_SEQUENCE_NAMED: Final = compiled(_SEQUENCE.where(_sequence.sequence == p("identifier")))
_RANGES: Final = compiled(
    select(views.ranges.c.lower, views.ranges.c.upper)
    .where(views.ranges.c.sequence == p("sequence"))
    .order_by(views.ranges.c.lower)
)


def sequences(db: Database, query: Query, *, after: str | None = None) -> Iterator[SequenceView]:
    """Sequences that fit, newest first, read as they are asked for; ``after``: those older than the one with this
    identifier."""
    for view, _verdict in judged(db, query, after=after):
        yield view


def judged(db: Database, query: Query, *, after: str | None = None) -> Iterator[tuple[SequenceView, Verdict]]:
    """The same, each with its verdict at the time of the query."""
    verdicts = [term for term in query.terms if term.key == "verdict"]
    live = live_instances(db)
    for view in _unjudged(db, query, after):
        found = judge(db, view, query.now, live=live)
        if all((found.word in term.alternatives) is not term.is_negated for term in verdicts):
            yield view, found


def _unjudged(db: Database, query: Query, after: str | None) -> Iterator[SequenceView]:
    wanted = conditions(_resolved(db, query), views.sequences)
    if any(map(_is_of_few, query.terms)):
        now = literal(query.now)
        wanted += (or_(is_to_judge(now), is_quiet(now)),)
    listed = _SEQUENCE.where(_sequence.key < p("below"), *wanted)
    text, values = bound(listed.order_by(_sequence.key.desc()).limit(PIECE))
    below = LAST if after is None else sequence(db, after).key
    while True:
        rows = db.execute(text, {**values, "below": below}).fetchall()
        for row in rows:
            yield _viewed(db, row)
        if len(rows) < PIECE:
            return
        below = rows[-1][0]


def _is_of_few(term: Term) -> bool:
    """Whether a term asks for verdicts that few sequences have."""
    if term.key != "verdict":
        return False
    return all((word in term.alternatives) is term.is_negated for word in UNREMARKABLE)


def sequence(db: Database, identifier: str) -> SequenceView:
    """The sequence with this identifier, or ``NotFound``."""
    row = db.execute(_SEQUENCE_NAMED, {"identifier": identifier}).fetchone()
    if row is None:
        raise NotFound(f"There is no sequence {identifier}.")
    return _viewed(db, row)


def _viewed(db: Database, row: tuple[Any, ...]) -> SequenceView:
    ranges = db.execute(_RANGES, {"sequence": row[1]}).fetchall()
    view = SequenceView._make((*row, AckRanges(tuple(ranges))))
    return view._replace(ordered=bool(view.ordered), discarding=bool(view.discarding), consumed=bool(view.consumed))


# messages

_MESSAGES: Final = _of(views.messages, MessageView._fields)


def messages(
    db: Database,
    query: Query,
    *,
    after: int = 0,
    limit: int | None = None,
    newest: bool = False,
) -> Iterator[MessageView]:
    """Messages that fit, in the order of receipt from the position ``after`` on, at most ``limit``; ``newest``: in
    the opposite order, from the newest on. They are read in pieces, as they are asked for."""
    order = _message.position.desc() if newest else _message.position
    beyond = _message.position < p("after") if newest else _message.position > p("after")
    wanted = what_fits(db, query)
    text, values = bound(_MESSAGES.where(beyond, *wanted).order_by(order).limit(p("count")))
    place, left, piece = LAST if newest else after, LAST if limit is None else limit, PIECE
    while left > 0:
        count = min(left, piece)
        rows = db.execute(text, {**values, "after": place, "count": count}).fetchall()
        yield from map(MessageView._make, rows)
        if len(rows) < count:
            return
        place, left, piece = rows[-1][0], left - count, min(2 * piece, LARGEST_PIECE)


def what_fits(db: Database, query: Query, view: Table = views.messages) -> tuple[ColumnElement[bool], ...]:
    """The conditions that a row of ``published.messages``, or of another view about messages or the ledger, has to
    fulfil. Raises ``NotFound`` for a name that the query has."""
    return conditions(_resolved(db, query, view), view) + _of_verdict(db, query, view)


def _of_verdict(db: Database, query: Query, view: Table) -> tuple[ColumnElement[bool], ...]:
    """The conditions for rows where a verdict is asked for: to be about the sequences that have it."""
    asked = tuple(term for term in query.terms if term.key in _OF_SEQUENCES)
    if all(term.key != "verdict" for term in asked):
        return ()
    found = json.dumps([view.identifier for view in sequences(db, replace(query, terms=asked))])
    named = select(func.json_each(found).table_valued("value").c.value)
    if view is views.ledger_events:
        return (view.c.sequence.in_(named),)
    its = views.sequence_messages.c
    return (view.c.position.in_(select(its.position).where(its.sequence.in_(named))),)


_OF_SEQUENCES: Final = ("verdict", "partner", "seq")
"""Words of a query for messages that say which sequences are to be judged."""

# what was deleted

_OUTLIVES: Final = ("queue", "partner", "seq", "principal", "peer", "connection", "since", "age")
"""Keys that a sequence answers when its messages are deleted."""
_MAY_FIT: Final = (*_OUTLIVES, "until", "op", "msg", "outcome", "state")
_DELETED: Final = select(_sequence.key, _sequence.sequence, views.sequences.c.pruned)


def deleted(db: Database, query: Query) -> list[tuple[int, str, int]]:
    """Sequences of which retention has deleted messages that may have fitted ``query``: key, identifier, how many. A
    query that only stored messages can fit, such as one for failures, has none."""
    may_fit = (
        term.key in _MAY_FIT and (term.key not in ("outcome", "state") or "delivered" in term.alternatives)
        for term in query.terms
    )
    if not all(may_fit):
        return []
    asked = tuple(term for term in query.terms if term.key in _OUTLIVES and _is_of_the_last(term))
    wanted = conditions(_resolved(db, replace(query, terms=asked)), views.sequences)
    text, values = bound(_DELETED.where(views.sequences.c.pruned > 0, *wanted).order_by(_sequence.key))
    return [(key, identifier, count) for key, identifier, count in db.execute(text, values)]


def _is_of_the_last(term: Term) -> bool:
    """The time of a sequence's last message rules out that an earlier one fits."""
    if term.is_negated:
        return False
    return term.key not in ("since", "age") or all(bounds.most is None for bounds in term.alternatives)


def _resolved(db: Database, query: Query, view: Table = views.messages) -> Query:
    """The query with whole identifiers and names instead of parts of them. Raises ``NotFound``, and ``QueryError`` for
    a name that nothing can have."""
    refuse_unknown(db, query, view)
    finds = {"seq": find_sequence, "connection": find_connection}
    terms = (
        term._replace(alternatives=tuple(finds[term.key](db, part) for part in term.alternatives))
        if term.key in finds
        else term
        for term in query.terms
    )
    return replace(query, terms=tuple(terms))


_ELSEWHERE: Final = {"environ": _message.request, "reply_status": views.replies.c.status}
_MESSAGE: Final = compiled(
    _MESSAGES.add_columns(
        *(_ELSEWHERE[name] if name in _ELSEWHERE else _message[name] for name in MessageDetail._fields[1:])
    )
    .join_from(views.messages, views.replies, views.replies.c.position == _message.position, isouter=True)
    .where(_message.position == p("position"))
)


def message(db: Database, position: int) -> MessageDetail:
    """The message at ``position``, or ``NotFound``."""
    row = db.execute(_MESSAGE, {"position": position}).fetchone()
    if row is None:
        raise NotFound(f"There is no message at position {position}.")
    environ, wants_reply, named, has_body, *rest = row[len(MessageView._fields) :]
    return MessageDetail(
        MessageView._make(row[: len(MessageView._fields)]),
        environ,
        bool(wants_reply),
        bool(named),
        bool(has_body),
        *rest,
    )


# ledger


# The acts of operators: the rows of the ledger that name one.

_LEDGER: Final = _of(views.ledger_events, LedgerView._fields).order_by(_event.key.desc()).limit(p("count"))
_OF_SEQUENCE: Final = compiled(_LEDGER.where(_event.sequence == p("which")))
_OF_MESSAGE: Final = compiled(_LEDGER.where(_event.position == p("which")))


def ledger(db: Database, which: str | int, *, limit: int = 20) -> list[LedgerView]:
    """The last ``limit`` events of a sequence, or of the message at a position; oldest first."""
    statement = _OF_MESSAGE if isinstance(which, int) else _OF_SEQUENCE
    rows = db.execute(statement, {"which": which, "count": limit}).fetchall()
    return [LedgerView._make(row) for row in reversed(rows)]


class Act(NamedTuple):
    key: int
    """Grows with each row of the ledger."""
    at: int
    actor: str
    event: str
    """The act, a word of the ledger."""
    queue: str | None
    sequence: str | None
    number: int | None
    position: int | None
    reason: str | None


_ACTS: Final = _of(views.ledger_events, Act._fields).where(_event.actor.is_not(None))


def acts(db: Database, query: Query, *, before: int | None = None, limit: int = 50) -> list[Act]:
    """The last ``limit`` acts that fit, of those with a key below ``before``; the newest is the last."""
    wanted = what_fits(db, query, views.ledger_events)
    listed = _ACTS.where(_event.key < bindparam("before"), *wanted).order_by(_event.key.desc()).limit(limit)
    text, values = bound(listed)
    rows = db.execute(text, {**values, "before": LAST if before is None else before}).fetchall()
    return [Act._make(row) for row in reversed(rows)]


# Dead letters: what they are, why they are dead, and under which key the service knows them.


POSITIONS: Final = 500
"""Positions in one statement."""


class Letter(NamedTuple):
    """A dead letter. ``sequence`` and ``number`` are those that the message came under; times in ms since the epoch."""

    position: int
    queue: str
    """The queue that it comes from."""
    sequence: str
    number: int
    message_id: str | None
    action: str | None
    reason: str
    """Why it is dead: ``skipped``, ``max_failures``, …"""
    received_at: int
    died_at: int
    confirmed_at: int | None
    deliveries: int
    failures: int
    last_error: str | None
    replay_of: int | None
    """The position that it replayed, where it died again."""
    body_size: int
    has_body: bool


class Original(NamedTuple):
    """The key that a message came under, and its position now."""

    sequence: str
    number: int
    position: int


_COLUMNS: Final = {
    "queue": "origin",
    "sequence": "original_sequence",
    "number": "original_number",
    "died_at": "settled_at",
}
_LETTERS: Final = (
    _of(views.messages, Letter._fields, **_COLUMNS).where(_message.outcome == "dead").order_by(_message.position)
)
_ORIGINALS: Final = compiled(
    select(_message.original_sequence, _message.original_number, _message.position).where(
        _message.position.in_(select(func.json_each(bindparam("positions")).table_valued("value").c.value))
    )
)


def letters(db: Database, query: Query, *, after: int = 0, limit: int = 50) -> list[Letter]:
    """Dead letters that fit, in the order of their positions."""
    return _letters(db, _LETTERS.where(_message.position > after, *what_fits(db, query)).limit(limit))


def letter(db: Database, position: int) -> Letter:
    """The dead letter at ``position``, or ``NotFound``."""
    found = _letters(db, _LETTERS.where(_message.position == position))
    if not found:
        raise NotFound(f"There is no dead letter at position {position}: `wsrm-mq message show {position}` says more.")
    return found[0]


def _letters(db: Database, statement: Select[Any]) -> list[Letter]:
    text, values = bound(statement)
    return [Letter._make((*row[:-1], bool(row[-1]))) for row in db.execute(text, values)]


def originals(db: Database, positions: Sequence[int]) -> Iterator[Original]:
    """The sequence and number that the message at each of these positions came with, in no order."""
    for start in range(0, len(positions), POSITIONS):
        yield from map(
            Original._make, db.execute(_ORIGINALS, {"positions": json.dumps(positions[start : start + POSITIONS])})
        )
