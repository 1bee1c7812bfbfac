"""Answers of endpoints to requests of this side's own: the acknowledgements and faults in them are committed with the
outcomes of the requests, and those that change nothing are told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from wsrm_mq import queue as verbs
from wsrm_mq.delivery.delivery import Delivery, Heard
from wsrm_mq.delivery.outgoing_messages import with_end_of_outbound
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.arrival import Receipt
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.sequence.elements import SequenceFault
from wsrm_mq.sequence.faults import UnknownSequence
from wsrm_mq.store.channels import Channel

if TYPE_CHECKING:
    from wsrm_mq.delivery.posted import Posted

HandOver = Callable[[Receipt], object]
"""A function that does the work that a receipt leaves: a claim is run, the watch looks."""


_UNHEARD: Final = Heard(lambda _tx: Receipt(), lambda _receipt: None, 0, False, frozenset())
"""The changes where nothing was said in answer to the last sending: the message is given up before the next one
leaves."""


class Hearing:
    """Hears answers for one process."""

    def __init__(self, policy_of: PolicyOf, events: Events, hand_over: HandOver) -> None:
        self._policy_of = policy_of
        self._events = events
        self._hand_over = hand_over

    def heard(self, channel: Channel, answer: Posted, delivery: Delivery | None = None) -> Heard | None:
        """The changes that the answer to a request which has left in ``channel`` makes; ``None``: none. ``delivery``:
        the request, where it is stored."""
        said = answer.said
        if answer.unreadable is not None:
            self._events.tell("answer.unreadable", error=answer.unreadable)
        is_last = delivery is not None and self._policy_of(delivery.partner).resend.wait(delivery.attempt) is None
        if said is None:
            return _UNHEARD if is_last else None

        def committed(receipt: Receipt) -> None:
            self._hand_over(receipt)
            tell_of_wrong(self._events, receipt)
            if said.fault is not None:
                tell_of_fault(self._events, said.fault, receipt)

        hearing = partial(verbs.hear, channel=channel, said=said, policy_of=self._policy_of)
        size = 0 if said.reply is None else len(said.reply[1].body)
        is_plain = delivery is not None and not is_last and said.is_plain(delivery.number)
        # 1.0 has no last acknowledgement of a sequence that is closed: only what is committed is not sent in another
        is_plain = is_plain and said.rm.has_close
        ranges = frozenset((one.identifier, range_) for one in said.acknowledgements for range_ in one.ranges)
        return Heard(partial(with_end_of_outbound, verb=hearing), committed, size, is_plain, ranges)


def tell_of_wrong(events: Events, receipt: Receipt) -> None:
    """Tell of the acknowledgements and AckRequested headers of a request that were in error."""
    for fault in receipt.other_faults:
        events.tell("ack_requested.unknown", sequence=fault.identifier)
    for fault in receipt.wrong_acknowledgements:
        if isinstance(fault, UnknownSequence):
            events.tell("acknowledgement.unknown", sequence=fault.identifier)
        else:
            events.tell("acknowledgement.invalid", sequence=fault.identifier)


def tell_of_fault(events: Events, arrived: SequenceFault, receipt: Receipt) -> None:
    """Tell of a fault about a sequence that changed nothing."""
    if receipt.act is None:
        reason = receipt.fault.reason if receipt.fault is not None else "The sequence has ended already."
        events.tell("fault.ignored", fault=arrived.code, reason=reason, sequence=arrived.identifier)
