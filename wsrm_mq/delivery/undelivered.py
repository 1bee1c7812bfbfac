"""A request that was put aside has no reply: a source that expects one elsewhere than on its response gets a fault."""

from __future__ import annotations

from typing import Final

from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.delivery.outgoing_messages import own_message
from wsrm_mq.delivery.reply_endpoint import reply_endpoint
from wsrm_mq.envelope import fault
from wsrm_mq.queue.outbound import give_number
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.settle import ServiceReply, keep_reply
from wsrm_mq.sequence.faults import ServiceFailure
from wsrm_mq.store.fetching import WAITER
from wsrm_mq.store.transaction import Transaction

UNDELIVERED: Final = ServiceFailure("The message could not be delivered to the service; it was set aside.")
_STATUS: Final = "500 Internal Server Error"


def tell_undelivered(tx: Transaction, claim: Claim, delivery: Delivery) -> Claim | None:
    """Have a fault leave as the reply that there is not, stored as one: a request that waits may be answered with it,
    and if it has given up meanwhile, it is fetched. Answers the claim on it; ``None`` too where no reply is expected
    elsewhere, or an operator has the message delivered again."""
    to = reply_endpoint(delivery.environ, is_fault=True) if delivery.wants_reply and delivery.source is None else None
    record = tx.sequence(claim.lane)
    if to is None or record is None:
        return None
    (waiter,) = tx.execute(WAITER, {"key": delivery.position}).fetchone()
    terms, is_awaited = record.value.terms, waiter is not None
    is_answered = is_awaited and not terms.rm.is_fetched(to.address)
    if is_answered and reply_endpoint(delivery.environ, is_fault=False) is not None:
        return None
    body = fault(UNDELIVERED, terms.soap, terms.addressing, None, delivery.message_id, to=to)
    message = own_message(to, body, terms.soap)
    header = None if record.outbound is None else give_number(tx, record.outbound, is_last=False)
    reply = ServiceReply(_STATUS, (("Content-Type", message.content_type),), body, outgoing_message=message)
    return keep_reply(tx, record, delivery.position, reply, header, is_awaited=is_awaited).claim
