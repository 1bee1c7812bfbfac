"""A message as a consumer has it: what it is, and what is done with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, Protocol, get_args

from wsrm_mq.errors import ConfigurationError, LeaseLost, OutOfOrder
from wsrm_mq.queue.leasing import Leased
from wsrm_mq.queue.settling import Lease, Settlement

Answer = Literal["ack", "cancel", "expire"]


class Settles(Protocol):
    """Settles messages that were received: a node, or a subscription."""

    @property
    def home(self) -> object: ...
    def ack(self, messages: Sequence[Message], /) -> list[Settlement]: ...
    def release(self, messages: Sequence[Message], /) -> list[Settlement]: ...
    def nack(self, messages: Sequence[Message], error: object = ..., /) -> list[Settlement]: ...
    def reject(self, messages: Sequence[Message], reason: object = ..., /) -> list[Settlement]: ...
    def expire(self, messages: Sequence[Message], /) -> list[Settlement]: ...
    def renew(self, messages: Sequence[Message], lease: float | None = ..., /) -> list[Settlement]: ...


class Message:
    """A message that was received, or looked at. Times in seconds since the epoch.

    What is received is settled by one of ``ack``, ``release``, ``nack``, ``reject`` and ``expire``, each of which
    answers what became of it, and raises ``LeaseLost`` where its lease had ended. Of what was only looked at they do
    nothing.
    """

    def __init__(
        self,
        node: Settles | None,
        leased: Leased,
        leased_until: float | None,
        *,
        state: str = "leased",
        reason: str | None = None,
        last_error: str | None = None,
    ) -> None:
        seen = leased.seen
        self._node = None if leased.is_barrier else node
        self.home: object = None if self._node is None else self._node.home
        """The node in whose store it is; ``None``: it was only looked at."""
        self.is_barrier = leased.is_barrier
        """Every subscription has it, it is not leased, and nothing that is done with it settles anything."""
        self.frees_others = seen.number is not None or leased.queue.policy.barrier is not None or bool(seen.asks)
        """Whether others may be ready once it is settled: those behind it in its group, a barrier, or a report."""
        self.lease = Lease(seen.position, seen.fence)
        self.queue = leased.queue.name
        """The queue that it is in."""
        self.position = seen.position
        """The store's number of it, never given twice."""
        self.message_id = seen.message_id or f"#{seen.message}"
        """Its sender's, or one that was made here."""
        self.type = seen.type
        self.body = seen.body or b""
        self.topic = seen.topic
        self.content_type = seen.content_type
        if seen.request != "{}" and self.content_type is None:
            self.content_type = json.loads(seen.request).get("CONTENT_TYPE")
        self.properties: dict[str, Any] = {} if seen.properties is None else json.loads(seen.properties)
        self.priority = seen.priority
        self.sequence = seen.sequence
        """The identifier of the sequence that it came in from a SOAP client; ``None``: in none."""
        self.number = seen.number
        """Its place in that, or in its ordered group; ``None``: it is in none."""
        self.lane = seen.lane
        """The store's number of its ordered group; ``None``: it is in none."""
        self.received_at = seen.received_at / 1000
        self.deliveries = seen.deliveries
        """How often it was delivered, this time included."""
        self.failures = seen.failures
        self.leased_until = leased_until
        """When the lease ends; ``None``: not before its holder goes."""
        self.state = state
        self.reason = reason
        """Why it is held, or is a dead letter."""
        self.last_error = last_error
        self.lost = False
        """Whether its lease ended while the consumer of a subscription had it: it is delivered again."""

    def __repr__(self) -> str:
        return f"<Message {self.position} of {self.queue}>"

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered before."""
        return self.deliveries > 1

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)

    def ack(self, how: Answer = "ack") -> Settlement | None:
        """Acknowledge the message: it is taken. ``"cancel"``: ``release``; ``"expire"``: ``expire``."""
        if how == "cancel":
            return self.release()
        if how == "expire":
            return self.expire()
        if how != "ack":
            raise ConfigurationError(f"`how` is {how!r}; it is one of {', '.join(get_args(Answer))}.")
        return None if self._node is None else self._node.ack([self])[0]

    def release(self) -> Settlement | None:
        """Give the message back to its place, ready for any consumer."""
        return None if self._node is None else self._node.release([self])[0]

    def nack(self, error: object = "") -> Settlement | None:
        """Its consumer has failed: it is delivered again after a while, or is a dead letter after the last time."""
        return None if self._node is None else self._node.nack([self], error)[0]

    def reject(self, reason: object = "") -> Settlement | None:
        """Reject the message: it is a dead letter at once."""
        return None if self._node is None else self._node.reject([self], reason)[0]

    def expire(self) -> Settlement | None:
        """Expire the message, which is no longer wanted: it is a dead letter at once."""
        return None if self._node is None else self._node.expire([self])[0]

    def renew(self, lease: float | None = None) -> Settlement | None:
        """Its lease begins anew, for ``lease`` seconds, or as long as its queue says."""
        return None if self._node is None else self._node.renew([self], lease)[0]


def all_kept(messages: Sequence[Message], answers: list[Settlement]) -> list[Settlement]:
    """The answers about these messages. Raises ``LeaseLost`` and ``OutOfOrder``."""
    for message, answer in zip(messages, answers, strict=True):
        if answer is Settlement.LOST:
            raise LeaseLost(
                f"The lease of the message at position {message.position} of {message.queue} had ended: it is "
                "delivered again. Make what is done with it repeatable, or renew the lease in time."
            )
        if answer is Settlement.OUT_OF_ORDER:
            raise OutOfOrder(
                f"The message at position {message.position} of {message.queue} has the number {message.number} of its "
                "group, and one before it is not settled. Settle that first."
            )
    return answers
