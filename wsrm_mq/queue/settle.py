"""A message is settled as delivered, with its reply, for ever; and what a waiting or repeated request reads of that."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from wsrm_mq.queue.acknowledgement import acknowledged
from wsrm_mq.queue.counts import delivered
from wsrm_mq.queue.cursor import move_past
from wsrm_mq.queue.diagnosis import UNKNOWN, Diagnosis
from wsrm_mq.queue.offered import end_of, end_outgoing, is_ended_there, is_open, number_reply
from wsrm_mq.queue.ownership import Claim, free, give_back, still_mine
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.sending import NOT_SENT, OutgoingMessage, Sent, send
from wsrm_mq.sequence.elements import SequenceAcknowledgement, SequenceHeader, TerminateSequence
from wsrm_mq.sequence.ranges import EMPTY
from wsrm_mq.sequence.states import ENDED
from wsrm_mq.store import entries
from wsrm_mq.store.port import Database
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.replies import ADD_REPLY, OUTCOME_AND_REPLY
from wsrm_mq.store.space import space
from wsrm_mq.store.storable import storable
from wsrm_mq.store.tables import ANSWERED_WITH_FAULT
from wsrm_mq.store.transaction import Transaction, as_json

__all__ = [
    "KNOWN",
    "ServiceReply",
    "Settled",
    "Settlement",
    "add_reply",
    "place_of",
    "remarked",
    "settle",
    "settlement",
]

KNOWN = "known"
"""Reason of a replay that the application had done before, and has not done again."""


class ServiceReply(NamedTuple):
    """An application's answer, as it is stored and sent again: status line without the protocol, headers, body."""

    status: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    place: tuple[int, str] | None = None
    """Where its header blocks begin, offset and codec, while that is known: it is not stored."""
    header: SequenceHeader | None = None
    """Its place in the sequence that the source has offered, once it has one."""
    outgoing_message: OutgoingMessage | None = None
    """The same as it is sent, where that is not on the response to its request: it is stored by itself."""


class Settled(NamedTuple):
    released: bool
    """The sequence was given back."""
    waiter: str | None
    """Name of the instance where a request waits for this."""
    goes_on: bool
    """More of the sequence may be delivered. Else its run ends here, whatever it has read already."""
    next_number: int
    """Where the sequence goes on, if it was not released."""
    acknowledgement: SequenceAcknowledgement | None = None
    """What an acknowledgement says now, if that was asked for."""
    reply_header: SequenceHeader | None = None
    """The place that the reply has got in the offered sequence."""
    sends: Claim | None = None
    """On what is to be sent because of it."""
    needs_watch: bool = False
    """An acknowledgement is to be sent by itself; or what is left of a sequence without order waits for retries."""
    outgoing_position: int | None = None
    """Position of the reply as it waits to be sent or fetched."""
    terminates: TerminateSequence | None = None
    """The end of the offered sequence, to be sent: this was the last message to be replied to."""


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
    diagnosis: Diagnosis = UNKNOWN,
    is_known: bool = False,
    seconds: float | None = None,
    is_replay: bool = False,
    acknowledge: Callable[[Transaction, SequenceRecord], SequenceAcknowledgement] | None = None,
) -> Settled:
    """Settle an entry as delivered, for ever (I6). ``release``: give the sequence back too if nothing is left;
    ``waited_for``: a request may wait for it, say where; ``remark``: what the application did not like about it, with
    its ``diagnosis``; ``is_known``: it had done it before; ``seconds``: how long it took; ``is_replay``: it was read
    back from the store; ``acknowledge`` makes the acknowledgement for a request that is answered with it.
    Raises ``FenceLost`` where another instance, or a later claim, has the sequence by now."""
    record = still_mine(tx, held)
    waiter = None
    if waited_for:
        row = {"key": position, "now": tx.now, "outcome": "delivered", "reason": None, "delivered": 1}
        found = tx.execute(entries.SETTLE, row).fetchone()
        waiter = found[0] if found else None
    else:
        tx.delivered(position)
    if record.value.unnamed is not EMPTY:
        record.name(number, tx.now)
    reply_header, sent = None, NOT_SENT
    if reply is not None:
        reply_header = place_of(tx, record, number, reply)
        sent = add_reply(tx, record, position, reply, reply_header, is_awaited=waiter is not None)
    if remark is not None:
        remarked(tx, record, position, number, remark, diagnosis)
    elif is_known:
        tx.execute(entries.REMARK, {"key": position, "reason": KNOWN})
    delivered(tx, record.queue, seconds, is_replay)
    move_past(tx, record, number)
    record.running_since = tx.now
    acknowledgement = None
    if acknowledge is not None and record.acks_to is None:
        acknowledgement = acknowledge(tx, record)
        record.ack_waits = False
    goes_on = record.has_next
    released = release and _give_back_quickly(tx, held, record, goes_on)
    needs_watch = record.ack_due_at == tx.now or (released and record.retry_at is not None)
    terminates = None
    if record.value.state in ENDED and is_open(record):
        end_outgoing(tx, record)
        terminates = end_of(record) if is_ended_there(record) else None
    return Settled(
        *(released, waiter, goes_on, record.cursor, acknowledgement, reply_header),
        *(sent.claim, needs_watch, sent.position, terminates),
    )


def remarked(
    tx: Transaction, record: SequenceRecord | None, position: int, number: int, remark: str, diagnosis: Diagnosis
) -> None:
    """Write down what the application answered to a message that it took: the source does not read it."""
    tx.execute(entries.REMARK, {"key": position, "reason": ANSWERED_WITH_FAULT})
    said, failure = storable(remark), diagnosis.columns
    tx.ledger(ANSWERED_WITH_FAULT, record, number=number, position=position, reason=said, failure=failure)


def _give_back_quickly(tx: Transaction, held: Claim, record: SequenceRecord, goes_on: bool) -> bool:
    """``give_back``, without a query in the usual cases: nothing is deliverable, or the next message is."""
    if not goes_on:
        free(record)
        return True
    return False if record.value.terms.ordered else give_back(tx, held)


def place_of(tx: Transaction, record: SequenceRecord | None, number: int, reply: ServiceReply) -> SequenceHeader | None:
    """The place of the reply to message ``number`` in the sequence that the source has offered, if it has one: what is
    no envelope can carry no number. In order no reply comes after the one to the last message."""
    if record is None or record.outgoing is None or reply.place is None:
        return None
    is_last = number == record.value.last_number and record.value.terms.ordered
    return number_reply(tx, record, is_last=is_last)


def add_reply(
    tx: Transaction,
    record: SequenceRecord | None,
    position: int,
    reply: ServiceReply,
    header: SequenceHeader | None,
    *,
    is_awaited: bool = False,
) -> Sent:
    """Store the reply to the message at ``position``, which has the place ``header`` in the offered sequence, and have
    it sent or fetched where it has an endpoint. ``is_awaited``: it may leave on the response to its request."""
    sent = NOT_SENT
    if record is not None and reply.outgoing_message is not None:
        number = None if header is None else header.number
        sent = send(tx, record, reply.outgoing_message, number, is_awaited=is_awaited)
    tx.execute(
        ADD_REPLY,
        {
            "entry": position,
            "status": reply.status,
            "headers": as_json(reply.headers),
            "stored_at": tx.now,
            "body": reply.body,
            "sequence": None if header is None or record is None else record.id,
            "number": None if header is None else header.number,
            "outgoing_entry": sent.position,
        },
    )
    return sent


@dataclass(frozen=True, slots=True)
class Settlement:
    outcome: str
    reply: ServiceReply | None
    acknowledgement: SequenceAcknowledgement | None
    """What an acknowledgement of its sequence says now; ``None``: that is sent by itself."""
    outgoing_position: int | None = None
    """Position of the reply as it waits to be fetched, should it not leave on a response."""


def settlement(db: Database, position: int, policy: QueuePolicy | None = None) -> Settlement | None:
    """How the message at ``position`` was settled; ``None`` while it is not. The acknowledgement tells the room that is
    left where ``policy`` wants that."""
    found = db.execute(OUTCOME_AND_REPLY, {"key": position}).fetchone()
    if found is None or found[0] is None:
        return None
    outcome, sequence, number, status, headers, body, reply_number, outgoing_position = found
    reply = None if status is None else ServiceReply(status, tuple((n, v) for n, v in json.loads(headers)), body)
    record = SequenceRecord.read(db, sequence)
    if reply is not None and reply_number is not None and record.outgoing is not None:
        reply = reply._replace(header=record.outgoing.value.header(reply_number))
    if record.acks_to is not None and policy is not None:
        return Settlement(outcome, reply, None, outgoing_position)
    if policy is None:
        return Settlement(outcome, reply, record.value.acknowledgement(), outgoing_position)
    said = acknowledged(db, record, policy, lambda: space(db).used, number)
    return Settlement(outcome, reply, said, outgoing_position)
