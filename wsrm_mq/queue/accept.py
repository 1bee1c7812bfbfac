"""Taking responsibility: CreateSequence and messages, each in one transaction.

The protocol step is taken here, on the row that this transaction read. What goes out is rendered from what was
committed, never from what was about to be.
"""

from __future__ import annotations

import io
import secrets
import uuid
from typing import BinaryIO, Final, NamedTuple

from wsrm_mq.queue.connection_room import crowded
from wsrm_mq.queue.ending import apply_step
from wsrm_mq.queue.ownership import Claim, take
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.room import TooLarge, full, lack_of_room, not_ours, too_many_sequences
from wsrm_mq.queue.settlement import acknowledged
from wsrm_mq.queue.unused import make_way
from wsrm_mq.sequence.elements import (
    AckRequested,
    CreateSequence,
    SequenceAcknowledgement,
    SequenceHeader,
)
from wsrm_mq.sequence.faults import CreateSequenceRefused, Fault, MalformedMessage, SequenceTerminated, UnknownSequence
from wsrm_mq.sequence.inbound import (
    DeliveryAssurance,
    Disposition,
    GaveUp,
    InboundSequence,
    Step,
    Terms,
    decline,
    grant,
    receive,
)
from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.sequence.states import Act, State
from wsrm_mq.store import statements as sql
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import AddressingVersion, RMVersion, SOAPVersion

__all__ = [
    "Arrival",
    "Body",
    "Created",
    "Receipt",
    "Sender",
    "accept",
    "accept_into",
    "answer_ack_requested",
    "count",
    "create",
    "find",
    "look_around",
]


_STUCK: Final = (DeliveryState.BLOCKED, DeliveryState.RETRYING)


class Sender(NamedTuple):
    """Who speaks, in which versions, to which queue: what a sequence is bound to."""

    queue: str
    rm: RMVersion
    soap: SOAPVersion
    addressing: AddressingVersion
    principal: str | None = None
    peer: str | None = None
    """The address it speaks from."""
    partner: str | None = None
    """The configuration section that fits it."""

    @property
    def who(self) -> str:
        """What its limits are counted by: the principal, without one the address."""
        return self.principal or self.peer or ""


class Body:
    """The bytes of a message as received: in memory, or in a spooled file where they are many."""

    __slots__ = ("content", "file", "is_counted", "size")

    def __init__(
        self, content: bytes | None, file: BinaryIO | None = None, size: int = 0, *, is_counted: bool = True
    ) -> None:
        self.content = content
        self.file = file
        self.size = len(content) if content is not None else size
        self.is_counted = is_counted
        """The server vouches for its end. Some show a dropped connection as the end of a body without a length."""

    def open(self) -> BinaryIO:
        """A stream from the first byte. A spooled body has one: do not open it twice at a time."""
        if self.content is not None:
            return io.BytesIO(self.content)
        assert self.file is not None
        self.file.seek(0)
        return self.file

    def tail(self, size: int) -> bytes:
        """The last ``size`` bytes."""
        if self.content is not None:
            return self.content[-size:]
        assert self.file is not None
        self.file.seek(max(0, self.size - size))
        return self.file.read(size)


class Arrival(NamedTuple):
    """A message with a Sequence header, or one that gets its place when it is stored. ``environ`` is the part of the
    request that a replay needs, as JSON."""

    header: SequenceHeader
    message_id: str | None
    body: Body
    sender: Sender
    action: str | None
    environ: str
    connection: str | None
    policy: QueuePolicy
    wants_reply: bool = False
    named: bool = True
    empty_last: bool = False
    ack_requested: tuple[AckRequested, ...] = ()
    waits: bool = False
    """A request waits here for what becomes of it: its answer depends on that."""


class Receipt:
    """What became of a message, as committed. What is not said holds for most."""

    act: Act | None = None
    fault: Fault | None = None
    no_room: str = ""
    given: SequenceHeader | None = None
    """The place that a message without WS-RM got."""
    acknowledgement: SequenceAcknowledgement | None = None
    """The acknowledgement of the carrying message's sequence."""
    outcome: str = ""
    """The same in a word, as it is counted; see ``counts.RECEIVED``."""
    acknowledge_now: bool = False
    """It may not be put off: see ``acknowledgement_interval``."""
    others: tuple[SequenceAcknowledgement, ...] = ()
    """What AckRequested headers asked for, of other sequences."""
    other_faults: tuple[Fault, ...] = ()
    position: int | None = None
    settled: bool = False
    claim: Claim | None = None
    is_head: bool = False
    """The claim's first message is this one: it can be run without reading it again."""
    held: bool = False
    """It waits for a number that was not received."""
    is_queued: bool = False
    """Deliverable, and this instance already runs its sequence: the run will come to it."""
    sequence: int = 0
    """Key of the sequence."""
    partner: str | None = None
    """Of the sequence: its policy rules retries."""
    at_most_once: bool = False
    """What the sequence was granted, whatever the policy says by now."""
    reply_age: int | None = None
    """A duplicate: how long ago the reply of the first copy was stored, and left, ms."""
    is_stuck: bool = False
    """Its sequence is blocked or waits for a retry: that takes longer than a request waits."""
    owned_elsewhere: bool = False
    """Another instance runs the sequence, or died while it did."""
    discarding: bool = False
    """A tail has to be moved to the dead letters."""
    unfinished: int | None = None
    """Close and Terminate: position of the last message that runs or may run and is not named yet."""


class Created(NamedTuple):
    sequence: InboundSequence | None
    lifetime: int = 0
    """Granted Expires, in ms."""
    fault: Fault | None = None
    no_room: str = ""
    others: tuple[SequenceAcknowledgement, ...] = ()
    """What AckRequested headers asked for."""
    other_faults: tuple[Fault, ...] = ()


def create(
    tx: Transaction,
    sender: Sender,
    request: CreateSequence,
    message_id: str | None,
    policy: QueuePolicy,
    ack_requested: tuple[AckRequested, ...] = (),
) -> Created:
    """Answer a CreateSequence: a new sequence, or the same one again for a request that was sent again (D-CRE-027)."""
    created = _create(tx, sender, request, message_id, policy)
    asked = Receipt()
    answer_ack_requested(tx, sender, policy, ack_requested, asked, None)
    return created._replace(others=asked.others, other_faults=asked.other_faults)


def _create(
    tx: Transaction, sender: Sender, request: CreateSequence, message_id: str | None, policy: QueuePolicy
) -> Created:
    queue = tx.queue_named(sender.queue)
    if queue is not None and not tx.serves(queue):
        return Created(None, no_room=not_ours(sender.queue))
    # Names and MessageIDs of two senders must not run together to one text.
    create_id = f"{len(sender.who)} {sender.who} {message_id}" if message_id else None
    if create_id is not None and queue is not None:
        known = tx.execute(sql.SEQUENCE_BY_CREATE_ID, {"create_id": create_id, "queue": queue}).fetchone()
        record = tx.sequence_named(known[0]) if known else None
        lifetime = (record.value.terms.expires_at or tx.now) - record.created_at if record is not None else 0
        is_enough = request.expires is None or lifetime <= request.expires
        if record is not None and is_enough and _still_answers(record, sender, tx.now):
            return Created(record.value, lifetime=lifetime)
    no_room = full(tx, policy.room)
    if no_room:
        return Created(None, no_room=no_room)
    refused = too_many_sequences(tx, sender.principal, sender.peer, policy.room)
    if refused and not make_way(tx, sender.principal, sender.peer, policy.room):
        return Created(None, fault=CreateSequenceRefused(refused, ours=True))
    terms = Terms(
        identifier=f"urn:uuid:{uuid.UUID(bytes=secrets.token_bytes(16), version=4)}",
        rm=sender.rm,
        soap=sender.soap,
        addressing=sender.addressing,
        behavior=policy.behavior,
        assurance=policy.assurance,
        ordered=policy.ordered,
        inactivity=policy.inactivity,
        incomplete_reason=policy.incomplete_reason,
    )
    value = grant(request, terms, tx.now, policy.max_expires)
    record = SequenceRecord(
        0,
        tx.queue(sender.queue),
        value,
        principal=sender.principal,
        peer=sender.peer,
        partner=sender.partner,
        created_at=tx.now,
    )
    record = tx.add_sequence(record, create_id)
    tx.ledger("created", record)
    return Created(value, lifetime=(value.terms.expires_at or tx.now) - tx.now)


def _still_answers(record: SequenceRecord, sender: Sender, now: int) -> bool:
    """Whether a repeated CreateSequence gets this sequence: it is the sender's own, open, and in the versions that the
    source speaks."""
    terms, due_at = record.value.terms, record.value.due_at
    is_open = record.value.state is State.CREATED and (due_at is None or now < due_at)
    spoken = (sender.rm, sender.soap, sender.addressing)
    is_own = record.principal == sender.principal
    return is_own and is_open and (terms.rm, terms.soap, terms.addressing) == spoken


def accept(tx: Transaction, arrival: Arrival) -> Receipt:
    """Take one message of a sequence: step, message, entry, claim, in this transaction."""
    receipt = Receipt()
    record = find(tx, arrival.sender, arrival.header.identifier, receipt)
    if record is not None:
        accept_into(tx, record, arrival, receipt)
        receipt.acknowledgement = acknowledged(record, arrival.policy, lambda: tx.used_bytes)
        if arrival.policy.acknowledgement_interval is not None:
            receipt.acknowledge_now = _is_due(tx, record, receipt, arrival.policy.acknowledgement_interval)
    count(tx, arrival, receipt, record.queue if record is not None else 0)
    answer_ack_requested(tx, arrival.sender, arrival.policy, arrival.ack_requested, receipt, arrival.header.identifier)
    return receipt


def _outcome(receipt: Receipt) -> str:
    """What became of a message, in a word that is counted."""
    if receipt.act is Act.ACCEPT:
        return "held" if receipt.held else "discarded" if receipt.settled else "accepted"
    if receipt.act is Act.REPEAT:
        return "duplicate"
    return "no_room" if receipt.no_room else "refused"


def count(tx: Transaction, arrival: Arrival, receipt: Receipt, queue: int) -> None:
    """Say in the receipt what became of a message, and count it."""
    receipt.outcome = _outcome(receipt)
    tx.counts[receipt.outcome, queue, arrival.sender.rm.label] += 1


def _is_due(tx: Transaction, record: SequenceRecord, receipt: Receipt, interval: int) -> bool:
    """Whether an acknowledgement may not be put off: the last one is ``interval`` ms old (or older than the clock
    says: it was stepped back), or the source does not know what it has to know."""
    age = tx.now - record.acknowledged_at
    if 0 <= age < interval and receipt.act is Act.ACCEPT and not receipt.held:
        return False
    record.acknowledged_at = tx.now
    return True


def find(tx: Transaction, sender: Sender, identifier: str, receipt: Receipt) -> SequenceRecord | None:
    """The sequence that ``sender`` may speak of. A stranger learns nothing: to him it is unknown (SEC-003)."""
    record = tx.sequence_named(identifier)
    known = (
        record is not None
        and record.principal == sender.principal
        and record.value.terms.rm is sender.rm
        and record.queue == tx.queue_named(sender.queue)
    )
    if record is None or not known:
        receipt.fault = UnknownSequence("The identifier is not that of a sequence known here.", identifier)
        return None
    if not tx.serves(record.queue):
        receipt.no_room = not_ours(sender.queue)
        return None
    terms = record.value.terms
    if terms.soap is not sender.soap or terms.addressing is not sender.addressing:
        receipt.fault = MalformedMessage(
            f"The sequence was created with SOAP {terms.soap.label} and WS-Addressing {terms.addressing.label}; "
            "all its messages have to use the same."
        )
        return None
    return record


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
    receipt.act, receipt.fault, receipt.no_room = step.act, step.fault, step.no_room
    if step.act is Act.ACCEPT:
        receipt.position = _store(tx, record, arrival, step.disposition)
        receipt.settled = step.disposition is not None
        receipt.held = number >= record.value.deliver_below
        if receipt.held:
            record.hold(arrival.body.size)
    elif step.act is Act.REPEAT:
        record.duplicates += 1
        _repeat(tx, record, arrival, receipt)
    if step.act is not None or step.ended_now:
        receipt.claim = take(tx, record)
        receipt.is_head = receipt.claim is not None and accepted is not None and record.cursor == number
        receipt.is_queued = (
            accepted is not None and receipt.claim is None and not receipt.held and record.owner == tx.instance
        )
    look_around(tx, record, receipt)


def _within_room(tx: Transaction, record: SequenceRecord, arrival: Arrival, step: Step) -> Step:
    """``step``, or, where there is no room for what it accepts, another in its place: it was not taken yet."""
    number = arrival.header.number
    is_held = number >= step.sequence.limit
    no_room = lack_of_room(tx, record, number, arrival.body.size, held=is_held, room=arrival.policy.room)
    if not no_room and arrival.policy.room.max_per_connection is not None:
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
    receipt.held = arrival.header.number >= record.value.deliver_below
    if arrival.waits and not receipt.settled:
        tx.execute(sql.SET_WAITER, {"key": found[0], "waiter": tx.instance_name})


def look_around(tx: Transaction, record: SequenceRecord, receipt: Receipt) -> None:
    receipt.sequence = record.id
    receipt.partner = record.partner
    receipt.at_most_once = record.value.terms.assurance is DeliveryAssurance.AT_MOST_ONCE
    receipt.is_stuck = not receipt.settled and record.owner is None and record.delivery_state(tx.now) in _STUCK
    receipt.owned_elsewhere = record.owner is not None and record.owner != tx.instance
    receipt.discarding = record.discarding


def answer_ack_requested(
    tx: Transaction,
    sender: Sender,
    policy: QueuePolicy,
    requests: tuple[AckRequested, ...],
    receipt: Receipt,
    carried: str | None,
) -> None:
    """Answer each AckRequested once. One that fails does not stop the message it rides on (D-ACK-018)."""
    if not requests:
        return
    for identifier in dict.fromkeys(request.identifier for request in requests):
        if identifier == carried:
            continue
        answer = Receipt()
        record = find(tx, sender, identifier, answer)
        if record is not None:
            step = receive(record.value, AckRequested(identifier), tx.now)
            apply_step(tx, record, step)
            answer.fault = step.fault
        if record is None or answer.fault is not None:
            assert answer.fault is not None
            receipt.other_faults += (answer.fault,)
        else:
            receipt.others += (acknowledged(record, policy, lambda: tx.used_bytes),)
