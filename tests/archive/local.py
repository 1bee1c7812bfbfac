"""An archive made in this process: what the tasks of Spark do, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from wsrm_mq.archive.batches import added, begun, verified
from wsrm_mq.archive.files import Archive, columns_of, load, locked, places, read, write
from wsrm_mq.archive.planning import plan
from wsrm_mq.archive.verifying import Found, stored
from wsrm_mq.export.pieces import Exposure, opened
from wsrm_mq.export.schema import TABLES
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store.sqlite.connection import snapshot


def archive(
    store: Path, directory: Path, now: int = 0, *, meanwhile: Callable[[], object] = lambda: None
) -> tuple[Archive, list[Found]]:
    """A batch of all that is new; ``meanwhile`` happens when it is planned and nothing is read."""
    with locked(directory), opened(store) as db:
        with snapshot(db):
            known = begun(directory, db, Exposure(), "n", now)
            wanted = plan(db, known)
        meanwhile()
        if wanted.is_new:
            segments = []
            for name, keys in wanted.keys.items():
                table = TABLES[name]
                columns = columns_of(known, table)
                batches = [one for one in stored(db, known, table, AckRanges(keys)) if one.num_rows]
                if batches:
                    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
                    order = sorted(range(whole.num_rows), key=lambda row: str(places(table, whole)[row]))
                    segments += write(directory, known.number + 1, table, columns, [whole.take(order)])
            known = added(directory, known, wanted, segments, now, "ada")
        return verified(directory, known, db, now)


def held(directory: Path, table: str, *names: str) -> list[tuple[Any, ...]]:
    """The rows of an archive, sorted."""
    known = load(directory)
    found = [
        row
        for segment in known.segments
        if segment.table == table
        for rows in read(directory, known, segment, names)
        for row in zip(*(rows.column(name).to_pylist() for name in names), strict=True)
    ]
    return sorted(found, key=lambda row: [(one is None, one) for one in row])
