"""A message is settled as delivered, with its reply, for ever; and what a waiting or repeated request reads of that."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from wsrm_mq.queue.acknowledgement import acknowledged
from wsrm_mq.queue.counts import delivered
from wsrm_mq.queue.cursor import move_past
from wsrm_mq.queue.ownership import Claim, free, give_back, still_mine
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.sequence.ranges import EMPTY, AckRanges
from wsrm_mq.store import statements as sql
from wsrm_mq.store.port import Database
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.space import space
from wsrm_mq.store.storable import storable
from wsrm_mq.store.transaction import Transaction, as_json

__all__ = [
    "ANSWERED_WITH_FAULT",
    "ServiceReply",
    "Settled",
    "Settlement",
    "add_reply",
    "remarked",
    "settle",
    "settlement",
]

ANSWERED_WITH_FAULT = "answered_with_fault"
"""The application took a one-way message and answered a fault, which the source does not read: event and reason."""


class ServiceReply(NamedTuple):
    """An application's answer, as it is stored and sent again: status line without the protocol, headers, body."""

    status: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    place: tuple[int, str] | None = None
    """Where its header blocks begin, offset and codec, while that is known: it is not stored."""


class Settled(NamedTuple):
    released: bool
    """The sequence was given back."""
    waiter: str | None
    """Name of the instance where a request waits for this."""
    next_number: int
    """Where the sequence goes on, if it was not released."""
    acknowledgement: SequenceAcknowledgement | None = None
    """What an acknowledgement says now, if that was asked for."""


def settle(
    tx: Transaction,
    held: Claim,
    position: int,
    number: int,
    *,
    reply: ServiceReply | None = None,
    release: bool = False,
    waited_for: bool = False,
    remark: str | None = None,
    seconds: float | None = None,
    is_replay: bool = False,
    acknowledge: Callable[[Transaction, SequenceRecord], SequenceAcknowledgement] | None = None,
) -> Settled:
    """Settle an entry as delivered, for ever (I6). ``release``: give the sequence back too if nothing is left;
    ``waited_for``: a request may wait for it, say where; ``remark``: what the application did not like about it;
    ``seconds``: how long it took; ``is_replay``: it was read back from the store; ``acknowledge`` makes the
    acknowledgement for a request that is answered with it.
    Raises ``FenceLost`` where another instance, or a later claim, has the sequence by now."""
    record = still_mine(tx, held)
    waiter = None
    if waited_for:
        row = {"key": position, "now": tx.now, "outcome": "delivered", "reason": None, "delivered": 1}
        found = tx.execute(sql.SETTLE, row).fetchone()
        waiter = found[0] if found else None
    else:
        tx.delivered(position)
    if reply is not None:
        add_reply(tx, position, reply)
    if remark is not None:
        remarked(tx, record, position, number, remark)
    delivered(tx, record.queue, seconds, is_replay)
    if record.value.unnamed is not EMPTY and number in record.value.unnamed:
        record.value = record.value._replace(unnamed=record.value.unnamed.remove(number))
    move_past(tx, record, number)
    record.running_since = tx.now
    acknowledgement = None if acknowledge is None else acknowledge(tx, record)
    return Settled(release and _give_back_quickly(tx, held, record), waiter, record.cursor, acknowledgement)


def remarked(tx: Transaction, record: SequenceRecord | None, position: int, number: int, remark: str) -> None:
    """Write down what the application answered to a message that it took: the source does not read it."""
    tx.execute(sql.REMARK, {"key": position, "reason": ANSWERED_WITH_FAULT})
    tx.ledger(ANSWERED_WITH_FAULT, record, number=number, position=position, reason=storable(remark))


def _give_back_quickly(tx: Transaction, held: Claim, record: SequenceRecord) -> bool:
    """``give_back``, without a query in the usual cases: nothing is deliverable, or the next message is."""
    if not record.has_next:
        free(record)
        return True
    return False if record.value.terms.ordered else give_back(tx, held)


def add_reply(tx: Transaction, position: int, reply: ServiceReply) -> None:
    tx.execute(
        sql.ADD_REPLY,
        {
            "entry": position,
            "status": reply.status,
            "headers": as_json(reply.headers),
            "stored_at": tx.now,
            "body": reply.body,
        },
    )


@dataclass(frozen=True, slots=True)
class Settlement:
    outcome: str
    reply: ServiceReply | None
    acknowledgement: SequenceAcknowledgement
    """What an acknowledgement of its sequence says now."""


def settlement(db: Database, position: int, policy: QueuePolicy | None = None) -> Settlement | None:
    """How the message at ``position`` was settled; ``None`` while it is not. The acknowledgement tells the room that is
    left where ``policy`` wants that."""
    found = db.execute(sql.OUTCOME_AND_REPLY, {"key": position}).fetchone()
    if found is None or found[0] is None:
        return None
    outcome, sequence, status, headers, body = found
    reply = None if status is None else ServiceReply(status, tuple((n, v) for n, v in json.loads(headers)), body)
    row = db.execute(sql.SEQUENCE_BY_ID, {"key": sequence}).fetchone()
    ranges = AckRanges(tuple(db.execute(sql.RANGES, {"sequence": sequence})))
    unnamed = AckRanges.of(number for (number,) in db.execute(sql.UNNAMED, {"sequence": sequence}))
    record = SequenceRecord.load(row, ranges, unnamed)
    said = record.value.acknowledgement() if policy is None else acknowledged(record, policy, lambda: space(db).used)
    return Settlement(outcome, reply, said)
