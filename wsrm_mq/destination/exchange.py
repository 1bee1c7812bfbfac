"""The values of an exchange: the client, its request, the verb to commit for it, and what follows. They do nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from wsrm_mq.delivery.application import Environ
from wsrm_mq.destination.answers import EMPTY, Answer
from wsrm_mq.destination.coverage import Operations
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.queue.arrival import Arrival, Body, Receipt
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.sequence.faults import Fault
from wsrm_mq.store.transaction import Transaction

if TYPE_CHECKING:
    from wsrm_mq.tracing.making import Receive

# A client, as it is remembered: requests from one place, to one path, with the same HTTP headers.
#
# Its requests are all alike but for their bodies, and so are most of its messages. A front finds the client by the part
# that its requests have in common; values that follow from that part are made once, which gives about 20 µs a request.


_KINDS: Final = 16
"""Kinds of messages remembered of a client."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The configuration of the sender of a request."""

    policy: QueuePolicy
    name: str | None = None
    """The partner section that fits."""
    stack: str | None = None
    """The stack that it runs, where that is said."""
    one_way_answer: str = "acknowledgement"
    """``empty``: one-way messages are answered 202 without a body."""
    operations: Operations | None = None
    """The operations of the service for this peer; ``None``: the service's own WSDL says them."""
    sender_fault_status: int = 500
    """The HTTP status of a SOAP 1.2 fault that is the sender's."""
    require_rm: bool = False
    strict_addressing: bool = False
    verify_body: bool = False
    max_waiting: int | None = None
    """How many of its requests may wait at a time (SEC-030)."""


@dataclass(slots=True, eq=False)
class Client:
    """A client. A front finds it by the part of ``environ`` that its requests have in common."""

    environ: Environ
    """The part that is the same in its requests, in the words of WSGI."""
    kept: str
    """The part of it that a replay needs, as JSON."""
    path: str
    """The path of the service. It is the name of the queue too, unless the option `queue` gives another one."""
    queue: str
    content_type: str
    soap_action: str | None = None
    content_encoding: str = ""
    address: str | None = None
    identity: tuple[str | None, Peer] | None = None
    """The principal that sends its requests, and its peer in the configuration; ``None``: a hook is asked each time."""
    arrivals: dict[tuple[object, ...], Arrival] = field(default_factory=dict)
    """The parts that messages have in common, by their kind. It gives 6 µs and a dozen calls a message."""

    @property
    def who(self) -> str | None:
        """The key by which its shares are counted: its principal where the server names it, else its
        address."""
        return (self.identity and self.identity[0]) or self.address

    def keep(self, kind: tuple[object, ...], arrival: Arrival) -> None:
        if len(self.arrivals) >= _KINDS:
            self.arrivals.clear()
        self.arrivals[kind] = arrival


# What passes between a front and the RM Destination.


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
    receiving: Receive | None = None
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
