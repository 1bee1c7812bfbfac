"""An endpoint may speak in its answer to a request of this side's own: that is as good as a request of its own. What a
destination of requests says in one of those is taken the same way.

It speaks for the partner whose sequence the request was about, and for no other (SEC-003).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from wsrm_mq.queue.arrival import Receipt, Sender
from wsrm_mq.queue.lifecycle import lifecycle, take_fault
from wsrm_mq.queue.outbound import acknowledged_with
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.queue.requests import confirmed, created, go_on, refused_there, replied
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.sequence import elements
from wsrm_mq.sequence.outbound_states import OutboundState
from wsrm_mq.store.channels import Channel
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import RMVersion


class Said(NamedTuple):
    """The elements of an answer that are about sequences, in the version ``rm``."""

    rm: RMVersion
    acknowledgements: tuple[elements.SequenceAcknowledgement, ...] = ()
    ack_requested: tuple[elements.AckRequested, ...] = ()
    fault: elements.SequenceFault | None = None
    response: (
        elements.CreateSequenceResponse | elements.CloseSequenceResponse | elements.TerminateSequenceResponse | None
    ) = None
    relates_to: str | None = None
    """The MessageID of the request that it says to answer."""
    refusal: str | None = None
    """Why there will be no sequence, in answer to a CreateSequence."""
    reply: tuple[int, ServiceReply] | None = None
    """The answer of an application, to the request at this position."""
    element: elements.CloseSequence | elements.TerminateSequence | None = None
    """The end of the sequence, from its destination."""

    def is_plain(self, number: int) -> bool:
        """Whether it says no more than what has come of the messages up to this ``number``."""
        others = (self.ack_requested or None, self.fault, self.response, self.refusal, self.reply)
        upper = max((upper for one in self.acknowledgements for _lower, upper in one.ranges), default=0)
        return others == (None,) * 5 and upper <= number and not any(a.final or a.nacks for a in self.acknowledgements)


def hear(tx: Transaction, channel: Channel, said: Said, policy_of: PolicyOf) -> Receipt:
    """Take ``said``, the answer to a request that has left in ``channel``."""
    about = tx.about(channel.answers, channel.outbound)
    if about is None:
        return Receipt()
    terms, policy = about.value.terms, policy_of(about.partner)
    sender = Sender(
        tx.queue_name(about.queue), said.rm, terms.soap, terms.addressing, about.principal, about.peer, about.partner
    )
    response = said.response
    if said.refusal is not None and isinstance(about, OutboundRecord):
        refused_there(tx, about, said.refusal)
        receipt = Receipt()
        receipt.needs_watch = True
        return receipt
    if isinstance(response, elements.CreateSequenceResponse):
        return created(tx, about, response, said.relates_to, policy)
    verb: Callable[[Transaction], Receipt]
    verb = partial(lifecycle, sender=sender, element=said.element, policy=policy, ack_requested=said.ack_requested)
    if response is not None:
        verb = partial(confirmed, about=about, response=response)
    elif said.fault is not None:
        verb = partial(take_fault, sender=sender, arrived=said.fault)
    before = about.value.state
    receipt = acknowledged_with(tx, verb, sender, said.acknowledgements)
    if isinstance(about, OutboundRecord):
        if said.reply is not None:
            replied(tx, about, *said.reply)
        if about.value.state is not before:
            is_over = about.value.state is OutboundState.TERMINATED
            receipt.terminates = go_on(tx, about, is_over_there=is_over) or receipt.terminates
        receipt.needs_watch = receipt.needs_watch or about.value.state is not OutboundState.CREATED
    return receipt
