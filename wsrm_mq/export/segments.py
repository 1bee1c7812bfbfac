"""Segments read back: the rows of an export as they were read from the store."""

from __future__ import annotations

import gzip
import itertools
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from wsrm_mq.errors import ConfigurationError, ExportError
from wsrm_mq.export.formats import EPOCH
from wsrm_mq.export.manifest import Manifest, Segment
from wsrm_mq.export.pieces import PIECE, Bounds, Row
from wsrm_mq.export.schema import CONTENT, Column, Kind

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
