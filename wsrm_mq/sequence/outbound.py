"""A sequence as its RM Source knows it, and the one function that changes it.

``take(sequence, event, now)`` takes the sequence as a value and answers an ``OutboundStep``: the next value and what
must happen because of it. No I/O, no clock, no threads. A message gets its number once; whatever is sent of it again
has that number. What the destination did wrong comes back as a fault, never as an exception.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from wsrm_mq.sequence.elements import (
    CloseSequence,
    SequenceAcknowledgement,
    SequenceFault,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.sequence.faults import InvalidAcknowledgement
from wsrm_mq.sequence.outbound_states import (
    OUTBOUND_ENDED,
    OUTBOUND_TRANSITIONS,
    OutboundAct,
    OutboundState,
    OutboundTrigger,
)
from wsrm_mq.sequence.ranges import EMPTY, AckRanges
from wsrm_mq.versions import MAX_MESSAGE_NUMBER, AddressingVersion, RMVersion, SOAPVersion


@dataclass(frozen=True, slots=True)
class OutboundTerms:
    """The terms that were agreed when the sequence was created; from then on they never change. Times in ms since the
    epoch."""

    identifier: str
    """The destination gives it; until then, the MessageID of the CreateSequence that asks for it."""
    rm: RMVersion
    soap: SOAPVersion
    addressing: AddressingVersion
    expires_at: int | None = None


class OutboundSequence(NamedTuple):
    terms: OutboundTerms
    state: OutboundState = OutboundState.CREATED
    given: int = 0
    """The highest number given; 0 for none."""
    acknowledged: AckRanges = EMPTY
    last_number: int | None = None
    """No number above it is given: it had LastMessage (1.0), or the destination takes no more."""
    is_final: bool = False
    """The destination has said that ``acknowledged`` will not change."""
    takes_below: int | None = None
    """The lowest number for which the destination has no room, as it said last; ``None``: it has said nothing."""

    @property
    def unacknowledged(self) -> AckRanges:
        return self.acknowledged.gaps(self.given)

    @property
    def is_acknowledged(self) -> bool:
        """Every number that was given is."""
        return self.acknowledged.expected > self.given

    def header(self, number: int) -> SequenceHeader:
        """The Sequence header of the message that has this number."""
        is_last = self.terms.rm.has_last_message and number == self.last_number
        return SequenceHeader(self.terms.identifier, number, is_last)

    @property
    def is_open(self) -> bool:
        return self.state not in OUTBOUND_ENDED


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message is to get a number. ``last``: no other follows it, which 1.0 says with LastMessage."""

    last: bool = False


@dataclass(frozen=True, slots=True)
class Created:
    """The destination has created the sequence under this name."""

    identifier: str
    expires_at: int


class Own(enum.Enum):
    """The events of an outbound sequence that have no content, by their triggers in the table of states."""

    REFUSED = OutboundTrigger.REFUSED_THERE
    SEAL = OutboundTrigger.SEAL
    CLOSE = OutboundTrigger.CLOSE
    CLOSE_CONFIRMED = OutboundTrigger.CLOSE_CONFIRMED
    TERMINATE = OutboundTrigger.TERMINATE
    TERMINATE_CONFIRMED = OutboundTrigger.TERMINATE_CONFIRMED
    CHANNEL_ENDED = OutboundTrigger.CHANNEL_ENDED
    TIME_PASSED = OutboundTrigger.EXPIRED


Input = NewMessage | Created | SequenceAcknowledgement | CloseSequence | TerminateSequence | SequenceFault | Own

MOST_RANGES: Final = 4_096
"""An acknowledgement that would leave more separate ranges is not taken: its sender chooses how many there are, and
each is kept. A later one that closes gaps is."""
_EARLY: Final = {
    Own.TERMINATE: OutboundTrigger.TERMINATE_EARLY,
    Own.CHANNEL_ENDED: OutboundTrigger.CHANNEL_ENDED_EARLY,
}
"""The triggers of these events while something is not acknowledged."""
_FAULTS: Final = {
    "SequenceClosed": OutboundTrigger.REFUSED_CLOSED,
    "MessageNumberRollover": OutboundTrigger.REFUSED_FULL,
    "SequenceTerminated": OutboundTrigger.TERMINATED_THERE,
    "UnknownSequence": OutboundTrigger.UNKNOWN_THERE,
}


class OutboundStep(NamedTuple):
    sequence: OutboundSequence
    act: OutboundAct
    fault: InvalidAcknowledgement | None = None
    header: SequenceHeader | None = None
    """The Sequence header of the message that got a number."""
    released: AckRanges = EMPTY
    """The numbers that are acknowledged from now on."""
    wanted: AckRanges = EMPTY
    """The numbers that the destination has said it lacks: they are to be sent at once (Nack)."""
    in_doubt: AckRanges = EMPTY
    """The numbers that were not acknowledged when the sequence ended."""
    forgotten: AckRanges = EMPTY
    """The numbers that the destination has acknowledged before, and leaves out though it names later ones."""


def take(sequence: OutboundSequence, event: Input, now: int) -> OutboundStep:
    """Take one event and answer the next sequence and what must happen because of it. ``now`` is in ms since the epoch,
    as far as the clock is believed. A sequence whose time is over ends first, and the event meets the ended one; but an
    acknowledgement tells of what had come before, and is taken."""
    expires_at = sequence.terms.expires_at
    if sequence.is_open and expires_at is not None and now >= expires_at:
        said = isinstance(event, SequenceAcknowledgement)
        heard = _move(sequence, _classify(sequence, event), event) if said else None
        last = sequence if heard is None else heard.sequence
        expired = _move(last, OutboundTrigger.EXPIRED, Own.TIME_PASSED)
        if event is Own.TIME_PASSED:
            return expired
        met = take(expired.sequence, event, now) if heard is None else heard._replace(sequence=expired.sequence)
        return met._replace(in_doubt=expired.in_doubt)
    if event is Own.TIME_PASSED:
        return OutboundStep(sequence, OutboundAct.IGNORE)
    return _move(sequence, _classify(sequence, event), event)


def _classify(sequence: OutboundSequence, event: Input) -> OutboundTrigger:
    match event:
        case NewMessage():
            last = MAX_MESSAGE_NUMBER if sequence.last_number is None else sequence.last_number
            return OutboundTrigger.MESSAGE if sequence.given < last else OutboundTrigger.MESSAGE_BEYOND_LAST
        case Created():
            return OutboundTrigger.CREATED_THERE
        case SequenceAcknowledgement():
            if _contradicts(sequence, event):
                return OutboundTrigger.WRONGLY_ACKNOWLEDGED
            return OutboundTrigger.FINAL if event.final else OutboundTrigger.ACKNOWLEDGED
        case CloseSequence():
            return OutboundTrigger.CLOSED_THERE
        case TerminateSequence():
            return OutboundTrigger.TERMINATED_THERE
        case SequenceFault(code=code):
            return _FAULTS.get(code, OutboundTrigger.ACCUSED)
        case Own():
            return event.value if _is_done(sequence, event) else _EARLY.get(event, event.value)
    raise TypeError(f"{event!r} is no input of a sequence")


def _is_done(sequence: OutboundSequence, event: Own) -> bool:
    """Whether nothing is missing for the end. 1.0 terminates only a sequence whose last message it has named
    (S-TRM-004)."""
    needs_last = event is Own.TERMINATE and sequence.terms.rm.has_last_message
    return sequence.is_acknowledged and not (needs_last and sequence.last_number is None)


def _contradicts(sequence: OutboundSequence, said: SequenceAcknowledgement) -> bool:
    """Whether an acknowledgement names a number that was never given, or says after Final something that Final did not
    (S-ACK-002 … 004, 012)."""
    if any(not 1 <= lower <= upper <= sequence.given for lower, upper in said.ranges):
        return True
    if any(not 1 <= number <= sequence.given for number in said.nacks):
        return True
    if not sequence.is_final:
        return False
    named = EMPTY.union(said.ranges)
    return named != sequence.acknowledged if said.final else bool(named.without(sequence.acknowledged))


def _move(sequence: OutboundSequence, trigger: OutboundTrigger, event: Input) -> OutboundStep:
    """Take the step that the table has for this trigger."""
    act, state = OUTBOUND_TRANSITIONS[sequence.terms.rm.label][sequence.state][trigger]
    following = sequence._replace(state=state)
    step = OutboundStep(following, act)
    if act is OutboundAct.NUMBER and isinstance(event, NewMessage):
        step = _numbered(following, event)
    elif act is OutboundAct.OPEN and isinstance(event, Created):
        terms = replace(sequence.terms, identifier=event.identifier, expires_at=event.expires_at)
        step = step._replace(sequence=following._replace(terms=terms))
    elif act is OutboundAct.STOP:
        step = step._replace(sequence=following._replace(last_number=sequence.given))
    elif isinstance(event, SequenceAcknowledgement):
        step = _acknowledged(sequence, following, act, event)
    if state in OUTBOUND_ENDED and sequence.is_open:
        return step._replace(in_doubt=step.sequence.unacknowledged)
    return step


def _numbered(sequence: OutboundSequence, event: NewMessage) -> OutboundStep:
    number = sequence.given + 1
    following = sequence._replace(given=number, last_number=number if event.last else sequence.last_number)
    return OutboundStep(following, OutboundAct.NUMBER, header=following.header(number))


def _acknowledged(
    before: OutboundSequence, after: OutboundSequence, act: OutboundAct, said: SequenceAcknowledgement
) -> OutboundStep:
    if act is OutboundAct.CONTRADICT:
        reason = f"Numbers 1 to {before.given} were sent; the acknowledgement says otherwise, or not what it said."
        return OutboundStep(after, act, InvalidAcknowledgement(reason, said.identifier, said=said))
    if act is not OutboundAct.TAKE:
        return OutboundStep(after, act)
    acknowledged = before.acknowledged.union(said.ranges)  # in any order, or overlapping (S-ACK-007, S-ACK-008)
    if len(acknowledged) > MOST_RANGES:
        return OutboundStep(before, OutboundAct.IGNORE)
    room, is_whole = said.buffer_remaining, len(said.ranges) == 1 and said.ranges[0][0] == 1
    return OutboundStep(
        after._replace(
            acknowledged=acknowledged,
            is_final=before.is_final or said.final,
            takes_below=None if room is None else acknowledged.highest + 1 + room,
        ),
        act,
        released=acknowledged.without(before.acknowledged),
        wanted=AckRanges.of(said.nacks).without(acknowledged),
        forgotten=EMPTY if is_whole else before.acknowledged.within(EMPTY.union(said.ranges).gaps()),
    )


# How long a destination takes to acknowledge what has left, where it does so in a request of its own: the smoothed
# round trip and its deviation, as RFC 6298 has them. A message is taken for lost after the sum of both, four times the
# second, and not before: a slow partner gets nothing twice for its slowness.

LEAST: Final = 1_000
LONGEST: Final = 60_000
"""Bounds of the time-out, in ms (RFC 6298, 2.4 and 2.5)."""
_MOST: Final = 4_096
"""Lanes that are remembered, those that were acknowledged last."""


class _Smoothed(NamedTuple):
    mean: float
    deviation: float


class RoundTrips:
    """The round trips that this process has seen, by lane: one that takes a sequence over learns them anew."""

    def __init__(self) -> None:
        self._of: OrderedDict[int, _Smoothed] = OrderedDict()

    def took(self, lane: int, ms: float) -> None:
        """A message that has left once was acknowledged after so long. One that has left twice tells nothing (Karn)."""
        before = self._of.pop(lane, _Smoothed(ms, ms * 2 / 3))  # the deviation becomes half the first (2.2)
        deviation = 0.75 * before.deviation + 0.25 * abs(before.mean - ms)
        self._of[lane] = _Smoothed(0.875 * before.mean + 0.125 * ms, deviation)
        if len(self._of) > _MOST:
            self._of.popitem(last=False)

    def wait(self, lane: int, ladder: int, attempt: int) -> int:
        """How long to wait for an acknowledgement, in ms, where ``resend`` says ``ladder`` after this attempt: first as
        long as the time-out, where one is known, later as ``ladder`` says, and never less than the time-out."""
        known = self._of.get(lane)
        if known is None:
            return ladder
        time_out = min(round(known.mean + 4 * known.deviation), LONGEST)
        return max(time_out, min(ladder, LEAST) if attempt == 1 else ladder)
