"""A sequence as its RM Destination knows it, and the one function that changes it.

``receive(sequence, event, now)`` takes the sequence as a value and answers a ``Step``: the next value and what must
happen because of it. No I/O, no clock, no threads. What the source did wrong comes back as a fault, never as an
exception: an exception would unwind the transaction that has to record it.

Three integers rule delivery: ``expected`` (lowest number not received), ``limit`` (deliver below it; never falls) and,
kept by the store, ``cursor`` (lowest unsettled). An accepted number below ``limit`` is deliverable, at or above it
held. Filling a gap moves ``limit`` on one value, however long the run behind it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import (
    AckRequested,
    CloseSequence,
    CreateSequence,
    IncompleteSequenceBehavior,
    SequenceAcknowledgement,
    SequenceFault,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.sequence.ranges import EMPTY, AckRanges
from wsrm_mq.sequence.states import ENDED, TRANSITIONS, Act, State, Trigger
from wsrm_mq.sequence.terms import NO_BOUNDS, Bounds, DeliveryAssurance, Terms
from wsrm_mq.versions import MAX_MESSAGE_NUMBER

_ABANDONING: Final = frozenset(("SequenceTerminated", "UnknownSequence"))
"""Codes of faults with which a source says that a sequence is gone (F-025, F-026)."""
_LARGEST_NUMBER: Final = MAX_MESSAGE_NUMBER - 1
"""The largest number taken: ``limit`` lies above every accepted one and has to be a 64-bit integer too (D-SEQ-018)."""


class Disposition(enum.StrEnum):
    """Why an accepted message is settled without delivery, at once."""

    LATE = "late"
    """At most once, in order: a higher number was delivered before."""
    EMPTY_LAST_MESSAGE = "empty_last_message"
    """1.0: a message that only says which number is the last."""
    LATE_REFUSED = "late_refused"
    """An operator forced the sequence past the number and refuses late messages. It goes to the dead letters, and is
    acknowledged, as its source would else send it again for ever, or give the whole sequence up."""


class Late(enum.StrEnum):
    """The end of a missing number that arrives after an operator forced the sequence past its gap."""

    ACCEPT = "accept"
    """It is delivered at once, out of order, marked late."""
    REFUSE = "refuse"
    """It goes to the dead letters, see ``Disposition.LATE_REFUSED``."""


class InboundSequence(NamedTuple):
    """A sequence as its RM Destination knows it: a value, whose next one ``receive`` answers."""

    terms: Terms
    active_at: int
    """Last traffic, ms since the epoch."""
    state: State = State.CREATED
    received: AckRanges = EMPTY
    unnamed: AckRanges = EMPTY
    """Accepted numbers that no acknowledgement may name yet."""
    limit: int = 1
    last_number: int | None = None
    """The last number, once the source has said it (LastMessage, LastMsgNumber)."""
    discard_from: int | None = None
    """Unsettled numbers from here on go to the dead letters; they are never delivered."""
    discard_reason: str | None = None
    late: Late | None = None
    """Set by ``forced``."""

    @property
    def expected(self) -> int:
        return self.received.expected

    @property
    def due_at(self) -> int | None:
        """The time at which the clock ends it, in ms since the epoch."""
        if self.state in ENDED:
            return None
        expires_at, inactivity = self.terms.expires_at, self.terms.inactivity
        if inactivity is None:
            return expires_at
        idle_at = self.active_at + inactivity
        return idle_at if expires_at is None else min(expires_at, idle_at)

    @property
    def held(self) -> int:
        """How many accepted numbers wait."""
        return self.received.count(self.limit)

    @property
    def is_complete(self) -> bool:
        """The ranges are exactly 1…n, and n is the last number where that is known."""
        highest = self.received.highest
        return self.expected == highest + 1 and self.last_number in (None, highest)

    def acknowledgement(self) -> SequenceAcknowledgement:
        """The acknowledgement as it is now: every accepted number but the unnamed; once final, every one."""
        final = self.state is not State.CREATED
        named = self.received if final or not self.unnamed.ranges else self.received.without(self.unnamed)
        return SequenceAcknowledgement(self.terms.identifier, named.ranges, final=final and self.terms.rm.has_none)


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing arrived; the clock may end the sequence."""


@dataclass(frozen=True, slots=True)
class Lapsed:
    """This side ends a sequence that was never used, before its time."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """This side ends the sequence: a message could not be delivered and the queue says ``terminate``, or the store may
    have forgotten messages that it acknowledged."""

    discard_reason: str | None = "sequence_failed"
    """The reason with which unsettled messages go to the dead letters; ``None``: the behavior decides."""


@dataclass(frozen=True, slots=True)
class Outgrew:
    """A new message would make a sequence that is held as a whole larger than it may be; ``reason`` says by which
    measure. Sending it again later does not help."""

    reason: str
    discard_reason: str = "max_held_bytes"


@dataclass(frozen=True, slots=True)
class OperatorClose:
    """An operator closes the sequence in its source's stead."""


FromSource = SequenceHeader | AckRequested | CloseSequence | TerminateSequence | SequenceFault
Input = FromSource | TimePassed | Lapsed | GaveUp | Outgrew | OperatorClose


class Step(NamedTuple):
    """One step of a sequence. ``act`` is the act that was done; with a fault it is ``None``. Fields below it say the
    changes that the store has to write."""

    sequence: InboundSequence
    act: Act | None = None
    fault: faults.Fault | None = None
    disposition: Disposition | None = None
    is_late: bool = False
    """An operator had forced the sequence past the accepted number."""
    no_room: str = ""
    """Not accepted and not recorded, for want of room; the reason, for the log. The sender is told to come again."""
    released_across: AckRanges = EMPTY
    """Missing numbers that delivery passed over because the sequence ended."""
    ended_now: bool = False
    closed_now: bool = False


def grant(request: CreateSequence, terms: Terms, now: int, max_expires: int) -> InboundSequence:
    """The sequence that answers ``request``. Expires is granted as a finite time of at most ``max_expires`` ms:
    gSOAP reads ``PT0S``, which means never, as already over."""
    lifetime = min(request.expires or max_expires, max_expires)
    return InboundSequence(replace(terms, expires_at=now + lifetime), active_at=now)


def receive(
    sequence: InboundSequence,
    event: Input,
    now: int,
    *,
    bounds: Bounds = NO_BOUNDS,
    held: int | None = None,
    named: bool = True,
    empty_last: bool = False,
    reached: int | None = None,
) -> Step:
    """Take one event and answer the next sequence and what must happen because of it.

    ``now`` is in ms since the epoch; ``reached`` is the time by which the sequence may end, where that is another one,
    as the clock is doubted. ``held``: how many accepted numbers wait, where some that lie behind a gap were
    settled before their turn; ``None``: all that lie there. ``named=False`` accepts the message without letting
    acknowledgements name it yet; ``empty_last`` says that the message is a 1.0 LastMessage with an empty body. A
    sequence whose time is over ends first, and the event meets the ended one.
    """
    due_at = sequence.due_at
    if due_at is not None and (now if reached is None else reached) >= due_at:
        expired = _move(sequence, Trigger.EXPIRED, event, now)
        if isinstance(event, TimePassed):
            return expired
        step = receive(expired.sequence, event, now)  # what has ended accepts nothing
        return step._replace(ended_now=True, released_across=expired.released_across)
    if isinstance(event, TimePassed):
        return Step(sequence, Act.IGNORE)
    trigger = _classify(sequence, event)
    if TRANSITIONS[sequence.terms.rm.label][sequence.state][trigger].act is Act.ACCEPT:
        assert isinstance(event, SequenceHeader)
        return _accept(sequence, event, now, bounds, held, named, empty_last)
    return _move(sequence, trigger, event, now)


def _classify(sequence: InboundSequence, event: Input) -> Trigger:
    match event:
        case SequenceHeader(number=number, last=last):
            known_last = sequence.last_number
            # In order a number is above all others: nearly always, and without a search.
            if number <= sequence.received.highest and number in sequence.received:
                contradicted = last and number != known_last
                return Trigger.LAST_CONTRADICTED if contradicted else Trigger.DUPLICATE
            if number > _LARGEST_NUMBER:
                return Trigger.ABOVE_MAXIMUM
            if known_last is not None and number > known_last:
                return Trigger.ABOVE_LAST
            if not last:
                return Trigger.NEW
            plausible = known_last is None and number > sequence.received.highest
            return Trigger.LAST if plausible else Trigger.LAST_CONTRADICTED
        case AckRequested():
            return Trigger.ACK_REQUESTED
        case CloseSequence(last_number=stated):
            return Trigger.CLOSE_CONTRADICTED if _contradicts(sequence, stated) else Trigger.CLOSE
        case TerminateSequence(last_number=stated):
            return Trigger.TERMINATE_CONTRADICTED if _contradicts(sequence, stated) else Trigger.TERMINATE
        case SequenceFault(code=code):
            return Trigger.ABANDONED if code in _ABANDONING else Trigger.ACCUSED
        case Lapsed():
            return Trigger.EXPIRED
        case GaveUp():
            return Trigger.FAILED
        case Outgrew():
            return Trigger.OUTGROWN
        case OperatorClose():
            return Trigger.OPERATOR_CLOSE
    raise TypeError(f"{event!r} is no input of a sequence")


def _contradicts(sequence: InboundSequence, stated: int | None) -> bool:
    """Whether the source has sent more than ``stated``, or stated another last number before, also before the end: a
    TerminateSequence that was refused is not confirmed when it comes again (D-TRM-007)."""
    if stated is None:
        return False
    return stated < sequence.received.highest or sequence.last_number not in (None, stated)


def _accept(
    sequence: InboundSequence,
    header: SequenceHeader,
    now: int,
    bounds: Bounds,
    held: int | None,
    named: bool,
    empty_last: bool,
) -> Step:
    number, terms = header.number, sequence.terms
    # What fills the first gap is always taken: it makes room.
    no_room = "" if number == sequence.received.expected else _no_room(sequence, number, bounds, held)
    if no_room:
        return decline(sequence, now, no_room)
    disposition = None
    is_late = sequence.late is not None and number < sequence.limit
    if empty_last and header.last:
        disposition = Disposition.EMPTY_LAST_MESSAGE
    elif is_late and sequence.late is Late.REFUSE:
        disposition = Disposition.LATE_REFUSED
    elif terms.assurance is DeliveryAssurance.AT_MOST_ONCE and terms.ordered and number < sequence.limit:
        disposition = Disposition.LATE
    received = sequence.received.add(number)
    last_number = number if header.last else sequence.last_number
    # Written out, not _replace(): this runs for every message.
    accepted = InboundSequence(
        terms=terms,
        active_at=now,
        state=sequence.state,
        received=received,
        unnamed=sequence.unnamed if named or disposition else sequence.unnamed.add(number),
        limit=_limit(sequence, received, number, last_number),
        last_number=last_number,
        late=sequence.late,
    )
    return Step(accepted, Act.ACCEPT, disposition=disposition, is_late=is_late)


def _limit(sequence: InboundSequence, received: AckRanges, number: int, last_number: int | None) -> int:
    """Where delivery may go to after ``number`` was accepted; never lower than before."""
    if sequence.terms.behavior is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE:
        is_complete = last_number is not None and received.expected == last_number + 1
        return received.expected if is_complete else sequence.limit
    if number == sequence.limit:
        end = number if number == received.highest else received.end_of(number)
        return end + 1
    return max(sequence.limit, received.highest + 1) if sequence.terms.skips_gaps else sequence.limit


def _no_room(sequence: InboundSequence, number: int, bounds: Bounds, held: int | None) -> str:
    """Why ``number``, which lies behind a gap, cannot be taken."""
    expected = sequence.received.expected
    if bounds.window is not None and number >= expected + bounds.window:
        if bounds.window == 1:
            return f"number {number} came before number {expected}, and none is held: window is 1"
        return f"number {number} is beyond the window of {bounds.window} from {expected}"
    if (
        bounds.max_ranges is not None
        and len(sequence.received) >= bounds.max_ranges
        and sequence.received.opens_range(number)
    ):
        return f"{len(sequence.received)} ranges are open, max_ranges is {bounds.max_ranges}"
    held_apart = sequence.terms.behavior is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE
    would_be_held = number > sequence.limit and not sequence.terms.skips_gaps
    if bounds.max_held is not None and not held_apart and would_be_held:
        held = sequence.held if held is None else held
        if held >= bounds.max_held:
            return f"{held} messages are held behind number {expected}, max_held is {bounds.max_held}"
    return ""


def decline(sequence: InboundSequence, now: int, no_room: str) -> Step:
    """Do not take a message, for want of room. It counts as traffic where that matters, else nothing is written for
    it: to turn messages away has to be cheaper than to take them."""
    following = sequence if sequence.terms.inactivity is None else sequence._replace(active_at=now)
    return Step(following, no_room=no_room)


def forced(sequence: InboundSequence, to: int, late: Late) -> Step:
    """Let delivery go on past every gap up to ``to``, which is not below ``limit`` and not above the highest number
    received, and on to the next gap. What is missing there is treated as ``late`` from now on. Only for a sequence
    whose behavior is NoDiscard: another was announced to the source."""
    before, received = sequence.limit, sequence.received
    following = sequence._replace(limit=received.end_of(to + 1) + 1, late=late)
    return Step(following, released_across=AckRanges(((before, following.limit - 1),)).without(received))


def _move(sequence: InboundSequence, trigger: Trigger, event: Input, now: int) -> Step:
    """The step that the table says, of anything but an accepted message."""
    answer, state = TRANSITIONS[sequence.terms.rm.label][sequence.state][trigger]
    act, fault = (answer, None) if isinstance(answer, Act) else (None, _fault(sequence, answer, state, event))
    if fault is not None and sequence.state in ENDED:
        return Step(sequence, fault=fault)
    following = sequence if fault is not None else _with_last(sequence, event)
    moves = state is not sequence.state
    if isinstance(event, GaveUp | Outgrew) and event.discard_reason is not None:
        following = following._replace(discard_from=1, discard_reason=event.discard_reason)
    elif moves:
        following = _apply_behavior(following)
    active_at = sequence.active_at if trigger is Trigger.EXPIRED else now
    following = following._replace(state=state, active_at=active_at)
    return Step(
        following,
        act,
        fault,
        released_across=_crossed(sequence, following) if moves else EMPTY,
        ended_now=moves and state in ENDED,
        closed_now=moves and state is State.CLOSED,
    )


def _with_last(sequence: InboundSequence, event: Input) -> InboundSequence:
    """The sequence with the last number that ``event`` states, if it does: a later statement is held to it."""
    if isinstance(event, CloseSequence | TerminateSequence) and event.last_number is not None:
        return sequence._replace(last_number=event.last_number)
    return sequence


def _fault(sequence: InboundSequence, fault: type[faults.Fault], after: State, event: Input) -> faults.Fault:
    identifier = sequence.terms.identifier
    reason = event.reason if isinstance(event, Outgrew) else _REASONS[fault]
    if fault is faults.MessageNumberRollover:
        return faults.MessageNumberRollover(reason, identifier, max_number=_LARGEST_NUMBER)
    return fault(reason, identifier, ours=after is State.FAILED)


def _apply_behavior(sequence: InboundSequence) -> InboundSequence:
    """Decide once, at the close or the end, the fate of the messages that are still held (WS-RM 1.1 §3.4,
    IncompleteSequenceBehavior)."""
    if sequence.state is not State.CREATED:
        return sequence
    everything = sequence.received.highest + 1
    if sequence.is_complete or sequence.terms.behavior is IncompleteSequenceBehavior.NO_DISCARD:
        return sequence._replace(limit=max(sequence.limit, everything))
    if sequence.terms.behavior is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE:
        return sequence._replace(discard_from=1, discard_reason="incomplete_sequence")
    if sequence.expected == everything:  # only the tail is missing: nothing lies behind the gap
        return sequence
    return sequence._replace(discard_from=sequence.expected, discard_reason=sequence.terms.incomplete_reason)


def _crossed(before: InboundSequence, after: InboundSequence) -> AckRanges:
    """The missing numbers that delivery passes over because the sequence was closed or ended."""
    waited = before.state is State.CREATED and not before.terms.skips_gaps
    return after.received.gaps() if waited and after.discard_from is None else EMPTY


_REASONS: dict[type[faults.Fault], str] = {
    faults.UnknownSequence: "The identifier is not that of a sequence known here.",
    faults.SequenceTerminated: "The sequence was ended because of an error that cannot be repaired.",
    faults.SequenceClosed: "The sequence is closed and takes no new message.",
    faults.MessageNumberRollover: "The message number is above the largest one allowed.",
    faults.LastMessageNumberExceeded: "The message number is above that of the last message of the sequence.",
    faults.MalformedMessage: "The message does not fit the version of WS-ReliableMessaging of its sequence.",
}
