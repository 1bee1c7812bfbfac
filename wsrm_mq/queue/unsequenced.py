"""One-way messages without WS-RM: what a connection sends is one lane, numbered here in order of receipt.

It begins with the first message and ends with the connection, or after a time without traffic. A message of no known
connection is in no lane, and no order is promised.
"""

from __future__ import annotations

from typing import Any

from wsrm_mq import queue as verbs
from wsrm_mq.queue.accept import accepted_into, store
from wsrm_mq.queue.acknowledgement import answer_ack_requested
from wsrm_mq.queue.arrival import Arrival, MessageReceipt, Sender, look_around
from wsrm_mq.queue.creation import new_identifier
from wsrm_mq.queue.ending import end_lane, expire
from wsrm_mq.queue.modes import endpoint_queue
from wsrm_mq.queue.policy import Mode
from wsrm_mq.queue.room import crowded, full, not_ours
from wsrm_mq.sequence.elements import SequenceHeader
from wsrm_mq.sequence.states import Act
from wsrm_mq.store import lanes
from wsrm_mq.store.entries import LOOSE_NUMBER
from wsrm_mq.store.loose import LooseEntry
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction


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
    receipt.act, receipt.outcome = Act.ACCEPT, "accepted"
    lane: Lane
    if arrival.connection is None:
        lane, number = LooseEntry(kind="loose", limit=LOOSE_NUMBER + 1, **_of_sender(tx, arrival)), LOOSE_NUMBER
    else:
        lane = _open(tx, arrival, arrival.connection) or _begin(tx, arrival, arrival.connection)
        number = lane.append(tx.now)
    receipt.position = store(tx, lane, arrival, number)
    if isinstance(lane, LooseEntry):
        tx.add_loose_entry(lane, receipt.position)
    receipt.given = SequenceHeader(lane.identifier, number)
    accepted_into(tx, lane, number, arrival, receipt)
    look_around(tx, lane, receipt)
    tx.counts[receipt.outcome, lane.queue, arrival.sender.rm.label] += 1
    if asking is not None:
        answer_ack_requested(tx, asking, arrival.policy, arrival.ack_requested, receipt, None)
    return receipt


def _lack_of_room(tx: Transaction, arrival: Arrival, queue: int | None) -> str:
    if queue is not None and not tx.serves(queue):
        return not_ours(arrival.sender.queue)
    room = arrival.policy.room
    lack = full(tx, room) or crowded(tx, arrival.connection, room.max_per_connection)
    if lack or arrival.policy.mode is not Mode.PULL:
        return lack
    endpoint_queue(tx, arrival.sender.queue, arrival.policy)
    return verbs.lack_in_queue(tx, arrival)


def end_connections(tx: Transaction, names: list[str]) -> int:
    """End the lanes of connections that are closed; what they have is still delivered. Answers how many."""
    ended = 0
    for name in names:
        for lane in tx.lanes_by(lanes.OPEN_OF_CONNECTIONS, {"connection": name}):
            if lane.ended is None:
                end_lane(tx, lane)
                ended += 1
    return ended


def _of_sender(tx: Transaction, arrival: Arrival) -> dict[str, Any]:
    sender, policy = arrival.sender, arrival.policy
    return {
        **{name: getattr(sender, name) for name in ("soap", "addressing", "principal", "peer", "partner")},
        "queue": tx.queue(sender.queue),
        "is_consumed": policy.mode is Mode.PULL,
        "identifier": new_identifier(),
        "assurance": policy.assurance,
    }


def _open(tx: Transaction, arrival: Arrival, connection: str) -> Lane | None:
    """The connection's lane in this queue, unless it has been silent for too long."""
    queue = tx.queue(arrival.sender.queue)
    key = tx.connections.lanes.get((connection, queue))
    if key is None:
        found = tx.execute(lanes.OPEN_OF_CONNECTION, {"connection": connection, "queue": queue}).fetchone()
        key = found[0] if found else None
    lane = tx.lane(key) if key is not None else None
    if lane is None or lane.ended is not None or expire(tx, lane.id):
        return None
    tx.connections.set_lane(connection, queue, lane.id)
    return lane


def _begin(tx: Transaction, arrival: Arrival, connection: str) -> Lane:
    idle = arrival.policy.connection_idle
    lane = Lane(
        kind="connection",
        inactivity=idle,
        created_at=tx.now,
        connection=connection,
        active_at=tx.now,
        due_at=tx.now + idle,
        **_of_sender(tx, arrival),
    )
    tx.add_lane(lane)
    tx.ledger("created", lane)
    tx.connections.set_lane(connection, lane.queue, lane.id)
    return lane
