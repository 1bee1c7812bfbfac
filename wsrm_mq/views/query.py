"""The query language: what a list, an act on many and a plan are about.

A query is words between blanks, and all of them have to hold: ``partner:acme state:held age:>1h``. A word is
``key:value``, or ``-key:value`` for what it does not fit. A value may name alternatives, ``state:held,ready``; what has
a blank or a comma in it stands in quotes, ``queue:"/a b"``. A word without a key is a part of an identifier.
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Table, and_, func, or_, select

from wsrm_mq.errors import QueryError
from wsrm_mq.sequence.running import ENTRY
from wsrm_mq.store import published as views
from wsrm_mq.store.tables import channel, entry, outbound_sequence
from wsrm_mq.store.words import ANSWERED_WITH_FAULT, OUTCOMES, SEQUENCE_STATES
from wsrm_mq.views.rows import LIVE
from wsrm_mq.views.verdict import WORDS

LONGEST: Final = 4_000
"""Characters of a query."""
MOST: Final = 200
"""Words of a query, and alternatives of a word."""

PART: Final = ""
"""The key of a word without one."""

MESSAGE_STATES: Final = (*dict.fromkeys(state for (state, _reason), _row in ENTRY), *OUTCOMES)
_OUTCOMES: Final = (*OUTCOMES, LIVE)


class Bounds(NamedTuple):
    """Both ends are included; ``None``: it is open there."""

    least: int | None
    most: int | None


class Term(NamedTuple):
    """One word of a query."""

    key: str
    alternatives: tuple[Any, ...]
    """Texts, truth values or ``Bounds``, as the key says. It fits what fits one of them."""
    is_negated: bool = False
    places: tuple[tuple[int, int], ...] = ()
    """Where each alternative stands in the query, and its length; none where the query did not come as a text."""


@dataclass(frozen=True, slots=True)
class Query:
    """The conditions that all have to hold; times are ms since the epoch already."""

    terms: tuple[Term, ...]
    now: int
    """The time that verdicts are judged at."""
    text: str
    """As it was written."""
    partners: tuple[str, ...] = ()
    """The partners of the configuration: known, though nothing may have come from them."""

    def having(self, **values: str | None) -> Query:
        """This query, and for each key what ``parse`` makes of its value as a whole; ``None`` adds nothing."""
        added = tuple(Term(key, (_read(key, value, self.now),)) for key, value in values.items() if value is not None)
        return replace(self, terms=(*self.terms, *added))


# values


class Key(NamedTuple):
    """A word of the query language: ``key:value``."""

    reads: Callable[[str, int], Any]
    """A value, and the time now → what it means. ``ValueError`` says what is wrong with it."""
    help: str
    """The meaning of the key, for people."""
    words: tuple[str, ...] = ()
    """The values that it may have, where that is a choice."""


def _text(value: str, _now: int) -> str:
    if not value:
        raise ValueError("an empty value fits nothing")
    return value


def _choice(*words: str) -> Callable[[str, int], str]:
    def read(value: str, _now: int) -> str:
        if value not in words:
            raise ValueError(f"{_shown(value)} is none of {', '.join(words)}{meant(value, words)}")
        return value

    return read


def _truth(value: str, _now: int) -> bool:
    if value not in ("yes", "no"):
        raise ValueError(f"{_shown(value)} is neither yes nor no")
    return value == "yes"


_LARGEST: Final = 2**63 - 1
_NUMBERS: Final = re.compile(r"(\d{1,19})(-(\d{1,19})?)?")


def _numbers(value: str, _now: int) -> Bounds:
    found = _NUMBERS.fullmatch(value)
    if found is None:
        raise ValueError(f"{_shown(value)} is no number; write 12, 12-40 or 12-")
    least = min(int(found[1]), _LARGEST)
    most = least if found[2] is None else _LARGEST if found[3] is None else min(int(found[3]), _LARGEST)
    if least > most:
        raise ValueError(f"{_shown(value)} ends before it begins")
    return Bounds(least, most)


def _key(value: str, _now: int) -> int:
    if not re.fullmatch(r"\d{1,18}", value):
        raise ValueError(
            f"{_shown(value)} is no key; `wsrm-mq failure list` shows them, and only numbers have messages"
        )
    return int(value)


_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([a-z]*)")


def span(value: str) -> int:
    """A length of time in ms. Raises ``ValueError``."""
    found = _SPAN.fullmatch(value)
    if found is None:
        raise ValueError(f"{_shown(value)} is no length of time; write 90s, 15min, 2h, 3d or 1w")
    if found[2] not in _UNITS:
        wrong = f"{found[2]} is no unit of time" if found[2] else f"{found[1]} has no unit of time"
        raise ValueError(f"{wrong}; there are {', '.join(_UNITS)}")
    return int(float(found[1]) * _UNITS[found[2]])


def _age(value: str, now: int) -> Bounds:
    """``>1h``, or ``1h`` as a shell understands: at least so old. ``<1h``: younger."""
    moment = now - span(value.removeprefix(">").removeprefix("<"))
    return Bounds(moment + 1, None) if value.startswith("<") else Bounds(None, moment)


def _moment(value: str, now: int) -> int:
    if _SPAN.fullmatch(value) and not value.isdigit():
        return now - span(value)
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"{_shown(value)} is no time; write 2026-11-01, 2026-11-01T10:00 (UTC), 2026-11-01T10:00+02:00, or 2h for "
            "two hours ago"
        ) from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _since(value: str, now: int) -> Bounds:
    return Bounds(_moment(value, now), None)


def _until(value: str, now: int) -> Bounds:
    return Bounds(None, _moment(value, now))


KEYS: Final[dict[str, Key]] = {
    "queue": Key(_text, "what came into this queue, its dead letters too; NAME#dead: these alone"),
    "partner": Key(_text, "what came from this partner of the configuration"),
    "seq": Key(_text, "the sequence with this identifier, or with this beginning or end of it"),
    "msg": Key(_numbers, "message numbers: 12, 12-40, 12-"),
    "pos": Key(_numbers, "positions: 120, 120-140, 120-"),
    "state": Key(
        _choice(*MESSAGE_STATES, *SEQUENCE_STATES),
        "messages or sequences in this state",
        (*MESSAGE_STATES, *SEQUENCE_STATES),
    ),
    "outcome": Key(_choice(*_OUTCOMES), "messages with this outcome; live: with none yet", _OUTCOMES),
    "reason": Key(_text, "messages that are held, or have their outcome, for this reason"),
    "verdict": Key(_choice(*WORDS), "sequences with this verdict, and their messages", WORDS),
    "op": Key(_text, "messages with this action, or with this last part of it"),
    "principal": Key(_text, "what this principal sent"),
    "peer": Key(_text, "what came from this address"),
    "connection": Key(_text, "what came on this connection, or the only one that begins so"),
    "age": Key(_age, "how long ago it was received: 1h or >1h, at least an hour; <2d, less than two days"),
    "since": Key(_since, "received then or later: 2026-11-01T10:00, or 2h for the last two hours"),
    "until": Key(_until, "received then or before"),
    "id": Key(_text, "the message with this wsa:MessageID"),
    "fault": Key(_text, "messages that were answered with this fault code"),
    "exception": Key(_text, "messages whose delivery raised this type of exception"),
    "place": Key(_text, "messages whose delivery failed where this is part of the place"),
    "failure": Key(_key, "messages that failed alike, by the KEY that `wsrm-mq failure list` shows"),
    "confirmed": Key(_truth, "yes: what an operator has confirmed", ("yes", "no")),
    "actor": Key(_text, "what this operator did something to"),
    "event": Key(_text, "what has this event in the ledger"),
}
"""Every key. ``age``, ``since`` and ``until`` of a sequence are about the time when something came for it last."""

# reading

_WORD: Final = re.compile(
    r"""(?P<minus>-?) (?:(?P<key>[A-Za-z_]+):)? (?P<value>(?:"[^"]*"|'[^']*'|[^\s"'])*)""", re.VERBOSE
)
_ALTERNATIVE: Final = re.compile(r"""(?:^|,)((?:"[^"]*"|'[^']*'|[^"',])*)""")
_QUOTES: Final = re.compile(r""""([^"]*)"|'([^']*)'""")
_OPERATOR: Final = re.compile(
    r"(?P<any>(?:OR|\|+)$)|(?P<all>(?:AND|&+)$)|(?P<none>NOT$|!)|(?P<within>[()])", re.IGNORECASE
)
_INSTEAD: Final = {
    "any": "alternatives of one key stand with commas, state:held,ready; for those of two keys ask twice",
    "all": "all words have to hold, so leave it out",
    "none": "write -key:value for what is not to fit, -state:delivered",
    "within": "its words have no order, and alternatives of one key stand with commas, state:held,ready",
}
"""The words of other languages, and what to write here."""
_SCHEMES: Final = ("urn", "uuid", "http", "https")
"""The beginnings of identifiers, which are no keys."""


def parse(text: str, now: int | None = None, *, partners: Iterable[str] = (), **values: str | None) -> Query:
    """The query that ``text`` is, at the time ``now`` (ms since the epoch; default: now), and ``Query.having`` these.
    Raises ``QueryError``, which points at the word that is wrong."""
    at = time.time_ns() // 1_000_000 if now is None else now
    if len(text) > LONGEST:
        raise QueryError(f"A query may have {LONGEST} characters; this one has {len(text)}.")
    terms = tuple(_term(text, word, at) for word in _words(text))
    if len(terms) > MOST:
        raise QueryError(f"A query may have {MOST} words; this one has {len(terms)}.")
    return Query(terms, at, text, tuple(partners)).having(**values)


_PLAIN: Final = re.compile(r"[\w/.%~-]+")
"""A value that needs no quotes."""


def words(text: str) -> list[str]:
    """The words of a query, as they were written. Raises ``QueryError`` for a quote that is not closed."""
    return [word[0] for word in _words(text)]


def asked_for(text: str, *more: str) -> tuple[str, ...]:
    """The words of a query and ``more`` ones, each once. Raises ``QueryError`` for a quote that is not closed."""
    return tuple(dict.fromkeys((*words(text), *more)))


def queue_word(name: str) -> str:
    """The word of a query that names a queue."""
    if _PLAIN.fullmatch(name):
        return f"queue:{name}"
    pieces = (f"'{piece}'" if '"' in piece else f'"{piece}"' for piece in re.split(r'("+)', name) if piece)
    return "queue:" + "".join(pieces)


def _words(text: str) -> Iterator[re.Match[str]]:
    place = 0
    while (place := _next_word(text, place)) < len(text):
        word = _WORD.match(text, place)
        assert word is not None, "every part of it may be empty"
        place = word.end()
        if place < len(text) and not text[place].isspace():
            raise QueryError("This quote is not closed.").pointing(text, place, 1)
        yield word


def _next_word(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _term(text: str, word: re.Match[str], now: int) -> Term:
    is_negated = bool(word["minus"])
    if word["key"] is None or word["key"].lower() in _SCHEMES:
        start = word.start() + is_negated
        part = _unquoted(text[start : word.end()])
        if not part:
            raise QueryError("There is no word here.").pointing(text, word.start(), word.end() - word.start())
        if (operator := _OPERATOR.match(text[start : word.end()])) is not None:
            said = f"There is no {operator[0].upper()} in a query: {_INSTEAD[operator.lastgroup or '']}."
            raise QueryError(said).pointing(text, start, len(operator[0]))
        return Term(PART, (part,), is_negated)
    name, value = word["key"], word["value"]
    start = word.start("key")
    if name not in KEYS:
        known = f"There is no key {name}{meant(name, KEYS)}. Keys: {', '.join(KEYS)}."
        raise QueryError(known).pointing(text, start, len(name))
    if not value:
        of_shell = " A shell takes > and < for itself: put the word in quotes." if name == "age" else ""
        raise QueryError(f"{name}: has no value.{of_shell}").pointing(text, start, len(name) + 1)
    found = [(one[1], word.start("value") + one.start(1)) for one in _ALTERNATIVE.finditer(value)]
    if len(found) > MOST:
        raise QueryError(f"{name}: may have {MOST} alternatives.").pointing(text, start, len(name))
    alternatives = tuple(_alternative(text, name, part, at, now) for part, at in found)
    return Term(name, alternatives, is_negated, tuple((at, len(part)) for part, at in found))


def _alternative(text: str, name: str, part: str, at: int, now: int) -> Any:
    try:
        return _read(name, _unquoted(part), now)
    except QueryError as error:
        raise error.pointing(text, at, len(part)) from None


def _read(name: str, value: str, now: int) -> Any:
    try:
        return KEYS[name].reads(value, now)
    except (ValueError, OverflowError) as error:
        raise QueryError(f"{name}: {error}.") from None


def _unquoted(value: str) -> str:
    return _QUOTES.sub(lambda quoted: quoted[1] if quoted[1] is not None else quoted[2], value)


def _shown(value: str) -> str:
    return value if len(value) <= 60 else f"{value[:59]}…"


def meant(word: str, known: Iterable[str]) -> str:
    """The one of ``known`` that is near to ``word``, as a question; empty where none is."""
    near = difflib.get_close_matches(word, list(known), 1, 0.6)
    return f" (did you mean {near[0]}?)" if near else ""


# The conditions that the words of a query stand for, over the published views of messages, sequences and the ledger.
#
# A key that a view has no column for holds of a row through what the row belongs to: ``partner:`` of a message through
# its sequence, ``op:`` of a sequence through its messages.


Condition = Callable[[Any], ColumnElement[bool]]

_m: Final = views.messages.c
_s: Final = views.sequences.c
_a: Final = views.attempts.c
_o: Final = outbound_sequence.c


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
    outbound_sequence: {
        PART: _has(_o.peer, _o.identifier, _o.offered),
        "seq": lambda part: or_(
            _o.identifier.startswith(part, autoescape=True), _o.identifier.endswith(part, autoescape=True)
        ),
    },
    views.ledger_events: _of_events(views.ledger_events),
    # A reason is the message's: that of an attempt is a text, which a word without a key finds.
    views.attempts: {key: has for key, has in _of_events(views.attempts).items() if key != "reason"},
}
"""Conditions on a view's own columns, by key of the query."""

_LINKS: Final[dict[Table, tuple[tuple[Table, str], ...]]] = {
    views.messages: ((views.sequences, "sequence"), (views.ledger_events, "position")),
    outbound_sequence: ((views.messages, "position"), (views.ledger_events, "position")),
    views.sequences: ((views.messages, "sequence"), (views.ledger_events, "sequence")),
    views.ledger_events: ((views.messages, "position"), (views.sequences, "sequence")),
    views.attempts: ((views.messages, "position"), (views.sequences, "sequence")),
}
"""Other views that are asked, in this order, and the column that both have."""


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
    linked: dict[tuple[Table, str], list[ColumnElement[bool]]] = {}
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


def _through(view: Table, link: tuple[Table, str], wanted: list[ColumnElement[bool]]) -> ColumnElement[bool]:
    other, column = link
    if view is outbound_sequence:  # an RM Source's: by one of its requests
        of_request = select(channel.c.outbound).join(entry, entry.c.lane == channel.c.lane)
        of_request = of_request.join(other, other.c[column] == entry.c.id).where(channel.c.is_numbered == 1, *wanted)
        return view.c.id.in_(of_request)
    return view.c[column].in_(select(other.c[column]).where(*wanted))
