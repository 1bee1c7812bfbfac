"""The removal of rows from an archive: each file that has some of them is written anew, under a new name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyarrow import compute

from wsrm_mq.archive.files import columns_of, damage, read, write
from wsrm_mq.archive.manifest import Archive, ArchivedSegment
from wsrm_mq.errors import ExportError
from wsrm_mq.export.schema import TABLES
from wsrm_mq.sequence.ranges import AckRanges

Unwanted = Mapping[str, Mapping[str, AckRanges | frozenset[str]]]
"""Rows, by table and column: those that have one of these values."""


class Rewritten(NamedTuple):
    """An archive whose files were written anew without some rows."""

    segments: tuple[ArchivedSegment, ...]
    """The segments of the whole archive afterwards."""
    rows: dict[str, int]
    """The number of rows that were taken out, by table."""
    before: dict[str, str]
    """SHA-256 of the files that are replaced, by name."""
    after: dict[str, str]
    """SHA-256 of the files in their places."""


def without(directory: Path, known: Archive, number: int, unwanted: Unwanted) -> Rewritten:
    """Write the files anew that have rows which are ``unwanted``. The archive is as it was until the segments are
    committed."""
    kept: list[ArchivedSegment] = []
    rows: dict[str, int] = {}
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for segment in known.segments:
        count = _count(directory, known, segment, unwanted.get(segment.table, {}))
        if not count:
            kept.append(segment)
            continue
        if wrong := damage(directory, segment):
            raise ExportError(wrong)
        fresh = list(_anew(directory, known, number, segment, unwanted[segment.table]))
        if sum(one.rows for one in fresh) != segment.rows - count:
            raise ExportError(f"{directory / segment.file}: had other rows when it was read again.")
        rows[segment.table] = rows.get(segment.table, 0) + count
        before[segment.file] = segment.sha256
        after |= {one.file: one.sha256 for one in fresh}
        kept += fresh
    return Rewritten(tuple(kept), rows, before, after)


def _count(directory: Path, known: Archive, segment: ArchivedSegment, unwanted: Mapping[str, object]) -> int:
    """Count the unwanted rows of a segment. A file without a key among them is not opened."""
    key = TABLES[segment.table].key[0]
    wanted = {
        column: values
        for column, values in unwanted.items()
        if not (column == key and isinstance(values, AckRanges) and _misses(values, segment))
    }
    if not wanted:
        return 0
    found = read(directory, known, segment, tuple(wanted))
    return sum(compute.sum(_is_unwanted(batch, wanted)).as_py() or 0 for batch in found)


def _misses(values: AckRanges, segment: ArchivedSegment) -> bool:
    (first, last) = segment.first[0], segment.last[0]
    return values.first_from(first, last + 1) > last


def _anew(
    directory: Path, known: Archive, number: int, segment: ArchivedSegment, unwanted: Mapping[str, object]
) -> Iterator[ArchivedSegment]:
    """Write the other rows of a segment. They stay verified, since they are only filtered and counted."""
    table = TABLES[segment.table]
    columns = columns_of(known, table)
    left = (
        batch.filter(compute.invert(_is_unwanted(batch, unwanted)))
        for batch in read(directory, known, segment, tuple(column.name for column in columns))
    )
    for fresh in write(directory, number, table, columns, (batch for batch in left if batch.num_rows)):
        yield msgspec.structs.replace(
            fresh, batch=segment.batch, read_at=segment.read_at, verified_at=segment.verified_at
        )


def _is_unwanted(batch: pa.RecordBatch, unwanted: Mapping[str, object]) -> pa.Array:
    masks = []
    for name, values in unwanted.items():
        assert isinstance(values, AckRanges | frozenset)
        masks.append([one is not None and one in values for one in batch.column(name).to_pylist()])
    return pa.array([any(one) for one in zip(*masks, strict=True)], pa.bool_())
