"""A queue of another node, mirrored: that node grants the leases, and a copy here shows what was last known of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from wsrm_mq.client.async_node import AsyncRemoteNode
from wsrm_mq.client.forms import Answer, Arrived, arrived, asking, messages, read
from wsrm_mq.errors import NotAllowed, NotAuthenticated, NotFound, ServerUnavailable, WSRMError
from wsrm_mq.files import lock_at_once
from wsrm_mq.node import Node
from wsrm_mq.node.async_node import AsyncConsumer, AsyncMessage, AsyncSubscription, awaited
from wsrm_mq.node.consuming import Received
from wsrm_mq.node.handling import Consumer
from wsrm_mq.node.message import Message
from wsrm_mq.node.neighbours import Away, Seen
from wsrm_mq.node.subscription import Subscription

if TYPE_CHECKING:
    from wsrm_mq.client.neighbours import Far

MOST: Final = 10_000
"""Messages of a copy: the first ones of the queue."""
PAGE: Final = 20
"""Messages that are fetched for a copy by one request."""
_PAUSE: Final = 1.0
"""Seconds from one comparison of a copy to the next; twice what the last one took, where that is more."""
_LONGEST_PAUSE: Final = 10.0
_TOLD: Final = "wsrm-mq.told"
"""The property of a message in a copy that has what its node told of it."""


class Copy:
    """The messages of a queue as they were last known, in a queue of a store of copies. Of the processes of a node that
    have the same one, the one that holds its lock writes."""

    def __init__(self, shelf: Node, of: str, queue: str) -> None:
        self._shelf = shelf
        self._name = sha256(f"{of}\n{queue}".encode()).hexdigest()
        self._stamp = Path(shelf.store.path).with_name(f"{self._name}.seen")
        self._lock = self._stamp.with_suffix(".lock").open("wb")
        shelf.declare(self._name, durability="relaxed")
        self._places: dict[int, int] | None = None
        """The position of a message here, by that which it has there; ``None``: another process writes."""

    def close(self) -> None:
        self._lock.close()

    @property
    def as_of(self) -> float | None:
        """When it was as the queue was; ``None``: never. Seconds since the epoch."""
        with suppress(FileNotFoundError):
            return self._stamp.stat().st_mtime
        return None

    def missing(self, live: Sequence[int]) -> list[int]:
        """The positions, of those that are live, that it has not; none where another process writes it."""
        if self._places is None and lock_at_once(self._lock.fileno()):
            self._places = {one.position: place for one, place in self._all(None)}
        return [] if self._places is None else [one for one in live if one not in self._places]

    def add(self, found: Sequence[Arrived]) -> None:
        assert self._places is not None
        under_way = [(one.message.position, self._put(one)) for one in found]
        self._places.update((position, done.result()) for position, done in under_way)

    def _put(self, one: Arrived) -> Future[int]:
        message = one.message
        told = msgspec.structs.replace(one.told, state="unknown", lease=None, is_barrier=False)
        return self._shelf.put(
            self._name,
            message.body,
            wait=False,
            type=message.type,
            priority=message.priority,
            properties={**message.properties, _TOLD: msgspec.json.encode(told).decode()},
        )

    def compared(self, live: set[int], at: float) -> None:
        """Drop what was not ``live`` at that time: the copy has all that was."""
        if self._places is not None:
            self.drop(self._places.keys() - live)
            self._stamp.touch()
            os.utime(self._stamp, (at, at))

    def drop(self, gone: Collection[int]) -> None:
        if self._places is not None:
            self._shelf.ack_many(self._name, [self._places.pop(one) for one in gone if one in self._places])

    def clear(self) -> None:
        if self._places is not None:
            self._shelf.purge(self._name)
            self._places = {}
            self._stamp.unlink(missing_ok=True)

    def peek(self, after: int, limit: int, filter: str | None) -> list[Message]:
        behind = (one for one, _place in self._all(filter) if one.position > after)
        return sorted(behind, key=lambda one: one.position)[:limit]

    def _all(self, filter: str | None) -> list[tuple[Message, int]]:
        kept = self._shelf.peek(self._name, limit=MOST, filter=filter)
        return [(arrived(str(one.properties[_TOLD]), one.body, None).message, one.position) for one in kept]


class Mirror:
    """See ``Node.mirror``. What is received is of its node: it is leased there, and its ``ack`` settles it there."""

    def __init__(self, far: Far, queue: str, copy: Copy) -> None:
        self.queue = queue
        self.far = far
        self._copy = copy
        try:
            far.line.wait(self._begin())
        except WSRMError:
            copy.close()
            raise

    def close(self) -> None:
        """Its line is closed: what was settled over that goes from the copy too."""
        self._copy.drop(self.far.settled)
        self._copy.close()

    @property
    def of(self) -> str:
        """The name of its node."""
        return self.far.called

    @property
    def away(self) -> Away | None:
        """Since when its node does not answer, and why; ``None``: it does."""
        return self.far.away

    @property
    def as_of(self) -> float | None:
        """When the copy here was last compared with the queue: seconds since the epoch."""
        return self._copy.as_of

    def peek(self, *, after: int = 0, limit: int = 50, filter: str | None = None) -> Seen:
        """See ``Node.peek``. ``away`` of the answer: why it is not what is there now, but what was ``as_of`` then: the
        first 10,000 messages, whose ``state`` is unknown."""
        if self.away is None:
            now = time.time()
            try:
                return Seen(self.far.peek(self.queue, after=after, limit=limit, filter=filter), now)
            except WSRMError:
                if self.away is None:
                    raise
        away, as_of = self.away, self.as_of
        if as_of is None or away is None:
            raise ServerUnavailable(f"{self.of} does not answer, and nothing of {self.queue} is known here.")
        left = [one for one in self._copy.peek(after, limit, filter) if one.position not in self.far.settled]
        return Seen(left, as_of, away)

    def receive(self, max: int = 1, **options: Any) -> Received:
        """See ``Node.receive``."""
        return self.far.receive(self.queue, max, **options)

    def subscribe(self, **options: Any) -> Subscription:
        """See ``Node.subscribe``."""
        return self.far.subscribe(self.queue, **options)

    def consume(self, function: Callable[[Message], object], **options: Any) -> Consumer:
        """See ``Node.consume``."""
        return self.far.consume(self.queue, function, **options)

    def awaited(self) -> AsyncMirror:
        """The same for programs of asyncio."""
        return AsyncMirror(self)

    # the copy

    async def _begin(self) -> None:
        try:
            await self._compare()
        except WSRMError:
            if self.away is None or self.as_of is None:
                raise
        self.far.line.begin(self._follow())

    async def _follow(self) -> None:
        while True:
            began = time.monotonic()
            with suppress(WSRMError):  # who looks hears of it
                await self._compare()
            await asyncio.sleep(min(_LONGEST_PAUSE, max(_PAUSE, 2 * (time.monotonic() - began))))

    async def _compare(self) -> None:
        """Fetch what is new in the queue, and drop from the copy what has gone there; where its node refuses, all."""
        now, settled = time.time(), set(self.far.settled)
        try:
            live = read(await self._asked("positions", limit=MOST), dict[str, list[int]])["positions"]
            missing = await asyncio.to_thread(self._copy.missing, live)
            while missing:
                page = messages(await self._asked("messages", after=missing[0] - 1, limit=PAGE), None)
                wanted = set(missing)
                await asyncio.to_thread(self._copy.add, [one for one in page if one.message.position in wanted])
                last = page[-1].message.position if page else missing[-1]
                missing = [one for one in missing if one > last]
        except (NotAllowed, NotAuthenticated, NotFound):
            await asyncio.to_thread(self._copy.clear)
            raise
        await asyncio.to_thread(self._copy.compared, set(live), now)
        self.far.settled -= settled

    async def _asked(self, what: str, **options: object) -> Answer:
        return await self.far.asked(asking("GET", "queues", self.queue, what, **options))


class AsyncMirror:
    """See ``Mirror``: what waits for a message costs no thread."""

    def __init__(self, mirror: Mirror) -> None:
        self.inner = mirror
        self._far = AsyncRemoteNode(mirror.far)

    peek = awaited(Mirror.peek)

    async def receive(self, max: int = 1, **options: Any) -> list[AsyncMessage]:
        """See ``Node.receive``."""
        return await self._far.receive(self.inner.queue, max, **options)

    async def subscribe(self, **options: Any) -> AsyncSubscription:
        """See ``Node.subscribe``."""
        return await self._far.subscribe(self.inner.queue, **options)

    async def consume(self, function: Callable[[AsyncMessage], Awaitable[object]], **options: Any) -> AsyncConsumer:
        """See ``AsyncNode.consume``."""
        return await self._far.consume(self.inner.queue, function, **options)
