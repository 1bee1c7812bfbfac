"""CreateSequence: a new sequence, the one that the same request got before, or why there is none.

Some clients open a sequence at each start and never use it (Metro). Where ``max_sequences`` is reached, an empty one
without traffic for an hour is ended, the oldest first; until then it may be used for as long as was granted.
"""

from __future__ import annotations

import secrets
import uuid
from typing import Final

from wsrm_mq.queue.acknowledgement import answer_ack_requested
from wsrm_mq.queue.arrival import CreateReceipt, Sender
from wsrm_mq.queue.ending import apply_step, step_of
from wsrm_mq.queue.modes import endpoint_queue
from wsrm_mq.queue.outbound import spoken_of
from wsrm_mq.queue.policy import Mode, QueuePolicy
from wsrm_mq.queue.room import Room, full, not_ours, too_many_sequences
from wsrm_mq.sequence.elements import AckRequested, CreateSequence, EndpointReference, Offer
from wsrm_mq.sequence.faults import CreateSequenceRefused
from wsrm_mq.sequence.inbound import Lapsed, grant
from wsrm_mq.sequence.outbound import OutboundSequence, OutboundTerms
from wsrm_mq.sequence.states import ENDED, State
from wsrm_mq.sequence.terms import Terms
from wsrm_mq.store import lanes
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction

UNUSED_AFTER: Final = 3_600_000
"""A sequence is unused after so long without traffic, in ms."""
_MOST: Final = 100
"""The most sequences that are ended for one request, where the limit was lowered."""


def create(
    tx: Transaction,
    sender: Sender,
    request: CreateSequence,
    message_id: str | None,
    policy: QueuePolicy,
    ack_requested: tuple[AckRequested, ...] = (),
    *,
    acks_with_reply: bool = False,
) -> CreateReceipt:
    """Answer a CreateSequence: a new sequence, or the same one again for a request that was sent again (D-CRE-027).
    ``acks_with_reply``: its source takes an acknowledgement for the reply too."""
    receipt = CreateReceipt()
    _create(tx, sender, request, message_id, policy, receipt, acks_with_reply=acks_with_reply)
    answer_ack_requested(tx, sender, policy, ack_requested, receipt, None)
    return receipt


def _create(
    tx: Transaction,
    sender: Sender,
    request: CreateSequence,
    message_id: str | None,
    policy: QueuePolicy,
    receipt: CreateReceipt,
    *,
    acks_with_reply: bool,
) -> None:
    queue = tx.queue_named(sender.queue)
    if queue is not None and not tx.serves(queue):
        receipt.turn_away(not_ours(sender.queue))
        return
    # Names and MessageIDs of two senders must not run together to one text.
    create_id = f"{len(sender.who)} {sender.who} {message_id}" if message_id else None
    record = None if queue is None else _made_before(tx, sender, request, create_id, queue)
    if record is not None:
        receipt.created, receipt.lifetime = record.value, _lifetime(record)
        receipt.is_offer_accepted = _is_answered_in(record, request.offer)
        return
    if no_room := full(tx, policy.room):
        receipt.turn_away(no_room)
        return
    refused = too_many_sequences(tx, sender.principal, sender.peer, policy.room)
    if refused and not _make_way(tx, sender.principal, sender.peer, policy.room):
        receipt.fault = CreateSequenceRefused(refused, ours=True)
        return
    record = _begin(tx, sender, request, create_id, policy)
    receipt.created, receipt.lifetime = record.value, _lifetime(record)
    if request.offer is not None:
        receipt.is_offer_accepted = _accept_offer(
            tx, record, sender, request.offer, policy.max_expires, acks_with_reply=acks_with_reply
        )


def _begin(
    tx: Transaction, sender: Sender, request: CreateSequence, create_id: str | None, policy: QueuePolicy
) -> SequenceRecord:
    """Add a sequence, on the terms that the policy of its sender grants."""
    terms = Terms(
        identifier=new_identifier(),
        rm=sender.rm,
        soap=sender.soap,
        addressing=sender.addressing,
        behavior=policy.behavior,
        assurance=policy.assurance,
        ordered=policy.ordered,
        inactivity=policy.inactivity,
        incomplete_reason=policy.incomplete_reason,
    )
    record = SequenceRecord.begin(
        endpoint_queue(tx, sender.queue, policy),
        grant(request, terms, tx.now, policy.max_expires),
        is_consumed=policy.mode is Mode.PULL,
        principal=sender.principal,
        peer=sender.peer,
        partner=sender.partner,
        acks_to=_elsewhere(request.acks_to, sender),
        acks_fetched_by=_fetched_by(request.acks_to, sender),
    )
    tx.add_sequence(record, create_id)
    tx.ledger("created", record)
    return record


def _made_before(
    tx: Transaction, sender: Sender, request: CreateSequence, create_id: str | None, queue: int
) -> SequenceRecord | None:
    """The sequence that the same request got before, where it answers that again."""
    row = {"create_id": create_id, "queue": queue}
    known = None if create_id is None else tx.execute(lanes.SEQUENCE_BY_CREATE_ID, row).fetchone()
    record = tx.sequence(known[0]) if known else None
    if record is None or not _still_answers(record, sender, tx.reached):
        return None
    return record if request.expires is None or _lifetime(record) <= request.expires else None


def _lifetime(record: SequenceRecord) -> int:
    """The granted Expires, in ms."""
    return (record.value.terms.expires_at or record.created_at) - record.created_at


def _accept_offer(
    tx: Transaction, record: SequenceRecord, sender: Sender, offer: Offer, max_expires: int, *, acks_with_reply: bool
) -> bool:
    """Have the replies to a new sequence go out in the one that was offered with it; answers whether they do. A name
    that is known already is no name for it (SEC-033), unless its source offers it anew before it was used: the response
    to its first CreateSequence was lost."""
    known = spoken_of(tx, sender, offer.identifier)
    if known is not None and known.answered is not None and known.peer == sender.peer and _is_unused(known):
        tx.drop_answering(known.answered)
    lifetime = min(offer.expires or max_expires, max_expires)
    terms = OutboundTerms(offer.identifier, sender.rm, sender.soap, sender.addressing, tx.now + lifetime)
    is_on_responses = offer.endpoint is None or offer.endpoint.address == sender.addressing.anonymous
    return tx.add_outbound(
        OutboundRecord(
            answered=record,
            value=OutboundSequence(terms),
            queue=record.queue,
            principal=record.principal,
            peer=record.peer,
            partner=record.partner,
            endpoint=None if is_on_responses else offer.endpoint,
            acks_with_reply=acks_with_reply,
        )
    )


def _is_unused(outbound: OutboundRecord) -> bool:
    """Neither a message of the sequence that it answers nor a word about the replies has come."""
    value, has_come = outbound.value, outbound.answered is not None and outbound.answered.value.received
    return not has_come and value.is_open and not (value.given or value.last_number)


def _elsewhere(acks_to: EndpointReference | None, sender: Sender) -> EndpointReference | None:
    """Where acknowledgements are sent; ``None``: they leave on the responses."""
    if acks_to is None or acks_to.address == sender.addressing.anonymous or sender.rm.is_fetched(acks_to.address):
        return None
    return acks_to


def _fetched_by(acks_to: EndpointReference | None, sender: Sender) -> str | None:
    """The address where acknowledgements may be fetched that no response takes along."""
    return acks_to.address if acks_to is not None and sender.rm.is_fetched(acks_to.address) else None


def _still_answers(record: SequenceRecord, sender: Sender, now: int) -> bool:
    """Whether a repeated CreateSequence gets this sequence: it is the sender's own, open, and in the versions that the
    source speaks."""
    terms, due_at = record.value.terms, record.value.due_at
    is_open = record.value.state is State.CREATED and (due_at is None or now < due_at)
    spoken = (sender.rm, sender.soap, sender.addressing)
    is_own = record.principal == sender.principal
    return is_own and is_open and (terms.rm, terms.soap, terms.addressing) == spoken


def _is_answered_in(record: SequenceRecord, offer: Offer | None) -> bool:
    """Whether the replies to a sequence go out in the one that ``offer`` names."""
    if offer is None or record.outbound is None:
        return False
    return record.outbound.value.terms.identifier == offer.identifier


def new_identifier() -> str:
    """A name that no other sequence has, and that no sender can guess."""
    return f"urn:uuid:{uuid.UUID(bytes=secrets.token_bytes(16), version=4)}"


def _make_way(tx: Transaction, principal: str | None, address: str | None, room: Room) -> bool:
    """End unused sequences of a peer until it may open another; answers whether it may."""
    unused = lanes.UNUSED_OF_ADDRESS if principal is None else lanes.UNUSED_OF_PRINCIPAL
    who = address if principal is None else principal
    ended = key = 0
    for _ in range(_MOST):
        row = {"who": who, "before": tx.reached - UNUSED_AFTER, "after": key}
        (key,) = tx.execute(unused, row).fetchone()
        if key is None:
            break
        record = tx.sequence(key)
        if record is None or record.value.received or record.value.active_at > tx.reached - UNUSED_AFTER:
            continue  # used by now, in this very transaction
        if record.value.state not in ENDED:  # else by an earlier request of this transaction, unseen by a query
            apply_step(tx, record, step_of(tx, record, Lapsed()), reason="unused; max_sequences was reached")
        ended += 1
        if not too_many_sequences(tx, principal, address, room, but=ended):
            return True
    return False
