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

from wsrm_mq.errors import QueryError
from wsrm_mq.sequence.running import ENTRY
from wsrm_mq.store.words import OUTCOMES, SEQUENCE_STATES
from wsrm_mq.views.rows import LIVE
from wsrm_mq.views.verdict import WORDS

LONGEST: Final = 4_000
"""Characters of a query."""
MOST: Final = 200
"""Words of a query, and alternatives of a word."""

PART: Final = ""
"""The key of a word without one."""

MESSAGE_STATES: Final = (*dict.fromkeys(state for (state, _reason), _row in ENTRY), *OUTCOMES)


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


def _choice(help: str, *words: str) -> Key:
    def read(value: str, _now: int) -> str:
        if value not in words:
            raise ValueError(f"{_shown(value)} is none of {', '.join(words)}{meant(value, words)}")
        return value

    return Key(read, help, words)


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
    "state": _choice("messages or sequences in this state", *MESSAGE_STATES, *SEQUENCE_STATES),
    "outcome": _choice("messages with this outcome; live: with none yet", *OUTCOMES, LIVE),
    "reason": Key(_text, "messages that are held, or have their outcome, for this reason"),
    "verdict": _choice("sequences with this verdict, and their messages", *WORDS),
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
