"""Is there room? What a sequence, a peer and the store may hold; what is over it is not accepted, and leaves no trace.

Bounds count held messages. What fills the gap is never what is refused: it makes room. Nothing is asked of the store
for a message in order, and little for a held one: a sequence's row has how many it holds and a bound on their bytes;
what all sequences hold is known from one query as long as nobody else writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.inbound import Bounds
from wsrm_mq.store import statements as sql
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

__all__ = ["Room", "TooLarge", "buffer_remaining", "full", "lack_of_room", "not_ours", "too_many_sequences"]

MOST_REMAINING: Final = 4_096
"""The largest BufferRemaining that is told."""


@dataclass(frozen=True, slots=True)
class Room:
    """What may be held, beside what ``Bounds`` says of numbers; ``None`` is no bound. Sizes in bytes."""

    max_sequences: int | None = 10_000
    """Open sequences of one peer: of a principal, without one of an address (SEC-009)."""
    max_held_bytes: int | None = 4 * 1024**3
    """Of one sequence (SEC-014)."""
    max_held_total: int | None = 5_000_000
    """Messages, of all sequences."""
    max_held_bytes_total: int | None = 16 * 1024**3
    max_per_connection: int | None = None
    """Unsettled messages of one connection, in whatever sequences."""
    max_store: int | None = None
    """Of the store: above it only that is taken which fills a gap."""


class TooLarge(str):
    """Why a message is not taken, where it never could be: its sequence is held as a whole."""


def lack_of_room(tx: Transaction, record: SequenceRecord, number: int, size: int, *, held: bool, room: Room) -> str:
    """Why message ``number`` of ``size`` bytes, which will be ``held`` or not, cannot be taken; empty: it can be."""
    if not held and room.max_store is None:
        return ""
    as_a_whole = record.value.terms.behavior is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE
    if held and as_a_whole:
        too_large = _over_own_bytes(tx, record, size, room)
        if too_large:
            return TooLarge(too_large)
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
    statement, who = (sql.OPEN_OF_ADDRESS, address) if principal is None else (sql.OPEN_OF_PRINCIPAL, principal)
    if tx.execute(statement, {"who": who, "most": room.max_sequences - 1 + but}).fetchone() is None:
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
    if room.max_held_bytes is not None and record.held_bytes >= room.max_held_bytes:
        left.append(0)
    if is_full:
        left.append(0)
    return max(0, min(left))


def _over_own_bytes(tx: Transaction, record: SequenceRecord, size: int, room: Room) -> str:
    most = room.max_held_bytes
    if most is None or record.held_bytes + size <= most:
        return ""
    if not record.held_is_exact:
        bounds = {"sequence": record.id, "limit": record.value.limit}
        record.held_bytes = tx.execute(sql.HELD_BYTES, bounds).fetchone()[0]
        record.held_is_exact = True
        if record.held_bytes + size <= most:
            return ""
    return f"{record.held} messages of {record.held_bytes} bytes are held, max_held_bytes is {most}"


def _over_total(tx: Transaction, size: int, room: Room) -> str:
    if room.max_held_total is None and room.max_held_bytes_total is None:
        return ""
    messages, held_bytes = tx.held_in_all
    if room.max_held_total is not None and messages >= room.max_held_total:
        return f"all sequences hold {messages} messages, max_held_total is {room.max_held_total}"
    if room.max_held_bytes_total is not None and held_bytes + size > room.max_held_bytes_total:
        return f"all sequences hold {held_bytes} bytes, max_held_bytes_total is {room.max_held_bytes_total}"
    return ""
