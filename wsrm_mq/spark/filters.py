"""Filters of Spark as conditions of a statement, so that the store decides them and sends fewer rows to Spark.

A filter goes to the executors as it came; the condition is made where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from pyspark.sql import datasource as spark
from sqlalchemy import ColumnElement, func, not_, or_, select

from wsrm_mq.export.formats import EPOCH
from wsrm_mq.export.pieces import Bounds, compared
from wsrm_mq.export.schema import Kind, Table
from wsrm_mq.store import published as views


def _starts(column: ColumnElement[Any], value: str) -> ColumnElement[bool]:
    return func.substr(column, 1, len(value)) == value


def _ends(column: ColumnElement[Any], value: str) -> ColumnElement[bool]:
    return func.substr(column, -len(value)) == value


_COMPARISONS: Final[dict[type[spark.Filter], Callable[[ColumnElement[Any], Any], ColumnElement[bool]]]] = {
    spark.EqualTo: lambda column, value: column == value,
    spark.GreaterThan: lambda column, value: column > value,
    spark.GreaterThanOrEqual: lambda column, value: column >= value,
    spark.LessThan: lambda column, value: column < value,
    spark.LessThanOrEqual: lambda column, value: column <= value,
    spark.In: lambda column, values: or_(*(column == value for value in values)),
}
_OF_TEXT: Final[dict[type[spark.Filter], Callable[[ColumnElement[Any], str], ColumnElement[bool]]]] = {
    spark.StringStartsWith: _starts,
    spark.StringEndsWith: _ends,
    spark.StringContains: lambda column, value: func.instr(column, value) > 0,
}
_OF_NULL: Final[dict[type[spark.Filter], Callable[[ColumnElement[Any]], ColumnElement[bool]]]] = {
    spark.IsNull: lambda column: column.is_(None),
    spark.IsNotNull: lambda column: column.is_not(None),
}
_TYPES: Final = {Kind.TEXT: str, Kind.INTEGER: int, Kind.BOOLEAN: bool, Kind.TIME: datetime}


def condition(table: Table, wanted: spark.Filter) -> ColumnElement[bool] | None:
    """The condition of ``wanted`` for rows of the store; ``None`` where Spark has to decide it."""
    if isinstance(wanted, spark.Not):
        inner = condition(table, wanted.child)
        return not_(inner) if inner is not None else None
    path = getattr(wanted, "attribute", ())
    column = next((one for one in table.columns if path == (one.name,)), None)
    stored = compared(table, column.name) if column is not None else None
    if column is None or stored is None:
        return None
    if type(wanted) in _OF_NULL:
        return _OF_NULL[type(wanted)](stored)
    value: Any = getattr(wanted, "value", None)
    if type(wanted) in _OF_TEXT:
        return _OF_TEXT[type(wanted)](stored, value) if isinstance(value, str) and value else None
    if type(wanted) not in _COMPARISONS:
        return None
    values = [_stored(column.kind, one) for one in (value if isinstance(wanted, spark.In) else (value,))]
    if not values or None in values:
        return None
    if column.name == "sequence" and table.name == "messages" and isinstance(wanted, spark.EqualTo | spark.In):
        return _of_sequences(values)
    return _COMPARISONS[type(wanted)](stored, values if isinstance(wanted, spark.In) else values[0])


def _stored(kind: Kind, value: Any) -> Any:
    """A value as a read view has it; ``None`` where it has none that means the same."""
    if type(value) is not _TYPES.get(kind):
        return None
    if isinstance(value, datetime):
        is_exact = value.tzinfo is not None and value.microsecond % 1_000 == 0
        return (value - EPOCH) // timedelta(milliseconds=1) if is_exact else None
    return int(value) if isinstance(value, bool) else value


def _of_sequences(identifiers: list[str]) -> ColumnElement[bool]:
    """The condition for messages of these sequences, which uses the store's index of them."""
    its = views.sequence_messages.c
    return views.messages.c.position.in_(select(its.position).where(or_(*(its.sequence == one for one in identifiers))))


def is_selective(table: Table, filters: Iterable[spark.Filter]) -> bool:
    """Whether the filters name a sequence, so that one partition can read all rows that fit."""
    return table.name == "messages" and any(
        isinstance(one, spark.EqualTo) and one.attribute == ("sequence",) for one in filters
    )


def narrowed(table: Table, filters: Iterable[spark.Filter], within: Bounds) -> Bounds:
    """The keys that can fit."""
    lower, upper = within
    for one in filters:
        value = getattr(one, "value", None)
        if getattr(one, "attribute", ()) != (table.key[0],) or type(value) is not int:
            continue
        if isinstance(one, spark.EqualTo | spark.GreaterThanOrEqual | spark.GreaterThan):
            lower = max(lower, value)
        if isinstance(one, spark.EqualTo | spark.LessThanOrEqual | spark.LessThan):
            upper = min(upper, value)
    return Bounds(lower, upper)
