"""A client, as it is remembered: requests from one place, to one path, with the same HTTP headers.

A client's requests are all alike but for their bodies, and so are most of its messages. A front finds the client by the
part that its requests have in common; values that follow from that part are made once, which gives about 20 µs a
request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from wsrm_mq.delivery.application import Environ
from wsrm_mq.destination.coverage import Operations
from wsrm_mq.queue.arrival import Arrival
from wsrm_mq.queue.policy import QueuePolicy

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
