"""The node for programs of asyncio: the same API, awaited. What waits for a message is a future, and costs no thread;
what the store is asked takes one for a moment."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context, copy_context
from functools import update_wrapper
from inspect import isawaitable
from itertools import islice
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar, overload

from wsrm_mq.errors import KeeperGone, LeaseLost, SubscriptionClosed, WSRMError
from wsrm_mq.node.apart import DeadLetters, Journal
from wsrm_mq.node.consuming import Received
from wsrm_mq.node.express import WAIT_SECONDS
from wsrm_mq.node.handling import Handling
from wsrm_mq.node.message import Message
from wsrm_mq.node.node import Node
from wsrm_mq.node.subscribing import callable_of
from wsrm_mq.node.subscription import CATCH_UP_SECONDS, Subscription
from wsrm_mq.node.transactions import Transaction
from wsrm_mq.queue.policies import QueuePolicy
from wsrm_mq.queue.topics import Published

P = ParamSpec("P")
R = TypeVar("R")
_POLL_SECONDS: Final = 1.0
PAGE: Final = 100
"""Messages that are looked at again in one turn of a thread."""


def awaited(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The method of this name, of what an object of this module stands for, run by a thread and awaited."""
    name = method.__name__

    async def call(self: Any, /, *args: P.args, **options: P.kwargs) -> R:
        done: R = await asyncio.to_thread(getattr(self.inner, name), *args, **options)
        return done

    return update_wrapper(call, method)


async def owned(call: Callable[[], R], undo: Callable[[R], object]) -> R:
    """The result of ``call``, which a thread runs. Where the task that awaits it is cancelled meanwhile, ``undo``
    is called with it, by a thread too: it would be leased, or open, without a user."""
    lock, is_left, brought = threading.Lock(), False, list[R]()

    def undone(result: R) -> None:
        with suppress(WSRMError):  # the store is closed, and what was leased went back by that
            Context().run(undo, result)

    def run() -> R:
        result = call()
        with lock:
            if not is_left:
                brought.append(result)
        if is_left:
            undone(result)
        return result

    try:
        return await asyncio.get_running_loop().run_in_executor(None, copy_context().run, run)
    except asyncio.CancelledError:
        with lock:
            is_left = True
        for result in brought:
            threading.Thread(target=undone, args=[result]).start()
        raise


class AsyncMessage:
    """A ``Message`` whose settling is awaited; all else of it is as there."""

    def __init__(self, message: Message) -> None:
        self.inner = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    ack = awaited(Message.ack)
    release = awaited(Message.release)
    nack = awaited(Message.nack)
    reject = awaited(Message.reject)
    expire = awaited(Message.expire)
    renew = awaited(Message.renew)


class AsyncSubscription:
    """``async for message in subscription``: see ``Subscription``."""

    def __init__(self, subscription: Subscription) -> None:
        self.inner = subscription
        self._current: Message | None = None

    async def __aenter__(self) -> AsyncSubscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncSubscription:
        iter(self.inner)
        return self

    async def __anext__(self) -> AsyncMessage:
        last, self._current = self._current, None
        if last is not None:
            self.inner.acknowledge(last)
        with suppress(SubscriptionClosed):
            self._current = await self._take()
            return AsyncMessage(self._current)
        raise StopAsyncIteration

    @property
    def max_backlog(self) -> int:
        """How many messages it may have at a time, as it was granted."""
        return self.inner.max_backlog

    @property
    def closed_by(self) -> str | None:
        """See ``Subscription.closed_by``."""
        return self.inner.closed_by

    async def take(self) -> AsyncMessage:
        """Wait for a message, and acknowledge none. Raises ``SubscriptionClosed``."""
        return AsyncMessage(await self._take())

    async def _take(self) -> Message:
        while True:
            if (message := await self._taken(None)) is not None:
                return message

    async def _taken(self, timeout: float | None) -> Message | None:
        """See ``Subscription.take``. Cancelled, it leaves nothing with the one who has gone."""
        if (ahead := self.inner.ahead()) is not None:
            return ahead
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            woken, wake = wakeup()
            message = self.inner.hand_over(wake)
            if message is not None:
                if message.redelivered:
                    await self._send_before(message)
                    if not message.is_barrier and self.inner.is_over(message):
                        continue
                return message
            self.inner.ask()
            left = None if deadline is None else deadline - time.monotonic()
            try:
                async with asyncio.timeout(left):
                    await woken
            except TimeoutError:
                return None
            finally:
                self.inner.unwait(wake)

    async def _send_before(self, message: Message) -> None:
        """See ``Subscription``."""
        try:
            with self.inner.held_up(message):
                for one in self.inner.parts:
                    if one.flow.is_sending:
                        await asyncio.to_thread(one.send_before)
        except BaseException:
            self.inner.keep_ahead(message)
            raise

    async def catch_up(self) -> AsyncIterator[AsyncMessage]:
        """See ``Subscription.catch_up``."""
        last, self._current = self._current, None
        if last is not None:
            self.inner.acknowledge(last)
        missed = await asyncio.to_thread(self.inner.last_missed)
        while True:
            message = await self._taken(0)
            if message is None or message.position > missed:
                if message is not None:
                    self.inner.keep_ahead(message)
                if not await asyncio.to_thread(self.inner.is_behind, missed):
                    return
                message = await self._taken(CATCH_UP_SECONDS)
            if message is not None:
                self._current = message
                yield AsyncMessage(message)
                last, self._current = self._current, None
                self.inner.acknowledge(last)

    replace = awaited(Subscription.replace)
    close = awaited(Subscription.close)


class AsyncConsumer(Handling):
    """Made by ``AsyncNode.consume``; ``stop`` ends it, and so does ``async with``."""

    def __init__(
        self, subscription: AsyncSubscription, function: Callable[[AsyncMessage], Awaitable[object]], tasks: int
    ) -> None:
        super().__init__(subscription.inner, tasks)
        self.subscription = subscription
        self._function = function
        self._tasks = [asyncio.create_task(self._loop()) for _ in range(tasks)]

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Begin no other message, wait for those that were begun, and close the subscription. Raises what has ended a
        task of it. Awaited by its own function it waits for none, and the last task that is through closes the
        subscription."""
        self._finish("its consumer's `stop`")
        if asyncio.current_task() in self._tasks:
            return
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self.subscription.close()

    async def _loop(self) -> None:
        try:
            await self._handle_all()
        except BaseException as error:
            self._end(error, is_told=not isinstance(error, SubscriptionClosed | asyncio.CancelledError))
            raise
        finally:
            if self._is_last():
                await self.subscription.close()

    async def _handle_all(self) -> None:
        while not self._is_stopping:
            try:
                message = await self.subscription.take()
            except SubscriptionClosed:
                if self._is_stopping:
                    return
                raise
            try:
                done = self._function(message)
                if isawaitable(done):
                    await done
            except Exception as error:
                try:
                    await message.nack(error)
                except LeaseLost:  # it is delivered again in any case
                    self.subscription.inner.flow.late()
            else:
                self.subscription.inner.acknowledge(message.inner)


class AsyncDeadLetters:
    """See ``DeadLetters``."""

    def __init__(self, node: AsyncNode, letters: DeadLetters) -> None:
        self._node = node
        self.inner = letters
        self.name = letters.name

    peek = awaited(DeadLetters.peek)
    redrive = awaited(DeadLetters.redrive)
    edit_and_redrive = awaited(DeadLetters.edit_and_redrive)
    discard = awaited(DeadLetters.discard)

    async def receive(self, max: int = 1, **options: Any) -> list[AsyncMessage]:
        """See ``Node.receive``."""
        return await self._node.receive(self.name, max, **options)


class AsyncJournal:
    """See ``Journal``. It is received from by its ``name``, as any queue is."""

    def __init__(self, journal: Journal) -> None:
        self.inner = journal
        self.name = journal.name

    peek = awaited(Journal.peek)
    purge = awaited(Journal.purge)


class AsyncNode:
    """See ``wsrm_mq.connect_async``: what is not written out is as ``Node`` has it, and awaited."""

    def __init__(self, node: Node) -> None:
        self.inner = node

    async def __aenter__(self) -> AsyncNode:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    close = awaited(Node.close)
    keys = awaited(Node.keys)
    delete = awaited(Node.delete)
    purge = awaited(Node.purge)
    stats = awaited(Node.stats)
    peek = awaited(Node.peek)
    positions = awaited(Node.positions)
    offers = awaited(Node.offers)
    queues = awaited(Node.queues)
    get = awaited(Node.get)
    bind = awaited(Node.bind)
    unbind = awaited(Node.unbind)
    declare_topic = awaited(Node.declare_topic)
    events = awaited(Node.events)
    clients = awaited(Node.clients)
    subscribe_durable = awaited(Node.subscribe_durable)
    unsubscribe = awaited(Node.unsubscribe)
    ack_at = awaited(Node.ack_at)
    ack_many = awaited(Node.ack_many)
    received = awaited(Node.received)
    settle = awaited(Node.settle)
    recover_express = awaited(Node.recover_express)
    route = awaited(Node.route)
    unroute = awaited(Node.unroute)
    routes = awaited(Node.routes)

    async def declare(self, queue: str, **options: Any) -> QueuePolicy:
        """See ``Node.declare``."""
        return await asyncio.to_thread(self.inner.declare, queue, **options)

    async def put_many(self, queue: str, bodies: Iterable[object], **options: Any) -> list[int]:
        """See ``Node.put_many``."""
        return await asyncio.to_thread(self.inner.put_many, queue, bodies, **options)

    async def publish(self, topic: str, body: object, **options: Any) -> Published:
        """See ``Node.publish``."""
        return await asyncio.to_thread(self.inner.publish, topic, body, **options)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """See ``Node.transaction``. It is of the task that began it, and of the tasks that are begun in it."""
        begun = self.inner.begin()
        try:
            yield begun
            await asyncio.to_thread(self.inner.commit)
        finally:
            self.inner.rollback()  # a thread has ended it in a context of its own

    async def mirror(self, queue: str, *, of: str) -> Any:
        """See ``Node.mirror``."""
        return (await asyncio.to_thread(self.inner.mirror, queue, of=of)).awaited()

    async def dead(self, queue: str) -> AsyncDeadLetters:
        """See ``Node.dead``."""
        return AsyncDeadLetters(self, await asyncio.to_thread(self.inner.dead, queue))

    async def journal(self, queue: str | None = None) -> AsyncJournal:
        """See ``Node.journal``."""
        return AsyncJournal(await asyncio.to_thread(self.inner.journal, queue))

    async def replay(self, topic: str, **options: Any) -> AsyncIterator[Message]:
        """See ``Node.replay``."""
        found = await asyncio.to_thread(self.inner.replay, topic, **options)
        while page := await asyncio.to_thread(lambda: list(islice(found, PAGE))):
            for message in page:
                yield message

    @overload
    async def put(self, queue: str, body: object, *, wait: Literal[True] = True, **options: Any) -> int: ...
    @overload
    async def put(self, queue: str, body: object, *, wait: Literal[False], **options: Any) -> asyncio.Future[int]: ...
    async def put(self, queue: str, body: object, *, wait: bool = True, **options: Any) -> int | asyncio.Future[int]:
        """See ``Node.put``. Puts that are awaited together share a commit; where there is no room it waits for none.
        Without ``wait`` it answers a confirmation, which is awaited for the position."""
        if wait and self.inner.in_transaction:
            return await asyncio.to_thread(lambda: self.inner.put(queue, body, **options))
        if wait and options.get("gone") == "wait":
            return await self._put_when_kept(queue, body, **{**options, "gone": "raise"})
        confirmation = asyncio.wrap_future(self.inner.put(queue, body, wait=False, **options))
        return await confirmation if wait else confirmation

    async def _put_when_kept(self, queue: str, body: object, *, timeout: float | None = None, **options: Any) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return await asyncio.wrap_future(self.inner.put(queue, body, wait=False, **options))
            except KeeperGone:
                left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, deadline - time.monotonic())
                if left <= 0:
                    raise
            await asyncio.sleep(left)

    async def receive(
        self, queue: str | Sequence[str], max: int = 1, *, wait: float = 0.0, **options: Any
    ) -> list[AsyncMessage]:
        """See ``Node.receive``."""
        deadline = time.monotonic() + wait
        while True:
            woken, wake = wakeup()
            self.inner.doorbell.when_rung(wake)
            found: Received = await owned(lambda: self.inner.receive(queue, max, **options), self.inner.hand_back)
            left = deadline - time.monotonic()
            if found or left <= 0:
                return [AsyncMessage(one) for one in found]
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, _POLL_SECONDS)):
                    await woken

    async def subscribe(self, queue: str | Sequence[str] = (), **options: Any) -> AsyncSubscription:
        """See ``Node.subscribe``."""
        return AsyncSubscription(await owned(lambda: self.inner.subscribe(queue, **options), _close))

    async def consume(
        self,
        queue: str | Sequence[str] = (),
        function: Callable[[AsyncMessage], Awaitable[object]] | None = None,
        *,
        tasks: int = 1,
        **options: Any,
    ) -> AsyncConsumer:
        """Have ``function`` awaited with each message, in ``tasks`` tasks. See ``Node.consume``."""
        called = callable_of(function)
        granted = {"max_backlog": tasks, **options, "is_parallel": True}
        subscription = await owned(lambda: self.inner.subscribe(queue, **granted), _close)
        return AsyncConsumer(AsyncSubscription(subscription), called, tasks)


def _close(subscription: Subscription) -> None:
    subscription.close(by="the cancellation of the call that began it,")


def wakeup() -> tuple[asyncio.Future[None], Callable[[], None]]:
    """A future of the running loop, and a function that ends it, which any thread may call."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not future.done():
            future.set_result(None)

    def wake() -> None:
        with suppress(RuntimeError):  # its loop is closed
            loop.call_soon_threadsafe(end)

    return future, wake
