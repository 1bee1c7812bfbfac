"""Taking responsibility for messages, each in one transaction.

The protocol step is taken here, on the row that this transaction read. What goes out is rendered from what was
committed, never from what was about to be.
"""

from __future__ import annotations

from typing import Final

from wsrm_mq import queue as verbs
from wsrm_mq.queue.acknowledgement import acknowledged, answer_ack_requested, fall_due, is_due
from wsrm_mq.queue.arrival import Arrival, MessageReceipt, find, look_around
from wsrm_mq.queue.ending import apply_step, bury, step_of
from wsrm_mq.queue.outbound import give_number
from wsrm_mq.queue.ownership import move_past, take
from wsrm_mq.queue.room import crowded, lack_of_room
from wsrm_mq.queue.sending import send
from wsrm_mq.queue.settle import ServiceReply, keep_reply
from wsrm_mq.sequence.inbound import Disposition, Outgrew, Step, decline
from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.sequence.states import ENDED, Act
from wsrm_mq.sequence.terms import DeliveryAssurance
from wsrm_mq.store import entries
from wsrm_mq.store.loose import LooseEntry
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.records import Lane, SequenceRecord
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.words import DEFAULT_PRIORITY

_STUCK: Final = (DeliveryState.HELD, DeliveryState.BLOCKED, DeliveryState.RETRYING)


def accept(tx: Transaction, arrival: Arrival) -> MessageReceipt:
    """Take one message of a sequence: step, message, entry, claim, in this transaction."""
    receipt = MessageReceipt()
    record = find(tx, arrival.sender, arrival.header.identifier, receipt)
    if record is not None:
        _accept_into(tx, record, arrival, receipt)
        if record.acks_to is None:
            number = arrival.header.number
            receipt.acknowledgement = acknowledged(tx.db, record, arrival.policy, lambda: tx.used_bytes, number)
            record.ack_waits = False
        else:
            asked = any(one.identifier == arrival.header.identifier for one in arrival.ack_requested)
            fall_due(tx, record, receipt, arrival.policy, asked=asked)
            receipt.acknowledgement = record.value.acknowledgement() if receipt.fault is not None else None
        if arrival.policy.acknowledgement_interval is not None:
            receipt.acknowledge_now = is_due(tx, record, receipt, arrival.policy.acknowledgement_interval)
    tx.counts[receipt.outcome, record.queue if record is not None else 0, arrival.sender.rm.label] += 1
    if arrival.ack_requested:
        carried = arrival.header.identifier
        answer_ack_requested(tx, arrival.sender, arrival.policy, arrival.ack_requested, receipt, carried)
    return receipt


def turn_away(tx: Transaction, arrival: Arrival) -> MessageReceipt:
    """Refuse a message that ``may_take`` said no to: its body was not looked at. Where the sequence is there by now,
    the sender is told to come again."""
    receipt = MessageReceipt()
    record = find(tx, arrival.sender, arrival.header.identifier, receipt)
    if record is None or record.value.state in ENDED:
        return accept(tx, arrival)
    receipt.turn_away("The sequence was not known yet when the message came.")
    return receipt


def _accept_into(tx: Transaction, record: SequenceRecord, arrival: Arrival, receipt: MessageReceipt) -> None:
    """Take one message of this sequence."""
    number = arrival.header.number
    step = step_of(
        tx,
        record,
        arrival.header,
        bounds=arrival.policy.bounds,
        held=record.held,
        named=arrival.named,
        empty_last=arrival.empty_last,
    )
    lack = _lack_of_room(tx, record, arrival, step) if step.act is Act.ACCEPT else ""
    if isinstance(lack, Outgrew):
        step = step_of(tx, record, lack)
    elif lack:
        step = decline(record.value, tx.now, lack)
    accepted = number if step.act is Act.ACCEPT and step.disposition is None else None
    apply_step(tx, record, step, accepted=accepted, reason=lack.reason if isinstance(lack, Outgrew) else None)
    if accepted is not None and not record.value.terms.ordered:
        record.wait(tx.now, None)  # it need not wait for another one's retry
    receipt.act, receipt.fault = step.act, step.fault
    if step.no_room:
        receipt.turn_away(step.no_room)
    if step.act is Act.ACCEPT:
        is_held = number >= record.value.limit and step.disposition is None
        if is_held:
            record.hold(arrival.body.size)
        receipt.position = store(tx, record, arrival, number, step.disposition)
        receipt.settled = step.disposition is not None
        if arrival.last_reply is not None and record.outbound is not None:
            _answer_last(tx, record, record.outbound, arrival, receipt)
        if step.is_late:
            receipt.is_late = True
            tx.execute(entries.MARK_LATE, {"key": receipt.position})
        receipt.outcome = "held" if is_held else "discarded" if receipt.settled else "accepted"
    elif step.act is Act.REPEAT:
        record.duplicates += 1
        receipt.outcome = "duplicate"
        _repeat(tx, record, arrival, receipt)
    makes_deliverable = step.ended_now or (step.act is not None and receipt.outcome != "held")
    accepted_into(tx, record, accepted, arrival, receipt, takes=makes_deliverable)
    look_around(tx, record, receipt)


def accepted_into(
    tx: Transaction, lane: Lane, accepted: int | None, arrival: Arrival, receipt: MessageReceipt, *, takes: bool = True
) -> None:
    """Have what is deliverable in ``lane`` run, now that it has the number ``accepted``; ``None``: it has none more.
    ``takes``: something has changed that may make it so."""
    is_head = accepted is not None and lane.cursor == accepted
    receipt.claim = take(tx, lane, has_thread=is_head and arrival.waits) if takes else None
    if receipt.claim is not None:
        receipt.runs_here = is_head
    elif accepted is not None:
        is_run = lane.owner == tx.instance and not lane.is_consumed
        receipt.runs_here = is_run and receipt.outcome == "accepted"
    receipt.partner = lane.partner
    receipt.at_most_once = lane.assurance is DeliveryAssurance.AT_MOST_ONCE
    if arrival.waits and not receipt.settled and lane.owner is None:
        receipt.is_stuck = lane.delivery_state(tx.now) in _STUCK


def _lack_of_room(tx: Transaction, record: SequenceRecord, arrival: Arrival, step: Step) -> str | Outgrew:
    """Why there is no room for what ``step`` would accept; empty: there is."""
    number, room, before = arrival.header.number, arrival.policy.room, record.value
    is_held = number >= step.sequence.limit
    lack: str | Outgrew = ""
    if is_held or room.max_store is not None:
        lack = lack_of_room(tx, record, number, arrival.body.size, held=is_held, room=room)
    if not lack and room.max_per_connection is not None:
        lack = _lack_on_connection(tx, record, arrival)
    if not lack and record.is_consumed and not arrival.wants_reply and not (record.held and number == before.expected):
        lack = verbs.lack_in_queue(tx, arrival)  # what fills a gap is taken: what is behind it could never leave
    return lack


def _lack_on_connection(tx: Transaction, record: SequenceRecord, arrival: Arrival) -> str:
    """Why the connection has no room. The number at ``expected`` is taken in any case where something waits for it or
    nothing of its sequence can run: it makes room. Behind messages that can run by themselves it would only make the
    queue longer."""
    before = record.value
    makes_room = arrival.header.number == before.expected and (
        before.received.highest >= before.expected or not record.is_unsettled
    )
    return crowded(tx, arrival.connection, arrival.policy.room.max_per_connection, always=makes_room)


def store(tx: Transaction, lane: Lane, arrival: Arrival, number: int, disposition: Disposition | None = None) -> int:
    """Store a message as ``number`` of ``lane``; answers its position. ``disposition``: it is settled at once."""
    body = arrival.body
    message = tx.add_message(
        arrival.message_id,
        arrival.action,
        body.content,
        size=body.size,
        environ=arrival.environ,
        principal=arrival.sender.principal,
        connection=arrival.connection,
    )
    if body.content is None:
        tx.write_body(message, body.size, body.open())
    discarded = None if disposition is Disposition.LATE_REFUSED else disposition
    is_loose = isinstance(lane, LooseEntry)
    is_consumed = lane.is_consumed and not arrival.wants_reply and not discarded
    position = tx.add_entry(
        {
            "id": message,
            "queue": lane.queue,
            "message": message,
            "lane": None if is_loose else lane.id,
            "number": None if is_loose else number,
            "wants_reply": int(arrival.wants_reply),
            "named": int(arrival.named or discarded is not None),
            "waiter": tx.instance_name if arrival.waits else None,
            "outcome": "discarded" if discarded else None,
            "reason": discarded.value if discarded else None,
            "settled_at": tx.now if discarded else None,
            "priority": DEFAULT_PRIORITY if is_consumed else None,
            "expires_at": verbs.expiry(tx, arrival) if is_consumed else None,
        }
    )
    if is_consumed:
        verbs.count_arrived(tx, arrival, message)
    if discarded is not None:
        if lane.cursor == number:
            move_past(tx, lane, number)
        tx.ledger("discarded", lane, number=number, position=position, reason=discarded.value)
    elif disposition is not None:
        bury(tx, lane, position, number, disposition.value)
    return position


def _answer_last(
    tx: Transaction, record: SequenceRecord, outbound: OutboundRecord, arrival: Arrival, receipt: MessageReceipt
) -> None:
    """Answer the last message with the last one of the offered sequence, unless replies are still to come there: on the
    response, or where the acknowledgements go."""
    assert receipt.position is not None
    assert arrival.last_reply is not None
    if record.is_unsettled or record.held:
        return
    header = give_number(tx, outbound, is_last=True)
    if header is None:
        return
    if record.acks_to is not None:
        receipt.sends += send(tx, record, arrival.last_reply(record.acks_to), header.number).claims
        return
    message = arrival.last_reply(None)
    reply = ServiceReply("200 OK", (("Content-Type", message.content_type),), message.body)
    keep_reply(tx, record, receipt.position, reply, header)
    receipt.has_last_reply = True


def _repeat(tx: Transaction, record: SequenceRecord, arrival: Arrival, receipt: MessageReceipt) -> None:
    """A duplicate: find the first copy, and let its outcome wake this request too."""
    is_answered_here = record.outbound is not None and record.acks_to is None
    receipt.has_last_reply = arrival.last_reply is not None and is_answered_here
    if arrival.header.number < record.cursor and not (arrival.wants_reply or receipt.has_last_reply):
        receipt.settled = True  # as everything below the cursor, and no more is asked for
        return
    found = tx.execute(entries.ENTRY_BY_NUMBER, {"lane": record.id, "number": arrival.header.number}).fetchone()
    if found is None:  # retention has taken the entry; the ranges still know the number
        receipt.settled = True
        return
    receipt.position = found[0]
    receipt.settled = found[1] is not None
    if found[1] == "delivered" and found[2]:
        receipt.reply_age = tx.now - found[4]
    if arrival.waits and not receipt.settled:
        tx.execute(entries.SET_WAITER, {"key": found[0], "waiter": tx.instance_name})
