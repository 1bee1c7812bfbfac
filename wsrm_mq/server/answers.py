"""The answers of a session that have messages, known by the numbers that its client gives to its requests: of one that
was lost on its way the client tells, and what was in it goes back before anything that comes later is leased. Barriers
are not leased: those of the last answers that had some are kept, to be sent once more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from wsrm_mq.node.message import Message

REMEMBERED: Final = 1_000
REMEMBERED_BARRIERS: Final = 100


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
        self._barriers: dict[int | None, list[tuple[Consumer, Message]]] = {}
        """The barriers of the last answers that had some, by the numbers of their requests."""
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
        """Messages leave with the answer to a request of these consumers."""
        key = consumers[0]
        if barriers := [(key if isinstance(key, int) else one.queue, one) for one in messages if one.is_barrier]:
            self._barriers.pop(request, None)
            self._barriers[request] = barriers
            if len(self._barriers) > REMEMBERED_BARRIERS:
                del self._barriers[next(iter(self._barriers))]

    def barriers_of(self, requests: Collection[int]) -> list[Message]:
        return [one for request in requests for _consumer, one in self._barriers.get(request, [])]

    def owe(self, messages: Collection[Message]) -> None:
        """The barriers among these have not come: they are the next that their consumers get."""
        not_come = [given for barriers in self._barriers.values() for given in barriers if given[1] in messages]
        for request, barriers in self._barriers.items():
            self._barriers[request] = [given for given in barriers if given[1] not in messages]
        for consumer, one in reversed(not_come):  # before what an answer with room for fewer had left
            self._owed.setdefault(consumer, []).insert(0, one)

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
