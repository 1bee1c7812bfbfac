"""Rows as Arrow batches, and Parquet: the one module that needs pyarrow (extra ``export``)."""

from __future__ import annotations

import gzip
import itertools
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
from pyarrow import parquet

from wsrm_mq.errors import ConfigurationError, ExportError
from wsrm_mq.export.formats import EPOCH
from wsrm_mq.export.manifest import Manifest, Segment
from wsrm_mq.export.pieces import PIECE, Bounds, Row
from wsrm_mq.export.schema import CONTENT, Column, Kind

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


# Segments read back: the rows of an export as they were read from the store.

_READ: Final = ("parquet", "ndjson")
_MILLISECOND: Final = timedelta(milliseconds=1)


def files_of(
    directory: Path, manifest: Manifest, table: str, columns: Sequence[Column], keys: Sequence[Bounds] | None = None
) -> list[Path]:
    """The segments of a table, if ``keys`` are given those that may have some of them. Columns that an older export
    lacks are NULL. Raises ``ConfigurationError`` where there is no such table, or where it was made without the bodies
    that a column needs, ``ExportError`` where a segment is not as long as it was."""
    if manifest.encoding not in _READ:
        raise ConfigurationError(f"an export as {manifest.encoding} is for people; export it as {' or '.join(_READ)}.")
    contents = manifest.tables.get(table)
    if contents is None:
        raise ConfigurationError(f"the export has no table {table}; it has {', '.join(manifest.tables)}.")
    content = [column.name for column in columns if column.name in CONTENT]
    if content and not manifest.bodies:
        raise ConfigurationError(f"the export has no column {content[0]} of {table}; was it made with --bodies?")
    its = [segment for segment in manifest.segments if segment.table == table]
    if keys is not None:
        its = [one for one in its if any(key.lower <= one.last[0] and key.upper >= one.first[0] for key in keys)]
    return [_whole(directory, segment) for segment in its]


def _whole(directory: Path, segment: Segment) -> Path:
    file = directory / segment.file
    with read_errors(file):
        size = file.stat().st_size
    if size != segment.bytes:
        raise ExportError(f"{file}: has {size} bytes, and had {segment.bytes}. Copy it again, or export again.")
    return file


def rows(file: Path, columns: Sequence[Column]) -> Iterator[list[Row]]:
    """The rows of a segment of NDJSON, in pieces, with values as a read view has them."""
    converting = [(column.name, _BACK.get(column.kind)) for column in columns]
    with read_errors(file), gzip.open(file) as lines:
        for piece in iter(lambda: list(itertools.islice(lines, PIECE)), []):
            found = map(msgspec.json.decode, piece)
            yield [tuple(_value(row.get(name), convert) for name, convert in converting) for row in found]


def _value(value: Any, convert: Callable[[Any], Any] | None) -> Any:
    return value if value is None or convert is None else convert(value)


def _ms(moment: str) -> int:
    return (datetime.fromisoformat(moment) - EPOCH) // _MILLISECOND


_BACK: Final[dict[Kind, Callable[[Any], Any]]] = {Kind.TIME: _ms, Kind.BOOLEAN: int, Kind.BYTES: b64decode}


@contextmanager
def read_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, ValueError, KeyError) as error:  # pyarrow's and msgspec's are ValueErrors
        why = (error.strerror if isinstance(error, OSError) else None) or str(error) or "it breaks off"
        raise ExportError(f"{file}: cannot be read: {why}. Copy it again, or export again.") from error
