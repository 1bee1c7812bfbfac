"""The comparison of an archive with its store: by counts and digests, then row by row where these differ.

Both sides are added up in buckets of neighbouring keys, in one pass each, whatever their order. A bucket that differs
is read again. A row that the store no longer has is why there are archives; a row that an operator has changed since
waits for the next batch; any other difference is an error.
"""

from __future__ import annotations

import enum
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from wsrm_mq.archive.files import Archive, ArchivedSegment, columns_of, damage, is_there, read
from wsrm_mq.archive.planning import changed
from wsrm_mq.export.arrow import batch as as_batch
from wsrm_mq.export.arrow import schema
from wsrm_mq.export.pieces import Exposure, Origin, Reading, before, pieces
from wsrm_mq.export.schema import CONTENT, TABLES, Table
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import archiving as sql
from wsrm_mq.store.port import Database

_BUCKET: Final = 4_096
"""The number of keys that share a sum."""
_CHANGES: Final = {
    "messages": ("has_body",),
    "replies": ("sequence",),
    "sequences": ("active_at", "duplicates", "pruned", "ready", "oldest_at", "delivery"),
}
"""Columns that change without an act: retention frees bodies and forgets sequences, and a late duplicate is counted."""

_OF_FREED: Final = (*CONTENT, "confirmed_at")
"""Columns in which the row of a message whose body was freed may be older: it is not archived anew."""

Tally = Counter[tuple[int, str]]
"""The count of ``rows`` and the ``sum`` of their digests, by bucket."""


class Difference(enum.StrEnum):
    """A kind of difference between an archive and its store."""

    DAMAGED = "damaged"
    """The file is not as it was written."""
    OTHER = "other"
    """The archive and the store have it, and not the same."""
    MISSING = "missing"
    """The archive says that it holds it, and does not."""


class Found(NamedTuple):
    """One difference."""

    kind: Difference
    table: str
    what: str
    """The key, or the file and what is wrong with it."""


def stable(known: Archive, table: Table) -> list[str]:
    """The columns by which rows are compared."""
    return [column.name for column in columns_of(known, table) if column.name not in _CHANGES.get(table.name, ())]


def _rows(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    columns = (rows.column(name) for name in names)
    plain = (one.cast(pa.int64()) if pa.types.is_timestamp(one.type) else one for one in columns)
    return zip(*(one.to_pylist() for one in plain), strict=True)


def _digest(row: tuple[Any, ...]) -> int:
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(row), digest_size=8).digest())


def tally(names: Sequence[str], key: str, keys: AckRanges, batches: Iterable[pa.RecordBatch]) -> Tally:
    """Add up the columns ``names`` of the rows whose ``key`` is in ``keys``."""
    found: Tally = Counter()
    place = names.index(key)
    for rows in batches:
        for row in _rows(rows, names):
            if row[place] in keys:
                bucket = row[place] // _BUCKET
                found[bucket, "rows"] += 1
                found[bucket, "sum"] += _digest(row)
    return found


def stored(db: Database, known: Archive, table: Table, keys: AckRanges) -> Iterator[pa.RecordBatch]:
    """The rows of the store with these ``keys``, as the archive has them."""
    columns = columns_of(known, table)
    exposure = Exposure(known.headers, security=known.security == "kept")
    reading, target = Reading(table, columns, exposure, Origin(known.store, known.node)), schema(columns)
    for lower, upper in keys:
        for piece in pieces(db, reading, before(table, lower), upper):
            yield as_batch(piece, columns, target)


def held(known: Archive, table: Table) -> AckRanges:
    """The keys of a table that the archive has as they are for good."""
    forgotten = AckRanges(known.forgotten), AckRanges(known.forgotten_sequences)
    match table.name:
        case "messages" | "replies":
            return AckRanges(known.messages).without(forgotten[0])
        case "sequences" | "ranges":
            return AckRanges(known.sequences).without(forgotten[1])
    return AckRanges(((1, known.ledger),)) if known.ledger else AckRanges()


Sums = Callable[[Table, AckRanges], tuple[Tally, Tally]]
"""A function of a table and keys that answers the tally of the archive's rows, and of the store's."""


def local_sums(db: Database, directory: Path, known: Archive) -> Sums:
    """Sums that are added up here, one after the other."""

    def sums(table: Table, keys: AckRanges) -> tuple[Tally, Tally]:
        names, key = stable(known, table), table.key[0]
        archived = (rows for one in holding(known, table, keys) for rows in read(directory, known, one, names))
        return tally(names, key, keys, archived), tally(names, key, keys, stored(db, known, table, keys))

    return sums


def compared(
    db: Database, directory: Path, known: Archive, keys: Mapping[str, AckRanges], sums: Sums
) -> Iterator[Found]:
    """Compare the rows with these ``keys``, by table, and answer the differences. Keys that the archive does not hold
    for good are left out."""
    for name, asked in keys.items():
        table = TABLES[name]
        wanted = asked.within(held(known, table))
        here, there = sums(table, wanted)
        buckets = {bucket for bucket, what in here.keys() | there.keys() if here[bucket, what] != there[bucket, what]}
        for bucket in sorted(one for one in buckets if there[one, "rows"]):
            whole = AckRanges(((bucket * _BUCKET, (bucket + 1) * _BUCKET - 1),))
            yield from difference(db, directory, known, table, wanted.within(whole))


def damaged(directory: Path, segments: Iterable[ArchivedSegment]) -> Iterator[Found]:
    """A finding for each file whose bytes are not those that were written."""
    for segment in segments:
        if wrong := damage(directory, segment):
            yield Found(Difference.DAMAGED, segment.table, wrong)


def absent(directory: Path, segments: Iterable[ArchivedSegment]) -> Iterator[Found]:
    """A finding for each file that is missing, or not as long as it was."""
    for segment in segments:
        if not is_there(directory, segment):
            what = f"{directory / segment.file}: is missing, or not whole. Put it back from a copy."
            yield Found(Difference.DAMAGED, segment.table, what)


def difference(db: Database, directory: Path, known: Archive, table: Table, keys: AckRanges) -> Iterator[Found]:
    """Compare the rows of a few ``keys`` one by one."""
    names = stable(known, table)
    every = [column.name for column in columns_of(known, table)]
    place = [names.index(one) for one in table.key]
    archived = {
        tuple(row[one] for one in place): row
        for segment in holding(known, table, keys)
        for rows in read(directory, known, segment, every)
        for row in _rows(rows, names)
        if row[place[0]] in keys
    }
    since = _changed(db, known, table)
    for rows in stored(db, known, table, keys):
        freed = rows.column("has_body").to_pylist() if table.name == "messages" else [True] * rows.num_rows
        for row, has_body in zip(_rows(rows, names), freed, strict=True):
            key = tuple(row[one] for one in place)
            if key[0] in since:
                continue
            other = archived.get(key)
            if other is None:
                yield Found(Difference.MISSING, table.name, str(key[0]))
            elif _plain(names, row, has_body) != _plain(names, other, has_body):
                yield Found(Difference.OTHER, table.name, str(key[0]))


def _plain(names: Sequence[str], row: tuple[Any, ...], has_body: bool) -> list[Any]:
    """The columns by which a row is compared: fewer of a message whose body was freed."""
    return [value for name, value in zip(names, row, strict=True) if has_body or name not in _OF_FREED]


def holding(known: Archive, table: Table, keys: AckRanges) -> list[ArchivedSegment]:
    """The segments of a table that may have some of ``keys``."""
    return [
        one
        for one in known.segments
        if one.table == table.name and keys.first_from(one.first[0], one.last[0] + 1) <= one.last[0]
    ]


def _changed(db: Database, known: Archive, table: Table) -> set[int]:
    """Keys of rows that the next batch has anew, or that are not archived at all."""
    if table.name == "ledger":
        forgotten = (known.forgotten, known.forgotten_sequences)
        rows = db.execute(sql.TOLD_SINCE, (0,)) if any(forgotten) else ()
        of = [AckRanges(one) for one in forgotten]
        return {
            key
            for key, *about in rows
            if any(one is not None and one in its for one, its in zip(about, of, strict=True))
        }
    since = changed(db, known)
    return since.positions if table.name in ("messages", "replies") else since.sequences
