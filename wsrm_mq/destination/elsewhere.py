"""Answers that do not leave on the response to their request: they are stored with the change that they tell of, and
sent."""

from __future__ import annotations

from collections.abc import Callable

from wsrm_mq.delivery.outgoing_messages import own_message
from wsrm_mq.destination import answers
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.queue.arrival import CreateReceipt, Receipt
from wsrm_mq.queue.sending import send
from wsrm_mq.sequence.elements import CloseSequence, EndpointReference, TerminateSequence
from wsrm_mq.store.records import About, SequenceRecord
from wsrm_mq.store.transaction import Transaction


def created_there(
    tx: Transaction, verb: Callable[[Transaction], CreateReceipt], headers: Headers, to: EndpointReference
) -> CreateReceipt:
    """Create a sequence, and have the response sent (D-CRE-006)."""
    receipt = verb(tx)
    record = None if receipt.created is None else tx.sequence_named(receipt.created.terms.identifier)
    if record is not None:
        body = answers.created(receipt, headers, to).body
        receipt.sends += send(tx, record, own_message(to, body, headers.soap)).claims
        receipt.is_answered_elsewhere = True
    return receipt


def ended_there(
    tx: Transaction,
    verb: Callable[[Transaction], Receipt],
    element: CloseSequence | TerminateSequence,
    headers: Headers,
    to: EndpointReference,
) -> Receipt:
    """Close or terminate a sequence, and have the response sent (H-018). Its acknowledgement is put in when it leaves,
    where acknowledgements go there too."""
    receipt = verb(tx)
    if receipt.fault is not None or receipt.no_room:
        return receipt
    about: About | None = tx.sequence_named(element.identifier)
    if about is None and (outbound := tx.outbound_named(element.identifier)) is not None:
        about = outbound.about
    if about is not None:
        final = None if isinstance(about, SequenceRecord) and about.acks_to == to else receipt.acknowledgement
        body = answers.ended(final, headers, to=to).body
        receipt.sends += send(tx, about, own_message(to, body, headers.soap)).claims
        receipt.is_answered_elsewhere = True
    return receipt
