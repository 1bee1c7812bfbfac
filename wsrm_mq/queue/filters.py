"""The filter language: ``region = 'eu' and not (priority < 5 or /status in ('cancel', 'void'))``.

A field stands to the left, a value to the right. A field without a slash is one of ``store.filtering.FIELDS``, or else
a property; with a slash, as AMPS writes it, it is always a property. Here a filter is read; ``store.filtering`` makes
SQL of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from wsrm_mq.errors import FilterError
from wsrm_mq.store.filtering import FIELDS, Comparison, Every, Field, Filter, Not, Some, Value, fitting_message
from wsrm_mq.store.sql import bound
from wsrm_mq.store.transaction import Transaction

LONGEST: Final = 4_000
"""The most characters of a filter."""
MOST: Final = 200
"""Values in a filter; a comparison without one counts as one."""
DEEPEST: Final = 20
"""Brackets and nots within one another."""

NAME: Final = r"[^\W\d][\w.-]*"
"""A property that a filter can name."""
_TOKEN: Final = re.compile(
    rf"""\s*(?:
        (?P<text>'(?:[^']|'')*')
      | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
      | (?P<property>/{NAME})
      | (?P<word>{NAME})
      | (?P<operator><=|>=|<>|!=|=(?!=)|<|>)
      | (?P<mark>[(),])
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_WRONG: Final = re.compile(r"""\s*(==|&+|\|+|"[^"]*"?|'|[\w./]+|.)""", re.DOTALL)
_INSTEAD: Final = {
    "=": "Write = for equal",
    "&": "Write and",
    "|": "Write or",
    "!": "Write not, or != for not equal",
    '"': "Write texts in single quotes, 'eu'",
    "'": "This text has no end; a quote within it is written twice, 'O''Hara'",
}
"""Beginnings of words that other languages have, and the advice for each."""
_KEYWORDS: Final = ("and", "or", "not", "in", "like", "is", "null", "true", "false")
_SAME: Final = {"<>": "!="}
_VALUES: Final = "'a text', a number, true or false"


class Token(NamedTuple):
    kind: str | None
    text: str
    at: int

    @property
    def word(self) -> str:
        """The keyword or mark that it is; empty where it is none."""
        word = self.text.lower()
        is_word = self.kind == "mark" or (self.kind == "word" and word in _KEYWORDS)
        return word if is_word else ""


def parse(text: str) -> Filter:
    """The filter that ``text`` is. Raises ``FilterError``, which says where it is wrong and what to write."""
    if not isinstance(text, str):
        raise FilterError(f"A filter is a text, as \"region = 'eu'\", and not {text!r}.")
    if len(text) > LONGEST:
        raise FilterError(f"A filter may have {LONGEST} characters; this one has {len(text)}.")
    reader = _Reader(text)
    found = reader.either(0)
    if reader.token.kind != "end":
        raise reader.error(f"{reader.shown} is not expected here. Conditions are joined with and, or")
    return found


def fits_stored(tx: Transaction, filter: str, message: int, priority: int) -> bool:
    """Whether a stored message fits a filter, of which an entry with this priority would be made."""
    statement, values = _of_message(filter)
    return tx.execute(statement, {**values, "message": message, "priority": priority}).fetchone() is not None


@lru_cache(1024)
def _of_message(filter: str) -> tuple[str, dict[str, Any]]:
    return bound(fitting_message(parse(filter)))


class _Reader:
    """Reads a filter from left to right. ``token`` is the next one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.count = 0
        self.token = self._after(0)

    def either(self, depth: int) -> Filter:
        return self._joined("or", Some, self.both, depth)

    def both(self, depth: int) -> Filter:
        return self._joined("and", Every, self.one, depth)

    def _joined(
        self, word: str, of: Callable[[tuple[Filter, ...]], Filter], part: Callable[[int], Filter], depth: int
    ) -> Filter:
        parts = [part(depth)]
        while self.next_is(word):
            parts.append(part(depth))
        return parts[0] if len(parts) == 1 else of(tuple(parts))

    def one(self, depth: int) -> Filter:
        if depth > DEEPEST:
            raise self.error(f"Brackets and nots may stand in one another {DEEPEST} times")
        if self.next_is("not"):
            return Not(self.one(depth + 1))
        if not self.next_is("("):
            return self.comparison()
        found = self.either(depth + 1)
        self.need(")", "This bracket has no end")
        return found

    def comparison(self) -> Filter:
        token = self.token
        field = self.field()
        if self.next_is("is"):
            is_negated = self.next_is("not")
            self.need("null", "Behind is stands null or not null")
            self.counted()
            found = Comparison(field, "is null")
        elif self.token.kind == "operator":
            operator = self.next().text
            found = Comparison(field, _SAME.get(operator, operator), (self.value(field),))
            is_negated = False
        else:
            is_negated = self.next_is("not")
            found = self.named_operator(field, token)
        return Not(found) if is_negated else found

    def named_operator(self, field: Field, token: Token) -> Comparison:
        if self.next_is("like"):
            if self.token.kind != "text":
                raise self.error("Behind like stands a text, 'eu%'; % is any text, _ any character")
            return Comparison(field, "like", (self.value(field),))
        if not self.next_is("in"):
            raise self.error(
                f"There is no comparison behind {token.text}. Write =, !=, <, <=, >, >=, in (…), like or is null"
            )
        self.need("(", "Behind in stand values in brackets, ('a', 'b')")
        values = [self.value(field)]
        while self.next_is(","):
            values.append(self.value(field))
        self.need(")", "Behind a value of in stands a comma or the closing bracket")
        return Comparison(field, "in", tuple(values))

    def field(self) -> Field:
        if self.token.kind not in ("property", "word") or self.token.word:
            raise self.error(
                f"A field is expected here, not {self.shown}. Write a condition as region = 'eu': a field, then a "
                "comparison, then a value"
            )
        token = self.next()
        return Field(token.text.removeprefix("/"), token.kind == "property")

    def value(self, field: Field) -> Value:
        token = self.token
        if token.kind == "text":
            value: Value = token.text[1:-1].replace("''", "'")
        elif token.kind == "number":
            value = _number(token.text)
        elif token.word in ("true", "false"):
            value = token.word == "true"
        else:
            raise self.error(self.not_a_value())
        known = None if field.is_property else FIELDS.get(field.name)
        if known is not None and not _is_of(known.kind, value):
            kind = "a text: write it in quotes" if known.kind is str else "a number: write it without quotes"
            raise self.error(f"{field.name} is {kind}. /{field.name} is the property of this name")
        self.counted()
        self.next()
        return value

    def not_a_value(self) -> str:
        if self.token.word == "null":
            return "Nothing is equal to null. Write is null, or is not null"
        if self.token.kind == "word" and not self.token.word:
            return f"A field is compared with a value. Write '{self.token.text}' in quotes if this is a text"
        return f"A value is expected here, not {self.shown}. Write {_VALUES}"

    # tokens

    def next(self) -> Token:
        """The next token, which is passed."""
        token = self.token
        self.token = self._after(token.at + len(token.text))
        return token

    def next_is(self, word: str) -> bool:
        """Whether the next token is this word; if so, it is passed."""
        if self.token.word != word:
            return False
        self.next()
        return True

    def need(self, word: str, said: str) -> None:
        if not self.next_is(word):
            raise self.error(said)

    def counted(self) -> None:
        self.count += 1
        if self.count > MOST:
            raise self.error(f"A filter may have {MOST} values")

    def _after(self, at: int) -> Token:
        found = _TOKEN.match(self.text, at)
        if found is not None:
            kind = found.lastgroup or ""
            self.token = Token(kind, found[kind], found.start(kind))
            if kind == "text" and not is_storable(found[kind]):
                raise self.error("No stored text has such a character. Leave it out")
            return self.token
        wrong = _WRONG.match(self.text, at)
        assert wrong is not None, "it takes any character"
        self.token = Token(None, wrong[1], wrong.start(1))
        raise self.error(_INSTEAD.get(wrong[1][0], f"{self.shown} is no part of a filter. Write {_VALUES}, or a field"))

    @property
    def shown(self) -> str:
        text = "".join(character if character.isprintable() else "?" for character in self.token.text)
        return (text if len(text) <= 40 else f"{text[:39]}…") if text else "the end"

    def error(self, said: str) -> FilterError:
        """The error that ``said`` of the next token."""
        return FilterError(f"{said}.").pointing(self.text, self.token.at, len(self.token.text))


def _number(text: str) -> int | float:
    """A whole number that a database can hold is one."""
    try:
        value = int(text)
    except ValueError:
        return float(text)
    return value if -(2**63) <= value < 2**63 else float(text)


def _is_of(kind: type, value: Value) -> bool:
    if kind is str:
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_storable(text: str) -> bool:
    """Whether a database gives back the text that it is given."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
