"""The schema of exports as Spark has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.export.schema import Column, Kind

_TYPES: Final[dict[Kind, DataType]] = {
    Kind.TEXT: StringType(),
    Kind.INTEGER: LongType(),
    Kind.BOOLEAN: BooleanType(),
    Kind.TIME: TimestampType(),
    Kind.BYTES: BinaryType(),
}


def schema_of(columns: Iterable[Column]) -> StructType:
    return StructType([StructField(column.name, _TYPES[column.kind]) for column in columns])


def check(given: StructType, columns: Iterable[Column]) -> None:
    """Raises ``ConfigurationError`` where a schema that a user gave has other types."""
    for field, column in zip(given, columns, strict=True):
        wanted = _TYPES[column.kind]
        if field.dataType != wanted:
            told = f"the column {column.name} is {wanted.simpleString()}, not {field.dataType.simpleString()}."
            raise ConfigurationError(told)
