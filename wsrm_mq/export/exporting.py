"""The export of a store into segments: closed, sorted files, with a manifest of their contents.

An export that is interrupted goes on behind the last closed segment when it is asked for again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, exists, select

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.export.formats import format_named
from wsrm_mq.export.manifest import (
    Contents,
    Manifest,
    Segment,
    SegmentTally,
    Unfinished,
    unfinished,
    write_errors,
)
from wsrm_mq.export.pieces import (
    PIECE,
    Exposure,
    Origin,
    Reading,
    before,
    bounds,
    opened,
    origin,
    pieces,
    view_of,
)
from wsrm_mq.export.schema import TABLES, Kind, Table, table_named
from wsrm_mq.files import replacing
from wsrm_mq.store import published as views
from wsrm_mq.store.clock import Clock, wall_clock
from wsrm_mq.store.port import Database
from wsrm_mq.views.query import parse
from wsrm_mq.views.reading import what_fits

SEGMENT_ROWS: Final = 100_000
SEGMENT_BYTES: Final = 256 * 1024 * 1024
"""The bytes of envelopes in a segment: it ends with the piece that exceeds them."""

OnProgress = Callable[[Segment, int], object]
"""A function that is told of each closed segment, with the last key of its table."""


class Asked(NamedTuple):
    """The contents that are asked of an export."""

    tables: tuple[str, ...] = tuple(TABLES)
    encoding: str = "ndjson"
    bodies: bool = False
    """Envelopes, and bodies of replies, are exported too."""
    headers: tuple[str, ...] = ()
    """The headers of requests that are given, beside Content-Type and SOAPAction."""
    security: bool = False
    """Envelopes keep their ``wsse:Security``."""
    node: str | None = None
    query: str = ""
    """A query (``views.query``): of ``messages``, ``attempts``, ``ledger`` and ``replies`` only rows of messages that
    fit it are exported. Other tables are whole."""
    segment_rows: int | None = None
    """The rows of a segment; ``None``: ``SEGMENT_ROWS``, or the most that the encoding can hold."""


def export(
    store: Path,
    directory: Path,
    asked: Asked,
    *,
    clock: Clock = wall_clock,
    on_progress: OnProgress = lambda _segment, _upper: None,
) -> Manifest:
    """Write the contents ``asked`` of ``store`` into ``directory``, and answer the manifest. The service may go on
    meanwhile.

    Raises ``ConfigurationError`` for contents that cannot be asked, ``NotAllowed`` where ``directory`` holds anything
    else, ``ExportError`` where it cannot be written.
    """
    readings = _readings(asked)
    with write_errors(directory, "run the command again: it goes on where it was"), opened(store) as db:
        begun = _begun(db, asked, readings, clock())
        _wanted(db, begun)  # a query that cannot be asked leaves no directory behind
        with unfinished(directory, begun) as growing:
            source = Origin(growing.begun.store, growing.begun.node)
            wanted = _wanted(db, growing.begun)
            for reading in readings:
                complete = reading._replace(origin=source, wanted=_its(reading.table, wanted))
                for segment in _segments(db, growing, complete, asked, clock):
                    growing.add(segment)
                    on_progress(segment, growing.begun.tables[segment.table].upper or 0)
            return growing.finish(clock())


def _readings(asked: Asked) -> list[Reading]:
    """One for each table; the origin is not known yet."""
    exposure = Exposure(asked.headers, security=asked.security)
    encoding = format_named(asked.encoding)
    if (asked.segment_rows or 0) > encoding.most_rows:
        raise ConfigurationError(f"A file of {asked.encoding} holds at most {encoding.most_rows} rows; ask for fewer.")
    needed = set(encoding.needed)
    found = []
    # The ledger first: what retention deletes meanwhile goes with its rows there, and would seem never told.
    for table in sorted(map(table_named, asked.tables), key=lambda table: table.name != "ledger"):
        columns = table.columns if asked.bodies else table.given
        if missing := needed - {column.name for column in columns}:
            raise ConfigurationError(
                f"{asked.encoding} is for messages with their envelopes; {table.name} would have no {min(missing)}."
            )
        found.append(Reading(table, columns, exposure, Origin("", "")))
    return found


def _begun(db: Database, asked: Asked, readings: Sequence[Reading], now: int) -> Manifest:
    store, node = origin(db, asked.node)
    tables = {}
    for table, columns, *_ in readings:
        ends = bounds(db, table)
        tables[table.name] = Contents(columns=dict(columns), upper=ends.upper if ends is not None else None)
    return Manifest(
        store=store,
        node=node,
        read_views=views.VERSION,
        encoding=asked.encoding,
        query=asked.query,
        bodies=asked.bodies,
        security="kept" if asked.security else "redacted",
        headers=readings[0].exposure.headers,
        begun_at=now,
        tables=tables,
    )


def _wanted(db: Database, begun: Manifest) -> tuple[ColumnElement[bool], ...]:
    """The conditions of the query. Ages are counted from the beginning of the export."""
    return what_fits(db, parse(begun.query, begun.begun_at)) if begun.query else ()


def _its(table: Table, wanted: tuple[ColumnElement[bool], ...]) -> tuple[ColumnElement[bool], ...]:
    """The conditions for a row of ``table`` that is, or belongs to, a ``wanted`` message."""
    view, position = view_of(table), views.messages.c.position
    if not wanted or view is views.messages:
        return wanted
    if "position" not in view.c:
        return ()
    return (exists(select(position).where(position == view.c.position, *wanted).correlate(view)),)


def _segments(db: Database, growing: Unfinished, reading: Reading, asked: Asked, clock: Clock) -> Iterator[Segment]:
    """The segments of a table that are still to be written, each when it is."""
    table, upper = reading.table, growing.begun.tables[reading.table.name].upper
    if upper is None:
        return
    there = [segment for segment in growing.segments if segment.table == table.name]
    after, number = (there[-1].last if there else before(table, 0)), len(there) + 1
    encoding = format_named(asked.encoding)
    most = asked.segment_rows or min(SEGMENT_ROWS, encoding.most_rows)
    names = [column.name for column in reading.columns]
    key = [names.index(name) for name in table.key]
    moment = [names.index(table.moment)] if table.moment is not None else []
    content = [place for place, column in enumerate(reading.columns) if column.kind is Kind.BYTES]
    (growing.directory / table.name).mkdir(mode=0o700, exist_ok=True)
    while first := next(found := pieces(db, reading, after, upper, most), None):
        file = Path(table.name, f"{number:06}.{encoding.suffix}")
        tally, read_at = SegmentTally(table.name), clock()
        with (
            replacing(growing.directory / file) as opened_file,
            closing(encoding.writer(opened_file, reading.columns)) as writer,
        ):
            for rows in itertools.chain([first], found):
                writer.write(rows)
                size = sum(len(row[place] or b"") for place in content for row in rows)
                keys = [tuple(row[place] for place in key) for row in (rows[0], rows[-1])]
                tally.add(len(rows), size, keys, [row[place] for place in moment for row in rows])
                if tally.rows + min(most, PIECE) > most or tally.bytes >= SEGMENT_BYTES:
                    break
        segment = tally.segment(Segment, growing.directory, file, read_at=read_at)
        yield segment
        after, number = segment.last, number + 1
