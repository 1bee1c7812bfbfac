"""The life of an archive: begun, added to, compared with its store, confirmed to it, and rid of what is forgotten."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyarrow import compute

from wsrm_mq.archive import verifying
from wsrm_mq.archive.files import (
    HELD,
    Archive,
    ArchivedSegment,
    Record,
    columns_of,
    commit,
    damage,
    digest,
    is_there,
    load,
    read,
    write,
)
from wsrm_mq.archive.planning import Wanted, check_store
from wsrm_mq.archive.verifying import Found, Sums
from wsrm_mq.errors import ExportError, NotAllowed, NotFound
from wsrm_mq.export.manifest import Contents
from wsrm_mq.export.pieces import Exposure, origin
from wsrm_mq.export.schema import TABLES
from wsrm_mq.queue.archiving import Archived
from wsrm_mq.sequence.ranges import EMPTY, AckRanges
from wsrm_mq.store import published
from wsrm_mq.store.port import Database

# A message, or all messages of a partner, are taken out of an archive for good, on record.


# The removal of rows from an archive: each file that has some of them is written anew, under a new name.

_Unwanted = Mapping[str, Mapping[str, AckRanges | frozenset[str]]]
"""Rows, by table and column: those that have one of these values."""


def without(
    directory: Path, known: Archive, unwanted: _Unwanted, **act: Any
) -> tuple[tuple[ArchivedSegment, ...], Record]:
    """Write the files anew that have rows which are ``unwanted``, and answer the segments of the whole archive without
    them, and the record of the ``act``. The archive is as it was until that is committed."""
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
        fresh = list(_anew(directory, known, segment, unwanted[segment.table]))
        if sum(one.rows for one in fresh) != segment.rows - count:
            raise ExportError(f"{directory / segment.file}: had other rows when it was read again.")
        rows[segment.table] = rows.get(segment.table, 0) + count
        before[segment.file] = segment.sha256
        after |= {one.file: one.sha256 for one in fresh}
        kept += fresh
    return tuple(kept), Record(number=known.number + 1, rows=rows, before=before, after=after, **act)


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
    directory: Path, known: Archive, segment: ArchivedSegment, unwanted: Mapping[str, object]
) -> Iterator[ArchivedSegment]:
    """Write the other rows of a segment. They stay verified, since they are only filtered and counted."""
    table = TABLES[segment.table]
    columns = columns_of(known, table)
    left = (
        batch.filter(compute.invert(_is_unwanted(batch, unwanted)))
        for batch in read(directory, known, segment, tuple(column.name for column in columns))
    )
    for fresh in write(directory, known.number + 1, table, columns, (batch for batch in left if batch.num_rows)):
        yield msgspec.structs.replace(
            fresh, batch=segment.batch, read_at=segment.read_at, verified_at=segment.verified_at
        )


def _is_unwanted(batch: pa.RecordBatch, unwanted: Mapping[str, object]) -> pa.Array:
    masks = []
    for name, values in unwanted.items():
        assert isinstance(values, AckRanges | frozenset)
        masks.append([one is not None and one in values for one in batch.column(name).to_pylist()])
    return pa.array([any(one) for one in zip(*masks, strict=True)], pa.bool_())


class Doomed(NamedTuple):
    """The messages and sequences that are to be forgotten. ``named`` has the identifiers of the sequences whose keys
    are ``sequences``."""

    positions: AckRanges
    sequences: AckRanges
    named: frozenset[str]
    partner: str | None = None

    @property
    def unwanted(self) -> _Unwanted:
        """The rows that are about them, in each table."""
        messages, its = {"position": self.positions}, {"key": self.sequences}
        about: dict[str, AckRanges | frozenset[str]] = {"position": self.positions, "sequence": self.named}
        return {"messages": messages, "replies": messages, "ledger": about, "sequences": its, "ranges": its}


def doomed(directory: Path, known: Archive, *, message_id: str | None = None, partner: str | None = None) -> Doomed:
    """The messages with an id, wherever they were replayed to; or the sequences of a partner, with their messages.
    Raises ``NotFound`` where the archive has none."""
    keys: list[int] = []
    named: set[str | None] = set()
    if partner is not None:
        for key, name, identifier in _rows(directory, known, known.segments, "sequences", "key", "partner", "sequence"):
            if name == partner:
                keys.append(key)
                named.add(identifier)
    positions = []
    columns = ("position", "message_id", "sequence", "original_sequence", "partner")
    for position, its_id, sequence, original, of in _rows(directory, known, known.segments, "messages", *columns):
        is_of_partner = sequence in named or original in named or (partner is not None and of == partner)
        if is_of_partner or (message_id is not None and its_id == message_id):
            positions.append(position)
    if not positions and not keys:
        what = f"message {message_id}" if message_id is not None else f"partner {partner}"
        raise NotFound(f"{directory}: has nothing of the {what}.")
    identifiers = frozenset(one for one in named if one is not None)
    return Doomed(AckRanges.of(positions), AckRanges.of(keys), identifiers, partner)


def _rows(
    directory: Path, known: Archive, segments: Iterable[ArchivedSegment], table: str, *names: str
) -> Iterator[tuple[Any, ...]]:
    """Read a few columns of a table."""
    for segment in segments:
        if segment.table == table:
            for rows in read(directory, known, segment, names):
                yield from zip(*(rows.column(name).to_pylist() for name in names), strict=True)


def forget(directory: Path, known: Archive, found: Doomed, *, actor: str, reason: str, now: int) -> Archive:
    """Write the files anew that have rows of ``found``, and answer the archive. These messages are never archived again
    while the store has them; nor are later messages of their sequences, nor sequences that the partner has begun until
    ``now`` and that no batch has read. The manifests keep only their keys and counts."""
    act = {"act": "forgotten", "at": now, "actor": actor, "reason": reason}
    segments, record = without(directory, known, found.unwanted, **act)
    return _recorded(
        directory,
        known,
        segments,
        record,
        forgotten=_both(known.forgotten, found.positions),
        forgotten_sequences=_both(known.forgotten_sequences, found.sequences),
        forgotten_partners=_partners(known, found, now),
    )


def _recorded(
    directory: Path, known: Archive, segments: tuple[ArchivedSegment, ...], record: Record, **fields: Any
) -> Archive:
    """Commit the state of the archive after an act on it: its ``segments``, and other ``fields``."""
    of_act = {"number": record.number, "finished_at": record.at, "records": (*known.records, record)}
    return commit(directory, msgspec.structs.replace(known, segments=segments, **of_act, **fields))


def _both(known: tuple[tuple[int, int], ...], more: AckRanges) -> tuple[tuple[int, int], ...]:
    return AckRanges(known).union(more).ranges


def _partners(known: Archive, found: Doomed, now: int) -> tuple[tuple[str, int], ...]:
    fresh = () if found.partner is None else ((digest(found.partner), now),)
    return tuple(dict((*known.forgotten_partners, *fresh)).items())


# The life of an archive.


def begun(directory: Path, db: Database, exposure: Exposure, node: str | None, now: int) -> Archive:
    """The archive in ``directory``, or one that nothing is in yet. Raises ``NotAllowed`` where it was begun with
    another ``exposure``."""
    source = origin(db, node)
    fresh = Archive(
        store=source.store,
        node=source.node,
        read_views=published.VERSION,
        encoding="parquet",
        query="",
        bodies=True,
        security="kept" if exposure.security else "redacted",
        headers=exposure.headers,
        begun_at=now,
        tables={name: Contents(columns=dict(TABLES[name].columns), upper=None) for name in HELD},
        archive=secrets.token_hex(16),
        number=0,
    )
    try:
        known = load(directory)
    except NotFound:
        known = fresh
    if (known.security, known.headers) != (fresh.security, fresh.headers):
        options = [f"--header {name}" for name in known.headers]
        options += ["--with-security"] if known.security == "kept" else []
        said = " ".join(options) or "neither --header nor --with-security"
        raise NotAllowed(f"{directory}: the archive was begun with {said}. Say so again, or name another directory.")
    return known


def added(
    directory: Path, known: Archive, wanted: Wanted, segments: Iterable[ArchivedSegment], now: int, actor: str
) -> Archive:
    """Add the ``segments`` of a batch to the archive. Earlier rows with the same keys are taken out in the same
    commit."""
    fresh = tuple(msgspec.structs.replace(one, read_at=now) for one in segments)
    replaced = {
        table: {TABLES[table].key[0]: _found(directory, known, fresh, table, keys)}
        for table, keys in wanted.replaced.items()
        if keys
    }
    rows = {table: sum(one.rows for one in fresh if one.table == table) for table in HELD}
    kept, record = without(directory, known, replaced, act="archived", at=now, actor=actor)
    record = msgspec.structs.replace(record, rows=rows, keys=wanted.keys)
    return _recorded(directory, known, (*kept, *fresh), record, begun_at=now, **wanted.state)


def _found(
    directory: Path, known: Archive, segments: Iterable[ArchivedSegment], table: str, keys: AckRanges
) -> AckRanges:
    """Find the ``keys`` that were read: another process may have pruned the others meanwhile, and the archive keeps
    them."""
    there = _rows(directory, known, segments, table, TABLES[table].key[0])
    return AckRanges.of(key for (key,) in there if key in keys)


def verified(
    directory: Path, known: Archive, db: Database, now: int, sums: Sums | None = None, *, whole: bool = False
) -> tuple[Archive, list[Found]]:
    """Compare the segments that were not compared yet, or the ``whole`` archive, with the store, and answer the
    differences. Without one the manifest says that they were compared. Raises ``NotAllowed`` for a store of another
    archive, whose missing rows would count as compared."""
    check_store(db, known)
    segments = known.segments if whole else known.unverified
    others = [one for one in known.segments if one not in segments]
    wrong = [*verifying.damaged(directory, segments), *verifying.absent(directory, others)]
    if not wrong:
        every = {name: verifying.held(known, TABLES[name]) for name in HELD}
        keys = every if whole else _of_batches(known, {one.batch for one in segments})
        sums = sums or verifying.local_sums(db, directory, known)
        wrong = list(verifying.compared(db, directory, known, keys, sums))
    if wrong or not segments:
        return known, wrong
    of_these = {one.file for one in segments}
    marked = tuple(
        msgspec.structs.replace(one, verified_at=now) if one.file in of_these else one for one in known.segments
    )
    return commit(directory, msgspec.structs.replace(known, segments=marked)), []


def _of_batches(known: Archive, numbers: set[int]) -> dict[str, AckRanges]:
    found: dict[str, AckRanges] = {}
    for record in known.records:
        if record.number in numbers and record.act == "archived":
            for table, keys in record.keys.items():
                found[table] = found.get(table, EMPTY).union(AckRanges(keys))
    return found


def held_by(place: Path) -> Archived:
    """Answer the contents of the archive at ``place``, which its store is told. Raises ``NotAllowed`` where a segment
    was not compared with the store, or its file is not in the directory."""
    found = load(place)
    if found.unverified or not found.number:
        what = f"{len(found.unverified)} of its files were not compared with the store" if found.number else "is empty"
        raise NotAllowed(f"{place}: {what}. Run `wsrm-mq archive verify` where the archive is, then confirm it.")
    if place.is_dir() and (gone := sum(not is_there(place, one) for one in found.segments)):
        raise NotAllowed(
            f"{place}: {gone} of its files are missing, or not whole. Put them back from a copy. If they are lost, "
            f"`wsrm-mq archive withdraw {found.archive[:8]}` lets the store keep what only they had."
        )
    return Archived(
        archive=found.archive,
        place=str(place.absolute()),
        number=found.number,
        store=found.store,
        mark=found.mark,
        epoch=found.epoch,
        ledger=found.ledger,
        read_at=found.begun_at,
        messages=found.messages,
        sequences=found.sequences,
    )
