"""Consumers that wait for a message: they stand in line, those of the same queues and filter in one.

All lines together cost one look at their queues whenever something may be ready, however many stand there, and no
thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

from wsrm_mq.errors import WSRMError
from wsrm_mq.node import Node
from wsrm_mq.node.async_node import wakeup
from wsrm_mq.node.doorbell import POLL_SECONDS
from wsrm_mq.node.message import Message
from wsrm_mq.node.subscription import Subscription

WIDEST: Final = 8
"""The most of a line that are served at once: their leases share a commit."""
REST_SECONDS: Final = 0.002
"""The time between two looks."""


class Wanted(NamedTuple):
    """The terms that a consumer asks for: see ``Node.receive``. ``most``: tells how many messages it may have now.
    ``options``: the others."""

    queues: tuple[str, ...]
    filter: str | None
    most: Callable[[], int]
    options: Mapping[str, Any]


Answer = asyncio.Future[list[Message]]
Line = dict[Answer, Wanted]
"""Who waits, the first first."""


class Lines:
    """All who wait for messages of one node. Its methods are of one event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lines: dict[tuple[tuple[str, ...], str | None], Line] = {}
        self._serving: asyncio.Task[None] | None = None
        self._is_longer = False
        """A line began since the last look."""

    async def receive(self, wanted: Wanted, wait: float, gone: Sequence[asyncio.Future[None]]) -> list[Message]:
        """Lease what is ready, or what is within ``wait`` seconds; empty where nothing was, or one of ``gone`` was done
        before. Raises as ``Node.receive`` does."""
        key = wanted.queues, wanted.filter
        if (wait <= 0 or key not in self._lines) and (found := await self._leased(wanted)):
            return found
        if wait <= 0:
            return []
        answer: Answer = asyncio.get_running_loop().create_future()
        self._is_longer = self._is_longer or key not in self._lines
        line = self._lines.setdefault(key, {})
        line[answer] = wanted
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        ends: list[asyncio.Future[Any]] = [answer, *gone]
        await asyncio.wait(ends, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        line.pop(answer, None)
        if answer.done():
            return answer.result()
        answer.cancel()
        return []

    async def _leased(self, wanted: Wanted) -> list[Message]:
        return await asyncio.to_thread(
            self._node.receive, wanted.queues, wanted.most(), filter=wanted.filter, **wanted.options
        )

    async def _serve(self) -> None:
        """Serve the lines whenever something may be ready, as long as there are any."""
        try:
            while self._lines:
                woken, wake = wakeup()
                self._node.doorbell.when_rung(wake)
                self._is_longer = False
                ready = await asyncio.to_thread(self._ready, [*self._lines])
                await asyncio.gather(*(self._serve_line(self._lines[key]) for key in ready))
                for key in [key for key, line in self._lines.items() if not line]:
                    del self._lines[key]
                await asyncio.sleep(REST_SECONDS)
                if not self._is_longer:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(POLL_SECONDS):
                            await woken
        finally:
            self._serving = None

    def _ready(self, keys: list[tuple[tuple[str, ...], str | None]]) -> list[tuple[tuple[str, ...], str | None]]:
        """The lines that may be served."""
        return [key for key in keys if self._is_ready([*key[0]])]

    def _is_ready(self, names: list[str]) -> bool:
        try:
            return any(place.is_ready(kept) for place, kept in self._node.places(names))
        except WSRMError:
            return True  # the lease tells the consumer

    async def _serve_line(self, line: Line) -> None:
        width = 1
        while first := list(islice(line.items(), width)):
            served = await asyncio.gather(*(self._serve_one(answer, wanted) for answer, wanted in first))
            for answer, _wanted in first:
                if answer.done():
                    line.pop(answer, None)
            if not all(served):
                return
            width = min(2 * width, WIDEST)

    async def _serve_one(self, answer: Answer, wanted: Wanted) -> bool:
        """Lease for one of a line; answers whether that is served, or has left."""
        if answer.done():
            return True
        try:
            found = await self._leased(wanted)
        except WSRMError as error:
            if not answer.done():
                answer.set_exception(error)
            return True
        if answer.done():
            await give_back(self._node, found)
        elif found:
            answer.set_result(found)
        return answer.done()


async def taken(
    subscription: Subscription, most: int, wait: float, gone: Sequence[asyncio.Future[None]]
) -> list[Message]:
    """The messages that are here for a subscription, or that come within ``wait`` seconds, unless one of ``gone`` is
    done before."""
    deadline = time.monotonic() + wait
    while True:
        woken, wake = wakeup()
        found: list[Message] = []
        while len(found) < most and (message := subscription.hand_over(wake)) is not None:
            found.append(message)
        left = deadline - time.monotonic()
        try:
            if found or left <= 0 or any(one.done() for one in gone):
                return found
            subscription.ask()
            await asyncio.wait([woken, *gone], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            subscription.unwait(wake)


async def give_back(node: Node, messages: list[Message]) -> None:
    """Messages that no consumer has got go back, uncounted."""
    if messages:
        with suppress(WSRMError):  # their leases are over
            await asyncio.to_thread(node.hand_back, messages)
