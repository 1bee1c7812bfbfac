"""A store is archived: its tables are read, sorted and written by the tasks of Spark, and committed here by a manifest.

Each attempt of a task writes files of its own and tells which: of tasks that were tried again, or raced, one is
believed, and the files of the others are removed with the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wsrm_mq.archive.batches import added, begun, verified
from wsrm_mq.archive.files import Archive, ArchivedSegment, Keys, columns_of, locked, write
from wsrm_mq.archive.planning import Wanted, plan
from wsrm_mq.archive.verifying import Found, Tally, holding, stable, tally
from wsrm_mq.errors import ExportError
from wsrm_mq.export.arrow import schema, stored_batches
from wsrm_mq.export.pieces import Exposure, opened
from wsrm_mq.export.schema import TABLES, Column, Table
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.spark.session import Batches, answers
from wsrm_mq.spark.source import read
from wsrm_mq.store.clock import Clock, wall_clock
from wsrm_mq.store.driver import snapshot

_TOGETHER: Final = ("queue", "sequence")
_ORDER: Final = (*_TOGETHER, "number")
PART_ROWS: Final = 100_000
"""About so many messages are sorted and written by a task."""


class Archived(NamedTuple):
    known: Archive
    rows: dict[str, int]
    """The number of rows that this run has added, by table."""
    wrong: list[Found]
    """The differences between the archive and the store."""


def archive_of(
    spark: SparkSession,
    store: Path,
    directory: Path,
    exposure: Exposure,
    actor: str,
    *,
    node: str | None = None,
    clock: Clock = wall_clock,
) -> Archived:
    """Add the rows that the ``store`` has settled since to the archive in ``directory``, and compare it with the store.

    Raises ``NotAllowed`` where another process works on it, it is of another store or begun with another ``exposure``
    or ``node``; ``ExportError`` where it cannot be written. It is as it was then.
    """
    directory = directory.absolute()
    with locked(directory), opened(store) as db:
        now = clock()
        with snapshot(db):
            known = begun(directory, db, exposure, node, now)
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
        """Read rows of the store in the form of the archive."""
        return read(
            self.spark,
            self.store,
            table=table,
            columns=names,
            keys=[f"{lower}-{upper}" for lower, upper in keys],
            node=self.known.node,
            headers=self.known.headers,
            withSecurity=self.known.security == "kept",
        )

    def written(self, table: str, wanted: Wanted) -> list[ArchivedSegment]:
        columns = columns_of(self.known, TABLES[table])
        rows = self.rows(table, [column.name for column in columns], wanted.keys[table])
        parts = max(1, -(-wanted.messages // PART_ROWS))
        task = partial(_write, self.directory, self.known.number + 1, table, columns)
        return [one for written in answers(ordered(rows, table, parts), task) for one in written]

    def sums(self, table: Table, keys: AckRanges) -> tuple[Tally, Tally]:
        """Add up both sides of the comparison of ``archive.verifying``, by tasks."""
        names, key = stable(self.known, table), table.key[0]
        files = [(str(self.directory / one.file),) for one in holding(self.known, table, keys)]
        here, there = Tally(), Tally()
        if files:
            task = partial(_of_files, columns_of(self.known, table), names, key, keys)
            spread = self.spark.createDataFrame(files, "file string").repartition(len(files))
            here = sum(answers(spread, task), here)
        if keys:
            there = sum(answers(self.rows(table.name, names, keys.ranges), partial(tally, names, key, keys)), there)
        return here, there


def _write(
    directory: Path, number: int, table: str, columns: Sequence[Column], batches: Batches
) -> list[ArchivedSegment]:
    """Write the files of a partition, where its task runs."""
    try:
        return list(write(directory, number, TABLES[table], columns, batches))
    except OSError as error:
        raise ExportError(f"{directory}: cannot be written: {error.strerror or error}.") from error


def _of_files(columns: Sequence[Column], names: Sequence[str], key: str, keys: AckRanges, files: Batches) -> Tally:
    target = schema(column for column in columns if column.name in names)
    paths = (Path(file) for rows in files for file in rows.column("file").to_pylist())
    return tally(names, key, keys, (batch for path in paths for batch in stored_batches(path, target)))


def ordered(rows: DataFrame, table: str, parts: int) -> DataFrame:
    """The rows of a ``table`` of exports in ``parts`` partitions, each sorted by day (UTC), queue, sequence, number and
    key, as far as the table has them. A sequence of a day is in one partition."""
    its = TABLES[table]
    day = [F.to_date(its.moment)] if its.moment is not None else []
    named = [F.col(name) for name in _ORDER if name in rows.columns]
    keys = [F.col(name) for name in its.key]
    together = [*day, *(F.col(name) for name in _TOGETHER if name in rows.columns)] if day else keys[:1]
    return rows.repartition(parts, *together).sortWithinPartitions(*day, *named, *keys)
