"""A message is settled as delivered, with its reply, for ever; and what a waiting or repeated request reads of that."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from wsrm_mq.queue.acknowledgement import acknowledged
from wsrm_mq.queue.failure import UNKNOWN, Diagnosis
from wsrm_mq.queue.outbound import end_of, end_outbound, give_number, is_ended_there
from wsrm_mq.queue.ownership import Claim, free, give_back, has_next, move_past, still_mine
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.sending import NOT_SENT, OutgoingMessage, Sent, send
from wsrm_mq.sequence.elements import SequenceAcknowledgement, SequenceHeader, TerminateSequence
from wsrm_mq.sequence.states import ENDED
from wsrm_mq.store import entries
from wsrm_mq.store.driver import space
from wsrm_mq.store.entries import ADD_REPLY, OUTCOME_AND_REPLY
from wsrm_mq.store.port import Database
from wsrm_mq.store.records import Lane, SequenceRecord, read
from wsrm_mq.store.sql import storable
from wsrm_mq.store.transaction import Transaction, as_json
from wsrm_mq.store.words import ANSWERED_WITH_FAULT

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
    """Its place in the sequence that its source has offered, once it has one."""
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
    """The acknowledgement as it is now, if that was asked for."""
    reply_header: SequenceHeader | None = None
    """The place that the reply has got in the offered sequence."""
    sends: Claim | None = None
    """The claim on what is to be sent because of it."""
    needs_watch: bool = False
    """An acknowledgement is to be sent by itself; or what is left of a sequence without order waits for retries."""
    outgoing_position: int | None = None
    """Position of the reply as it waits to be sent or fetched."""
    terminates: TerminateSequence | None = None
    """The end of the offered sequence, to be sent: this was the last message to be replied to."""


class Done(NamedTuple):
    """The outcome of a delivery that went well, as far as it is written down."""

    reply: ServiceReply | None = None
    remark: str | None = None
    """The fault with which the application answered it, with its ``diagnosis``."""
    diagnosis: Diagnosis = UNKNOWN
    is_known: bool = False
    """The application had done it before."""
    seconds: float | None = None
    """How long it took."""
    is_replay: bool = False
    """It was read back from the store."""
    waited_for: bool = False
    """A request may wait for it."""
    over_at: int | None = None
    """When it was over, in ms since the epoch, where the next message has been running since; ``None``: none runs."""


def settle(
    tx: Transaction,
    held: Claim,
    position: int,
    number: int,
    done: Done = Done(),  # noqa: B008 - it never changes
    *,
    release: bool = False,
    acknowledge: Callable[[Transaction, SequenceRecord], SequenceAcknowledgement] | None = None,
) -> Settled:
    """Settle an entry as delivered, for ever (I6). ``release``: give the lane back too if nothing is left;
    ``acknowledge`` makes the acknowledgement for a request that is answered with it. Raises ``FenceLost`` where another
    instance, or a later claim, has the lane by now."""
    lane = still_mine(tx, held)
    waiter = None
    if done.waited_for:
        row = {"key": position, "now": tx.now, "outcome": "delivered", "reason": None, "delivered": 1}
        found = tx.execute(entries.SETTLE, row).fetchone()
        waiter = found[0] if found else None
    else:
        tx.delivered(position)
    lane.name(number, tx.now)
    reply_header, sent = None, NOT_SENT
    if done.reply is not None:
        reply_header, sent = add_reply(tx, lane, position, number, done.reply, is_awaited=waiter is not None)
    if done.remark is not None:
        remarked(tx, lane, position, number, done.remark, done.diagnosis)
    elif done.is_known:
        tx.execute(entries.REMARK, {"key": position, "reason": KNOWN})
    tx.counts.delivered(lane.queue, done.seconds, is_replay=done.is_replay)
    move_past(tx, lane, number)
    # The next message of a run does not wait for this commit.
    lane.running_since = tx.now if done.over_at is None else min(done.over_at, tx.now)
    goes_on = lane.has_next
    if lane.is_consumed:  # what follows may be for consumers
        goes_on = release and has_next(tx, lane)
    released = False
    if release and not goes_on:
        free(lane)
        released = True
    elif release and not lane.ordered:  # in order the next message is deliverable
        released = give_back(tx, held)
    settled = Settled(
        released,
        waiter,
        goes_on,
        lane.cursor,
        reply_header=reply_header,
        sends=sent.claim,
        needs_watch=released and lane.retry_at is not None,
        outgoing_position=sent.position,
    )
    return _told(tx, lane, settled, acknowledge) if isinstance(lane, SequenceRecord) else settled


def _told(
    tx: Transaction,
    record: SequenceRecord,
    settled: Settled,
    acknowledge: Callable[[Transaction, SequenceRecord], SequenceAcknowledgement] | None,
) -> Settled:
    """``settled`` with that which only a sequence has: an acknowledgement, and the end of the offered one behind the
    last reply. Consumers send nothing: where the end is to be sent, it is left to the service (``delivery.chores``)."""
    acknowledgement = terminates = None
    if acknowledge is not None and record.acks_to is None:
        acknowledgement = acknowledge(tx, record)
        record.ack_waits = False
    outbound = record.outbound
    is_left_to_watch = record.is_consumed and outbound is not None and outbound.endpoint is not None
    if outbound is not None and outbound.value.is_open and record.value.state in ENDED and not is_left_to_watch:
        end_outbound(tx, outbound)
        terminates = end_of(outbound) if is_ended_there(outbound) else None
    needs_watch = settled.needs_watch or record.ack_due_at == tx.now
    return settled._replace(acknowledgement=acknowledgement, terminates=terminates, needs_watch=needs_watch)


def remarked(tx: Transaction, lane: Lane | None, position: int, number: int, remark: str, diagnosis: Diagnosis) -> None:
    """Write down what the application answered to a message that it took: the source does not read it."""
    tx.execute(entries.REMARK, {"key": position, "reason": ANSWERED_WITH_FAULT})
    said, failure = storable(remark), diagnosis.columns
    tx.ledger(ANSWERED_WITH_FAULT, lane, number=number, position=position, reason=said, failure=failure)


def add_reply(
    tx: Transaction, lane: Lane | None, position: int, number: int, reply: ServiceReply, *, is_awaited: bool = False
) -> tuple[SequenceHeader | None, Sent]:
    """Store the reply to message ``number`` at ``position``, with its place in the offered sequence, and have it sent
    or fetched where it has an endpoint; answers both. What is no envelope can carry no number; in order no reply comes
    after the one to the last message. ``is_awaited``: it may leave on the response to its request."""
    header = None
    if isinstance(lane, SequenceRecord) and lane.outbound is not None and reply.place is not None:
        header = give_number(tx, lane.outbound, is_last=number == lane.value.last_number and lane.ordered)
    return header, keep_reply(tx, lane, position, reply, header, is_awaited=is_awaited)


def keep_reply(
    tx: Transaction,
    lane: Lane | None,
    position: int,
    reply: ServiceReply,
    header: SequenceHeader | None,
    *,
    is_awaited: bool = False,
) -> Sent:
    """Store the reply to the message at ``position``, with its place ``header`` in the offered sequence if it has
    one, and have it sent where it leaves in a request of its own. Answers how. The reply to a replay is about the
    sequence that is replayed."""
    sent = NOT_SENT
    about = tx.sequence(lane.replay_of or lane.id) if lane is not None else None
    if about is not None and reply.outgoing_message is not None:
        number = None if header is None else header.number
        sent = send(tx, about, reply.outgoing_message, number, is_awaited=is_awaited)
    tx.execute(
        ADD_REPLY,
        {
            "entry": position,
            "status": reply.status,
            "headers": as_json(reply.headers),
            "stored_at": tx.now,
            "body": reply.body,
            "outbound": None if header is None or about is None or about.outbound is None else about.outbound.id,
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
    """The acknowledgement of its sequence as it is now; ``None``: that is sent by itself."""
    outgoing_position: int | None = None
    """Position of the reply as it waits to be fetched, should it not leave on a response."""


def settlement(db: Database, position: int, policy: QueuePolicy | None = None) -> Settlement | None:
    """How the message at ``position`` was settled; ``None`` while it is not. The acknowledgement tells the room that is
    left where ``policy`` wants that."""
    found = db.execute(OUTCOME_AND_REPLY, {"key": position}).fetchone()
    if found is None or found[0] is None:
        return None
    outcome, lane, number, status, headers, body, reply_number, outgoing_position = found
    reply = None if status is None else ServiceReply(status, tuple((n, v) for n, v in json.loads(headers)), body)
    record = read(db, lane)
    said = None
    if isinstance(record, SequenceRecord):
        if reply is not None and reply_number is not None and record.outbound is not None:
            reply = reply._replace(header=record.outbound.value.header(reply_number))
        if policy is None:
            said = record.value.acknowledgement()
        elif record.acks_to is None:
            said = acknowledged(db, record, policy, lambda: space(db).used, number)
    return Settlement(outcome, reply, said, outgoing_position)
