"""Rows as Arrow batches, and Parquet: the one module that needs pyarrow (extra ``export``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
from pyarrow import parquet

from wsrm_mq.export.pieces import PIECE, Row
from wsrm_mq.export.schema import Column, Kind
from wsrm_mq.export.segments import read_errors

_TYPES: Final = {
    Kind.TEXT: pa.string(),
    Kind.INTEGER: pa.int64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.TIME: pa.timestamp("us", "UTC"),
    Kind.BYTES: pa.binary(),
}
_STORED: Final = {Kind.TIME: pa.timestamp("ms", "UTC"), Kind.BOOLEAN: pa.int8()}
"""The Arrow type of a kind of value as a read view has it, where that differs from the exported type."""
_GROUP_ROWS: Final = 20_000
_GROUP_BYTES: Final = 32 * 1024 * 1024
"""A group of rows is in memory until it is written."""


def schema(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, _TYPES[column.kind]) for column in columns])


def batch(rows: Sequence[Row], columns: Sequence[Column], target: pa.Schema) -> pa.RecordBatch:
    """``rows`` with the types of ``target``, which is ``schema(columns)`` or Spark's of the same columns."""
    values = zip(*rows, strict=True) if rows else ([] for _ in columns)
    arrays = []
    for column, field, one in zip(columns, target, values, strict=True):
        stored = _STORED.get(column.kind)
        array = pa.array(one, stored or field.type)
        arrays.append(array.cast(field.type) if stored is not None else array)
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def stored_batches(file: Path, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of ``target`` out of a segment of Parquet, piece by piece; those that an older one lacks are NULL."""
    with read_errors(file), file.open("rb") as content, parquet.ParquetFile(content) as opened:
        there = set(opened.schema_arrow.names)
        for found in opened.iter_batches(PIECE, columns=target.names):
            arrays = [
                found.column(one.name) if one.name in there else pa.nulls(found.num_rows, one.type) for one in target
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=target)


class ParquetWriter:
    def __init__(self, file: BinaryIO, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._schema = schema(columns)
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []

    def write(self, rows: Sequence[Row]) -> None:
        self.add(batch(rows, self._columns, self._schema))

    def add(self, rows: pa.RecordBatch) -> None:
        """``rows`` with the types of ``schema(columns)``."""
        self._waiting.append(rows)
        if (
            sum(one.num_rows for one in self._waiting) >= _GROUP_ROWS
            or sum(one.nbytes for one in self._waiting) >= _GROUP_BYTES
        ):
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
            self._waiting = []
