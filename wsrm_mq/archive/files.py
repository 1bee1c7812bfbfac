"""The files of an archive: rows are written by table, day and queue, in the order in which they come, and read back."""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
from pyarrow import compute

from wsrm_mq.errors import ExportError, NotAllowed, NotFound
from wsrm_mq.export.arrow import ParquetWriter, read_errors, schema, stored_batches
from wsrm_mq.export.manifest import HISTORY, MANIFEST, Manifest, Segment, SegmentTally, loaded, sweep, write_errors
from wsrm_mq.export.schema import Column, Kind, Table, chosen
from wsrm_mq.files import digest_of, lock_at_once, replacing
from wsrm_mq.sequence.ranges import AckRange

# The manifest of an archive, by which one state of it becomes the next, at once or not at all.

HELD: Final = ("messages", "replies", "sequences", "ranges", "ledger")
"""The tables of an archive; ``attempts`` are rows of the ledger."""
_LOCK: Final = "lock"

Keys = tuple[AckRange, ...]


class ArchivedSegment(Segment, frozen=True, kw_only=True):
    """Sorted by sequence and number where the table has them; ``first`` and ``last`` are the least and the greatest of
    its keys."""

    batch: int
    """Number of the manifest that it came with."""
    verified_at: int | None = None
    """The time when its rows were found equal to those of the store."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An act on the archive."""

    number: int
    """The number of the manifest that it led to."""
    act: str
    """``archived`` or ``forgotten``."""
    at: int
    actor: str
    reason: str | None = None
    rows: dict[str, int]
    """The number of rows that were added or taken out, by table."""
    keys: dict[str, Keys] = {}
    """The keys that were read of the store, by table."""
    before: dict[str, str] = {}
    """SHA-256 of the files that were replaced, by their names."""
    after: dict[str, str] = {}
    """SHA-256 of the files in their places."""


class Archive(Manifest, frozen=True, kw_only=True):
    """The manifest of an archive: its contents, and its records. Each batch writes the next one."""

    archive: str
    """Its id."""
    number: int
    """The number of this manifest; 0: nothing is archived yet."""
    mark: int = 0
    """The mark of the store when it was read last (``store.identity``)."""
    epoch: str | None = None
    """The token of the run of the service in which the store had that mark; ``None``: not known."""
    ledger: int = 0
    """The ledger is archived up to this key."""
    messages: Keys = ()
    """Positions of messages that are archived as settled, with all that was deleted between them."""
    sequences: Keys = ()
    """Keys of sequences that are archived and over."""
    unfinished: Keys = ()
    """Keys of sequences that were archived as they were then; the next batch has them anew."""
    reopened: Keys = ()
    """Positions whose row is from before an operator restored the message; it is replaced when that is settled."""
    forgotten: Keys = ()
    """Positions that were archived, and taken out again: they never come back."""
    forgotten_sequences: Keys = ()
    forgotten_partners: tuple[tuple[str, int], ...] = ()
    """SHA-256 of a partner's name, and a time: sequences that the partner had begun until then are forgotten."""
    records: tuple[Record, ...] = ()
    segments: tuple[ArchivedSegment, ...] = ()

    @property
    def unverified(self) -> tuple[ArchivedSegment, ...]:
        return tuple(one for one in self.segments if one.verified_at is None)


def digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def load(place: Path) -> Archive:
    """Read the manifest of an archive, from its directory or from a file. Raises ``NotFound`` where there is none,
    ``ExportError`` where it cannot be read or was changed."""
    if not place.exists():
        raise NotFound(f"{place}: there is no archive.")
    file = place / MANIFEST if place.is_dir() else place
    if loaded(file, Manifest).archive is None:
        raise ExportError(
            f"{place}: is an export, and no archive. `wsrm-mq pipeline archive` makes archives of stores."
        )
    return loaded(file, Archive)


def commit(directory: Path, following: Archive) -> Archive:
    """Make ``following`` the state of the archive, whose files are all on disk, and remove every other file."""
    sealed = following.sealed()
    (directory / HISTORY).mkdir(mode=0o700, exist_ok=True)
    sealed.write(directory / HISTORY / f"{sealed.number:06}.json", directory / MANIFEST)
    _sweep(directory, sealed.segments)
    return sealed


def _sweep(directory: Path, segments: Iterable[ArchivedSegment]) -> None:
    sweep(directory, segments, (file for table in HELD for file in (directory / table).rglob("*.parquet*")))


def _clean(directory: Path) -> None:
    """Remove files of no archive. An archive whose manifest cannot be read is left as it is."""
    try:
        segments = load(directory).segments
    except NotFound:
        segments = ()
    except ExportError:
        return
    _sweep(directory, segments)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock the archive for this process; an error leaves nothing behind. Raises ``NotAllowed`` where another process
    works on it, ``ExportError`` where it cannot be written."""
    with write_errors(directory, "try again; the archive is as it was"):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(directory / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            if not lock_at_once(handle):
                raise NotAllowed(f"{directory}: another process is working on this archive.")
            try:
                _clean(directory)
                yield
            except BaseException:
                with suppress(OSError):
                    _clean(directory)
                raise
        finally:
            os.close(handle)


SEGMENT_ROWS: Final = 500_000
SEGMENT_BYTES: Final = 512 * 1024 * 1024
_DAY: Final = 86_400_000_000
_NONE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The name that readers of folders take for null."""
_BY_QUEUE: Final = ("messages", "sequences", "ledger")


Place = tuple[int | None, str | None]
"""The day of a row since the epoch, in UTC, and its queue; ``None``: the table knows none."""


def _folder(table: str, place: Place) -> Path:
    """As Hive names it."""
    parts, (day, queue) = [table], place
    if day is not None:
        date = (pa.scalar(day, pa.int32()).cast(pa.date32())).as_py()
        parts.append(f"date={date.isoformat()}")
    if table in _BY_QUEUE:
        # A queue may be named by any path, and a folder not by any name.
        parts.append(f"queue={quote(queue, safe='')[:200] if queue is not None else _NONE}")
    return Path(*parts)


def places(table: Table, rows: pa.RecordBatch) -> list[Place]:
    """Answer the place of each row."""
    none = [None] * rows.num_rows
    moments = none if table.moment is None else rows.column(table.moment).cast(pa.int64()).to_pylist()
    days = (None if one is None else one // _DAY for one in moments)
    queues = rows.column("queue").to_pylist() if table.name in _BY_QUEUE else none
    return list(zip(days, queues, strict=True))


def write(
    directory: Path, batch: int, table: Table, columns: Sequence[Column], rows: Iterable[pa.RecordBatch]
) -> Iterator[ArchivedSegment]:
    """Write ``rows``, which come sorted by their place, as files of the batch with this number; tells each when it is
    whole and on disk. Two writers at once never write the same file."""
    target = schema(columns)
    plain = (one if one.schema == target else one.select(target.names).cast(target) for one in rows)
    placed = (run for one in plain for run in _runs(table, one))
    for place, group in itertools.groupby(placed, key=itemgetter(0)):
        parts = (part for _place, part in group)
        while (first := next(parts, None)) is not None:
            file = _folder(table.name, place) / f"{batch:06}-{secrets.token_hex(4)}.parquet"
            yield _segment(directory, file, batch, table, columns, itertools.chain([first], parts))


def _runs(table: Table, rows: pa.RecordBatch) -> Iterator[tuple[Place, pa.RecordBatch]]:
    """Parts of ``rows`` that belong to one place."""
    start = 0
    for place, group in itertools.groupby(places(table, rows)):
        count = sum(1 for _ in group)
        yield place, rows.slice(start, count)
        start += count


def _segment(
    directory: Path,
    file: Path,
    batch: int,
    table: Table,
    columns: Sequence[Column],
    parts: Iterable[pa.RecordBatch],
) -> ArchivedSegment:
    """Write a file with as many of ``parts`` as fit it."""
    tally = SegmentTally(table.name)
    (directory / file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(directory / file) as opened, closing(ParquetWriter(opened, columns)) as writer:
        for part in parts:
            writer.add(part)
            keys = ((one,) for one in _extremes(part.column(table.key[0])))
            moments = () if table.moment is None else _extremes(part.column(table.moment).cast(pa.int64()))
            tally.add(part.num_rows, part.nbytes, keys, (one // 1000 for one in moments))
            if tally.rows >= SEGMENT_ROWS or tally.bytes >= SEGMENT_BYTES:
                break
    return tally.segment(ArchivedSegment, directory, file, read_at=0, batch=batch)


def _extremes(column: pa.Array) -> list[int]:
    """The least and the greatest."""
    return [one for one in compute.min_max(column).as_py().values() if one is not None]


# read back


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
