"""A message, or all messages of a partner, are taken out of an archive for good, on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from wsrm_mq.archive.files import read
from wsrm_mq.archive.manifest import Archive, Record, commit, digest
from wsrm_mq.archive.rewriting import Rewritten, Unwanted, without
from wsrm_mq.errors import NotFound
from wsrm_mq.sequence.ranges import AckRanges


class Doomed(NamedTuple):
    """The messages and sequences that are to be forgotten. ``named`` has the identifiers of the sequences whose keys
    are ``sequences``."""

    positions: AckRanges
    sequences: AckRanges
    named: frozenset[str]
    partner: str | None = None

    @property
    def unwanted(self) -> Unwanted:
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
        for key, name, identifier in _rows(directory, known, "sequences", "key", "partner", "sequence"):
            if name == partner:
                keys.append(key)
                named.add(identifier)
    positions = []
    columns = ("position", "message_id", "sequence", "original_sequence", "partner")
    for position, its_id, sequence, original, of in _rows(directory, known, "messages", *columns):
        is_of_partner = sequence in named or original in named or (partner is not None and of == partner)
        if is_of_partner or (message_id is not None and its_id == message_id):
            positions.append(position)
    if not positions and not keys:
        what = f"message {message_id}" if message_id is not None else f"partner {partner}"
        raise NotFound(f"{directory}: has nothing of the {what}.")
    identifiers = frozenset(one for one in named if one is not None)
    return Doomed(AckRanges.of(positions), AckRanges.of(keys), identifiers, partner)


def _rows(directory: Path, known: Archive, table: str, *names: str) -> list[tuple[Any, ...]]:
    """Read a few columns of a table."""
    found: list[tuple[Any, ...]] = []
    for segment in known.segments:
        if segment.table == table:
            for rows in read(directory, known, segment, names):
                found += zip(*(rows.column(name).to_pylist() for name in names), strict=True)
    return found


def forget(
    directory: Path, known: Archive, found: Doomed, *, actor: str, reason: str, now: int
) -> tuple[Archive, Rewritten]:
    """Write the files anew that have rows of ``found``, and answer the archive. These messages are never archived again
    while the store has them; nor are later messages of their sequences, nor sequences that the partner has begun until
    ``now`` and that no batch has read. The manifests keep only their keys and counts."""
    number = known.number + 1
    rewritten = without(directory, known, number, found.unwanted)
    record = Record(
        number=number,
        act="forgotten",
        at=now,
        actor=actor,
        reason=reason,
        rows=rewritten.rows,
        before=rewritten.before,
        after=rewritten.after,
    )
    following = msgspec.structs.replace(
        known,
        number=number,
        finished_at=now,
        segments=rewritten.segments,
        forgotten=_both(known.forgotten, found.positions),
        forgotten_sequences=_both(known.forgotten_sequences, found.sequences),
        forgotten_partners=_partners(known, found, now),
        records=(*known.records, record),
    )
    return commit(directory, following), rewritten


def _both(known: tuple[tuple[int, int], ...], more: AckRanges) -> tuple[tuple[int, int], ...]:
    return AckRanges(known).union(more).ranges


def _partners(known: Archive, found: Doomed, now: int) -> tuple[tuple[str, int], ...]:
    fresh = () if found.partner is None else ((digest(found.partner), now),)
    return tuple(dict((*known.forgotten_partners, *fresh)).items())
