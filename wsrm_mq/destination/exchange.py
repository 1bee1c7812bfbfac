"""The values that pass between a front and the RM Destination: the verb to commit for a request, and the rest to do.
Nothing here acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from wsrm_mq import tracing
from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.destination.answers import EMPTY, Answer
from wsrm_mq.destination.client import Client, Peer
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.queue.arrival import Arrival, Body, MessageReceipt, Receipt
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.sequence.faults import Fault
from wsrm_mq.store.transaction import Transaction

_CXF: Final = ("Apache-CXF/", "Apache CXF ")
"""The beginnings of the User-Agent of CXF (RFC 9110 §10.1.5), the newer and the older one."""


class Request(NamedTuple):
    """A SOAP POST to a covered path, whose headers are read and whose sender is known."""

    client: Client
    connection: str | None
    body: Body
    headers: Headers
    principal: str | None
    peer: Peer

    @property
    def who(self) -> str:
        """The key by which limits are counted: the principal, without one the address."""
        return self.principal or self.client.address or ""

    @property
    def stack(self) -> str | None:
        """The stack that the sender runs: the configuration says it, else its User-Agent, where it is CXF."""
        agent = self.client.environ.get("HTTP_USER_AGENT", "")
        return self.peer.stack or ("cxf" if agent.startswith(_CXF) else None)


class Forward(NamedTuple):
    """The request goes to the application as it came: it is not the middleware's business. ``one_way``: the answer is
    202, whichever the application's is."""

    headers: Headers
    one_way: bool = False
    acknowledgements: tuple[SequenceAcknowledgement, ...] = ()
    """The acknowledgements that AckRequested headers on it asked for: they go out with the application's answer."""

    @property
    def is_answered_here(self) -> bool:
        """The application's answer does not leave as it is; see ``destination.answers.forwarded``."""
        return self.one_way or bool(self.acknowledgements)


class Commit(NamedTuple):
    """``verb`` has to be committed; its result goes to ``finish``."""

    verb: Callable[[Transaction], Receipt]
    request: Request
    size: int = 0
    """Bytes that it writes, about."""
    arrival: Arrival | None = None
    receiving: tracing.Receive | None = None
    """The span of the receipt, while spans are wanted."""
    then: Forward | Fault | None = None
    """The rest to do for an application's message that carries AckRequested headers, once these are answered."""

    @property
    def may_answer_later(self) -> bool:
        """A reply that is not there in time waits to be fetched (MC-011)."""
        return self.arrival is not None and self.arrival.wants_reply and self.request.headers.reply_is_fetched


class Wait(NamedTuple):
    """Wait until the message at ``position`` is settled, then answer with ``settled``; or with ``otherwise``."""

    position: int
    otherwise: Answer = EMPTY
    bounded: bool = True
    """It waits for other messages: such waits are few at a time."""
    others: tuple[SequenceAcknowledgement, ...] = ()
    """The acknowledgements of other sequences that AckRequested headers asked for: the answer takes them along."""


def delivery_of(commit: Commit, receipt: MessageReceipt) -> Delivery:
    """The message that was stored, for a run that need not read it again."""
    arrival = commit.arrival
    assert arrival is not None
    assert receipt.position is not None
    header = receipt.given or arrival.header
    return Delivery(
        position=receipt.position,
        number=header.number,
        identifier=header.identifier,
        partner=receipt.partner,
        rm=arrival.sender.rm.label,
        soap=arrival.sender.soap.label,
        addressing=arrival.sender.addressing.label,
        action=arrival.action,
        message_id=arrival.message_id,
        environ=arrival.environ,
        principal=arrival.sender.principal,
        connection=arrival.connection,
        body=arrival.body,
        wants_reply=arrival.wants_reply,
        late=receipt.is_late,
        at_most_once=receipt.at_most_once,
        is_waited_for=arrival.waits,
    )
