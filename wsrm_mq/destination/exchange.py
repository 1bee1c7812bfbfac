"""What passes between a front and the RM Destination: a request goes in; out comes what to commit, and in the end what
is left to do. Nothing here acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from wsrm_mq import tracing
from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.destination.answers import Answer
from wsrm_mq.envelope import Headers
from wsrm_mq.queue.accept import Arrival, Body, Created, Receipt
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.sequence.faults import Fault
from wsrm_mq.store.transaction import Transaction

__all__ = ["Caller", "Commit", "Forward", "HandOver", "Peer", "Request", "Run", "Wait"]


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """What the requests of one client have in common: where they come from and go to, and their HTTP headers. A front
    has one object for requests that are alike; that it is the same says so."""

    queue: str
    content_type: str
    soap_action: str | None
    environ: str
    """The part of the request that a replay needs, as JSON."""
    content_encoding: str = ""
    address: str | None = None
    connection: str | None = None
    is_remembered: bool = True
    """The next request that is alike will have this very object."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What the configuration says of the sender of a request."""

    policy: QueuePolicy
    name: str | None = None
    """The partner section that fits."""
    one_way_answer: str = "acknowledgement"
    """``empty``: one-way messages are answered 202 without a body."""
    sender_fault_status: int = 500
    """The HTTP status of a SOAP 1.2 fault that is the sender's."""
    require_rm: bool = False
    strict_addressing: bool = False
    verify_body: bool = False
    max_waiting: int | None = None
    """How many of his requests may wait at a time (SEC-030)."""


class Request(NamedTuple):
    """A SOAP POST to a covered path."""

    caller: Caller
    body: Body
    identify: Callable[[Headers], tuple[str | None, Peer]]
    """Who sends it (the principal, before anything is stored) and what the configuration says of him."""


class Forward(NamedTuple):
    """Not ours: the request goes to the application as it came. ``one_way``: it answers 202, whatever it returns."""

    headers: Headers
    one_way: bool = False
    acknowledgements: tuple[SequenceAcknowledgement, ...] = ()
    """What AckRequested headers on it asked for: it goes out with the application's answer."""

    @property
    def is_answered_here(self) -> bool:
        """The application's answer does not leave as it is; see ``destination.answers.forwarded``."""
        return self.one_way or bool(self.acknowledgements)


class Commit(NamedTuple):
    """``verb`` has to be committed; its result goes to ``conclude``."""

    verb: Callable[[Transaction], Receipt | Created]
    headers: Headers
    request: Request
    peer: Peer
    size: int = 0
    arrival: Arrival | None = None
    receiving: tracing.Receive | None = None
    """The span of the receipt, while anybody wants spans."""
    who: str = ""
    """Whom a wait for it is counted to; see ``Sender.who``."""
    then: Forward | Fault | None = None
    """What becomes of an application's message that carries AckRequested headers, once these are answered."""
    others: list[SequenceAcknowledgement] | None = None
    """For what AckRequested headers ask of other sequences: ``conclude`` puts it there, the answer takes it along."""


class HandOver(NamedTuple):
    """What the dispatcher gets, at once after the commit: a claim to run, perhaps with its first message in memory;
    or a message, without a claim, of a sequence that is being run here."""

    claim: Claim | None
    sequence: int
    delivery: Delivery | None


class Run(NamedTuple):
    """Run this message for the request, in its own thread if it has one, then answer with what ``settled`` makes of its
    outcome."""

    claim: Claim
    delivery: Delivery


class Wait(NamedTuple):
    """Wait until the message at ``position`` is settled, then answer with ``settled``; or with ``otherwise``."""

    position: int
    otherwise: Answer
    bounded: bool
    """It waits for other messages: such waits are few at a time."""
