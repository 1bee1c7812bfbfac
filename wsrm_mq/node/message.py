"""A message as a consumer has it: what it is, and what is done with it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal, get_args

from wsrm_mq.errors import ConfigurationError, LeaseLost, OutOfOrder
from wsrm_mq.events.inert import as_error, as_text
from wsrm_mq.queue import settling
from wsrm_mq.queue.leasing import Leased
from wsrm_mq.queue.policies import FOREVER
from wsrm_mq.queue.settling import Lease, Settlement
from wsrm_mq.store.transaction import Transaction as Unit

Answer = Literal["ack", "cancel", "expire"]
Action = Literal["ack", "release", "nack", "reject", "expire", "renew", "hand_back"]
RETURNS: Final = ("release", "nack", "hand_back")
"""Actions that put a message back, and all of its group behind it."""
Verb = Callable[[Unit, Sequence[Lease]], list[Settlement]]
_PLAIN: Final[dict[str, Verb]] = {
    "ack": settling.ack,
    "release": settling.release,
    "expire": settling.expire,
    "hand_back": settling.hand_back,
}


def verb_of(action: Action, reason: str | None, lease: int | None) -> Verb:
    """The verb of an action. ``reason``: the error of ``nack`` and ``reject``; ``lease``: the ms of ``renew``."""
    if action == "nack":
        return partial(settling.nack, error=reason or "")
    if action == "reject":
        return partial(settling.reject, error=reason or None)
    return partial(settling.renew, lease=lease) if action == "renew" else _PLAIN[action]


class Settling(ABC):
    """Settles messages that were received: a node, or a subscription."""

    @property
    def home(self) -> object:
        """The node whose store has the messages that it settles: itself."""
        return self

    @abstractmethod
    def settle_messages(
        self, messages: Sequence[Message], action: Action, *, reason: str | None = None, seconds: float | None = None
    ) -> list[Settlement]:
        """Settle messages in one way; answers what became of each. See ``ack``."""

    def ack(self, messages: Sequence[Message]) -> list[Settlement]:
        """The messages are taken; answers what became of each. Raises ``LeaseLost`` where the lease of one had ended:
        the others are settled all the same."""
        return self.settle_messages(messages, "ack")

    def release(self, messages: Sequence[Message]) -> list[Settlement]:
        """The messages go back to their places. See ``ack``."""
        return self.settle_messages(messages, "release")

    def nack(self, messages: Sequence[Message], error: object = "") -> list[Settlement]:
        """The consumer has failed with an error. See ``ack``."""
        return self.settle_messages(messages, "nack", reason=_text(error))

    def reject(self, messages: Sequence[Message], reason: object = "") -> list[Settlement]:
        """The messages are dead letters at once, with ``reason`` as their last error. See ``ack``."""
        return self.settle_messages(messages, "reject", reason=_text(reason) or None)

    def expire(self, messages: Sequence[Message]) -> list[Settlement]:
        """The messages are dead letters at once: they are no longer wanted. See ``ack``."""
        return self.settle_messages(messages, "expire")

    def renew(self, messages: Sequence[Message], lease: float | None = None) -> list[Settlement]:
        """The leases begin anew, for ``lease`` seconds, or as long as the queue says. See ``ack``."""
        return self.settle_messages(messages, "renew", seconds=lease)

    def hand_back(self, messages: Sequence[Message]) -> list[Settlement]:
        """Messages that no program has seen go back, and nothing is counted. See ``ack``."""
        return self.settle_messages(messages, "hand_back")


def _text(error: object) -> str:
    return as_error(error) if isinstance(error, BaseException) else as_text(error)


class Message:
    """A message that was received, or looked at. Times in seconds since the epoch.

    What is received is settled by one of ``ack``, ``release``, ``nack``, ``reject`` and ``expire``, each of which
    answers what became of it, and raises ``LeaseLost`` where its lease had ended. Of what was only looked at they do
    nothing.
    """

    def __init__(
        self,
        node: Settling | None,
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


def shown(until: int, offset: int) -> float | None:
    """The end of a lease in seconds since the epoch; ``None``: it lasts until its holder goes. ``until`` is
    of the clock of leases, which ``offset`` ms lead from to the time of day."""
    return None if until >= FOREVER else (until + offset) / 1000


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
