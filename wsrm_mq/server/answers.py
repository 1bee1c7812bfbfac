"""The answers of a session that have messages, known by the numbers that its client gives to its requests: of one that
was lost on its way the client tells, and what was in it goes back before anything that comes later is leased. Barriers
are not leased: those of the last answer to each consumer are kept, to be sent once more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from wsrm_mq.node.message import Message

REMEMBERED: Final = 1_000


class Running(NamedTuple):
    """A request that leases. ``lost``: nothing waits for its answer any more; ``ended``: it leases nothing more."""

    lost: asyncio.Future[None]
    ended: asyncio.Future[None]


Consumer = int | str
"""The key of a subscription, or the queue that is received from without one."""


class Answers:
    def __init__(self) -> None:
        self._running: dict[int, Running] = {}
        self._lost: dict[int, None] = {}
        """The last that were told as lost: a request may come after what tells that."""
        self._seen: dict[int, None] = {}
        """The last requests that had a number."""
        self._barriers: dict[Consumer, tuple[int | None, list[Message]]] = {}
        """The barriers of the last answer to a consumer, with the number of its request."""
        self._owed: dict[Consumer, list[Message]] = {}

    @contextmanager
    def running(self, request: int | None) -> Iterator[list[asyncio.Future[None]]]:
        """A request leases; ``None``: it has no number. Gives what is done when its answer is lost."""
        if request is None:
            yield []
            return
        _note(self._seen, [request])
        loop = asyncio.get_running_loop()
        one = self._running[request] = Running(loop.create_future(), loop.create_future())
        if request in self._lost:
            one.lost.set_result(None)
        try:
            yield [one.lost]
        finally:
            if self._running.get(request) is one:
                del self._running[request]
            one.ended.set_result(None)

    def has_seen(self, request: int) -> bool:
        """Whether a request of this number has come."""
        return request in self._seen

    async def lose(self, requests: Collection[int], *, for_good: bool) -> None:
        """The answers to these are lost: wait until none of them leases any more. ``for_good``: nor does any that comes
        later."""
        if for_good:
            _note(self._lost, requests)
        running = [one for request in requests if (one := self._running.get(request)) is not None]
        for one in running:
            if not one.lost.done():
                one.lost.set_result(None)
        if running:
            await asyncio.wait([one.ended for one in running])

    def sent(self, request: int | None, consumers: Sequence[Consumer], messages: Sequence[Message]) -> None:
        """Messages leave with the answer to a request of these consumers: the answer before has come."""
        for consumer in consumers:
            self._barriers.pop(consumer, None)
            if mine := [
                one for one in messages if one.is_barrier and (isinstance(consumer, int) or one.queue == consumer)
            ]:
                self._barriers[consumer] = request, mine

    def barriers_of(self, requests: Collection[int]) -> list[Message]:
        return [one for request, barriers in self._barriers.values() if request in requests for one in barriers]

    def owe(self, messages: Collection[Message]) -> None:
        """The barriers among these have not come: they are the next that their consumers get."""
        for consumer, (_request, barriers) in self._barriers.items():
            if not_come := [one for one in barriers if one in messages]:
                self._owed[consumer] = not_come

    def owed(self, consumers: Sequence[Consumer], most: int) -> list[Message]:
        """Up to ``most`` barriers that are owed to these consumers, which are theirs now."""
        found: list[Message] = []
        for consumer in consumers:
            barriers = self._owed.pop(consumer, [])
            left = most - len(found)
            found += barriers[:left]
            if barriers[left:]:
                self._owed[consumer] = barriers[left:]
        return found


def _note(noted: dict[int, None], requests: Collection[int]) -> None:
    noted.update(dict.fromkeys(requests))
    while len(noted) > REMEMBERED:
        del noted[next(iter(noted))]
