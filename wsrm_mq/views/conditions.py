"""The conditions that the words of a query stand for, over the published views of messages, sequences and attempts.

A key that a view has no column for holds of a row through what the row belongs to: ``partner:`` of a message through
its sequence, ``op:`` of a sequence through its messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import ColumnElement, Table, and_, func, or_, select

from wsrm_mq.sequence.running import ENTRY
from wsrm_mq.store import published as views
from wsrm_mq.store.words import ANSWERED_WITH_FAULT, SEQUENCE_STATES
from wsrm_mq.views.query import MESSAGE_STATES, PART, Bounds, Query, Term
from wsrm_mq.views.rows import LIVE

Condition = Callable[[Any], ColumnElement[bool]]

_m: Final = views.messages.c
_s: Final = views.sequences.c
_a: Final = views.attempts.c
_r: Final = views.request_sequences.c


def _is(column: ColumnElement[Any]) -> Condition:
    return lambda value: column == value


def _within(column: ColumnElement[int]) -> Condition:
    def condition(bounds: Bounds) -> ColumnElement[bool]:
        if bounds.least == bounds.most:
            return column == bounds.least
        return and_(
            *([column >= bounds.least] if bounds.least is not None else []),
            *([column <= bounds.most] if bounds.most is not None else []),
        )

    return condition


def _ends(column: ColumnElement[Any], *separators: str) -> Condition:
    """Whether a column is the value, or ends in it behind one of ``separators``."""

    def condition(value: str) -> ColumnElement[bool]:
        last = func.substr(column, -len(value) - 1)
        return or_(column == value, *(last == f"{separator}{value}" for separator in separators))

    return condition


def _has(*columns: ColumnElement[Any]) -> Condition:
    return lambda part: or_(*(func.instr(func.coalesce(column, ""), part) > 0 for column in columns))


def _found_by(view: Table, condition: Condition) -> Condition:
    """The condition that a message is among those that a view over an index has."""
    return lambda value: _m.position.in_(select(view.c.position).where(condition(value)))


_other: Final = views.attempts.alias("other")
_message_of: Final = views.messages.alias("message_of").c


def failed_like(key: int) -> ColumnElement[bool]:
    """The condition that an attempt failed as the one with this key did, for the same operation."""
    same = (_other.c[name].is_not_distinct_from(_a[name]) for name in ("event", "fault", "exception", "place"))
    is_same_operation = _action_of(_other.c.position).is_not_distinct_from(_action_of(_a.position))
    return select(_other.c.key).where(_other.c.key == key, *same, is_same_operation).correlate(views.attempts).exists()


def _action_of(position: ColumnElement[int]) -> ColumnElement[str]:
    return select(_message_of.action).where(_message_of.position == position).scalar_subquery()


def _message_state(word: str) -> ColumnElement[bool]:
    if word in SEQUENCE_STATES:
        return _m.sequence.in_(select(_s.sequence).where(_s.state == word))
    return _m.state == word


def _sequence_state(word: str) -> ColumnElement[bool]:
    if word in MESSAGE_STATES:
        return _s.sequence.in_(select(_m.sequence).where(_m.state == word))
    return _s.state == word


def _message_reason(word: str) -> ColumnElement[bool]:
    if word == ANSWERED_WITH_FAULT:
        return _m.position.in_(select(views.faulted.c.position))
    return _m.reason == word


_TIMES: Final = ("age", "since", "until")


def _of_events(view: Table) -> dict[str, Condition]:
    its = view.c
    return {
        PART: _has(its.sequence, its.reason),
        "queue": _is(its.queue),
        "seq": _is(its.sequence),
        "msg": _within(its.number),
        "pos": _within(its.position),
        "reason": _has(its.reason),
        "fault": _ends(its.fault, ":", "}"),
        "exception": _ends(its.exception, "."),
        "place": _has(its.place),
        "actor": _is(its.actor),
        "event": _is(its.event),
        **dict.fromkeys(_TIMES, _within(its.at)),
    }


_OWN: Final[dict[Table, dict[str, Condition]]] = {
    views.messages: {
        PART: _has(_m.sequence, _m.message_id, _m.original_sequence),
        "queue": lambda name: or_(_m.queue == name, _m.origin == name),
        "seq": _found_by(views.sequence_messages, _is(views.sequence_messages.c.sequence)),
        "msg": _within(_m.number),
        "pos": _within(_m.position),
        "state": _message_state,
        "outcome": lambda word: _m.outcome.is_(None) if word == LIVE else _m.outcome == word,
        "reason": _message_reason,
        "op": _ends(_m.action, "/", ":", "#"),
        "principal": _is(_m.principal),
        "peer": _is(_m.peer),
        "partner": _is(_m.partner),
        "connection": _found_by(views.connection_messages, _is(views.connection_messages.c.connection)),
        "id": _is(_m.message_id),
        "fault": _found_by(views.attempts, _ends(_a.fault, ":", "}")),
        "exception": _found_by(views.attempts, _ends(_a.exception, ".")),
        "place": _found_by(views.attempts, _has(_a.place)),
        "failure": _found_by(views.attempts, failed_like),
        "confirmed": lambda is_so: _m.confirmed_at.is_not(None) if is_so else _m.confirmed_at.is_(None),
        **dict.fromkeys(_TIMES, _within(_m.received_at)),
    },
    views.sequences: {
        PART: _has(_s.sequence),
        "queue": _is(_s.queue),
        "partner": _is(_s.partner),
        "seq": _is(_s.sequence),
        "state": _sequence_state,
        "principal": _is(_s.principal),
        "peer": _is(_s.peer),
        **dict.fromkeys(_TIMES, _within(_s.active_at)),
    },
    views.request_sequences: {
        PART: _has(_r.sends_to, _r.sequence, _r.offered),
        "seq": lambda part: or_(
            _r.sequence.startswith(part, autoescape=True), _r.sequence.endswith(part, autoescape=True)
        ),
    },
    views.ledger_events: _of_events(views.ledger_events),
    # A reason is the message's: that of an attempt is a text, which a word without a key finds.
    views.attempts: {key: has for key, has in _of_events(views.attempts).items() if key != "reason"},
}
"""Conditions on a view's own columns, by key of the query."""

_LINKS: Final[dict[Table, tuple[tuple[Table, str, str], ...]]] = {
    views.messages: ((views.sequences, "sequence", "sequence"), (views.ledger_events, "position", "position")),
    views.request_sequences: ((views.messages, "sequence", "lane"), (views.ledger_events, "sequence", "lane")),
    views.sequences: ((views.messages, "sequence", "sequence"), (views.ledger_events, "sequence", "sequence")),
    views.ledger_events: ((views.messages, "position", "position"), (views.sequences, "sequence", "sequence")),
    views.attempts: ((views.messages, "position", "position"), (views.sequences, "sequence", "sequence")),
}
"""Other views that are asked, in this order: the column there, and the one that it is here."""


_LIVE: Final[dict[str, set[str | None]]] = {
    "outcome": {LIVE},
    "state": {state for (state, _reason), _row in ENTRY},
    "reason": {reason for (_state, reason), _row in ENTRY},
}
"""Values that only a message without an outcome has."""


def conditions(query: Query, view: Table) -> tuple[ColumnElement[bool], ...]:
    """The conditions that rows of ``view`` have to fulfil. Verdicts are not in it: they are judged, no column has them.
    What is asked of other rows is asked of one of them, all of it: that of a sequence's messages of one message."""
    own = _OWN[view]
    found: list[ColumnElement[bool]] = []
    linked: dict[tuple[Table, str, str], list[ColumnElement[bool]]] = {}
    asked = [term for term in query.terms if term.key in _LIVE and not term.is_negated]
    if view is views.messages and any(_LIVE[term.key].issuperset(term.alternatives) for term in asked):
        found.append(_m.outcome.is_(None))
        own = {**own, "seq": _is(_m.sequence)}  # of what has no outcome there is an index by sequence
    for term in query.terms:
        if term.key == "verdict":
            continue
        if term.key in own:
            found.append(_unless(term, _fits(own, term)))
            continue
        link = next(link for link in _LINKS[view] if term.key in _OWN[link[0]])
        wanted = _fits(_OWN[link[0]], term)
        if term.is_negated:
            found.append(_unless(term, _through(view, link, [wanted])))
        else:
            linked.setdefault(link, []).append(wanted)
    found += (_through(view, link, wanted) for link, wanted in linked.items())
    return tuple(found)


def _fits(own: dict[str, Condition], term: Term) -> ColumnElement[bool]:
    return or_(*map(own[term.key], term.alternatives))


def _unless(term: Term, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """The condition, or that it does not hold, which what is not known does not either."""
    return func.coalesce(condition, False) == False if term.is_negated else condition  # noqa: E712


def _through(view: Table, link: tuple[Table, str, str], wanted: list[ColumnElement[bool]]) -> ColumnElement[bool]:
    other, there, here = link
    return view.c[here].in_(select(other.c[there]).where(*wanted))
