"""A store is archived: its tables are read, sorted and written by the tasks of Spark, and committed here by a manifest.

Each attempt of a task writes files of its own and tells which: of tasks that were tried again, or raced, one is
believed, and the files of the others are removed with the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from wsrm_mq.archive.batches import added, begun, verified
from wsrm_mq.archive.manifest import Archive, ArchivedSegment, Keys, locked
from wsrm_mq.archive.planning import Wanted, plan
from wsrm_mq.archive.reading import columns_of
from wsrm_mq.archive.verifying import Found, Tally, holding, stable, tally
from wsrm_mq.errors import ExportError
from wsrm_mq.export.contents import Exposure
from wsrm_mq.export.reading import opened
from wsrm_mq.export.schema import TABLES, Column, Table
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.spark.jobs.archive import ordered
from wsrm_mq.spark.source import read
from wsrm_mq.store.database import snapshot
from wsrm_mq.store.writer import Clock, wall_clock

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

PART_ROWS: Final = 100_000
"""About so many messages are sorted and written by a task."""

Batches = Iterator["RecordBatch"]


class Asked(NamedTuple):
    """How an archive shows what it holds; it stays as the archive was begun."""

    headers: tuple[str, ...] = ()
    """Of requests, beside Content-Type and SOAPAction."""
    security: bool = False
    """Envelopes keep their ``wsse:Security``."""
    node: str | None = None


class Archived(NamedTuple):
    known: Archive
    rows: dict[str, int]
    """How many were added now, by table."""
    wrong: list[Found]
    """What was found when it was compared with the store."""


def archive_of(
    spark: SparkSession, store: Path, directory: Path, asked: Asked, actor: str, *, clock: Clock = wall_clock
) -> Archived:
    """Add to the archive in ``directory`` what the ``store`` has settled since, and compare it with the store.

    Raises ``NotAllowed`` where another process works on it, it is of another store or begun with something else
    ``asked``; ``ExportError`` where it cannot be written. It is as it was then.
    """
    directory = directory.absolute()
    exposure = Exposure(asked.headers, security=asked.security)
    with locked(directory), opened(store) as db:
        now = clock()
        with snapshot(db):
            known = begun(directory, db, exposure, asked.node, now)
            wanted = plan(db, known)
        rows: dict[str, int] = {}
        if wanted.is_new:
            work = _Work(spark, str(store), directory, known)
            segments = [one for table in wanted.keys for one in work.written(table, wanted)]
            known = added(directory, known, wanted, segments, now, actor)
            rows = known.records[-1].rows
        if not known.unverified:
            return Archived(known, rows, [])
        known, wrong = verified(directory, known, db, clock(), _Work(spark, str(store), directory, known).sums)
        return Archived(known, rows, wrong)


class _Work(NamedTuple):
    spark: SparkSession
    store: str
    directory: Path
    known: Archive

    def rows(self, table: str, names: Sequence[str], keys: Keys) -> DataFrame:
        """Of the store, as the archive has them."""
        return read(
            self.spark,
            self.store,
            table=table,
            columns=names,
            keys=",".join(f"{lower}-{upper}" for lower, upper in keys),
            node=self.known.node,
            headers=",".join(self.known.headers),
            withSecurity=self.known.security == "kept",
        )

    def written(self, table: str, wanted: Wanted) -> list[ArchivedSegment]:
        columns = columns_of(self.known, TABLES[table])
        rows = self.rows(table, [column.name for column in columns], wanted.keys[table])
        parts = max(1, -(-wanted.messages // PART_ROWS))
        task = partial(_write, self.directory, self.known.number + 1, table, columns)
        told = ordered(rows, table, parts).mapInArrow(task, "segment binary").collect()
        return [msgspec.json.decode(row.segment, type=ArchivedSegment) for row in told]

    def sums(self, table: Table, keys: AckRanges) -> tuple[Tally, Tally]:
        """What ``archive.verifying`` compares, added up by tasks."""
        names, key = stable(self.known, table), table.key[0]
        add = partial(_added, names, key, keys)
        files = [(str(self.directory / one.file),) for one in holding(self.known, table, keys)]
        here: Tally = Tally()
        if files:
            read_files = partial(_read, columns_of(self.known, table), names, add)
            spread = self.spark.createDataFrame(files, "file string").repartition(len(files))
            here = _summed(spread.mapInArrow(read_files, _TALLY))
        stored = self.rows(table.name, names, keys.ranges).mapInArrow(add, _TALLY) if keys else None
        return here, _summed(stored) if stored is not None else Tally()


_TALLY: Final = "bucket long, what string, sum string"


def _write(directory: Path, number: int, table: str, columns: Sequence[Column], batches: Batches) -> Batches:
    """The task that writes; tells of each file."""
    import pyarrow as pa

    from wsrm_mq.archive.writing import write

    try:
        for one in write(directory, number, TABLES[table], columns, batches):
            yield pa.RecordBatch.from_pydict({"segment": [msgspec.json.encode(one)]})
    except OSError as error:
        raise ExportError(f"{directory}: cannot be written: {error.strerror or error}.") from error


def _read(
    columns: Sequence[Column], names: Sequence[str], add: Callable[[Batches], Batches], files: Batches
) -> Batches:
    from wsrm_mq.export.arrow import schema, stored_batches

    target = schema(column for column in columns if column.name in names)
    for rows in files:
        for file in rows.column("file").to_pylist():
            yield from add(stored_batches(Path(file), target))


def _added(names: Sequence[str], key: str, keys: AckRanges, batches: Batches) -> Batches:
    import pyarrow as pa

    found = tally(names, key, batches, keys)
    told = [(bucket, what, str(value)) for (bucket, what), value in found.items()]
    columns = list(zip(*told, strict=True)) or [(), (), ()]
    kinds = (("bucket", pa.int64()), ("what", pa.string()), ("sum", pa.string()))
    yield pa.RecordBatch.from_arrays(
        [pa.array(one, kind) for one, (_, kind) in zip(columns, kinds, strict=True)], schema=pa.schema(kinds)
    )


def _summed(told: DataFrame) -> Tally:
    found = Tally()
    for bucket, what, value in told.collect():
        found[bucket, what] += int(value)
    return found
