"""The state machine of a sequence at its RM Destination: all of it, and only here.

One total table for each RM version: (state, trigger) -> what to do and the next state (WS-RM 1.1 §3 and its state
tables; 1.0 where it differs). A cell is an ``Act``, or the class of the fault to answer. No rule elsewhere changes a
state or chooses between a cell's answer and another.

Where this side closes or ends a sequence by itself, the state changes at once: it waits for no answer of the source.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from wsrm_mq.sequence import faults
from wsrm_mq.versions import WSRM_1_0, WSRM_1_1


class State(enum.StrEnum):
    """Where a sequence stands at its RM Destination; it ends in one of four ways."""

    CREATED = "created"
    """Takes new numbers."""
    CLOSED = "closed"
    """Takes no new number. The ranges are final; known numbers are still acknowledged."""
    # Ended, in one of four ways. A tombstone stays: the identifier is never used again, no number delivered again.
    TERMINATED = "terminated"
    EXPIRED = "expired"
    REFUSED = "refused"
    """The source broke the protocol; it was told SequenceTerminated or the fault that names its error."""
    FAILED = "failed"
    """This side gave it up; the source is told SequenceTerminated."""

    __hash__ = str.__hash__  # in C, as below: each message looks a cell up


ENDED: Final = frozenset((State.TERMINATED, State.EXPIRED, State.REFUSED, State.FAILED))


class Trigger(enum.Enum):
    """The meaning of an event for a sequence, once its number has been compared with the numbers that are known."""

    NEW = "a number not received before"
    LAST = "a new number that carries LastMessage"
    DUPLICATE = "a number received before"
    ABOVE_LAST = "a number above the last one"
    ABOVE_MAXIMUM = "a number above the largest one allowed"
    LAST_CONTRADICTED = "LastMessage on a number that cannot be the last"
    ACK_REQUESTED = "AckRequested"
    CLOSE = "CloseSequence"
    CLOSE_CONTRADICTED = "CloseSequence whose LastMsgNumber contradicts what is known"
    TERMINATE = "TerminateSequence"
    TERMINATE_CONTRADICTED = "TerminateSequence whose LastMsgNumber contradicts what is known"
    EXPIRED = "Expires, counted from creation, or the inactivity limit; or room is made where it was never used"
    FAILED = "this side gives the sequence up"
    OUTGROWN = "a new number, of a sequence that is held as a whole and has no room for it: it never will"
    ABANDONED = "SequenceTerminated or UnknownSequence from the source"
    ACCUSED = "another fault from the source"
    OPERATOR_CLOSE = "an operator closes the sequence in its source's stead"

    __hash__ = object.__hash__


class Act(enum.Enum):
    """An act, and its answer; the value says it in words."""

    ACCEPT = "take responsibility for the message"
    REPEAT = "answer a duplicate: acknowledge, or send the stored reply again"
    ACKNOWLEDGE = "send the acknowledgement"
    CLOSE = "freeze the ranges, apply the incomplete-sequence behavior, answer CloseSequenceResponse"
    TERMINATE = "as close, and end; answer TerminateSequenceResponse (1.1)"
    CONFIRM = "answer again what was answered before"
    END = "as terminate, but silently"
    IGNORE = "nothing"


class Cell(NamedTuple):
    """The effect of an event in a state: an act, or the fault that is answered; and the state that follows."""

    act: Act | type[faults.Fault]
    state: State


Table = Mapping[State, Mapping[Trigger, Cell]]


def _ended(state: State, answer: type[faults.Fault] = faults.UnknownSequence) -> dict[Trigger, Cell]:
    return {
        **dict.fromkeys(Trigger, Cell(answer, state)),
        # The response may have been lost: a repeated TerminateSequence is confirmed, not refused.
        Trigger.TERMINATE: Cell(Act.CONFIRM, state),
        Trigger.TERMINATE_CONTRADICTED: Cell(faults.SequenceTerminated, state),
        Trigger.EXPIRED: Cell(Act.IGNORE, state),
        # What was accepted before the end is still delivered, and may fail for good.
        Trigger.FAILED: Cell(Act.END, state),
        Trigger.ABANDONED: Cell(Act.IGNORE, state),
        Trigger.ACCUSED: Cell(Act.IGNORE, state),
        Trigger.OPERATOR_CLOSE: Cell(Act.IGNORE, state),
    }


_ENDED: Final = {
    State.TERMINATED: _ended(State.TERMINATED),
    State.EXPIRED: _ended(State.EXPIRED),
    State.REFUSED: _ended(State.REFUSED),
    State.FAILED: _ended(State.FAILED, faults.SequenceTerminated),
}


def _open(state: State, own: Mapping[Trigger, Cell]) -> dict[Trigger, Cell]:
    """The cells of a state that has not ended: those that each such state has, and its ``own``."""
    return {
        Trigger.LAST: Cell(faults.MalformedMessage, state),
        Trigger.DUPLICATE: Cell(Act.REPEAT, state),
        Trigger.LAST_CONTRADICTED: Cell(faults.MalformedMessage, state),
        Trigger.ACK_REQUESTED: Cell(Act.ACKNOWLEDGE, state),
        Trigger.CLOSE_CONTRADICTED: Cell(faults.SequenceTerminated, State.REFUSED),
        Trigger.TERMINATE: Cell(Act.TERMINATE, State.TERMINATED),
        Trigger.TERMINATE_CONTRADICTED: Cell(faults.SequenceTerminated, State.REFUSED),
        Trigger.EXPIRED: Cell(Act.END, State.EXPIRED),
        Trigger.FAILED: Cell(Act.END, State.FAILED),
        Trigger.OUTGROWN: Cell(faults.SequenceTerminated, State.FAILED),
        Trigger.ABANDONED: Cell(Act.END, State.TERMINATED),
        Trigger.ACCUSED: Cell(Act.IGNORE, state),
        **own,
    }


_1_1: Final[Table] = {
    State.CREATED: _open(
        State.CREATED,
        {
            Trigger.NEW: Cell(Act.ACCEPT, State.CREATED),
            Trigger.ABOVE_LAST: Cell(faults.SequenceClosed, State.CREATED),
            # Lower numbers that are missing are still taken (WS-RM 1.1 §4.5).
            Trigger.ABOVE_MAXIMUM: Cell(faults.MessageNumberRollover, State.CREATED),
            Trigger.CLOSE: Cell(Act.CLOSE, State.CLOSED),
            Trigger.OPERATOR_CLOSE: Cell(Act.CLOSE, State.CLOSED),
        },
    ),
    State.CLOSED: _open(
        State.CLOSED,
        {
            Trigger.NEW: Cell(faults.SequenceClosed, State.CLOSED),
            Trigger.ABOVE_LAST: Cell(faults.SequenceClosed, State.CLOSED),
            Trigger.ABOVE_MAXIMUM: Cell(faults.SequenceClosed, State.CLOSED),
            Trigger.CLOSE: Cell(Act.CONFIRM, State.CLOSED),
            Trigger.OPERATOR_CLOSE: Cell(Act.IGNORE, State.CLOSED),
        },
    ),
    **_ENDED,
}

_1_0: Final[Table] = {
    State.CREATED: {
        **_1_1[State.CREATED],
        Trigger.LAST: Cell(Act.ACCEPT, State.CREATED),
        Trigger.ABOVE_LAST: Cell(faults.LastMessageNumberExceeded, State.REFUSED),
        Trigger.ABOVE_MAXIMUM: Cell(faults.MessageNumberRollover, State.REFUSED),
        Trigger.LAST_CONTRADICTED: Cell(faults.SequenceTerminated, State.REFUSED),
        Trigger.CLOSE: Cell(faults.MalformedMessage, State.CREATED),
        Trigger.OPERATOR_CLOSE: Cell(Act.IGNORE, State.CREATED),
    },
    # 1.0 has no close. Where the table is asked all the same, it answers as for an open sequence's end.
    State.CLOSED: {
        **_1_1[State.CLOSED],
        Trigger.NEW: Cell(faults.SequenceTerminated, State.CLOSED),
        Trigger.LAST: Cell(faults.SequenceTerminated, State.CLOSED),
        Trigger.ABOVE_LAST: Cell(faults.LastMessageNumberExceeded, State.REFUSED),
        Trigger.ABOVE_MAXIMUM: Cell(faults.MessageNumberRollover, State.REFUSED),
        Trigger.LAST_CONTRADICTED: Cell(faults.SequenceTerminated, State.REFUSED),
        Trigger.CLOSE: Cell(faults.MalformedMessage, State.CLOSED),
    },
    **_ENDED,
}

TRANSITIONS: Final[Mapping[str, Table]] = {
    WSRM_1_0.label: _1_0,
    WSRM_1_1.label: _1_1,
}
"""RM version's label -> state -> trigger -> cell; every combination is there (a test counts them)."""
