"""One-way messages without WS-RM: what a connection sends is one sequence, numbered here in order of receipt.

It begins with the first message and ends with the connection, or after a time without traffic. A message of no known
connection is a sequence of its own, and no order is promised.
"""

from __future__ import annotations

import secrets
import uuid

from wsrm_mq.queue.accept import Arrival, Receipt, Sender, accept_into, answer_ack_requested, count
from wsrm_mq.queue.connection_room import crowded
from wsrm_mq.queue.ending import apply_step, expire
from wsrm_mq.queue.room import full, not_ours
from wsrm_mq.sequence.elements import SequenceHeader, TerminateSequence
from wsrm_mq.sequence.inbound import InboundSequence, Terms, receive
from wsrm_mq.sequence.states import ENDED
from wsrm_mq.store import statements as sql
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

__all__ = ["accept_unsequenced", "end_connections"]


def accept_unsequenced(tx: Transaction, arrival: Arrival, asking: Sender | None = None) -> Receipt:
    """Take one message as the next of its connection. Its header is made here: ``Receipt.given``. ``asking``: in whose
    name the AckRequested headers on it are answered."""
    receipt = Receipt()
    room = arrival.policy.room
    queue = tx.queue_named(arrival.sender.queue)
    if queue is not None and not tx.serves(queue):
        receipt.no_room = not_ours(arrival.sender.queue)
        count(tx, arrival, receipt, queue)
        return receipt
    receipt.no_room = full(tx, room) or crowded(tx, arrival.connection, room.max_per_connection)
    if receipt.no_room:
        count(tx, arrival, receipt, queue or 0)
        return receipt
    record = _open(tx, arrival) or _begin(tx, arrival)
    header = SequenceHeader(record.value.terms.identifier, record.value.expected)
    accept_into(tx, record, arrival._replace(header=header), receipt, has_room=True)
    receipt.given = header
    count(tx, arrival, receipt, record.queue)
    if asking is not None:
        answer_ack_requested(tx, asking, arrival.policy, arrival.ack_requested, receipt, None)
    if record.connection is None:  # nothing can follow it: its end is no news
        record.follow(receive(record.value, TerminateSequence(header.identifier), tx.now).sequence)
        record.ended_at = tx.now
    return receipt


def end_connections(tx: Transaction, names: list[str]) -> int:
    """End the sequences of connections that are closed; what they have is still delivered. Answers how many."""
    keys = [key for name in names for (key,) in tx.execute(sql.OPEN_OF_CONNECTIONS, {"connection": name}).fetchall()]
    ended = 0
    for key in keys:
        record = tx.sequence(key)
        if record is not None and record.value.state not in ENDED:
            apply_step(tx, record, receive(record.value, TerminateSequence(record.value.terms.identifier), tx.now))
            ended += 1
    return ended


def _open(tx: Transaction, arrival: Arrival) -> SequenceRecord | None:
    """The connection's sequence in this queue, unless it has been silent for too long."""
    if arrival.connection is None:
        return None
    queue = tx.queue(arrival.sender.queue)
    key = tx.connections.sequences.get((arrival.connection, queue))
    if key is None:
        found = tx.execute(sql.OPEN_OF_CONNECTION, {"connection": arrival.connection, "queue": queue}).fetchone()
        key = found[0] if found else None
    record = tx.sequence(key) if key is not None else None
    if record is None or record.value.state in ENDED or expire(tx, record.id):
        return None
    tx.connections.set_sequence(arrival.connection, queue, record.id)
    return record


def _begin(tx: Transaction, arrival: Arrival) -> SequenceRecord:
    sender, policy = arrival.sender, arrival.policy
    terms = Terms(
        identifier=f"urn:uuid:{uuid.UUID(bytes=secrets.token_bytes(16), version=4)}",
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
    )
    record = tx.add_sequence(record, None)
    if arrival.connection is not None:
        tx.ledger("created", record)
        tx.connections.set_sequence(arrival.connection, record.queue, record.id)
    return record
