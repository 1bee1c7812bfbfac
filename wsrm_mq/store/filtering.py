"""A filter over the messages of queues: its tree, and the SQL that it is.

``queue.filters`` makes the tree of a text. It is about an entry, its message, and the header that the message was put
with; a field that is none of their columns is a property of the header, and null where there is none of this name.
Every value is a parameter of the statement. As in SQL a comparison with null is neither true nor false, and neither is
``<`` or ``like`` between a text and a number, in whatever order a database would have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Numeric,
    Select,
    String,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal,
    not_,
    null,
    or_,
    select,
)

from wsrm_mq.store.sql import bound, compiled
from wsrm_mq.store.tables import entry, header, message


class Parameter(NamedTuple):
    """It stands in the place of a value that is given when the statement is run."""

    name: str
    is_text: bool


Value = str | int | float | bool | Parameter


class Field(NamedTuple):
    """``is_property``: it is a property, though a column may have the same name."""

    name: str
    is_property: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field is compared: with one value, ``in`` with several, ``is null`` with none."""

    field: Field
    operator: str
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Not:
    """The condition is false, which an unknown one is not."""

    of: Filter


@dataclass(frozen=True, slots=True)
class Every:
    """All conditions are true."""

    of: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """One condition is true."""

    of: tuple[Filter, ...]


Filter = Comparison | Not | Every | Some


class Known(NamedTuple):
    """A column that a filter may name."""

    column: ColumnElement[Any]
    kind: type[str] | type[int]
    help: str


_record: Final = entry.alias("record")


def _recorded(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A column of the entry that one of a journal records."""
    return select(column).where(_record.c.id == entry.c.journal_of).correlate(entry).scalar_subquery()


FIELDS: Final[dict[str, Known]] = {
    "type": Known(message.c.action, str, "its type; the action of a SOAP message"),
    "message_id": Known(message.c.message_id, str, "its identifier, which the sender gave"),
    "topic": Known(header.c.topic, str, "the topic that it was published to"),
    "content_type": Known(header.c.content_type, str, "the type of its body"),
    "client": Known(header.c.client, str, "the client that put it"),
    "principal": Known(message.c.principal, str, "who sent it, where senders are authenticated"),
    "position": Known(entry.c.id, int, "its position, which the store gave"),
    "size": Known(message.c.body_size, int, "bytes of its body"),
    "received_at": Known(message.c.received_at, int, "when it was stored, ms since the epoch"),
    "priority": Known(entry.c.priority, int, "0 to 9; what is higher comes first"),
    "deliveries": Known(entry.c.deliveries, int, "how often it was given to a consumer"),
    "failures": Known(entry.c.failures, int, "how often its consumer failed"),
    "cancels": Known(entry.c.cancels, int, "how often its consumer gave it back"),
    "outcome": Known(_recorded(_record.c.outcome), str, "in a journal: the outcome of the message; null until then"),
    "outcome_reason": Known(_recorded(_record.c.reason), str, "in a journal: why it was given up, where it was"),
}
"""Every name that is no property."""

_Columns = Mapping[str, ColumnElement[Any]]
_OF_ENTRY: Final[_Columns] = {name: known.column for name, known in FIELDS.items()}
_OF_MESSAGE: Final[_Columns] = {
    **_OF_ENTRY,
    "position": message.c.id,
    "priority": bindparam("priority", required=True),
    **dict.fromkeys(("deliveries", "failures", "cancels"), literal(0)),
    **dict.fromkeys(("outcome", "outcome_reason"), null()),
}
"""The same where a message is judged before there is an entry of it."""


def fits(wanted: Filter) -> ColumnElement[bool]:
    """The condition of a statement over ``entry`` that its entry fits ``wanted``."""
    joined = message.outerjoin(header, header.c.message == message.c.id)
    conditions = (message.c.id == entry.c.message, _condition(wanted, _OF_ENTRY))
    return exists(select(literal(1)).select_from(joined).where(*conditions).correlate(entry))


class Filtered:
    """A statement over ``entry``, for all rows or for those that fit a filter. ``made(*conditions)`` answers the
    statement with these conditions added to its own: with none, or with that of a filter."""

    def __init__(self, made: Callable[..., Select[Any]]) -> None:
        self.text: Final = compiled(made())
        self._bound = lru_cache(256)(lambda shape: bound(made(fits(shape))))
        """The statement for a filter without its values, which differ from one request to the next: making its text
        takes longer than running it."""

    def of(self, wanted: Filter | None) -> tuple[str, dict[str, Any]]:
        """The statement for what ``wanted`` wants, and the values of its parameters."""
        if wanted is None:
            return self.text, {}
        values: dict[str, Any] = {}
        text, constants = self._bound(_shape(wanted, values))
        return text, constants | values


def _shape(wanted: Filter, values: dict[str, Any]) -> Filter:
    """``wanted`` with a parameter in the place of each value, which is added to ``values`` by its name."""
    match wanted:
        case Comparison(field, operator, given):
            return Comparison(field, operator, tuple(_named(value, values) for value in given))
        case Not(of):
            return Not(_shape(of, values))
        case Every(of) | Some(of):
            return type(wanted)(tuple(_shape(one, values) for one in of))


def _named(value: Value, values: dict[str, Any]) -> Parameter:
    if isinstance(value, Parameter):
        return value
    name = f"value_{len(values)}"
    values[name] = _plain(value)
    return Parameter(name, isinstance(value, str))


def fitting_message(wanted: Filter) -> Select[Any]:
    """The statement that answers a row if a stored message, ``:message``, fits ``wanted``, of which an entry with
    ``:priority`` would be made."""
    joined = message.outerjoin(header, header.c.message == message.c.id)
    conditions = (message.c.id == bindparam("message", required=True), _condition(wanted, _OF_MESSAGE))
    return select(message.c.id).select_from(joined).where(*conditions)


def _condition(wanted: Filter, columns: _Columns) -> ColumnElement[bool]:
    match wanted:
        case Comparison(field, operator, values):
            return OPERATORS[operator](_value(field, columns), *map(_bind, values))
        case Not(of):
            return not_(_condition(of, columns))
        case Every(of):
            return and_(*(_condition(one, columns) for one in of))
        case Some(of):
            return or_(*(_condition(one, columns) for one in of))


def _value(field: Field, columns: _Columns) -> ColumnElement[Any]:
    if not field.is_property and field.name in columns:
        return columns[field.name]
    return func.json_extract(header.c.properties, f'$."{field.name}"')


def _bind(value: Value) -> ColumnElement[Any]:
    if isinstance(value, Parameter):
        return bindparam(value.name, type_=String() if value.is_text else Numeric(), required=True)
    return literal(_plain(value))


def _plain(value: str | float | bool) -> str | float:
    """A value as SQL has it: true is 1."""
    return int(value) if isinstance(value, bool) else value


def _alike(compare: Callable[[Any, Any], ColumnElement[bool]]) -> Callable[..., ColumnElement[bool]]:
    """``compare`` where both are texts, or both numbers; unknown otherwise."""

    def test(value: ColumnElement[Any], other: ColumnElement[Any]) -> ColumnElement[bool]:
        is_text = func.typeof(value) == "text"
        return case((is_text if isinstance(other.type, String) else not_(is_text), compare(value, other)))

    return test


OPERATORS: Final[dict[str, Callable[..., ColumnElement[bool]]]] = {
    "=": lambda value, other: value == other,
    "!=": lambda value, other: value != other,
    "<": _alike(lambda value, other: value < other),
    "<=": _alike(lambda value, other: value <= other),
    ">": _alike(lambda value, other: value > other),
    ">=": _alike(lambda value, other: value >= other),
    "like": _alike(lambda value, pattern: value.like(pattern, escape="\\")),
    "in": lambda value, *others: or_(*(value == other for other in others)),
    "is null": lambda value: value.is_(None),
}
