"""What a store is told of an archive, once that is verified."""

from __future__ import annotations

from pathlib import Path

from wsrm_mq.archive.manifest import load
from wsrm_mq.archive.reading import is_there
from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue.archiving import Archived


def held_by(place: Path) -> Archived:
    """Raises ``NotAllowed`` where something of the archive was not compared with the store, or its files are not in the
    directory."""
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
