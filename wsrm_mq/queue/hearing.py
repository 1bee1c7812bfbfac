"""An endpoint may speak in its answer to a request of this side's own: that is as good as a request of its own.

It speaks for the partner whose sequence the request was about, and for no other (SEC-003).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from wsrm_mq.queue.arrival import Receipt, Sender
from wsrm_mq.queue.lifecycle import lifecycle, take_fault
from wsrm_mq.queue.outbound import acknowledged_with
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.sequence.elements import AckRequested, SequenceAcknowledgement, SequenceFault
from wsrm_mq.store import queues
from wsrm_mq.store.channels import Channel
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import RMVersion


class Said(NamedTuple):
    """The elements of an answer that are about sequences, in the version ``rm``."""

    rm: RMVersion
    acknowledgements: tuple[SequenceAcknowledgement, ...] = ()
    ack_requested: tuple[AckRequested, ...] = ()
    fault: SequenceFault | None = None


def hear(tx: Transaction, channel: Channel, said: Said, policy_of: PolicyOf) -> Receipt:
    """Take ``said``, the answer to a request that has left in ``channel``."""
    about = tx.about(channel.answers, channel.outbound)
    if about is None:
        return Receipt()
    queue, _application = tx.execute(queues.QUEUE, {"key": about.queue}).fetchone()
    terms, policy = about.value.terms, policy_of(about.partner)
    sender = Sender(queue, said.rm, terms.soap, terms.addressing, about.principal, about.peer, about.partner)
    asked = partial(lifecycle, sender=sender, element=None, policy=policy, ack_requested=said.ack_requested)
    verb = asked if said.fault is None else partial(take_fault, sender=sender, arrived=said.fault)
    return acknowledged_with(tx, verb, sender, said.acknowledgements)
