"""The requests of an RM Source: stored with their numbers before anything is sent of them, in outbound sequences that
answer none.

To one destination one sequence follows another. Each gives numbers before its destination knows of it; it is asked for
once nothing of an earlier one may be sent. One that takes no more of its messages (it was closed, its destination has
lost it, its time is over) is followed by one that has all that was not acknowledged, in the same order. Nothing is
rendered here: what is to be told is answered, or found by ``delivery.requesting``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue.arrival import Receipt
from wsrm_mq.queue.creation import new_identifier
from wsrm_mq.queue.ending import bury
from wsrm_mq.queue.outbound import (
    NOT_REPLIED_TO,
    end_of,
    end_outbound,
    give_number,
    is_ended_there,
    lanes_of,
    leave_rest,
    let_out,
    reason_of,
    requests_in,
    step_of,
    told_with,
)
from wsrm_mq.queue.ownership import Claim, count_unsettled, free, give_back, settle_cursor, still_mine, take
from wsrm_mq.queue.policy import QueuePolicy, Resend
from wsrm_mq.queue.sending import OutgoingMessage, Sent, channel_of, place_in, send
from wsrm_mq.queue.settle import ServiceReply, Settled, keep_reply
from wsrm_mq.queue.withdrawing import Stored as DeadLetter
from wsrm_mq.queue.withdrawing import withdraw
from wsrm_mq.sequence.elements import (
    CloseSequence,
    CloseSequenceResponse,
    CreateSequenceResponse,
    EndpointReference,
    TerminateSequence,
    TerminateSequenceResponse,
)
from wsrm_mq.sequence.outbound import Created, OutboundSequence, OutboundTerms, Own
from wsrm_mq.sequence.outbound_states import OutboundAct, OutboundState
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.sequence.states import Act
from wsrm_mq.store import channels, consuming, entries, lanes, queues, routing
from wsrm_mq.store import outbound as outbounds
from wsrm_mq.store.applications import SIGNED, hop_queue, sent_queue, source_queue
from wsrm_mq.store.bulk import REPLAYS
from wsrm_mq.store.calls import Awaited
from wsrm_mq.store.entries import HAS_REPLY, HELD_BYTES, SETTLE
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.records import About, Lane
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.words import REPLAYED
from wsrm_mq.versions import MAX_MESSAGE_NUMBER, AddressingVersion, RMVersion, SOAPVersion

REFUSED: Final = "sequence_refused"
"""Reason of dead letters: their destination has refused to create the sequence that they had their numbers in."""
TERMINATED: Final = "terminated_by_operator"
_MOST: Final = MAX_MESSAGE_NUMBER - 1
"""The last number: the limit of a lane is behind it (S-SND-005)."""
RENEWED_BEFORE: Final = 60_000
"""Milliseconds before its time is over in which a sequence gives no number any more."""
_KNOWN_FOR: Final = 365 * 24 * 3_600_000
"""Milliseconds for which a request that was stored ``once`` is known where nothing forgets it: its relay was killed at
just that moment."""
_NO_OFFER: Final = ""
"""In the place of the name of an offered sequence: the destination takes none."""
_OVER: Final = (OutboundState.CLOSED, OutboundState.FAILED, OutboundState.EXPIRED)
"""States in which nothing new of a sequence is sent, and something of it may be unacknowledged."""
_ALL: Final = AckRanges(((1, MAX_MESSAGE_NUMBER - 1),))


class Destination(NamedTuple):
    """The endpoint of requests, and the versions that are spoken to it."""

    address: str
    rm: RMVersion
    soap: SOAPVersion
    addressing: AddressingVersion
    is_node: bool = False
    """It is the next node on the way of messages to queues elsewhere."""
    run: str | None = None
    """The run of the store that has these messages, where they are express; else ``None``."""
    acks_to: str | None = None
    """The address of this side that it acknowledges and replies to; ``None``: the responses of its own."""

    @property
    def queue(self) -> str:
        """The name of the queue that its requests wait in."""
        return hop_queue(self.address, self.run) if self.is_node else source_queue(self.address)


class Stored(NamedTuple):
    """A request that was stored."""

    sent: Sent
    outbound: int
    """Key of its sequence."""
    is_first: bool
    """The sequence is new: its destination is to be asked for it."""


def sign(tx: Transaction, to: str, *, is_signed: bool) -> None:
    """Whether what leaves for the address ``to`` is signed: that alone is stored, no key. Where it begins to be, other
    processes lose the lanes that they have there: one that can sign goes on."""
    application = SIGNED if is_signed else None
    home = tx.queue(source_queue(to), "outgoing")
    if tx.execute(queues.QUEUE, {"key": home}).fetchone()[1] == application:
        return
    keys = home, tx.queue(sent_queue(source_queue(to)), "outgoing", home)
    for key in keys:
        tx.execute(queues.SET_APPLICATION, {"key": key, "application": application})
    for lane in tx.lanes_by(lanes.OWNED):
        if is_signed and lane.queue in keys and lane.owner != tx.instance:
            free(lane)


def store(
    tx: Transaction,
    to: Destination,
    message: OutgoingMessage,
    *,
    is_last: bool = False,
    wants_reply: bool = False,
    offers: bool = False,
    expires_at: int | None = None,
) -> Stored:
    """Store a request, which is sent in its turn until it is acknowledged, and replied to where it ``wants_reply``.
    ``is_last``: its sequence ends with it; ``offers``: that offers another one, for replies, as it has to for a request
    that is replied to. ``expires_at``: it is a dead letter then, unless it is acknowledged."""
    offers = offers or wants_reply
    queue = tx.queue(to.queue, "outgoing")
    outbound = current(tx, queue, to, offers=offers)
    made = begin(tx, queue, to, offers=offers) if outbound is None else outbound
    header = give_number(tx, made, is_last=is_last)
    assert header is not None  # else it would not be the current one
    sent = send(tx, made, message, header.number, wants_reply=wants_reply, expires_at=expires_at)
    return Stored(sent, made.id, outbound is None)


def ahead(tx: Transaction, to: Destination, *, offers: bool) -> OutboundRecord | None:
    """A new sequence for requests that are not there yet; ``None``: one takes them already."""
    queue = tx.queue(to.queue, "outgoing")
    return begin(tx, queue, to, offers=offers) if current(tx, queue, to, offers=offers) is None else None


def store_once(
    tx: Transaction, to: Destination, message: OutgoingMessage, *, wants_reply: bool, offers: bool
) -> Stored | None:
    """``store`` a request, unless one of its MessageID was stored so and is not forgotten yet: then ``None``."""
    which = _which(tx, to.address, message.message_id)
    if tx.execute(consuming.PUT_BEFORE, which).fetchone() is not None:
        return None
    stored = store(tx, to, message, wants_reply=wants_reply, offers=offers)
    until = tx.now + _KNOWN_FOR
    tx.execute(consuming.ADD_DEDUPE, {**which, "message": stored.sent.position, "until": until})
    return stored


def send_again(tx: Transaction, one: DeadLetter) -> int | None:
    """Have a request that was given up be the last of the sequence that is current there, or of a new one: its own has
    ended, or will. Answers its new position; ``None``: it is no request. Raises ``NotAllowed`` for a one-way that its
    destination has acknowledged since."""
    old = requests_in(tx, one.lane.id)
    if old is None:
        return None
    if one.number in old.value.acknowledged and not one.wants_reply:
        raise NotAllowed(
            f"The message at position {one.position} is done: {old.value.terms.identifier} has acknowledged its number"
            f" {one.number} since. `wsrm-mq dead-letter confirm pos:{one.position} --reason TEXT` ends its alarm."
        )
    withdraw(tx, one, REPLAYED)
    tx.execute(routing.NO_DEADLINE, {"message": one.message})
    offers = bool(old.offered) or bool(one.wants_reply)
    to = _destination(old)
    made = current(tx, old.queue, to._replace(acks_to=None), offers=offers)
    if made is None:
        made = begin(tx, old.queue, to, offers=offers)
    tx.execute(routing.ONE_MAY_MOVE, {"address": old.peer, "message": one.message})  # its route may be another one
    header, lane = give_number(tx, made, is_last=False), channel_of(tx, made)
    assert header is not None  # else it would not be the current one
    place_in(tx, made, lane, header.number, one.size)
    names = {"queue": lane.queue, "message": one.message, "lane": lane.id, "number": header.number}
    row = {**names, "wants_reply": one.wants_reply, "replay_of": one.position, "priority": None}
    return tx.add_entry(row, REPLAYS)


def forget(tx: Transaction, address: str, message_id: str) -> None:
    """A request that was stored ``once`` never comes again."""
    tx.execute(consuming.FORGET_PUT, _which(tx, address, message_id))


def _which(tx: Transaction, address: str, message_id: str) -> dict[str, object]:
    return {"queue": tx.queue(source_queue(address), "outgoing"), "message_id": message_id}


def current(tx: Transaction, queue: int, to: Destination, *, offers: bool) -> OutboundRecord | None:
    """The sequence that gives the next number; ``None``: there is none. ``offers``: it has to offer one for replies. To
    a request in one that does not, CXF and Metro answer a fault in the place of the reply, though they have done it."""
    versions = {"rm": to.rm.label, "soap": to.soap.label, "addressing": to.addressing.label}
    found = tx.newest_requesting(queue, versions)
    if found is None or found.value.state not in (OutboundState.CREATING, OutboundState.CREATED):
        return None
    value, until = found.value, found.value.terms.expires_at
    if value.last_number is not None or value.given >= _MOST:
        return None
    is_in_time = until is None or tx.reached < until - RENEWED_BEFORE
    is_heard = to.acks_to in (None, found.principal)
    if is_over(found, tx.reached):
        return None  # what it has left goes on in the next one, before all that waits there
    if is_in_time and is_heard and (found.offered is not None or not offers):
        return found
    step_of(tx, found, Own.SEAL)
    return None


def is_over(outbound: OutboundRecord, at: int) -> bool:
    """Whether the time of a sequence is over at ``at``."""
    until = outbound.value.terms.expires_at
    return until is not None and at >= until


def begin(tx: Transaction, queue: int, to: Destination, *, offers: bool, takes_offer: bool = True) -> OutboundRecord:
    """A new sequence, which ``offers`` one for replies where the destination ``takes_offer``. Until that names it, its
    name is the MessageID of the CreateSequence that asks for it, which is the same however often that is sent
    (S-CRE-009)."""
    terms = OutboundTerms(new_identifier(), to.rm, to.soap, to.addressing)
    made = OutboundRecord(
        value=OutboundSequence(terms, state=OutboundState.CREATING),
        queue=queue,
        principal=to.acks_to,
        peer=to.address,
        endpoint=EndpointReference(to.address),
        offered=None if not offers else new_identifier() if takes_offer else _NO_OFFER,
    )
    tx.add_outbound(made)
    return made


def _destination(outbound: OutboundRecord) -> Destination:
    assert outbound.endpoint is not None
    terms = outbound.value.terms
    versions = terms.rm, terms.soap, terms.addressing
    return Destination(outbound.endpoint.address, *versions, acks_to=outbound.principal)


# what the destination answers


def created(
    tx: Transaction, about: About, response: CreateSequenceResponse, relates_to: str | None, policy: QueuePolicy
) -> Receipt:
    """The destination has created the sequence: its messages may leave. Its time counts from now, and is no longer than
    was asked for (S-CRE-011, S-CRE-012)."""
    receipt = Receipt()
    receipt.act = Act.IGNORE
    if not isinstance(about, OutboundRecord) or about.value.state is not OutboundState.CREATING:
        return receipt
    if relates_to not in (None, about.value.terms.identifier):
        return receipt
    if tx.execute(outbounds.IDENTIFIER_IN_USE, {"identifier": response.identifier}).fetchone():
        refused(tx, about, f"it gives the name {response.identifier}, which another sequence here has already")
        return receipt
    lifetime = min(response.expires or policy.max_expires, policy.max_expires)
    step_of(tx, about, Created(response.identifier, tx.now + lifetime))
    tx.agree(about)
    if pass_gap(tx, about):
        receipt.needs_watch = True
    else:
        receipt.sends = _let_out(tx, about)
    return receipt


def _let_out(tx: Transaction, outbound: OutboundRecord) -> tuple[Claim, ...]:
    claims = []
    for lane in lanes_of(tx, outbound):
        let_out(tx, outbound, lane)
        claims.append(take(tx, lane))
    return tuple(filter(None, claims))


def refused(tx: Transaction, outbound: OutboundRecord, why: str) -> None:
    """The destination will not create the sequence (S-CRE-010): what has a number in it is a dead letter. The next
    request asks for another."""
    if step_of(tx, outbound, Own.REFUSED).act is OutboundAct.END:
        _end(tx, outbound, REFUSED)
        tx.ledger("sequence_refused", told_with(tx, outbound), reason=why)


def refused_there(tx: Transaction, outbound: OutboundRecord, why: str) -> None:
    """The destination answers so. Metro says it of an offer that it has accepted, where that answer was lost: then
    another sequence, with another offer, is asked for. Else it may be the offer that is not taken: one without is
    asked for."""
    if not outbound.offered:
        refused(tx, outbound, why)
    elif step_of(tx, outbound, Own.REFUSED).act is OutboundAct.END:
        takes_offer = tx.execute(channels.MAY_HAVE_ARRIVED, {"outbound": outbound.id}).fetchone() is not None
        _carry_on(tx, outbound, without_offer=None if takes_offer else why)


def replied(tx: Transaction, outbound: OutboundRecord, position: int, reply: ServiceReply) -> None:
    """The request at ``position`` has its reply. One that came in the offered sequence is acknowledged with what leaves
    from now on: there Metro keeps back the next one until then."""
    if tx.execute(HAS_REPLY, {"entry": position}).fetchone() is None:  # it may come on a response and by itself
        keep_reply(tx, None, position, reply, None)
    if reply.header is not None and reply.header.identifier == outbound.offered:
        tx.has_replied(outbound, reply.header.number)


def answered(tx: Transaction, outbound: OutboundRecord, request: Awaited, reply: ServiceReply) -> None:
    """The reply to a request has come by itself, not on the response to it: the request is done."""
    replied(tx, outbound, request.position, reply)
    lane = tx.lane(request.lane)
    assert lane is not None
    row = {"key": request.position, "now": tx.now, "outcome": "delivered", "reason": None, "delivered": 0}
    tx.execute(SETTLE, row)
    settle_cursor(tx, lane)


def confirmed(tx: Transaction, about: About, response: CloseSequenceResponse | TerminateSequenceResponse) -> Receipt:
    """The destination has closed or ended a sequence as it was asked to."""
    receipt = Receipt()
    receipt.act = Act.IGNORE
    if isinstance(about, OutboundRecord) and response.identifier in (about.value.terms.identifier, ""):
        is_close = isinstance(response, CloseSequenceResponse)
        step_of(tx, about, Own.CLOSE_CONFIRMED if is_close else Own.TERMINATE_CONFIRMED)
    return receipt


def go_on(tx: Transaction, outbound: OutboundRecord, *, is_over_there: bool = False) -> TerminateSequence | None:
    """Have another sequence go on with what is not acknowledged, where nothing new of this one is sent. Answers its
    end, where that is to be told. ``is_over_there``: its destination has terminated it."""
    if not outbound.has_requests or (outbound.value.state not in _OVER and not is_over_there):
        return None
    _carry_on(tx, outbound)
    _leave_unreplied(tx, outbound)
    lanes = lanes_of(tx, outbound)
    if outbound.value.state is not OutboundState.CLOSED or any(count_unsettled(tx, lane, 1) for lane in lanes):
        return None
    step_of(tx, outbound, Own.TERMINATE)
    step_of(tx, outbound, Own.CHANNEL_ENDED)
    return end_of(outbound) if outbound.value.terms.rm.has_close else None


def _carry_on(tx: Transaction, outbound: OutboundRecord, without_offer: str | None = None) -> None:
    """Have another sequence take the messages of one that are not acknowledged, and behind them all that wait in
    sequences that were to follow it. They are entries of their own, so each is found under both numbers. What is
    acknowledged and not replied to goes along only where the destination does not know the sequence any more: it may
    have lost it, or have done it. ``without_offer``: why it offers none for replies."""
    value = outbound.value
    left = _ALL if value.state is OutboundState.FAILED else value.unacknowledged
    if not any(_count(tx, lane, left) for lane in lanes_of(tx, outbound)):
        return
    to = _destination(outbound)
    behind = tx.execute(outbounds.CREATING_BEHIND, {"queue": outbound.queue, "id": outbound.id}).fetchall()
    others = [one for (key,) in behind if (one := tx.outbound(key)) is not None and _is_to(one, to)]
    to = _destination((outbound, *others)[-1])  # where a program hears what it says now
    offers = any(one.offered is not None for one in (outbound, *others))
    takes_offer = without_offer is None and outbound.offered != _NO_OFFER
    made = begin(tx, outbound.queue, to, offers=offers, takes_offer=takes_offer)
    lane = channel_of(tx, made)
    if left is _ALL:
        _tell_unreplied(tx, outbound)
    for one in (outbound, *others):
        for old in lanes_of(tx, one):
            _copy(tx, old, lane, left if one is outbound else _ALL)
        if one is not outbound:
            step_of(tx, one, Own.CHANNEL_ENDED)
    given, last = lane.held, (outbound, *others)[-1].value.last_number
    made.follow(made.value._replace(given=given, last_number=None if last is None else given), tx.now)
    (lane.held_bytes,) = tx.execute(HELD_BYTES, {"lane": lane.id, "limit": 1}).fetchone()
    why = "" if without_offer is None else f", without an offer of one for replies, as it was refused: {without_offer}"
    reason = f"{given} messages of {outbound.value.terms.identifier}{why}"
    tx.ledger("carried_on", lane, reason=reason)


def _leave_unreplied(tx: Transaction, outbound: OutboundRecord) -> None:
    """A request that is acknowledged, and not replied to, gets no other number: it may be done. While the
    sequence is closed it is sent again for its reply (S-RET-011), as nothing else is (S-RET-012). Where that is over,
    it is a dead letter."""
    for lane, done in unreplied(tx, outbound):
        if outbound.value.state is OutboundState.CLOSED:
            lane.discard_from = lane.discard_reason = None
            settle_cursor(tx, lane)
        else:
            _tell_of_unreplied(tx, outbound, lane, done)
            lane.give_up(1, NOT_REPLIED_TO)


def _is_to(one: OutboundRecord, to: Destination) -> bool:
    return _destination(one)._replace(acks_to=to.acks_to) == to


def _tell_unreplied(tx: Transaction, outbound: OutboundRecord) -> None:
    """The destination may have done what it acknowledged."""
    for lane, done in unreplied(tx, outbound):
        _tell_of_unreplied(tx, outbound, lane, done)


def unreplied(tx: Transaction, outbound: OutboundRecord) -> Iterator[tuple[Lane, AckRanges]]:
    """The requests that are acknowledged, and wait for their reply."""
    for lane in lanes_of(tx, outbound):
        waiting = (number for (number,) in tx.execute(channels.UNREPLIED, {"lane": lane.id}).fetchall())
        done = AckRanges.of(number for number in waiting if number in outbound.value.acknowledged)
        if done:
            yield lane, done


def _tell_of_unreplied(tx: Transaction, outbound: OutboundRecord, lane: Lane | None, done: AckRanges) -> None:
    reason = f"acknowledged and not replied to: {done} of {outbound.value.terms.identifier}"
    tx.ledger("requests_in_doubt", lane, reason=reason)


def _count(tx: Transaction, lane: Lane, numbers: AckRanges) -> int:
    """Counts the unsettled messages of a lane that have one of these numbers."""
    ranges = ({"lane": lane.id, "lower": lower, "upper": upper + 1} for lower, upper in numbers)
    return sum(tx.execute(entries.COUNT_BETWEEN, bounds).fetchone()[0] for bounds in ranges)


def _copy(tx: Transaction, old: Lane, lane: Lane, numbers: AckRanges) -> None:
    """Have the unsettled messages of ``old`` with these numbers wait in ``lane``, behind those that wait there."""
    for lower, upper in numbers:
        moved = {"old": old.id, "lower": lower, "upper": upper}
        if count := _count(tx, old, AckRanges(((lower, upper),))):
            enter_behind(tx, lane, channels.CARRY_ON, moved, count)
            tx.execute(channels.CARRIED_ON, {**moved, "reason": REPLAYED, "now": tx.now})
    old.discard_from, old.discard_reason = 1, REPLAYED
    settle_cursor(tx, old)
    old.release(0)


def enter_behind(tx: Transaction, lane: Lane, moved: str, which: Mapping[str, object], count: int) -> None:
    """Have so many messages of another lane entered anew in ``lane``, behind those that wait there. ``moved``: the
    statement that does it for ``which`` (``store.channels.entering``)."""
    begins = tx.reserve_positions(count).start
    tx.execute(moved, {**which, "lane": lane.id, "queue": lane.queue, "begins": begins, "given": lane.held})
    lane.held += count
    lane.numbers = AckRanges(((1, lane.held),))


# what this side decides


def close(tx: Transaction, outbound: OutboundRecord) -> CloseSequence | None:
    """Take no more messages into a sequence. Answers what asks its destination for the last acknowledgement (S-CLO-001,
    S-CLO-002, S-CLO-005). 1.0 has no such thing: there what is not acknowledged goes on in another sequence. Of one
    that its destination has not created nothing has left: it goes on as it is."""
    if outbound.value.state is OutboundState.CREATING:
        return None
    leave_rest(tx, outbound, lanes_of(tx, outbound))
    if outbound.value.state is OutboundState.CLOSING:
        return close_element(outbound)
    go_on(tx, outbound)
    return None


def give_up(tx: Transaction, lane: Lane, position: int, number: int, reason: str) -> None:
    """Make a dead letter of a message that was to leave in ``lane``, and have those behind it pass the gap. One that
    its destination has acknowledged, and not replied to, may be done twice if it is sent again."""
    bury(tx, lane, position, number, reason_of(tx, lane, number, reason))
    settle_cursor(tx, lane)
    leave_gap(tx, lane.id, number)


def leave_gap(tx: Transaction, lane: int, number: int) -> None:
    """The message of this number is given up. Behind the gap that a request leaves, nothing would be delivered: its
    sequence is closed, and what is not acknowledged goes on in another one, with new numbers. What was acknowledged
    behind the gap may never be delivered: that is told. What is acknowledged itself leaves none."""
    outbound = requests_in(tx, lane)
    if outbound is None:
        return
    if number in outbound.value.acknowledged:
        _tell_of_unreplied(tx, outbound, tx.lane(lane), AckRanges(((number, number),)))
        return
    if outbound.value.state is not OutboundState.CREATED:
        return
    behind = outbound.value.acknowledged.without(AckRanges(((1, number),)))
    if behind:
        why = f"acknowledged behind number {number}, which was given up: {behind} of {outbound.value.terms.identifier}"
        tx.ledger("requests_in_doubt", tx.lane(lane), reason=why)
    close(tx, outbound)


def pass_gap(tx: Transaction, outbound: OutboundRecord) -> bool:
    """The same for a gap that is there already, as after an operator has taken a message out; whether there is one."""
    for lane in lanes_of(tx, outbound):
        for number, _error in tx.execute(channels.GAPS_IN, {"lane": lane.id}).fetchall():
            if number not in outbound.value.acknowledged:
                leave_gap(tx, lane.id, number)
                return True
    return False


def seal(tx: Transaction, outbound: OutboundRecord) -> TerminateSequence | None:
    """Let no message follow those in a sequence: it ends when they are acknowledged. Answers its end, if that is
    now."""
    if is_over(outbound, tx.reached):
        return None
    step_of(tx, outbound, Own.SEAL)
    was_open = outbound.value.is_open
    if outbound.value.last_number is not None:
        end_outbound(tx, outbound)
    return end_of(outbound) if was_open and is_ended_there(outbound) else None


def terminate(tx: Transaction, outbound: OutboundRecord, reason: str = TERMINATED) -> TerminateSequence | None:
    """End a sequence whatever is unacknowledged in it, which becomes dead letters (S-TRM-007). Answers its end, where
    that is to be told."""
    was_known = outbound.value.state is not OutboundState.CREATING
    _tell_unreplied(tx, outbound)
    step_of(tx, outbound, Own.TERMINATE)
    step_of(tx, outbound, Own.CHANNEL_ENDED)
    _end(tx, outbound, reason)
    return end_of(outbound) if was_known and outbound.value.terms.rm.has_close else None


def _end(tx: Transaction, outbound: OutboundRecord, reason: str) -> None:
    for lane in lanes_of(tx, outbound):
        lane.on_hold_since = None  # nothing can let it go any more
        lane.give_up(1, reason)


def close_element(outbound: OutboundRecord) -> CloseSequence:
    """The element that closes the sequence (S-CLO-002)."""
    return CloseSequence(outbound.value.terms.identifier, outbound.value.given or None)


NOT_ACKNOWLEDGED: Final = "not_acknowledged"
"""Reason of a dead letter: it was sent as often as ``resend`` says."""


def sent(
    tx: Transaction,
    held: Claim,
    position: int,
    number: int,
    attempt: int,
    resend: Resend,
    *,
    why: str | None = None,
    is_again: bool = False,
    release: bool,
    over_at: int | None = None,
    is_settled: bool = False,
) -> Settled:
    """Note that it has left for the ``attempt``-th time, and leaves again as ``resend`` says, or is a dead letter.
    ``why``: it is not acknowledged; ``is_again``: it has left before; ``is_settled``: this transaction has settled it.
    Raises ``FenceLost`` as ``settle`` does."""
    record = still_mine(tx, held)
    if is_again:
        tx.counts["repeated", record.queue, ""] += 1
    if why is not None:
        tx.execute(entries.SAY_WHY, {"key": position, "error": why})
    wait = resend.wait(attempt)
    if is_settled:
        pass
    elif wait is not None:
        wait = tx.round_trips.wait(record.id, wait, attempt)
        tx.execute(channels.SENT, {"key": position, "now": tx.now, "retry_at": tx.now + wait})
    elif not record.is_given_up(number) and tx.execute(entries.IS_LIVE_AT, {"key": position}).fetchone() is not None:
        # else another sequence will carry it on, or the answer has acknowledged it
        give_up(tx, record, position, number, NOT_ACKNOWLEDGED)
    record.running_since = tx.now if over_at is None else min(over_at, tx.now)
    released = release and give_back(tx, held)
    return Settled(released, None, record.has_next, record.cursor)
