"""Outbound sequences: a message gets its number there, acknowledgements are taken, it ends.

One is what the source of an inbound sequence has offered with it: the replies to that go out in it. A reply to a source
without an address leaves on the response to its own request, as often as that comes. On another one it would be taken
for the answer to that (WCF), or drop the acknowledgement that it came for (CXF). What is sent or fetched is an entry of
its own (``queue.sending``), until its number is acknowledged here. One that answers no sequence has nothing else: it is
that of an RM Source's requests (``queue.requests``).

Such a sequence has a window: so many of its messages may be sent that are not acknowledged (S-SND-012). It opens with
what is acknowledged: a destination that is new, or was away, is not flooded. One that says how much room it has gets no
more than that; where it has none, one message asks for it again and again, as ``resend`` says. What lies beyond it is
held in its lane, as is all of a sequence that its destination has not created yet: the limit of the lane rises by what
is created and acknowledged, one number on one row however much waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from wsrm_mq import queue as verbs
from wsrm_mq.queue.arrival import Receipt, Sender
from wsrm_mq.queue.ownership import count_unsettled, settle_cursor
from wsrm_mq.sequence.elements import (
    CloseSequence,
    SequenceAcknowledgement,
    SequenceFault,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.sequence.faults import Fault, InvalidAcknowledgement, UnknownSequence
from wsrm_mq.sequence.outbound import Input, NewMessage, OutboundStep, Own, take
from wsrm_mq.sequence.outbound_states import OutboundState
from wsrm_mq.sequence.ranges import EMPTY, AckRanges
from wsrm_mq.sequence.states import ENDED
from wsrm_mq.store import channels, entries
from wsrm_mq.store import outbound as outbounds
from wsrm_mq.store.applications import HOP
from wsrm_mq.store.channels import FORGET, FORGOTTEN
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.words import REPLAYED

R = TypeVar("R", bound=Receipt)

OVERTAKEN: Final = 3
"""A message is taken for lost, as often at most, once so many behind it have been acknowledged since it was sent: those
that arrive out of order are rarely further apart. TCP has the same measure (RFC 5681, 3.2)."""
SEQUENCE_ENDED = "sequence_ended"
"""Reason of dead letters: the sequence that they had their numbers in was closed or has ended, and they were not
acknowledged."""
NOT_REPLIED_TO: Final = "not_replied_to"
"""Reason of dead letters: their destination has acknowledged them, and no reply has come."""


def give_number(tx: Transaction, outbound: OutboundRecord, *, is_last: bool) -> SequenceHeader | None:
    """A place for a message in the sequence; ``None`` where it takes no more. It is given in the transaction that
    stores the message, so it is given once."""
    return step_of(tx, outbound, NewMessage(is_last)).header


def acknowledged_with(
    tx: Transaction,
    verb: Callable[[Transaction], R],
    sender: Sender,
    acknowledgements: tuple[SequenceAcknowledgement, ...],
    *,
    is_alone: bool = False,
) -> R:
    """Take what a request acknowledges, then do what it is about. What is wrong with the one does not stop the other
    (S-ACK-014). ``is_alone``: it is about nothing else, so its response has room for the end of an outbound
    sequence."""
    wrong: list[Fault] = []
    settled: list[int] = []
    terminates = None
    for said in acknowledgements:
        outbound = spoken_of(tx, sender, said.identifier)
        if outbound is not None:
            was_open = outbound.value.is_open
            told = said if may_end(outbound, sender) else said._replace(final=False)
            heard = hear_of(tx, outbound, told)
            wrong += [] if heard.fault is None else [heard.fault]
            settled += heard.acknowledged
            if (is_alone and _is_ended_here(outbound)) or (was_open and is_ended_there(outbound)):
                terminates = end_of(outbound)
        elif said.ranges or said.nacks:  # Metro says of an offer that was declined that it has received nothing
            unknown = "The identifier is not that of a sequence sent from here."
            wrong.append(UnknownSequence(unknown, said.identifier))
    receipt = verb(tx)
    receipt.wrong_acknowledgements, receipt.acknowledged = tuple(wrong), tuple(settled)
    receipt.terminates = receipt.terminates or terminates
    receipt.needs_watch = receipt.needs_watch or any(said.nacks for said in acknowledgements)
    return receipt


def spoken_of(tx: Transaction, sender: Sender, identifier: str) -> OutboundRecord | None:
    """The outbound sequence of this name, if ``sender`` may speak of it (SEC-003). Of one that answers none only its
    endpoint does."""
    outbound = tx.outbound_named(identifier)
    if outbound is None or outbound.principal != sender.principal or outbound.value.terms.rm is not sender.rm:
        return None
    if outbound.answered is None and not may_end(outbound, sender):
        return None
    return outbound if outbound.queue == tx.queue_named(sender.queue) and tx.serves(outbound.queue) else None


def may_end(outbound: OutboundRecord, sender: Sender) -> bool:
    """Whether ``sender`` may end the sequence: without a principal only the address that has offered it. What it
    acknowledges counts from any: a source that has moved, or is many nodes, would get its replies for ever."""
    return outbound.principal is not None or outbound.peer == sender.peer


class Heard(NamedTuple):
    """The outcome of what a destination says of a sequence."""

    fault: InvalidAcknowledgement | None = None
    acknowledged: tuple[int, ...] = ()
    """The positions of the messages that are acknowledged from now on."""


def hear_of(
    tx: Transaction,
    outbound: OutboundRecord,
    said: SequenceAcknowledgement | CloseSequence | TerminateSequence | SequenceFault,
) -> Heard:
    """Take what its destination says of the sequence."""
    acknowledged = said if isinstance(said, SequenceAcknowledgement) and outbound.has_requests else None
    lanes = lanes_of(tx, outbound)
    if acknowledged is not None and _is_beyond(acknowledged, lanes):
        _leave_what_was_put_back(tx, outbound, lanes)
        reason = "The acknowledgement names a message that was not sent yet."
        return Heard(InvalidAcknowledgement(reason, acknowledged.identifier, said=acknowledged))
    step = step_of(tx, outbound, said)
    settled: list[int] = []
    for lane in lanes if step.released or step.wanted else ():
        for lower, upper in step.released:
            bounds = {"lane": lane.id, "lower": lower, "upper": upper}
            rows = tx.execute(channels.SETTLE_RANGE, {**bounds, "now": tx.now}).fetchall()
            if left_once := [left_at for _key, times, left_at in rows if times == 1 and left_at is not None]:
                tx.round_trips.took(lane.id, tx.now - max(left_once))
            there = [key for key, _times, _left_at in rows]
            if there and outbound.has_requests:
                verbs.went_on(tx, lane, there)
            settled += there
        for lower, upper in step.wanted:
            tx.execute(channels.SEND_AGAIN, {"lane": lane.id, "lower": lower, "upper": upper})
        if _send_overtaken(tx, outbound, lane) or step.wanted:
            lane.wait(tx.now, None)
        if outbound.has_requests:
            let_out(tx, outbound, lane)
        settle_cursor(tx, lane)
    if step.forgotten and outbound.has_requests:
        _leave_what_is_forgotten_there(tx, outbound, lanes, step.forgotten)
    if _is_left(outbound):
        end_outbound(tx, outbound)
    return Heard(step.fault, tuple(settled))


def _send_overtaken(tx: Transaction, outbound: OutboundRecord, lane: Lane) -> int:
    """Send again at once what is taken for lost: see ``OVERTAKEN``. Answers how many."""
    acknowledged = outbound.value.acknowledged
    told = {"lane": lane.id, "highest": acknowledged.highest, "most": OVERTAKEN}
    gaps = acknowledged.gaps() if outbound.has_requests else EMPTY
    return sum(tx.execute(channels.SEND_OVERTAKEN, {**told, "lower": low, "upper": up}).rowcount for low, up in gaps)


def _leave_what_was_put_back(tx: Transaction, outbound: OutboundRecord, lanes: list[Lane]) -> None:
    """Close a sequence to another node, which knows more of it than this store: that was put back from a copy. What is
    not acknowledged goes on in another sequence, and is known again where it arrives."""
    if outbound.value.last_number is not None and _is_open_to_node(tx, outbound):
        leave_rest(tx, outbound, lanes)


def _leave_what_is_forgotten_there(
    tx: Transaction, outbound: OutboundRecord, lanes: list[Lane], forgotten: AckRanges
) -> None:
    """Close a sequence to another node that has forgotten messages of it: that node was put back from a copy, and holds
    what comes behind them until the sequence ends."""
    if _is_open_to_node(tx, outbound):
        leave_rest(tx, outbound, lanes)
        told = f"{forgotten} of {outbound.value.terms.identifier}"
        tx.execute(outbounds.HOP_FORGOT, {"address": outbound.peer, "forgot": told, "forgot_at": tx.now})
        reason = f"{outbound.peer} had acknowledged {told}"
        tx.ledger("forgotten_there", next(iter(lanes), None), reason=reason)


def _is_open_to_node(tx: Transaction, outbound: OutboundRecord) -> bool:
    return outbound.value.state is OutboundState.CREATED and tx.queue_name(outbound.queue).startswith(HOP)


def leave_rest(tx: Transaction, outbound: OutboundRecord, lanes: list[Lane]) -> None:
    """Begin to close a sequence: what is not acknowledged in the end goes on in another. 1.0 has no such close: there
    it is closed at once."""
    step_of(tx, outbound, Own.CLOSE)
    for lane in lanes:
        lane.discard_from, lane.discard_reason = 1, REPLAYED


def _is_beyond(said: SequenceAcknowledgement, lanes: list[Lane]) -> bool:
    """Whether a number is acknowledged that has not left: those at the limit of its lane and above wait (S-ACK-002)."""
    limit = max((lane.limit for lane in lanes), default=1)
    return any(upper >= limit for _lower, upper in said.ranges)


def end_outbound(tx: Transaction, outbound: OutboundRecord) -> None:
    """End a sequence: nothing new comes into it, and it ends when it is acknowledged, unless replies are to come that
    are sent. Whether its TerminateSequence arrives changes nothing here (S-TRM-003). Where replies leave on responses,
    no more of them do: it stays until it is acknowledged, or is forgotten with the one that it answers (D-TRM-014).
    What is sent in requests of this side's own goes on."""
    are_to_come = outbound.answered is not None and outbound.answered.is_unsettled
    if are_to_come and (outbound.endpoint is not None or _is_sent(tx, outbound)):
        return
    if outbound.has_requests and any(count_unsettled(tx, lane, 1) for lane in lanes_of(tx, outbound)):
        return  # what is acknowledged may have to be asked for its reply again
    if outbound.value.is_acknowledged:
        step_of(tx, outbound, Own.TERMINATE)
    if outbound.value.is_acknowledged or not _is_sent(tx, outbound):
        step_of(tx, outbound, Own.CHANNEL_ENDED)


def end_of(outbound: OutboundRecord) -> TerminateSequence:
    """The element that terminates the sequence (S-TRM-001)."""
    return TerminateSequence(outbound.value.terms.identifier, outbound.value.given or None)


def is_answered_with_end(outbound: OutboundRecord, element: CloseSequence | TerminateSequence) -> bool:
    """Whether the end of the sequence that it answers is answered with its own: in 1.0, where that has no response."""
    has_no_response = isinstance(element, TerminateSequence) and not outbound.value.terms.rm.has_close
    return has_no_response and _is_ended_here(outbound)


def is_ended_there(outbound: OutboundRecord) -> bool:
    """Whether the sequence has ended, as it was acknowledged, and that is to be told to its endpoint."""
    return outbound.endpoint is not None and _is_over(outbound)


def _is_ended_here(outbound: OutboundRecord) -> bool:
    """The same, where it can be told on a response. WCF and Metro expect it there, in 1.0; CXF tells it so."""
    return outbound.endpoint is None and _is_over(outbound)


def _is_over(outbound: OutboundRecord) -> bool:
    """1.0 terminates only what has a last message."""
    value = outbound.value
    has_last = value.last_number is not None or not value.terms.rm.has_last_message
    is_ended = has_last and value.is_acknowledged and value.state is OutboundState.TERMINATED
    return is_ended and _is_left(outbound)


def _is_left(outbound: OutboundRecord) -> bool:
    """Whether nothing new comes into the sequence: the one that it answers has ended; where it answers none, its last
    number is given."""
    if outbound.answered is None:
        return outbound.value.last_number is not None
    return outbound.answered.value.state in ENDED


def told_with(tx: Transaction, outbound: OutboundRecord) -> Lane | None:
    """The lane that the ledger tells of the sequence with: that of the one that it answers, else one that it is sent
    in; ``None``: nothing has left in it."""
    return outbound.answered or next(iter(lanes_of(tx, outbound)), None)


def _is_sent(tx: Transaction, outbound: OutboundRecord) -> bool:
    """Whether messages of the sequence leave in requests of this side's own."""
    return tx.execute(channels.CHANNELS_NUMBERED, {"outbound": outbound.id}).fetchone() is not None


def lanes_of(tx: Transaction, outbound: OutboundRecord) -> list[Lane]:
    """The lanes in which messages of the sequence leave in requests of this side's own."""
    if outbound.requests_leave_in is not None:
        keys = [(outbound.requests_leave_in,)]
    else:
        keys = tx.execute(channels.CHANNELS_NUMBERED, {"outbound": outbound.id}).fetchall()
        outbound.requests_leave_in = keys[0][0] if keys and outbound.has_requests else None
    return [lane for (key,) in keys if (lane := tx.lane(key)) is not None]


def requests_in(tx: Transaction, lane: int) -> OutboundRecord | None:
    """The sequence whose requests leave in a lane."""
    found = tx.execute(channels.REQUESTS_IN, {"lane": lane}).fetchone()
    return None if found is None else tx.outbound(found[0])


def reason_of(tx: Transaction, lane: Lane, number: int, reason: str) -> str:
    """The reason of a dead letter of ``lane`` that was to be put aside for ``reason``."""
    outbound = requests_in(tx, lane.id)
    return NOT_REPLIED_TO if outbound is not None and number in outbound.value.acknowledged else reason


def _give_up(tx: Transaction, outbound: OutboundRecord) -> None:
    """Make dead letters of what is not acknowledged, or forget it where its destination was to fetch it."""
    for lane in lanes_of(tx, outbound):
        if lane.due_at is not None:  # it is fetched
            forget(tx, lane)
        else:
            lane.give_up(1, SEQUENCE_ENDED)


def step_of(tx: Transaction, outbound: OutboundRecord, event: Input) -> OutboundStep:
    """Take a step of the protocol, and write it down."""
    before = outbound.value
    step = take(before, event, tx.reached)
    if step.sequence != before:
        outbound.follow(step.sequence, tx.now)
    left = step.sequence.unacknowledged
    is_closed_now = step.sequence.state is OutboundState.CLOSED and before.state is not OutboundState.CLOSED
    if left and (step.in_doubt or is_closed_now):  # nothing of it leaves again (S-RET-012)
        told = "replies_in_doubt"
        if outbound.has_requests:
            if before.state in (OutboundState.CLOSED, OutboundState.TERMINATING):
                return step  # that was told when it was closed
            limit = max((lane.limit for lane in lanes_of(tx, outbound)), default=1)
            left, told = outbound.value.acknowledged.gaps(limit - 1), "requests_in_doubt"
        else:
            _give_up(tx, outbound)
        if left:
            reason = f"not acknowledged: {left} of {before.terms.identifier}"
            tx.ledger(told, told_with(tx, outbound), reason=reason)
    return step


def forget(tx: Transaction, channel: Lane) -> None:
    """Forget what waits to be fetched there, and say so in the ledger (MC-009). It is no dead letter: whether it is
    fetched is its client's affair."""
    count = tx.execute(FORGET, {"lane": channel.id, "now": tx.now}).rowcount
    channel.due_at, channel.cursor = None, channel.limit
    if count:
        tx.ledger("discarded", channel, reason=f"{FORGOTTEN}: {count}")


WINDOW: Final = 256
FIRST: Final = 8
"""The window of a new sequence."""


def may_leave(outbound: OutboundRecord, number: int) -> bool:
    """Whether a message of this number may be sent, as far as the window goes. Replies have none."""
    return not outbound.has_requests or number < _end(outbound)


def _end(outbound: OutboundRecord) -> int:
    value = outbound.value
    if value.state is OutboundState.CREATING:
        return 0
    expected, room = value.acknowledged.expected, value.takes_below
    end = expected + min(WINDOW, max(FIRST, expected - 1))
    return end if room is None else min(end, max(room, expected + 1))


def let_out(tx: Transaction, outbound: OutboundRecord, lane: Lane) -> None:
    """Raise the limit of a lane to the end of the window. The messages that wait behind it, perhaps a million, are not
    counted anew."""
    limit = min(outbound.value.given + 1, _end(outbound))
    if lane.limit < limit and lane.discard_from is None:
        bounds = {"lane": lane.id, "lower": lane.limit, "upper": limit}
        (freed,) = tx.execute(entries.COUNT_BETWEEN, bounds).fetchone()
        lane.limit = limit
        lane.release(max(0, lane.held - freed) if limit <= outbound.value.given else 0)
        lane.wait(tx.now, None)
