"""Is there room? What a sequence, a peer and the store may hold; what is over it is not accepted, and leaves no trace.

Bounds count held messages. What fills the gap is never what is refused: it makes room. Nothing is asked of the store
for a message in order, and little for a held one: a sequence's row has how many it holds and a bound on their bytes;
what all sequences hold is known from one query as long as no other process writes.

What a connection may have unsettled is not asked for every message either: what is known of it grows with what it
sends, and is counted again when it seems full. Settlements need not tell: they only ever make room. What other
processes wrote is found as the writer's cache finds it; then it is counted again too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.inbound import Outgrew
from wsrm_mq.sequence.terms import Bounds
from wsrm_mq.store import entries, lanes
from wsrm_mq.store.late_index import BY_CONNECTION
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

MOST_REMAINING: Final = 4_096
"""The largest BufferRemaining that is told."""
_FEW: Final = 64
"""A number of messages up to which those not in the index are gone through as they are: that costs less."""


@dataclass(frozen=True, slots=True)
class Room:
    """Bounds on held messages, beside those of ``Bounds`` on numbers; ``None`` is no bound. Sizes in bytes."""

    max_sequences: int | None = 10_000
    """Open sequences of one peer: of a principal, without one of an address (SEC-009)."""
    max_held_bytes: int = 4 * 1024**3
    """Bodies that one sequence holds (SEC-014)."""
    max_held_total: int = 5_000_000
    """Messages that all sequences hold."""
    max_held_bytes_total: int = 16 * 1024**3
    max_per_connection: int | None = None
    """Unsettled messages of one connection, in whatever sequences."""
    max_store: int | None = None
    """Bytes of the store's file that hold something: above it only a message is taken that fills a gap."""


def lack_of_room(
    tx: Transaction, record: SequenceRecord, number: int, size: int, *, held: bool, room: Room
) -> str | Outgrew:
    """Why message ``number`` of ``size`` bytes, which will be ``held`` or not, cannot be taken now, or never; empty: it
    can be."""
    as_a_whole = record.value.terms.behavior is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE
    if held and as_a_whole:
        too_large = _over_own_bytes(tx, record, size, room)
        if too_large:
            return Outgrew(too_large)
    fills_gap = number == record.value.expected and (held or record.held > 0)
    if fills_gap:
        return ""
    if not held:
        return full(tx, room)
    return full(tx, room) or _over_own_bytes(tx, record, size, room) or _over_total(tx, size, room)


def full(tx: Transaction, room: Room) -> str:
    """Why nothing new is taken at all; empty where the store has room."""
    if room.max_store is None or tx.used_bytes < room.max_store:
        return ""
    return f"the store has {tx.used_bytes} bytes, max_store is {room.max_store}"


def not_ours(queue: str) -> str:
    """Why nothing is taken where messages wait for another application."""
    return f"messages for another application wait in {queue}, see `wsrm-mq status`"


def too_many_sequences(tx: Transaction, principal: str | None, address: str | None, room: Room, but: int = 0) -> str:
    """Why a peer gets no further sequence; empty: it gets one. ``but``: so many were ended that a query still sees."""
    if room.max_sequences is None:
        return ""
    more_than_most = lanes.OPEN_OF_ADDRESS if principal is None else lanes.OPEN_OF_PRINCIPAL
    who = address if principal is None else principal
    if tx.execute(more_than_most, {"who": who, "most": room.max_sequences - 1 + but}).fetchone() is None:
        return ""
    return (
        f"{room.max_sequences} sequences of this peer are open, max_sequences is {room.max_sequences}; end one first."
    )


def buffer_remaining(record: SequenceRecord, bounds: Bounds, room: Room, *, is_full: bool) -> int:
    """How many messages more a source may send, as WCF wants to be told. ``is_full``: the store takes nothing new."""
    value = record.value
    ahead = value.received.highest + 1 - value.expected
    left = [MOST_REMAINING]
    if bounds.window is not None:
        left.append(bounds.window - ahead)
    if bounds.max_held is not None:
        left.append(bounds.max_held - record.held)
    if record.held_bytes >= room.max_held_bytes:
        left.append(0)
    if is_full:
        left.append(0)
    return max(0, min(left))


def _over_own_bytes(tx: Transaction, record: SequenceRecord, size: int, room: Room) -> str:
    most = room.max_held_bytes
    if record.held_bytes + size <= most:
        return ""
    if not record.held_is_exact:
        bounds = {"lane": record.id, "limit": record.limit}
        record.held_bytes = tx.execute(entries.HELD_BYTES, bounds).fetchone()[0]
        record.held_is_exact = True
        if record.held_bytes + size <= most:
            return ""
    return f"{record.held} messages of {record.held_bytes} bytes are held, max_held_bytes is {most}"


def _over_total(tx: Transaction, size: int, room: Room) -> str:
    messages, held_bytes = tx.held_in_all
    if messages >= room.max_held_total:
        return f"all sequences hold {messages} messages, max_held_total is {room.max_held_total}"
    if held_bytes + size > room.max_held_bytes_total:
        return f"all sequences hold {held_bytes} bytes, max_held_bytes_total is {room.max_held_bytes_total}"
    return ""


def crowded(tx: Transaction, connection: str | None, bound: int | None, *, always: bool = False) -> str:
    """Why a connection has no room for one message more; empty: it has, or the message is taken ``always``, and it is
    counted in. ``None`` is no bound, and no connection has none."""
    if connection is None or bound is None:
        return ""
    kept = tx.connections
    counted = kept.unsettled.get(connection)
    if counted is None or (counted >= bound and not always and kept.asked_at.get(connection) != tx.now):
        counted = _unsettled_of(tx, connection, bound)
        kept.asked_at[connection] = tx.now
    if counted >= bound and not always:
        return f"{counted} messages of connection {connection} are undelivered, max_per_connection is {bound}"
    kept.unsettled[connection] = counted + 1
    return ""


def _unsettled_of(tx: Transaction, connection: str, bound: int) -> int:
    """Count the unsettled messages of a connection, as far as ``bound``. Everything up to the floor is settled, for
    ever (I6): it is not gone through again."""
    (not_indexed,) = tx.execute(BY_CONNECTION.how_far).fetchone()
    if not_indexed > _FEW:
        BY_CONNECTION.bring_forward(tx)
    kept = tx.connections
    floor = kept.floors.get(connection, 0)
    (last,) = tx.execute(entries.LAST_OF_CONNECTION, {"connection": connection}).fetchone()
    found: list[tuple[int]] = []
    for part in (entries.UNSETTLED_INDEXED, entries.UNSETTLED_BEHIND):
        which = {"connection": connection, "after": floor, "count": bound - len(found)}
        found += tx.execute(part, which).fetchall()
    kept.set_floor(connection, found[0][0] - 1 if found else last)
    return len(found)
