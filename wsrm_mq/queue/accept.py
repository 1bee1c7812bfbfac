"""Taking responsibility for messages, each in one transaction.

The protocol step is taken here, on the row that this transaction read. What goes out is rendered from what was
committed, never from what was about to be.
"""

from __future__ import annotations

from typing import Final

from wsrm_mq.queue.acknowledgement import acknowledged, answer_ack_requested, is_due
from wsrm_mq.queue.arrival import Arrival, Receipt
from wsrm_mq.queue.ending import apply_step
from wsrm_mq.queue.lookup import find
from wsrm_mq.queue.ownership import take
from wsrm_mq.queue.room import TooLarge, crowded, lack_of_room
from wsrm_mq.sequence.faults import SequenceTerminated
from wsrm_mq.sequence.inbound import DeliveryAssurance, Disposition, GaveUp, Step, decline, receive
from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.sequence.states import ENDED, Act
from wsrm_mq.store import statements as sql
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

__all__ = ["accept", "accept_into", "look_around", "turn_away"]

_STUCK: Final = (DeliveryState.BLOCKED, DeliveryState.RETRYING)


def accept(tx: Transaction, arrival: Arrival) -> Receipt:
    """Take one message of a sequence: step, message, entry, claim, in this transaction."""
    receipt = Receipt()
    record = find(tx, arrival.sender, arrival.header.identifier, receipt)
    if record is not None:
        accept_into(tx, record, arrival, receipt)
        receipt.acknowledgement = acknowledged(record, arrival.policy, lambda: tx.used_bytes)
        if arrival.policy.acknowledgement_interval is not None:
            receipt.acknowledge_now = is_due(tx, record, receipt, arrival.policy.acknowledgement_interval)
    tx.counts[receipt.outcome, record.queue if record is not None else 0, arrival.sender.rm.label] += 1
    if arrival.ack_requested:
        carried = arrival.header.identifier
        answer_ack_requested(tx, arrival.sender, arrival.policy, arrival.ack_requested, receipt, carried)
    return receipt


def turn_away(tx: Transaction, arrival: Arrival) -> Receipt:
    """Refuse a message that ``may_take`` said no to: its body was not looked at. Where the sequence is there by now,
    the sender is told to come again."""
    receipt = Receipt()
    record = find(tx, arrival.sender, arrival.header.identifier, receipt)
    if record is None or record.value.state in ENDED:
        return accept(tx, arrival)
    receipt.turn_away("The sequence was not known yet when the message came.")
    return receipt


def accept_into(
    tx: Transaction, record: SequenceRecord, arrival: Arrival, receipt: Receipt, *, has_room: bool = False
) -> None:
    """Take one message of this sequence. ``has_room``: that was asked already."""
    number = arrival.header.number
    step = receive(
        record.value,
        arrival.header,
        tx.now,
        bounds=arrival.policy.bounds,
        named=arrival.named,
        empty_last=arrival.empty_last,
    )
    if step.act is Act.ACCEPT and not has_room:
        step = _within_room(tx, record, arrival, step)
    accepted = number if step.act is Act.ACCEPT and step.disposition is None else None
    apply_step(tx, record, step, accepted=accepted, reason=step.no_room or None)
    if accepted is not None and not record.value.terms.ordered:
        record.wait(tx.now, None)  # it need not wait for another one's retry
    receipt.act, receipt.fault = step.act, step.fault
    if step.no_room:
        receipt.turn_away(step.no_room)
    if step.act is Act.ACCEPT:
        is_held = number >= record.value.limit
        if is_held:
            record.hold(arrival.body.size)
        receipt.position = _store(tx, record, arrival, step.disposition)
        receipt.settled = step.disposition is not None
        receipt.outcome = "held" if is_held else "discarded" if receipt.settled else "accepted"
    elif step.act is Act.REPEAT:
        record.duplicates += 1
        receipt.outcome = "duplicate"
        _repeat(tx, record, arrival, receipt)
    if step.act is not None or step.ended_now:
        is_head = accepted is not None and record.cursor == number
        receipt.claim = take(tx, record, has_thread=is_head and arrival.waits)
        receipt.is_head = is_head and receipt.claim is not None
    if accepted is not None:
        runs_here = receipt.claim is None and record.owner == tx.instance
        receipt.is_queued = runs_here and receipt.outcome == "accepted"
    look_around(tx, record, receipt)


def _within_room(tx: Transaction, record: SequenceRecord, arrival: Arrival, step: Step) -> Step:
    """``step``, or, where there is no room for what it accepts, another in its place: it was not taken yet."""
    number, room = arrival.header.number, arrival.policy.room
    is_held = number >= step.sequence.limit
    no_room = ""
    if is_held or room.max_store is not None:
        no_room = lack_of_room(tx, record, number, arrival.body.size, held=is_held, room=room)
    if not no_room and room.max_per_connection is not None:
        no_room = _lack_on_connection(tx, record, arrival)
    if not no_room:
        return step
    if not isinstance(no_room, TooLarge):
        return decline(record.value, tx.now, no_room)
    ended = receive(record.value, GaveUp("max_held_bytes"), tx.now)
    fault = SequenceTerminated(no_room, arrival.header.identifier, ours=True)
    return ended._replace(act=None, fault=fault, no_room=no_room)


def _lack_on_connection(tx: Transaction, record: SequenceRecord, arrival: Arrival) -> str:
    """Why the connection has no room. The number at ``expected`` is taken in any case where something waits for it or
    nothing of its sequence can run: it makes room. Behind messages that can run by themselves it would only make the
    queue longer."""
    before = record.value
    makes_room = arrival.header.number == before.expected and (
        before.received.highest >= before.expected or record.cursor >= before.deliver_below
    )
    return crowded(tx, arrival.connection, arrival.policy.room.max_per_connection, always=makes_room)


def _store(tx: Transaction, record: SequenceRecord, arrival: Arrival, disposition: Disposition | None) -> int:
    body = arrival.body
    message = tx.add_message(
        {
            "message_id": arrival.message_id,
            "action": arrival.action,
            "environ": arrival.environ,
            "principal": arrival.sender.principal,
            "connection": arrival.connection,
            "received_at": tx.now,
            "body_size": body.size,
            "body": body.content,
        }
    )
    if body.content is None:
        tx.write_body(message, body.size, body.open())
    settled = disposition is not None
    position = tx.add_entry(
        {
            "id": message,
            "queue": record.queue,
            "message": message,
            "sequence": record.id,
            "number": arrival.header.number,
            "wants_reply": int(arrival.wants_reply),
            "named": int(arrival.named or settled),
            "waiter": tx.instance_name if arrival.waits else None,
            "outcome": "discarded" if settled else None,
            "reason": disposition.value if disposition else None,
            "settled_at": tx.now if settled else None,
        }
    )
    if disposition is not None:
        number = arrival.header.number
        record.passed(number) if record.cursor == number else None
        tx.ledger("discarded", record, number=number, position=position, reason=disposition.value)
    return position


def _repeat(tx: Transaction, record: SequenceRecord, arrival: Arrival, receipt: Receipt) -> None:
    """A duplicate: find the first copy, and let its outcome wake this request too."""
    if arrival.header.number < record.cursor and not arrival.wants_reply:
        receipt.settled = True  # as everything below the cursor, and no more is asked for
        return
    found = tx.execute(sql.ENTRY_BY_NUMBER, {"sequence": record.id, "number": arrival.header.number}).fetchone()
    if found is None:  # retention has taken the entry; the ranges still know the number
        receipt.settled = True
        return
    receipt.position = found[0]
    receipt.settled = found[1] is not None
    if found[1] == "delivered" and found[2]:
        receipt.reply_age = tx.now - found[4]
    if arrival.waits and not receipt.settled:
        tx.execute(sql.SET_WAITER, {"key": found[0], "waiter": tx.instance_name})


def look_around(tx: Transaction, record: SequenceRecord, receipt: Receipt) -> None:
    receipt.sequence = record.id
    receipt.partner = record.partner
    receipt.at_most_once = record.value.terms.assurance is DeliveryAssurance.AT_MOST_ONCE
    receipt.is_stuck = not receipt.settled and record.owner is None and record.delivery_state(tx.now) in _STUCK
    receipt.needs_watch = record.discarding or record.owner not in (None, tx.instance)
