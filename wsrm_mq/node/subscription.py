"""A subscription: an iterator over messages of queues, each acknowledged when the next one is asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.node.batching import Batch, batch_size
from wsrm_mq.node.flow import Flow, Held
from wsrm_mq.node.message import Message
from wsrm_mq.queue import declaring, filters, settling, subscribing
from wsrm_mq.queue.settling import Settlement
from wsrm_mq.queue.subscribing import Granted, Terms
from wsrm_mq.store.transaction import Transaction as Unit

if TYPE_CHECKING:
    from wsrm_mq.node.node import Node


class Acknowledging(NamedTuple):
    """How a consumer acknowledges: so many together, or when the oldest has waited for so many ms. ``is_parallel``: it
    handles several messages at a time."""

    batch: int | None
    timeout: int
    is_parallel: bool = False


class Subscription:
    """Made by ``Node.subscribe``. ``for message in subscription`` acknowledges each message when the next is asked for,
    unless it was settled before, and ends when the subscription is closed by another thread. It settles its messages:
    acknowledgements are sent in batches, all else at once."""

    def __init__(self, node: Node, flow: Flow) -> None:
        self._node = node
        self.events = node.events
        self.flow = flow
        self._current: Message | None = None
        self._is_closed = False

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def key(self) -> int:
        """The store's number of it."""
        return self.flow.granted.key

    @property
    def max_backlog(self) -> int:
        """How many messages it may have at a time, as it was granted."""
        return self.flow.granted.backlog

    @property
    def lost(self) -> int:
        """How many acknowledgements came when their leases had ended: those messages are delivered again."""
        return self.flow.lost

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> Message:
        message = self.next()
        if message is None:
            raise StopIteration
        return message

    def next(self, timeout: float | None = None) -> Message | None:
        """Acknowledge the message before, and wait for the next one, ``timeout`` seconds at most. ``None``: none has
        come, or the subscription is closed."""
        last, self._current = self._current, None
        if last is not None:
            self.acknowledge(last)
        self._current = self.take(timeout)
        return self._current

    def take(self, timeout: float | None = None) -> Message | None:
        """Wait for a message, and acknowledge none."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            woken = threading.Event()
            message = self.flow.take(woken.set)
            if message is not None and message.redelivered:
                self._send_before()
            if message is not None or not self.flow.is_open:
                return message
            self._node.supply.ask()
            left = None if deadline is None else deadline - time.monotonic()
            if (left is not None and left <= 0) or not woken.wait(left):
                return None

    def _send_before(self) -> None:
        """Send what was acknowledged before a message that comes again: should its consumer die of it, as it perhaps
        did before, no other one is taken for the cause."""
        acknowledged = self.flow.to_send(at_once=True)
        if acknowledged:
            leases = [one.message.lease for one in acknowledged]
            answers = self._node.call(lambda tx: settling.ack(tx, leases), keep=True)
            self.flow.sent(acknowledged, answers.count(Settlement.LOST))
            self._node.supply.ask()

    def acknowledge(self, message: Message) -> None:
        """It is taken: that is sent with its batch. Of one that was settled it is nothing."""
        self._node.supply.acknowledged(self.flow, message)

    def replace(self, filter: str | None) -> None:
        """From now on messages come that fit ``filter``; those that are leased stay so."""
        wanted = None if filter is None else filters.parse(filter)
        self._node.call(lambda tx: subscribing.replace_filter(tx, self.key, filter))
        self.flow.wanted = wanted
        self._node.supply.ask()

    def close(self) -> None:
        """Send the acknowledgements that wait; give back, uncounted, what was not acknowledged."""
        self._node.forget(self.flow)
        acknowledged, left = self.flow.end()
        if not self._is_closed:
            self._is_closed = True
            self._node.call(lambda tx: self._end(tx, acknowledged, left), wakes=True, keep=True)

    def _end(self, tx: Unit, acknowledged: list[Held], left: list[Held]) -> None:
        settling.ack(tx, [one.message.lease for one in acknowledged])
        settling.hand_back(tx, [one.message.lease for one in left])
        rows = [row for name in self.flow.names if (row := tx.queue_row(name)) is not None]
        subscribing.unsubscribe(tx, [declaring.Declared(*row) for row in rows], self.flow.granted)

    # its messages, which are settled by it

    def ack(self, messages: Sequence[Message]) -> list[Settlement]:
        """The messages are taken. Their acknowledgements wait for their batch; where there is none, or a lease seems to
        have ended, they are sent at once: then ``LeaseLost`` is raised for one that has."""
        return [self._ack(one) for one in messages]

    def _ack(self, message: Message) -> Settlement:
        if self.flow.is_acknowledged(message):
            return Settlement.ALREADY_SETTLED
        if self.flow.is_batching and self.flow.lasts(message) and not self._node.in_transaction:
            self.acknowledge(message)
            return Settlement.SETTLED
        return self._at_once(self._node.ack, [message])[0]

    def release(self, messages: Sequence[Message]) -> list[Settlement]:
        return self._at_once(self._node.release, messages, is_returned=True)

    def nack(self, messages: Sequence[Message], error: object = "") -> list[Settlement]:
        return self._at_once(lambda these: self._node.nack(these, error), messages, is_returned=True)

    def reject(self, messages: Sequence[Message], reason: object = "") -> list[Settlement]:
        return self._at_once(lambda these: self._node.reject(these, reason), messages)

    def expire(self, messages: Sequence[Message]) -> list[Settlement]:
        return self._at_once(self._node.expire, messages)

    def renew(self, messages: Sequence[Message], lease: float | None = None) -> list[Settlement]:
        answers = self._node.renew(messages, self._lease if lease is None else lease)
        seconds = self._lease if lease is None else lease
        for one in messages:
            if seconds is not None:
                self.flow.renewed(one, self._node.supply.clock() + round(seconds * 1000))
                one.leased_until = time.time() + seconds
        return answers

    @property
    def _lease(self) -> float | None:
        lease = self.flow.granted.lease
        return None if lease is None else lease / 1000

    def _at_once(
        self,
        verb: Callable[[Sequence[Message]], list[Settlement]],
        messages: Sequence[Message],
        *,
        is_returned: bool = False,
    ) -> list[Settlement]:
        if any(self.flow.is_acknowledged(one) for one in messages):
            return [Settlement.ALREADY_SETTLED] * len(messages)
        if self._node.in_transaction:
            answers = verb(messages)
            self._node.at_commit(lambda: self._gone(messages, is_returned=is_returned))
            return answers
        try:
            return verb(messages)
        finally:
            self._gone(messages, is_returned=is_returned)

    def _gone(self, messages: Sequence[Message], *, is_returned: bool) -> None:
        for one in messages:
            self.flow.settled(one, is_returned=is_returned)
        self._node.supply.ask()


def begin(
    node: Node,
    names: Sequence[str],
    terms: Terms,
    acknowledging: Acknowledging,
    *,
    auto_create: bool,
) -> Flow:
    """Begin a subscription in the store; answers its flow, which is empty. Raises ``ConfigurationError`` for terms that
    cannot be, and ``QueueBusy``."""
    if terms.max_backlog < 1:
        raise ConfigurationError(f"`max_backlog` is {terms.max_backlog}; it is at least 1.")
    if not names:
        raise ConfigurationError("A subscription has at least one queue.")
    wanted = None if terms.filter is None else filters.parse(terms.filter)

    def verb(tx: Unit) -> Granted:
        found = [declaring.found(tx, one, auto_create=auto_create) for one in names]
        return subscribing.subscribe(tx, found, terms)

    granted = node.call(verb)
    batch: Batch[Held] = Batch(batch_size(acknowledging.batch, granted.backlog), acknowledging.timeout)
    return Flow(names, granted, batch, wanted, node.supply.clock, node.events, is_parallel=acknowledging.is_parallel)
