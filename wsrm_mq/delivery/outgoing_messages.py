"""Messages of this side, as they are stored to be sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.envelope.fault import fault
from wsrm_mq.envelope.render import ending, own_names
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import Limits
from wsrm_mq.queue.arrival import Receipt
from wsrm_mq.queue.outbound import give_number
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.sending import NOT_SENT, OutgoingMessage, Sent, send
from wsrm_mq.queue.settle import ServiceReply, keep_reply
from wsrm_mq.remembered import SMALL
from wsrm_mq.sequence.elements import CloseSequence, EndpointReference, TerminateSequence
from wsrm_mq.sequence.faults import ServiceFailure
from wsrm_mq.store.channels import WAITER
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import SOAPVersion

# The endpoints of the reply to a stored message, kept with its request: ReplyTo and FaultTo, where they are
# addresses.

REPLY_ENDPOINTS: Final = "wsrm.reply_endpoints"
"""The key, in the stored part of a request, of the endpoints of its reply and of a fault, each as a list of its address
and its parameters. One endpoint alone is that of both."""
_CLIENTS: Final = 1_024


def with_reply_endpoints(environ: str, reply_to: EndpointReference | None, fault_to: EndpointReference | None) -> str:
    """The stored part of a request, with them. Without ``reply_to`` the reply leaves on the response; without
    ``fault_to`` a fault leaves as a reply does."""
    said = (reply_to,) if fault_to is None else (reply_to, fault_to)
    endpoints = [one and [one.address, *one.parameters] for one in said]
    return json.dumps({**json.loads(environ), REPLY_ENDPOINTS: endpoints}, ensure_ascii=False, separators=(",", ":"))


def reply_endpoint(environ: str, *, is_fault: bool) -> EndpointReference | None:
    """Where the reply to the message of this request is sent; ``None``: it is answered on the response."""
    if REPLY_ENDPOINTS not in environ:
        return None
    endpoints = _remembered(environ) if len(environ) <= SMALL else _endpoints(environ)
    return None if not endpoints else endpoints[-1] if is_fault else endpoints[0]


def _endpoints(environ: str) -> tuple[EndpointReference | None, ...]:
    said = json.loads(environ).get(REPLY_ENDPOINTS, [])
    return tuple(one and EndpointReference(one[0], tuple(one[1:])) for one in said)


_remembered: Final = lru_cache(_CLIENTS)(_endpoints)


UNDELIVERED: Final = ServiceFailure("The message could not be delivered to the service; it was set aside.")
_STATUS: Final = "500 Internal Server Error"


def service_message(to: EndpointReference, body: bytes, content_type: str, limits: Limits) -> OutgoingMessage:
    """An envelope that a service wrote: it may have given it a MessageID and an Action of its own."""
    headers = scan(body, content_type, None, limits)
    return OutgoingMessage(to, headers.message_id or "", headers.action or "", content_type, body)


def own_message(to: EndpointReference, body: bytes, soap: SOAPVersion) -> OutgoingMessage:
    """An envelope that was rendered here."""
    message_id, action = own_names(body)
    content_type = f"{soap.media_type}; charset=utf-8"
    if soap is SOAPVersion.SOAP_1_2:
        content_type += f'; action="{action}"'
    return OutgoingMessage(to, message_id, action, content_type, body)


def tell_end(tx: Transaction, element: CloseSequence | TerminateSequence) -> None:
    """Have a source told that this side has closed or ended its sequence, where it has an address for acknowledgements,
    or fetches them (D-CLO-012, D-TRM-011, MC-007). The final one goes with it. In 1.0 only a fault says so, in answer
    to its next message."""
    record = tx.sequence_named(element.identifier)
    if record is None or not record.value.terms.rm.has_close:
        return
    terms, to = record.value.terms, record.acks_to
    if to is None and record.acks_fetched_by is not None:
        to = EndpointReference(record.acks_fetched_by)
    if to is None:
        return
    send(tx, record, own_message(to, ending(terms.soap, terms.addressing, terms.rm, None, element, to=to), terms.soap))


def with_end_of_outbound(tx: Transaction, verb: Callable[[Transaction], Receipt]) -> Receipt:
    """Commit the message of a partner by ``verb``, and send the end of the outbound sequence where that follows and
    leads to an endpoint; else it leaves on the response."""
    receipt = verb(tx)
    told = NOT_SENT if receipt.terminates is None else tell_end_of_outbound(tx, receipt.terminates)
    if told is not NOT_SENT:
        receipt.sends += told.claims
        receipt.terminates = None
    return receipt


def tell_end_of_outbound(tx: Transaction, element: CloseSequence | TerminateSequence) -> Sent:
    """Have an outbound sequence closed or terminated at its endpoint, or where that is fetched."""
    outbound = tx.outbound_named(element.identifier)
    if outbound is None or outbound.endpoint is None:
        return NOT_SENT
    terms, to = outbound.value.terms, outbound.endpoint
    body = ending(terms.soap, terms.addressing, terms.rm, None, element, to=to)
    return send(tx, outbound.about, own_message(to, body, terms.soap))


def tell_undelivered(tx: Transaction, claim: Claim, delivery: Delivery) -> Claim | None:
    """Send a fault as the reply, stored as one, since there is no other: a request that waits may be answered with it,
    and if it has given up meanwhile, it is fetched. Answers the claim on it; ``None`` where no reply is expected
    elsewhere than on the response, or an operator has the message delivered again."""
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
