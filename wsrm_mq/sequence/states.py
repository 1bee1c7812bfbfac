"""The state machine of a sequence at its RM Destination: all of it, and only here.

One total table for each RM version: (state, event) -> what to do and the next state (WS-RM 1.1 §3 and its state
tables; 1.0 where it differs). A cell is an ``Act``, or the class of the fault to answer.

Closing and terminating, where this side waits for the source's answer, need a channel to the source; their rows come
with it.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from wsrm_mq.sequence import faults
from wsrm_mq.versions import UNSEQUENCED, WSRM_1_0, WSRM_1_1

__all__ = ["TRANSITIONS", "Act", "Cell", "Event", "State"]


class State(enum.StrEnum):
    CREATED = "created"
    """Takes new numbers."""
    CLOSED = "closed"
    """Takes no new number. The ranges are final; known numbers are still acknowledged."""
    ENDED = "ended"
    """Over, kept as a tombstone: its identifier is never used again and its numbers never delivered again."""

    __hash__ = str.__hash__  # in C, as below: each message looks a cell up


class Event(enum.Enum):
    """What a message or the clock means for a sequence, once its number has been compared with what is known."""

    NEW = "a number not received before"
    LAST = "a new number that carries LastMessage"
    DUPLICATE = "a number received before"
    ABOVE_LAST = "a number above the last one"
    ABOVE_MAXIMUM = "a number above the largest one allowed"
    LAST_CONTRADICTED = "LastMessage on a number that cannot be the last"
    ACK_REQUESTED = "AckRequested"
    CLOSE = "CloseSequence"
    TERMINATE = "TerminateSequence"
    END_CONTRADICTED = "CloseSequence or TerminateSequence whose LastMsgNumber contradicts what is known"
    EXPIRED = "Expires, counted from creation, or the inactivity limit"
    FAILED = "this side gives the sequence up"
    ABANDONED = "SequenceTerminated or UnknownSequence from the source"
    ACCUSED = "another fault from the source"

    __hash__ = object.__hash__


class Act(enum.Enum):
    ACCEPT = "take responsibility for the message"
    REPEAT = "answer a duplicate: acknowledge, or send the stored reply again"
    ACKNOWLEDGE = "send the acknowledgement"
    CLOSE = "freeze the ranges, apply the incomplete-sequence behavior, answer CloseSequenceResponse"
    TERMINATE = "as close, and end; answer TerminateSequenceResponse (1.1)"
    CONFIRM = "answer again what was answered before"
    END = "as terminate, but silently"
    IGNORE = "nothing"


class Cell(NamedTuple):
    act: Act | type[faults.Fault]
    state: State


_ENDED_CELLS: Final = {
    Event.NEW: Cell(faults.UnknownSequence, State.ENDED),
    Event.LAST: Cell(faults.UnknownSequence, State.ENDED),
    Event.DUPLICATE: Cell(faults.UnknownSequence, State.ENDED),
    Event.ABOVE_LAST: Cell(faults.UnknownSequence, State.ENDED),
    Event.ABOVE_MAXIMUM: Cell(faults.UnknownSequence, State.ENDED),
    Event.LAST_CONTRADICTED: Cell(faults.UnknownSequence, State.ENDED),
    Event.ACK_REQUESTED: Cell(faults.UnknownSequence, State.ENDED),
    Event.CLOSE: Cell(faults.UnknownSequence, State.ENDED),
    # The response may have been lost: a repeated TerminateSequence is confirmed, not refused.
    Event.TERMINATE: Cell(Act.CONFIRM, State.ENDED),
    Event.END_CONTRADICTED: Cell(faults.SequenceTerminated, State.ENDED),
    Event.EXPIRED: Cell(Act.IGNORE, State.ENDED),
    # What was accepted before the end is still delivered, and may fail for good.
    Event.FAILED: Cell(Act.END, State.ENDED),
    Event.ABANDONED: Cell(Act.IGNORE, State.ENDED),
    Event.ACCUSED: Cell(Act.IGNORE, State.ENDED),
}

_1_1: Final = {
    State.CREATED: {
        Event.NEW: Cell(Act.ACCEPT, State.CREATED),
        Event.LAST: Cell(faults.MalformedMessage, State.CREATED),
        Event.DUPLICATE: Cell(Act.REPEAT, State.CREATED),
        Event.ABOVE_LAST: Cell(faults.SequenceClosed, State.CREATED),
        # Lower numbers that are missing are still taken (WS-RM 1.1 §4.6).
        Event.ABOVE_MAXIMUM: Cell(faults.MessageNumberRollover, State.CREATED),
        Event.LAST_CONTRADICTED: Cell(faults.MalformedMessage, State.CREATED),
        Event.ACK_REQUESTED: Cell(Act.ACKNOWLEDGE, State.CREATED),
        Event.CLOSE: Cell(Act.CLOSE, State.CLOSED),
        Event.TERMINATE: Cell(Act.TERMINATE, State.ENDED),
        Event.END_CONTRADICTED: Cell(faults.SequenceTerminated, State.ENDED),
        Event.EXPIRED: Cell(Act.END, State.ENDED),
        Event.FAILED: Cell(Act.END, State.ENDED),
        Event.ABANDONED: Cell(Act.END, State.ENDED),
        Event.ACCUSED: Cell(Act.IGNORE, State.CREATED),
    },
    State.CLOSED: {
        Event.NEW: Cell(faults.SequenceClosed, State.CLOSED),
        Event.LAST: Cell(faults.MalformedMessage, State.CLOSED),
        Event.DUPLICATE: Cell(Act.REPEAT, State.CLOSED),
        Event.ABOVE_LAST: Cell(faults.SequenceClosed, State.CLOSED),
        Event.ABOVE_MAXIMUM: Cell(faults.SequenceClosed, State.CLOSED),
        Event.LAST_CONTRADICTED: Cell(faults.MalformedMessage, State.CLOSED),
        Event.ACK_REQUESTED: Cell(Act.ACKNOWLEDGE, State.CLOSED),
        Event.CLOSE: Cell(Act.CONFIRM, State.CLOSED),
        Event.TERMINATE: Cell(Act.TERMINATE, State.ENDED),
        Event.END_CONTRADICTED: Cell(faults.SequenceTerminated, State.ENDED),
        Event.EXPIRED: Cell(Act.END, State.ENDED),
        Event.FAILED: Cell(Act.END, State.ENDED),
        Event.ABANDONED: Cell(Act.END, State.ENDED),
        Event.ACCUSED: Cell(Act.IGNORE, State.CLOSED),
    },
    State.ENDED: _ENDED_CELLS,
}

_1_0: Final = {
    State.CREATED: {
        **_1_1[State.CREATED],
        Event.LAST: Cell(Act.ACCEPT, State.CREATED),
        Event.ABOVE_LAST: Cell(faults.LastMessageNumberExceeded, State.ENDED),
        Event.ABOVE_MAXIMUM: Cell(faults.MessageNumberRollover, State.ENDED),
        Event.LAST_CONTRADICTED: Cell(faults.SequenceTerminated, State.ENDED),
        Event.CLOSE: Cell(faults.MalformedMessage, State.CREATED),
    },
    # 1.0 has no close. Where the table is asked all the same, it answers as for an open sequence's end.
    State.CLOSED: {
        **_1_1[State.CLOSED],
        Event.NEW: Cell(faults.SequenceTerminated, State.CLOSED),
        Event.LAST: Cell(faults.SequenceTerminated, State.CLOSED),
        Event.ABOVE_LAST: Cell(faults.LastMessageNumberExceeded, State.ENDED),
        Event.ABOVE_MAXIMUM: Cell(faults.MessageNumberRollover, State.ENDED),
        Event.LAST_CONTRADICTED: Cell(faults.SequenceTerminated, State.ENDED),
        Event.CLOSE: Cell(faults.MalformedMessage, State.CLOSED),
    },
    State.ENDED: _ENDED_CELLS,
}

TRANSITIONS: Final = {WSRM_1_0.label: _1_0, WSRM_1_1.label: _1_1, UNSEQUENCED.label: _1_1}
"""RM version's label -> state -> event -> cell; every combination is there (a test counts them). A sequence that this
side numbers behaves as one of 1.1 does."""
