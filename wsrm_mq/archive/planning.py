"""The contents of the next batch of an archive, decided in one state of the store, before anything is read.

A message is archived when it is settled, a sequence when it is over. A sequence that is not over is archived as it is,
and again by the next batch. A message or sequence that the ledger tells of since the last batch is archived anew. The
batch has keys, so a message that is settled while the batch is read waits for the next one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from wsrm_mq.archive.files import Archive, Keys, digest
from wsrm_mq.errors import NotAllowed
from wsrm_mq.sequence.ranges import EMPTY, AckRanges
from wsrm_mq.store import archiving as sql
from wsrm_mq.store.identity import epoch_at, identify, is_of_another_past
from wsrm_mq.store.port import Database
from wsrm_mq.store.transaction import as_json


class Wanted(NamedTuple):
    """The keys that a batch reads, and the fields that the manifest has afterwards."""

    keys: dict[str, Keys]
    """The keys that are read, by table; a table without keys is left out."""
    replaced: dict[str, AckRanges]
    """The keys among them that the archive has already, by table."""
    messages: int
    """The number of messages to be read."""
    state: dict[str, Any]
    """Fields of the manifest afterwards: the state of the store, and the keys that the archive then holds."""
    is_new: bool
    """Whether the batch has anything new. Otherwise it has only sequences that go on, without a message of theirs that
    was settled."""


def plan(db: Database, known: Archive) -> Wanted:
    """Plan a batch, in a ``snapshot``. Raises ``NotAllowed`` as ``check_store`` does."""
    mark, ledger = check_store(db, known)
    since = changed(db, known)
    sequences = _sequences(db, known, since.sequences)
    messages = _messages(db, known, since.positions, sequences.forgotten)
    of_forgotten = AckRanges.of(key for key, *about in since.told if _is_forgotten(messages, sequences, *about))
    events = AckRanges(((known.ledger + 1, ledger),)) if ledger > known.ledger else EMPTY
    keys = {
        "messages": messages.read,
        "replies": messages.read,
        "sequences": sequences.read,
        "ranges": sequences.read,
        "ledger": events.without(of_forgotten),
    }
    (count,) = db.execute(sql.COUNT_ENTRIES, (as_json(messages.read.ranges),)).fetchone()
    (acts,) = db.execute(sql.COUNT_TOLD, (known.ledger,)).fetchone()
    return Wanted(
        keys={table: wanted.ranges for table, wanted in keys.items() if wanted},
        replaced={
            **dict.fromkeys(("messages", "replies"), messages.replaced),
            **dict.fromkeys(("sequences", "ranges"), sequences.replaced),
        },
        messages=count,
        state={
            "mark": mark,
            "epoch": epoch_at(db, mark),
            "ledger": ledger,
            "messages": messages.held.ranges,
            "reopened": messages.passing.ranges,
            "forgotten": messages.forgotten.ranges,
            "forgotten_sequences": sequences.forgotten.ranges,
            "sequences": sequences.held.ranges,
            "unfinished": sequences.passing.ranges,
        },
        is_new=bool(count or acts or sequences.held.without(AckRanges(known.sequences))),
    )


def check_store(db: Database, known: Archive) -> tuple[int, int]:
    """Answer the store's mark and its last ledger key. Raises ``NotAllowed`` for an archive of another store, or of a
    later state of this one."""
    found = identify(db)
    (ledger,) = db.execute(sql.LAST_LEDGER).fetchone()
    if known.store != found.id:
        raise NotAllowed(
            f"the archive is of the store {known.store}, and this one is {found.id}: name that store, or another "
            "directory."
        )
    if known.mark > found.mark or known.ledger > ledger:
        raise NotAllowed("the archive knows a later state of this store: this one is an older copy. Name the newest.")
    if is_of_another_past(known.epoch, epoch_at(db, known.mark)):
        raise NotAllowed(
            "the archive has what this store has forgotten: it was put back from a copy since. Name another directory."
        )
    return found.mark, ledger


class Changed(NamedTuple):
    """Rows that were over and may have changed since the last batch."""

    told: list[tuple[int, int | None, int | None]]
    """Rows of the ledger: the key, and the position and the sequence that each is about."""
    positions: set[int]
    sequences: set[int]


def changed(db: Database, known: Archive) -> Changed:
    """Find rows that were changed by an act, which the ledger tells of, or by a replay, which settles a dead letter and
    lets its sequence go on."""
    if not known.number:
        return Changed([], set(), set())
    told = db.execute(sql.TOLD_SINCE, (known.ledger,)).fetchall()
    held = AckRanges(known.messages)
    (last,) = db.execute(sql.LAST_POSITION).fetchone()
    replayed = db.execute(sql.REPLAYED_IN, (as_json(held.gaps(max(last, held.highest)).ranges),)).fetchall()
    positions, sequences = ({row[place] for row in (*(about for _, *about in told), *replayed)} for place in (0, 1))
    return Changed(told, positions - {None}, sequences - {None})


class _Part(NamedTuple):
    """The keys of messages, or of sequences, by what becomes of them."""

    read: AckRanges
    replaced: AckRanges
    """The keys among them that the archive has already."""
    held: AckRanges
    """The keys of rows that change no more, and are in the archive afterwards or forgotten."""
    passing: AckRanges
    """The keys of rows that are in the archive afterwards and have to be replaced later."""
    forgotten: AckRanges


def _keys(db: Database, statement: str, *ranges: AckRanges) -> AckRanges:
    """The keys that a statement finds in these ranges."""
    return AckRanges.of(key for (key,) in db.execute(statement, [as_json(one.ranges) for one in ranges]))


def _standing(db: Database, held: AckRanges, since: set[int], still: str, last: str) -> tuple[AckRanges, AckRanges]:
    """The keys of rows that stay as the archive holds them, and the keys up to the ``last`` that it lacks. Rows changed
    ``since`` do not stay, if the store has them ``still``."""
    asked = as_json([one for one in since if one in held])
    stands = held.without(AckRanges.of(key for (key,) in db.execute(still, (asked,))))
    (highest,) = db.execute(last).fetchone()
    return stands, stands.gaps(max(highest, stands.highest))


def _messages(db: Database, known: Archive, since: set[int], sequences: AckRanges) -> _Part:
    """``sequences``: those that are forgotten. A message whose body retention has freed stays as it was archived, with
    its envelope: the ledger tells the one thing that can happen to it still, that it is confirmed."""
    held, reopened, forgotten = map(AckRanges, (known.messages, known.reopened, known.forgotten))
    stands, missing = _standing(db, held, since, sql.WITH_BODY_OF, sql.LAST_POSITION)
    unsettled = _keys(db, sql.UNSETTLED_IN, missing)
    settled = missing.without(unsettled)
    for about, statement in ((sequences, sql.OF_LANES_IN), (forgotten, sql.REPLAYS_IN)):
        if about:
            forgotten = forgotten.union(_keys(db, statement, settled, about))
    wanted, was = settled.without(forgotten), held.union(reopened)
    return _Part(wanted, wanted.within(was), stands.union(settled), was.within(unsettled), forgotten)


def _sequences(db: Database, known: Archive, since: set[int]) -> _Part:
    held, unfinished, forgotten = map(AckRanges, (known.sequences, known.unfinished, known.forgotten_sequences))
    stands, missing = _standing(db, held, since, sql.LANES_OF, sql.LAST_LANE)
    forgotten = forgotten.union(_of_forgotten_partners(db, known, missing))
    forgotten = forgotten.union(_keys(db, sql.LANES_OF_REPLAYS, forgotten))
    over = missing.without(_keys(db, sql.NOT_OVER))
    wanted = missing.without(forgotten)
    return _Part(wanted, wanted.within(held.union(unfinished)), stands.union(over), wanted.without(over), forgotten)


def _of_forgotten_partners(db: Database, known: Archive, keys: AckRanges) -> AckRanges:
    """Find the ``keys`` of sequences that were begun before their partner was forgotten."""
    until = dict(known.forgotten_partners)
    if not until:
        return EMPTY
    begun = db.execute(sql.BEGUN_BY_PARTNERS, (as_json(keys.ranges),))
    return AckRanges.of(key for key, partner, at in begun if at <= until.get(digest(partner), -1))


def _is_forgotten(messages: _Part, sequences: _Part, position: int | None, sequence: int | None) -> bool:
    return (position is not None and position in messages.forgotten) or (
        sequence is not None and sequence in sequences.forgotten
    )
