"""The state machine of a sequence at its RM Source: all of it, and only here.

One total table for each RM version: (state, trigger) -> what to do and the next state (WS-RM 1.1 §3 and its state
tables; 1.0 where it differs), as ``sequence.states`` has it for the RM Destination. What ends a sequence before it is
acknowledged leaves messages in doubt: the step says which.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from wsrm_mq.versions import WSRM_1_0, WSRM_1_1


class OutboundState(enum.StrEnum):
    """Where a sequence stands at its RM Source."""

    CREATING = "creating"
    """Gives numbers, and nothing with one is sent: the destination was not asked for the sequence, or has not
    answered."""
    CREATED = "created"
    """Gives numbers, until one is the last."""
    CLOSING = "closing"
    """CloseSequence was sent. No number is given; messages that are not acknowledged are still sent again."""
    CLOSED = "closed"
    """Nothing is sent any more but what is acknowledged and waits for its reply; acknowledgements are still taken."""
    TERMINATING = "terminating"
    """TerminateSequence was sent."""
    TERMINATED = "terminated"
    EXPIRED = "expired"
    FAILED = "failed"
    """The destination does not know it any more."""


OUTBOUND_ENDED: Final = frozenset((OutboundState.TERMINATED, OutboundState.EXPIRED, OutboundState.FAILED))


class OutboundTrigger(enum.Enum):
    """The meaning of an event for a sequence, once it has been compared with the numbers and acknowledgements that are
    known."""

    CREATED_THERE = "CreateSequenceResponse"
    REFUSED_THERE = "CreateSequenceRefused, or another fault that says that there will be no sequence"
    MESSAGE = "a message is to get a number"
    MESSAGE_BEYOND_LAST = "a message is to get a number, and the last one is given"
    ACKNOWLEDGED = "an acknowledgement of numbers that were given"
    FINAL = "the same, with Final"
    WRONGLY_ACKNOWLEDGED = "an acknowledgement that cannot be true"
    SEAL = "no number follows those that are given"
    CLOSE = "this side closes"
    CLOSE_CONFIRMED = "CloseSequenceResponse"
    TERMINATE = "this side terminates, and everything is acknowledged"
    TERMINATE_EARLY = "this side terminates, and something is not acknowledged"
    TERMINATE_CONFIRMED = "TerminateSequenceResponse"
    CHANNEL_ENDED = "nothing more can be sent, and everything is acknowledged"
    CHANNEL_ENDED_EARLY = "nothing more can be sent, and something is not acknowledged"
    CLOSED_THERE = "CloseSequence from the destination"
    TERMINATED_THERE = "TerminateSequence or SequenceTerminated from the destination"
    REFUSED_CLOSED = "SequenceClosed from the destination"
    REFUSED_FULL = "MessageNumberRollover from the destination"
    UNKNOWN_THERE = "UnknownSequence from the destination"
    ACCUSED = "another fault from the destination"
    EXPIRED = "Expires, counted from creation"

    __hash__ = object.__hash__


class OutboundAct(enum.Enum):
    OPEN = "take the name that the destination has given it; what has a number may be sent"
    NUMBER = "give the next number"
    REFUSE = "give none: the message goes in another sequence, or in none"
    TAKE = "take the acknowledged numbers"
    CONTRADICT = "answer InvalidAcknowledgement, take nothing"
    STOP = "give no number after the last one"
    CLOSE = "send CloseSequence"
    TERMINATE = "send TerminateSequence"
    CONFIRM = "answer CloseSequenceResponse or TerminateSequenceResponse"
    END = "forget what is not acknowledged, and tell of it"
    IGNORE = "nothing"


class OutboundCell(NamedTuple):
    act: OutboundAct
    state: OutboundState


OutboundTable = Mapping[OutboundState, Mapping[OutboundTrigger, OutboundCell]]

_S, _T, _A, _C = OutboundState, OutboundTrigger, OutboundAct, OutboundCell


def _open(state: OutboundState, own: Mapping[OutboundTrigger, OutboundCell]) -> dict[OutboundTrigger, OutboundCell]:
    """The cells of a state that has not ended: those that each such state has, and its ``own``."""
    return {
        **dict.fromkeys(OutboundTrigger, _C(_A.IGNORE, state)),
        _T.MESSAGE: _C(_A.REFUSE, state),
        _T.MESSAGE_BEYOND_LAST: _C(_A.REFUSE, state),
        _T.ACKNOWLEDGED: _C(_A.TAKE, state),
        _T.FINAL: _C(_A.TAKE, _S.CLOSED),
        _T.WRONGLY_ACKNOWLEDGED: _C(_A.CONTRADICT, state),
        _T.TERMINATE: _C(_A.TERMINATE, _S.TERMINATING),
        _T.TERMINATE_EARLY: _C(_A.TERMINATE, _S.TERMINATING),
        _T.CHANNEL_ENDED: _C(_A.END, _S.TERMINATED),
        _T.CHANNEL_ENDED_EARLY: _C(_A.IGNORE, _S.CLOSED),
        _T.CLOSED_THERE: _C(_A.CONFIRM, _S.CLOSED),
        _T.TERMINATED_THERE: _C(_A.CONFIRM, _S.TERMINATED),
        _T.REFUSED_CLOSED: _C(_A.IGNORE, _S.CLOSED),
        _T.UNKNOWN_THERE: _C(_A.END, _S.FAILED),
        _T.EXPIRED: _C(_A.END, _S.EXPIRED),
        **own,
    }


def _ended(state: OutboundState) -> dict[OutboundTrigger, OutboundCell]:
    return {
        **dict.fromkeys(OutboundTrigger, _C(_A.IGNORE, state)),
        _T.MESSAGE: _C(_A.REFUSE, state),
        _T.MESSAGE_BEYOND_LAST: _C(_A.REFUSE, state),
        # The response may have been lost.
        _T.CLOSED_THERE: _C(_A.CONFIRM, state),
        _T.TERMINATED_THERE: _C(_A.CONFIRM, state),
    }


_ENDED: Final = {state: _ended(state) for state in (_S.TERMINATED, _S.EXPIRED, _S.FAILED)}

_CREATING: Final = {
    **dict.fromkeys(OutboundTrigger, _C(_A.IGNORE, _S.CREATING)),
    _T.CREATED_THERE: _C(_A.OPEN, _S.CREATED),
    _T.REFUSED_THERE: _C(_A.END, _S.FAILED),
    _T.MESSAGE: _C(_A.NUMBER, _S.CREATING),
    _T.MESSAGE_BEYOND_LAST: _C(_A.REFUSE, _S.CREATING),
    _T.SEAL: _C(_A.STOP, _S.CREATING),
    # The destination knows of none, so it is told nothing.
    _T.TERMINATE: _C(_A.END, _S.TERMINATED),
    _T.TERMINATE_EARLY: _C(_A.END, _S.TERMINATED),
    _T.CHANNEL_ENDED: _C(_A.END, _S.TERMINATED),
    _T.CHANNEL_ENDED_EARLY: _C(_A.END, _S.TERMINATED),
}
"""Nothing that the destination says can be about it: its name is this side's own."""

_1_1: Final[OutboundTable] = {
    _S.CREATING: _CREATING,
    _S.CREATED: _open(
        _S.CREATED,
        {
            _T.MESSAGE: _C(_A.NUMBER, _S.CREATED),
            _T.SEAL: _C(_A.STOP, _S.CREATED),
            _T.CLOSE: _C(_A.CLOSE, _S.CLOSING),
            _T.REFUSED_FULL: _C(_A.STOP, _S.CREATED),
        },
    ),
    _S.CLOSING: _open(
        _S.CLOSING,
        {
            _T.CLOSE: _C(_A.CLOSE, _S.CLOSING),
            _T.CLOSE_CONFIRMED: _C(_A.IGNORE, _S.CLOSED),
        },
    ),
    _S.CLOSED: _open(_S.CLOSED, {}),
    _S.TERMINATING: _open(
        _S.TERMINATING,
        {
            _T.FINAL: _C(_A.TAKE, _S.TERMINATING),
            _T.WRONGLY_ACKNOWLEDGED: _C(_A.IGNORE, _S.TERMINATING),
            _T.TERMINATE_CONFIRMED: _C(_A.END, _S.TERMINATED),
            _T.CHANNEL_ENDED_EARLY: _C(_A.END, _S.TERMINATED),
            _T.CLOSED_THERE: _C(_A.CONFIRM, _S.TERMINATING),
            _T.REFUSED_CLOSED: _C(_A.IGNORE, _S.TERMINATING),
            # It is gone there, which is what was asked for.
            _T.UNKNOWN_THERE: _C(_A.END, _S.TERMINATED),
        },
    ),
    **_ENDED,
}


def _without_close(state: OutboundState) -> dict[OutboundTrigger, OutboundCell]:
    """1.0 has no close, and its TerminateSequence has no response: it is sent once everything is acknowledged."""
    return {
        **_1_1[state],
        _T.FINAL: _C(_A.TAKE, state),
        _T.SEAL: _C(_A.IGNORE, state),
        _T.CLOSE: _C(_A.IGNORE, state),
        _T.TERMINATE: _C(_A.TERMINATE, _S.TERMINATED),
        _T.TERMINATE_EARLY: _C(_A.IGNORE, state),
        _T.CLOSED_THERE: _C(_A.IGNORE, state),
    }


_1_0: Final[OutboundTable] = {
    **{state: _without_close(state) for state in _1_1 if state not in OUTBOUND_ENDED},
    _S.CREATED: {**_without_close(_S.CREATED), _T.CLOSE: _C(_A.IGNORE, _S.CLOSED)},  # nothing is said of that
    # What seals it is a message: the last one says that it is that.
    _S.CREATING: {**_CREATING, _T.SEAL: _C(_A.IGNORE, _S.CREATING)},
    **_ENDED,
}

OUTBOUND_TRANSITIONS: Final[Mapping[str, OutboundTable]] = {WSRM_1_0.label: _1_0, WSRM_1_1.label: _1_1}
"""RM version's label -> state -> trigger -> cell; every combination is there (a test counts them)."""
