"""The life of an archive: begun, added to, compared with its store, confirmed to it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec

from wsrm_mq.archive import verifying
from wsrm_mq.archive.files import HELD, Archive, ArchivedSegment, Record, commit, is_there, load, read
from wsrm_mq.archive.forgetting import without
from wsrm_mq.archive.planning import Wanted, check_store
from wsrm_mq.archive.verifying import Found, Sums
from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.export.contents import Exposure
from wsrm_mq.export.manifest import FORMAT, Contents
from wsrm_mq.export.pieces import origin
from wsrm_mq.export.schema import TABLES, VERSION
from wsrm_mq.queue.archiving import Archived
from wsrm_mq.sequence.ranges import EMPTY, AckRanges
from wsrm_mq.store import published
from wsrm_mq.store.port import Database


def begun(directory: Path, db: Database, exposure: Exposure, node: str | None, now: int) -> Archive:
    """The archive in ``directory``, or one that nothing is in yet. Raises ``NotAllowed`` where it was begun with
    another ``exposure``."""
    source = origin(db, node)
    fresh = Archive(
        format=FORMAT,
        version=VERSION,
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
    number = known.number + 1
    fresh = tuple(msgspec.structs.replace(one, read_at=now) for one in segments)
    replaced = {
        table: {TABLES[table].key[0]: _found(directory, known, fresh, table, keys)}
        for table, keys in wanted.replaced.items()
        if keys
    }
    old = without(directory, known, number, replaced)
    rows = {table: sum(one.rows for one in fresh if one.table == table) for table in HELD}
    record = Record(
        number=number,
        act="archived",
        at=now,
        actor=actor,
        rows=rows,
        keys=wanted.keys,
        before=old.before,
        after=old.after,
    )
    following = msgspec.structs.replace(
        known,
        number=number,
        mark=wanted.mark,
        epoch=wanted.epoch,
        ledger=wanted.ledger,
        begun_at=now,
        finished_at=now,
        segments=(*old.segments, *fresh),
        records=(*known.records, record),
        **wanted.held,
    )
    return commit(directory, following)


def _found(
    directory: Path, known: Archive, segments: Iterable[ArchivedSegment], table: str, keys: AckRanges
) -> AckRanges:
    """Find the ``keys`` that were read: another process may have pruned the others meanwhile, and the archive keeps
    them."""
    key = TABLES[table].key[0]
    its = (one for one in segments if one.table == table)
    rows = (batch for one in its for batch in read(directory, known, one, (key,)))
    return AckRanges.of(one for batch in rows for one in batch.column(key).to_pylist() if one in keys)


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
        keys = _every(known) if whole else _of_batches(known, {one.batch for one in segments})
        sums = sums or verifying.local_sums(db, directory, known)
        wrong = list(verifying.compared(db, directory, known, keys, sums))
    if wrong or not segments:
        return known, wrong
    of_these = {one.file for one in segments}
    marked = tuple(
        msgspec.structs.replace(one, verified_at=now) if one.file in of_these else one for one in known.segments
    )
    return commit(directory, msgspec.structs.replace(known, segments=marked)), []


def _every(known: Archive) -> dict[str, AckRanges]:
    return {name: verifying.held(known, TABLES[name]) for name in HELD}


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
