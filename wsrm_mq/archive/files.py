"""The files of an archive, read back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from wsrm_mq.archive.manifest import Archive, ArchivedSegment
from wsrm_mq.errors import ExportError
from wsrm_mq.export.arrow import schema, stored_batches
from wsrm_mq.export.schema import Column, Kind, Table, chosen
from wsrm_mq.export.segments import read_errors
from wsrm_mq.files import digest_of


def columns_of(known: Archive, table: Table) -> tuple[Column, ...]:
    """The columns that the archive has of ``table``: it keeps the ones that it was begun with."""
    return chosen(table, known.tables[table.name].columns)


def read(directory: Path, known: Archive, segment: ArchivedSegment, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns with these ``names``. Raises ``ExportError`` for a file that cannot be read."""
    kinds = known.tables[segment.table].columns
    target = schema(Column(name, Kind(kinds[name])) for name in names)
    yield from stored_batches(directory / segment.file, target)


def is_there(directory: Path, segment: ArchivedSegment) -> bool:
    """Whether a file is there and as long as it was; ``damage`` reads it, too."""
    try:
        return (directory / segment.file).stat().st_size == segment.bytes
    except OSError:
        return False


def damage(directory: Path, segment: ArchivedSegment) -> str | None:
    """Read a file and answer its damage; ``None``: it is as it was written."""
    file = directory / segment.file
    try:
        with read_errors(file):
            digest, _size = digest_of(file)
    except ExportError as error:
        return str(error)
    return None if digest == segment.sha256 else f"{file}: is not as it was written. Put it back from a copy."
