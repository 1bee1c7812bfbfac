"""The node for programs of asyncio: the same API, awaited. What waits for a message is a future, and costs no thread;
what the store is asked takes one for a moment."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from wsrm_mq.errors import LeaseLost
from wsrm_mq.node.message import Answer, Message
from wsrm_mq.node.node import Node, Received
from wsrm_mq.node.subscription import Subscription
from wsrm_mq.queue import settling
from wsrm_mq.queue.settling import Settlement

SAME: Final = frozenset(
    (
        *("declare", "keys", "delete", "purge", "stats", "put_many", "ack_at", "received", "settle", "peek", "get"),
        *("bind", "unbind", "publish", "subscribe_durable", "unsubscribe", "clients"),
    )
)
"""Methods of ``Node`` that are awaited, and else the same."""
_POLL_SECONDS: Final = 1.0


class AsyncMessage:
    """A ``Message`` whose settling is awaited; all else of it is as there."""

    def __init__(self, message: Message) -> None:
        self.message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self.message, name)

    async def ack(self, how: Answer = "ack") -> Settlement | None:
        return await asyncio.to_thread(self.message.ack, how)

    async def release(self) -> Settlement | None:
        return await asyncio.to_thread(self.message.release)

    async def nack(self, error: object = "") -> Settlement | None:
        return await asyncio.to_thread(self.message.nack, error)

    async def reject(self, reason: object = "") -> Settlement | None:
        return await asyncio.to_thread(self.message.reject, reason)

    async def expire(self) -> Settlement | None:
        return await asyncio.to_thread(self.message.expire)

    async def renew(self, lease: float | None = None) -> Settlement | None:
        return await asyncio.to_thread(self.message.renew, lease)


class AsyncSubscription:
    """``async for message in subscription``: see ``Subscription``."""

    def __init__(self, node: Node, subscription: Subscription) -> None:
        self._node = node
        self.subscription = subscription
        self._current: Message | None = None

    async def __aenter__(self) -> AsyncSubscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncSubscription:
        return self

    async def __anext__(self) -> AsyncMessage:
        last, self._current = self._current, None
        if last is not None:
            self.subscription.acknowledge(last)
        self._current = await self._take()
        if self._current is None:
            raise StopAsyncIteration
        return AsyncMessage(self._current)

    @property
    def max_backlog(self) -> int:
        """How many messages it may have at a time, as it was granted."""
        return self.subscription.max_backlog

    async def take(self) -> AsyncMessage | None:
        """Wait for a message, and acknowledge none; ``None``: the subscription is closed."""
        message = await self._take()
        return None if message is None else AsyncMessage(message)

    async def _take(self) -> Message | None:
        flow = self.subscription.flow
        while True:
            woken, wake = _awaited()
            message = flow.take(wake)
            if message is not None and message.redelivered:
                await self._send_before()
            if message is not None or not flow.is_open:
                return message
            self._node.supply.ask()
            await woken

    async def _send_before(self) -> None:
        """See ``Subscription``."""
        flow = self.subscription.flow
        acknowledged = flow.to_send(at_once=True)
        if acknowledged:
            leases = [one.message.lease for one in acknowledged]
            answers = await asyncio.wrap_future(self._node.submit(lambda tx: settling.ack(tx, leases), keep=True))
            flow.sent(acknowledged, answers.count(Settlement.LOST))
            self._node.supply.ask()

    async def replace(self, filter: str | None) -> None:
        """See ``Subscription.replace``."""
        await asyncio.to_thread(self.subscription.replace, filter)

    async def close(self) -> None:
        """See ``Subscription.close``."""
        await asyncio.to_thread(self.subscription.close)


class AsyncConsumer:
    """Made by ``AsyncNode.consume``; ``stop`` ends it, and so does ``async with``."""

    def __init__(
        self, subscription: AsyncSubscription, function: Callable[[AsyncMessage], Awaitable[object]], tasks: int
    ) -> None:
        self.subscription = subscription
        self._function = function
        self._is_stopping = False
        self._tasks = [asyncio.create_task(self._loop()) for _ in range(tasks)]

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Begin no other message, wait for those that were begun, and close the subscription. Raises what has ended a
        task of it."""
        self._is_stopping = True
        self.subscription.subscription.flow.finish()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self.subscription.close()

    async def _loop(self) -> None:
        try:
            await self._handle_all()
        except Exception as error:
            inner = self.subscription.subscription
            inner.events.tell("consumer.ended", queue=", ".join(inner.flow.names), error=error)
            raise

    async def _handle_all(self) -> None:
        while not self._is_stopping and (message := await self.subscription.take()) is not None:
            try:
                await self._function(message)
            except Exception as error:
                with suppress(LeaseLost):  # it is delivered again in any case
                    await message.nack(error)
            else:
                self.subscription.subscription.acknowledge(message.message)


class AsyncNode:
    """See ``wsrm_mq.connect_async``. Transactions are of a thread, so there is none here: ``put_many`` is one."""

    def __init__(self, node: Node) -> None:
        self.node = node

    async def __aenter__(self) -> AsyncNode:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """See ``Node.close``."""
        await asyncio.to_thread(self.node.close)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name not in SAME:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        method = getattr(self.node, name)

        async def call(*args: Any, **options: Any) -> Any:
            return await asyncio.to_thread(method, *args, **options)

        return call

    async def put(self, queue: str, body: object, **options: Any) -> int:
        """See ``Node.put``. Puts that are awaited together share a commit; where there is no room it waits for none."""
        return await asyncio.wrap_future(self.node.put(queue, body, wait=False, **options))

    async def receive(
        self, queue: str | Sequence[str], max: int = 1, *, wait: float = 0.0, **options: Any
    ) -> list[AsyncMessage]:
        """See ``Node.receive``."""
        deadline = time.monotonic() + wait
        while True:
            woken, wake = _awaited()
            self.node.doorbell.when_rung(wake)
            found: Received = await asyncio.to_thread(self.node.receive, queue, max, **options)
            left = deadline - time.monotonic()
            if found or left <= 0:
                return [AsyncMessage(one) for one in found]
            with suppress(TimeoutError):
                await asyncio.wait_for(woken, min(left, _POLL_SECONDS))

    async def subscribe(self, queue: str | Sequence[str], **options: Any) -> AsyncSubscription:
        """See ``Node.subscribe``."""
        return AsyncSubscription(self.node, await asyncio.to_thread(self.node.subscribe, queue, **options))

    async def consume(
        self,
        queue: str | Sequence[str],
        function: Callable[[AsyncMessage], Awaitable[object]],
        *,
        tasks: int = 1,
        **options: Any,
    ) -> AsyncConsumer:
        """Have ``function`` awaited with each message, in ``tasks`` tasks. See ``Node.consume``."""
        granted = {"max_backlog": tasks, **options, "is_parallel": True}
        subscription = await asyncio.to_thread(self.node.subscribe, queue, **granted)
        return AsyncConsumer(AsyncSubscription(self.node, subscription), function, tasks)


async def connect_async(
    where: str | os.PathLike[str], name: str | None = None, *, auto_create: bool = True
) -> AsyncNode:
    """``connect`` for a program of asyncio."""
    return AsyncNode(await asyncio.to_thread(lambda: Node(where, name, auto_create=auto_create)))


def _awaited() -> tuple[asyncio.Future[None], Callable[[], None]]:
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
