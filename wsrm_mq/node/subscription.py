"""A subscription: an iterator over messages of queues, each acknowledged when the next one is asked for."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from itertools import zip_longest
from typing import Final, NamedTuple, Protocol

from wsrm_mq.errors import KeeperGone, SubscriptionClosed, WSRMError
from wsrm_mq.events.telling import Events
from wsrm_mq.node.backlog import Held
from wsrm_mq.node.batching import Batch, batch_size
from wsrm_mq.node.checks import check_seconds
from wsrm_mq.node.flow import Flow, Rest
from wsrm_mq.node.message import RETURNS, Action, Message, Settling
from wsrm_mq.queue import filters
from wsrm_mq.queue.settling import Settlement
from wsrm_mq.queue.subscribing import Granted, Terms
from wsrm_mq.store.filtering import Filter

CATCH_UP_SECONDS: Final = 1.0
"""While it catches up, a subscription that gets nothing asks so often whether it is through."""


class Acknowledging(NamedTuple):
    """How a consumer acknowledges: so many together, or when the oldest has waited for so many ms. ``is_parallel``: it
    handles several messages at a time."""

    batch: int | None
    timeout: int
    is_parallel: bool = False


class Supplies(Protocol):
    """The supply of a node's consumers. ``clock``: ms of the clock of leases."""

    @property
    def clock(self) -> Callable[[], int]: ...
    def ask(self, *flows: Flow) -> None: ...
    def acknowledged(self, flow: Flow, message: Message) -> None: ...


class Home(Protocol):
    """The node that a subscription is of: what it asks where its messages are."""

    @property
    def telling(self) -> Events: ...
    @property
    def supply(self) -> Supplies: ...
    @property
    def in_transaction(self) -> bool: ...
    def at_commit(self, told: Callable[[], object]) -> None: ...
    def settle_messages(
        self, messages: Sequence[Message], action: Action, *, reason: str | None = ..., seconds: float | None = ...
    ) -> list[Settlement]: ...
    def begun(self, names: Sequence[str], terms: Terms, acknowledging: Acknowledging) -> Subscription: ...
    def send(self, acknowledged: Sequence[Held]) -> Future[list[Settlement]]:
        """Have acknowledgements sent now."""

    def last_missed(self, flow: Flow) -> int:
        """The last position in the queues of a flow whose message is not settled."""

    def is_behind(self, flow: Flow, last: int) -> bool:
        """Whether a message is to come to a flow that lies at the position ``last`` or before it."""

    def replace_filter(self, flow: Flow, filter: str | None) -> bool:
        """Answers whether it is a durable subscription's, which collects what fits."""

    def end(self, flow: Flow, rest: Rest) -> None:
        """End a subscription: send what is acknowledged, give back the rest."""

    def forget(self, flow: Flow) -> None: ...


class Subscription(Settling):
    """Made by ``Node.subscribe``. ``for message in subscription`` acknowledges each message when the next is asked for,
    unless it was settled before, and ends when the subscription is closed meanwhile: ``closed_by`` says by whom. It
    settles its messages: acknowledgements are sent in batches, all else at once."""

    def __init__(self, node: Home, flow: Flow, terms: Terms, acknowledging: Acknowledging) -> None:
        self._node = node
        self.terms = terms
        self._acknowledging = acknowledging
        self._beside: tuple[Subscription, ...] = ()
        """Its parts for the express messages of its queues, which are in other stores."""
        self.events = node.telling
        self.flow = flow
        self._current: Message | None = None
        self._ahead: deque[Message] = deque()
        """The first that came after what was missed, and what was handed over to one who has gone."""
        self._held_up: list[Message] = []
        """Messages that are handed over once acknowledgements are sent."""
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
        return self.flow.lost + sum(one.flow.lost for one in self._beside)

    @property
    def closed_by(self) -> str | None:
        """The call that closed it, and its thread. ``None``: it is open, or an error has ended it."""
        return self.flow.closed_by

    @property
    def parts(self) -> tuple[Subscription, ...]:
        """This one, and those to the express messages of its queues."""
        return (self, *self._beside)

    @property
    def home(self) -> Home:
        """The node in whose store its messages are."""
        return self._node

    def join(self, place: Home, queue: str) -> None:
        """Get what ``place`` has of one of its queues too, unless it does already."""
        beside = tuple(one for one in self._beside if one.flow.is_open)
        if self.flow.is_open and not any((one.home, one.flow.names) == (place, (queue,)) for one in beside):
            beside += (place.begun([queue], self.terms, self._acknowledging),)
        if beside != self._beside:
            self._beside = beside
            for one in self.parts:
                one.flow.beside = tuple(other.flow for other in self.parts if other is not one)
            self.flow.wake()

    def __iter__(self) -> Subscription:
        self.flow.check_open()
        return self

    def __next__(self) -> Message:
        with suppress(SubscriptionClosed):
            if (message := self.next()) is not None:
                return message
        raise StopIteration

    def next(self, timeout: float | None = None) -> Message | None:
        """Acknowledge the message before, and wait for the next one, ``timeout`` seconds at most. ``None``: none has
        come. Raises ``SubscriptionClosed``."""
        last, self._current = self._current, None
        if last is not None:
            self.acknowledge(last)
        self._current = self.take(timeout)
        return self._current

    def take(self, timeout: float | None = None) -> Message | None:
        """Wait for a message, and acknowledge none. See ``next``."""
        if (ahead := self.ahead()) is not None:
            return ahead
        if timeout is not None:
            check_seconds("timeout", timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            woken = threading.Event()
            message = self.hand_over(woken.set)
            if message is not None and message.redelivered:
                with self.held_up(message):
                    for one in self.parts:
                        one.send_before()
                if not message.is_barrier and self.is_over(message):
                    continue
            if message is not None:
                return message
            self.ask()
            left = None if deadline is None else deadline - time.monotonic()
            is_woken = (left is None or left > 0) and woken.wait(left)
            self.unwait(woken.set)
            if not is_woken:
                return None

    def ahead(self) -> Message | None:
        """The message that ended ``catch_up``, once: it is the next, where its lease lasts."""
        while self._ahead:
            one = self._ahead.popleft()
            if self.flow.is_open and (one.is_barrier or any(part.flow.lasts(one) for part in self.parts)):
                return one
        return None

    @contextmanager
    def held_up(self, message: Message) -> Iterator[None]:
        """Meanwhile acknowledgements are sent that come before the message: a filter may settle it, or its lease end.
        Then ``is_over`` is true of it."""
        self._held_up.append(message)
        try:
            yield
        finally:
            self._held_up.remove(message)

    def keep_ahead(self, message: Message) -> None:
        """Keep a message for the next call: the one who took it has gone meanwhile."""
        self._ahead.append(message)

    def hand_over(self, waiter: Callable[[], None]) -> Message | None:
        """The next message, of those that are here and beside the one that comes first; ``None`` where there is none
        now. Then ``waiter`` is called once, when that has changed. Raises ``SubscriptionClosed``."""
        if not self._beside or not self.flow.is_open:
            return self.flow.take(waiter)
        flows = sorted((one.flow for one in self.parts if one.closed_by is None), key=lambda flow: flow.first)
        for flow in flows:
            message = flow.take()
            if message is not None:
                return message
        for flow in flows:
            message = flow.take(waiter)
            if message is not None:
                return message
        return None

    def unwait(self, waiter: Callable[[], None]) -> None:
        """``waiter`` waits no longer."""
        for one in self.parts:
            one.flow.unwait(waiter)

    def ask(self) -> None:
        """Look whether there is something to send or to lease."""
        for one in self.parts:
            one.home.supply.ask(one.flow)

    def catch_up(self) -> Iterator[Message]:
        """The messages that were there when this is called, each acknowledged when the next is asked for; they end when
        no more of them can come, and raise ``SubscriptionClosed`` where it is closed before. Then those that came
        meanwhile are next, with no gap and no repeat: ``for message in subscription`` goes on with them."""
        return self._up_to(self.last_missed())

    def _up_to(self, last: int) -> Iterator[Message]:
        while True:
            message = self.next(timeout=0)
            if (message is None or message.position > last) and not self.is_behind(last):
                self._current = None
                if message is not None:
                    self.keep_ahead(message)
                return
            message = message or self.next(timeout=CATCH_UP_SECONDS)
            if message is not None:
                yield message

    def last_missed(self) -> int:
        """The last position in its queues whose message is not settled."""
        return self._node.last_missed(self.flow)

    def is_behind(self, last: int) -> bool:
        """Whether a message is to come that lies at the position ``last`` or before it."""
        return self._node.is_behind(self.flow, last)

    def send_before(self) -> None:
        """Send what was acknowledged before a message that comes again: should its consumer die of it, as it perhaps
        did before, no other one is taken for the cause. And before one of a group that does not wait for its batch: it
        is not settled before those that lie before it."""
        acknowledged = self.flow.to_send(at_once=True)
        if acknowledged or self.flow.is_sending:  # behind those that are under way
            answers: list[Settlement] = []
            with suppress(KeeperGone):  # those that it kept are gone with it
                answers = self._node.send(acknowledged).result()
            self.flow.sent(acknowledged, answers.count(Settlement.LOST))
            self._node.supply.ask(self.flow)

    def send_last(self) -> list[Future[list[Settlement]]]:
        """See ``node.at_exit``. What is express is sent by its own place."""
        acknowledged = self.flow.to_send(at_once=True)
        return [self._node.send(acknowledged)] if acknowledged else []

    def acknowledge(self, message: Message) -> None:
        """Acknowledge a message, which is sent with its batch. Of one that was settled it is nothing."""
        for one in self.parts:
            one.home.supply.acknowledged(one.flow, message)

    def replace(self, filter: str | None) -> None:
        """From now on messages come that fit ``filter``; those that are leased stay so. A durable subscription collects
        what fits it from now on, and what it has stays."""
        self.flow.check_open()
        wanted = None if filter is None else filters.parse(filter)
        if not self._node.replace_filter(self.flow, filter):
            self.terms = self.terms._replace(filter=filter)
            self.flow.wanted = wanted
            self._node.supply.ask(self.flow)
        for one in self._beside:
            one.replace(filter)

    def close(self, *, by: str = "its `close`") -> None:
        """Send the acknowledgements that wait; give back what was not acknowledged, which is no failure. ``by``: what
        is told of it to those who wait."""
        if self._is_closed:
            return
        self._is_closed = True
        self._node.forget(self.flow)
        self.flow.finish(f"{by} in the thread {threading.current_thread().name}")
        rest = self.flow.end()
        for one in self._beside:
            with suppress(KeeperGone):
                one.close(by=by)
        self._node.end(self.flow, rest)

    def abandon(self, error: WSRMError) -> None:
        """This process is a fork of the one that consumes: raise ``error`` here, and leave all else to that one."""
        self._is_closed = True
        for one in self.parts:
            one.flow.abandon(error)

    # its messages, which are settled by it

    def settle_messages(
        self, messages: Sequence[Message], action: Action, *, reason: str | None = None, seconds: float | None = None
    ) -> list[Settlement]:
        """Acknowledgements wait for their batch; where there is none, or a lease seems to have ended, they are sent at
        once: then ``LeaseLost`` is raised for one that has."""
        if action == "ack":
            return [self._ack(one) for one in messages]
        if action != "renew":
            return self._at_once(messages, action, reason)
        answers = self._node.settle_messages(messages, action, seconds=self._lease if seconds is None else seconds)
        self.renewed(messages, seconds)
        return answers

    def _ack(self, message: Message) -> Settlement:
        if self.flow.is_acknowledged(message):
            return Settlement.ALREADY_SETTLED
        if self.flow.is_batching and self.flow.lasts(message) and not self._node.in_transaction:
            self.acknowledge(message)
            return Settlement.SETTLED
        return self._at_once([message], "ack")[0]

    def renewed(self, messages: Sequence[Message], lease: float | None = None) -> None:
        """The leases of these have begun anew in the store, for ``lease`` seconds or as long as its own."""
        seconds = self._lease if lease is None else lease
        if seconds is not None:
            for one in messages:
                one.leased_until = time.time() + seconds
                for part in self.parts:
                    part.flow.renewed(one, part.home.supply.clock() + round(seconds * 1000))

    def pause(self, *, is_on: bool) -> None:
        """Have it lease nothing and hand nothing over, or go on."""
        for part in self.parts:
            part.flow.is_paused = is_on
        if not is_on:
            self.flow.wake()
            self.ask()

    def is_over(self, message: Message) -> bool:
        """See ``Flow.is_over``."""
        return all([part.flow.is_over(message) for part in self.parts])

    def withdraw(self, leases: Mapping[int, int]) -> list[Message]:
        """See ``Flow.withdraw``."""
        near = [*self._ahead, *self._held_up]
        gone = [one for one in near if leases.get(one.position) == one.lease.fence]
        for part in self.parts:
            for one in gone:
                part.flow.settled(one)  # of one that does not last `ahead` answers nothing
        return gone + [one for part in self.parts for one in part.flow.withdraw(leases)]

    @property
    def _lease(self) -> float | None:
        lease = self.flow.granted.lease
        return None if lease is None else lease / 1000

    def _at_once(self, messages: Sequence[Message], action: Action, reason: str | None = None) -> list[Settlement]:
        if any(self.flow.is_acknowledged(one) for one in messages):
            return [Settlement.ALREADY_SETTLED] * len(messages)
        if any(one.number is not None for one in messages):
            self.send_before()
        gone = partial(self.gone, messages, is_returned=action in RETURNS)
        if self._node.in_transaction:
            answers = self._node.settle_messages(messages, action, reason=reason)
            self._node.at_commit(gone)
            return answers
        answers = []
        try:
            answers = self._node.settle_messages(messages, action, reason=reason)
            return answers
        finally:
            gone(answers=answers)

    def gone(self, messages: Sequence[Message], *, is_returned: bool, answers: Sequence[Settlement] = ()) -> None:
        """Its consumer has these no longer, whichever of its parts they are of. ``is_returned``: they have gone back,
        and their groups behind them, but for those that were settled before, as ``answers`` say."""
        for part in self.parts:
            for one, answer in zip_longest(messages, answers):
                part.flow.settled(one, is_returned=is_returned and answer is not Settlement.ALREADY_SETTLED)
        self.ask()


def flow_of(
    node: Home, names: Sequence[str], granted: Granted, wanted: Filter | None, acknowledging: Acknowledging
) -> Flow:
    """The flow of a subscription that was granted: it is empty."""
    batch = Batch(batch_size(acknowledging.batch, granted.backlog), acknowledging.timeout)
    is_parallel = acknowledging.is_parallel
    return Flow(names, granted, batch, wanted, node.supply.clock, node.telling, is_parallel=is_parallel)
