"""The window of a sequence of requests: how many of its messages may be sent that are not acknowledged (S-SND-012).

It opens with what is acknowledged: a destination that is new, or was away, is not flooded. One that says how much room
it has gets no more than that; where it has none, one message asks for it again and again, as ``resend`` says.

What lies beyond it is held in its lane, as is all of a sequence that its destination has not created yet: the limit of
the lane rises by what is created and acknowledged, one number on one row however much waits.
"""

from __future__ import annotations

from typing import Final

from wsrm_mq.queue.ownership import count_unsettled
from wsrm_mq.sequence.outbound_states import OutboundState
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction

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
    """Raise the limit of a lane to the end of the window."""
    limit = min(outbound.value.given + 1, _end(outbound))
    if lane.limit < limit and lane.discard_from is None:
        lane.limit = limit
        lane.release(count_unsettled(tx, lane, limit))
        lane.wait(tx.now, None)
