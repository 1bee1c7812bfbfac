"""One-way messages without WS-RM: what a connection sends is one sequence, numbered here in order of receipt.

It begins with the first message and ends with the connection, or after a time without traffic. A message of no known
connection is a sequence of its own, and no order is promised.
"""

from __future__ import annotations

from wsrm_mq.queue.accept import accept_into
from wsrm_mq.queue.acknowledgement import answer_ack_requested
from wsrm_mq.queue.arrival import Arrival, MessageReceipt, Sender
from wsrm_mq.queue.creation import new_identifier
from wsrm_mq.queue.ending import apply_step, expire
from wsrm_mq.queue.room import crowded, full, not_ours
from wsrm_mq.queue.stepping import step_of
from wsrm_mq.sequence.elements import SequenceHeader, TerminateSequence
from wsrm_mq.sequence.inbound import InboundSequence
from wsrm_mq.sequence.states import ENDED
from wsrm_mq.sequence.terms import Terms
from wsrm_mq.store import sequences
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

__all__ = ["accept_unsequenced", "end_connections"]


def accept_unsequenced(tx: Transaction, arrival: Arrival, asking: Sender | None = None) -> MessageReceipt:
    """Take one message as the next of its connection. Its header is made here: ``MessageReceipt.given``. ``asking``: in
    whose name the AckRequested headers on it are answered."""
    receipt = MessageReceipt()
    queue = tx.queue_named(arrival.sender.queue)
    no_room = _lack_of_room(tx, arrival, queue)
    if no_room:
        receipt.turn_away(no_room)
        tx.counts[receipt.outcome, queue or 0, arrival.sender.rm.label] += 1
        return receipt
    record = _open(tx, arrival) or _begin(tx, arrival)
    header = SequenceHeader(record.value.terms.identifier, record.value.expected)
    accept_into(tx, record, arrival._replace(header=header), receipt, has_room=True)
    receipt.given = header
    tx.counts[receipt.outcome, record.queue, arrival.sender.rm.label] += 1
    if asking is not None:
        answer_ack_requested(tx, asking, arrival.policy, arrival.ack_requested, receipt, None)
    if record.connection is None:  # nothing can follow it: its end is no news
        record.follow(step_of(tx, record, TerminateSequence(header.identifier)).sequence)
        record.ended_at = tx.now
    return receipt


def _lack_of_room(tx: Transaction, arrival: Arrival, queue: int | None) -> str:
    if queue is not None and not tx.serves(queue):
        return not_ours(arrival.sender.queue)
    room = arrival.policy.room
    return full(tx, room) or crowded(tx, arrival.connection, room.max_per_connection)


def end_connections(tx: Transaction, names: list[str]) -> int:
    """End the sequences of connections that are closed; what they have is still delivered. Answers how many."""
    ended = 0
    for name in names:
        for (key,) in tx.execute(sequences.OPEN_OF_CONNECTIONS, {"connection": name}).fetchall():
            record = tx.sequence(key)
            if record is not None and record.value.state not in ENDED:
                apply_step(tx, record, step_of(tx, record, TerminateSequence(record.value.terms.identifier)))
                ended += 1
    return ended


def _open(tx: Transaction, arrival: Arrival) -> SequenceRecord | None:
    """The connection's sequence in this queue, unless it has been silent for too long."""
    if arrival.connection is None:
        return None
    queue = tx.queue(arrival.sender.queue)
    key = tx.connections.sequences.get((arrival.connection, queue))
    if key is None:
        found = tx.execute(sequences.OPEN_OF_CONNECTION, {"connection": arrival.connection, "queue": queue}).fetchone()
        key = found[0] if found else None
    record = tx.sequence(key) if key is not None else None
    if record is None or record.value.state in ENDED or expire(tx, record.id):
        return None
    tx.connections.set_sequence(arrival.connection, queue, record.id)
    return record


def _begin(tx: Transaction, arrival: Arrival) -> SequenceRecord:
    sender, policy = arrival.sender, arrival.policy
    terms = Terms(
        identifier=new_identifier(),
        rm=sender.rm,
        soap=sender.soap,
        addressing=sender.addressing,
        assurance=policy.assurance,
        inactivity=policy.connection_idle if arrival.connection is not None else None,
    )
    record = SequenceRecord(
        0,
        tx.queue(sender.queue),
        InboundSequence(terms, active_at=tx.now),
        principal=sender.principal,
        peer=sender.peer,
        partner=sender.partner,
        connection=arrival.connection,
        created_at=tx.now,
        kind="connection",
    )
    record = tx.add_sequence(record, None)
    if arrival.connection is not None:
        tx.ledger("created", record)
        tx.connections.set_sequence(arrival.connection, record.queue, record.id)
    return record
