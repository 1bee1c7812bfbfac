"""One message on its way to the application, and the outcome of its delivery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from wsrm_mq.queue.arrival import Body, Receipt
from wsrm_mq.queue.diagnosis import UNKNOWN, Diagnosis
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.sequence.ranges import AckRange
from wsrm_mq.store.channels import Channel
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.write_queue import Verb

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction


class Key(NamedTuple):
    """The key by which the application knows a message: identifier and number that it came under, and the plan that
    makes it a new one."""

    identifier: str
    number: int
    replay_id: str = ""


class Delivery(NamedTuple):
    """All that a call of the application needs. ``environ`` is the stored part of the request, as JSON; ``rm``,
    ``soap`` and ``addressing`` are labels of versions."""

    position: int
    number: int
    identifier: str
    partner: str | None
    rm: str
    soap: str
    addressing: str
    action: str | None
    message_id: str | None
    environ: str
    principal: str | None
    connection: str | None
    body: Body
    wants_reply: bool
    attempt: int = 1
    """1 for the first try."""
    redelivery: bool = False
    """The application may have seen it before."""
    late: bool = False
    """Out of order: an operator had forced the sequence past it before it came."""
    at_most_once: bool = False
    """Settled before the call."""
    is_waited_for: bool = False
    """A request waits for the settlement, or may wait for it by now."""
    is_replay: bool = False
    """It was read back from the store: the second loop delivers it."""
    channel: Channel | None = None
    """The channel in which it is sent; ``None``: it is delivered to the application."""
    outbound: OutboundRecord | None = None
    """The sequence of requests that it is about, as its run has found it."""
    received_at: int = 0
    """The time when a message to be sent was made."""
    source: Key | None = None
    """The key that it came under, where an operator has it delivered again: its sequence here is one of replays."""

    @property
    def key(self) -> Key:
        return self.source or Key(self.identifier, self.number)


@dataclass(eq=False, slots=True)
class Heard:
    """The changes that the answer to a sent message makes."""

    verb: Verb[Receipt]
    committed: Callable[[Receipt], object]
    """To be called with its result where the commit is told."""
    size: int
    """Bytes that it writes, about."""
    is_plain: bool
    """The next message of the lane may leave before it is committed: it is not about that one, nor is it the last word
    on the message that it answers, which leaves again otherwise."""
    ranges: frozenset[tuple[str, AckRange]]
    """The acknowledged ranges, by identifier."""
    later: Heard | None = None
    """A later answer that acknowledges the same is about to be committed too: it is taken in the place of this one."""
    taken: tuple[Transaction, frozenset[int]] | None = None
    """The transaction that has taken it, and the positions of the messages that it has settled."""

    def follow(self, before: Heard | None) -> None:
        """Come after another one in the same lane. What says more than it may be refused in whole."""
        if before is not None and before.is_plain and self.is_plain:
            is_said_again = all(self._has(identifier, *range_) for identifier, range_ in before.ranges)
            before.later = self if is_said_again else None

    def take(self, tx: Transaction) -> Receipt:
        """Take it, or the last one in its place, once in a transaction: so its messages are written once."""
        last = self
        while last.later is not None:
            last = last.later
        receipt = Receipt()
        if last.taken is None or last.taken[0] is not tx:
            receipt = last.verb(tx)
            last.taken = tx, frozenset(receipt.acknowledged)
        self.taken = last.taken
        return receipt

    def has_settled(self, position: int) -> bool:
        return self.taken is not None and position in self.taken[1]

    def _has(self, identifier: str, lower: int, upper: int) -> bool:
        return any(one == identifier and low <= lower and upper <= up for one, (low, up) in self.ranges)


@dataclass(slots=True)
class Outcome:
    """The outcome of a delivery. ``error`` says why the application has not taken the message; ``None``: it has.
    ``remark`` is the answer that it gave to a one-way message, where it took the message and answered a fault or
    content: the sender does not read that."""

    reply: ServiceReply | None = None
    error: str | None = None
    remark: str | None = None
    diagnosis: Diagnosis = UNKNOWN
    """The diagnosis of the error, or of the fault that the remark is about."""
    is_known: bool = False
    """The application says that it had done it before."""
    is_copied: bool = False
    """The message is published, now that the application has taken it."""
    is_sent: bool = False
    """It has left, and is settled only by its acknowledgement."""
    is_again: bool = False
    """It has left before."""
    left_alone: float | None = None
    """With an error: nothing was called or sent, and nothing is to be for so many seconds. That counts as no
    attempt."""
    seconds: float | None = None
    """How long the call took; ``None``: it was not called yet."""
    heard: Heard | None = None
    """It is committed with the outcome, which does not stop it."""
    settling: Callable[[BaseException | None], object] | None = None
    """Ends a span, once the outcome is stored or could not be; see ``tracing``."""


Call = Callable[[Delivery], Outcome]
"""Calls the application. Raises nothing: a raising application is an ``Outcome`` with an error."""
