"""A message of this side as it is stored to be sent."""

from __future__ import annotations

from collections.abc import Callable

from wsrm_mq.envelope import Limits, ending, own_names, scan
from wsrm_mq.queue.arrival import Receipt
from wsrm_mq.queue.sending import NOT_SENT, OutgoingMessage, Sent, send
from wsrm_mq.sequence.elements import CloseSequence, EndpointReference, TerminateSequence
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import SOAPVersion


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
    """Have what a partner says taken, and the end of the outbound sequence sent, where that follows and leads to an
    endpoint; else it leaves on the response."""
    receipt = verb(tx)
    told = NOT_SENT if receipt.terminates is None else tell_end_of_outbound(tx, receipt.terminates)
    if told is not NOT_SENT:
        receipt.sends += told.claims
        receipt.terminates = None
    return receipt


def tell_end_of_outbound(tx: Transaction, element: TerminateSequence) -> Sent:
    """Have an outbound sequence terminated at its endpoint, or where that is fetched."""
    outbound = tx.outbound_named(element.identifier)
    if outbound is None or outbound.endpoint is None:
        return NOT_SENT
    terms, to = outbound.value.terms, outbound.endpoint
    body = ending(terms.soap, terms.addressing, terms.rm, None, element, to=to)
    return send(tx, outbound.about, own_message(to, body, terms.soap))
