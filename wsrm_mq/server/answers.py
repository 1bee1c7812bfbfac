"""The answers of a session that have messages, known by the numbers that its client gives to its requests: of one that
was lost on its way the client tells, and what was in it goes back before anything that comes later is leased."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

REMEMBERED: Final = 1_000


class Running(NamedTuple):
    """A request that leases. ``lost``: nothing waits for its answer any more; ``ended``: it leases nothing more."""

    lost: asyncio.Future[None]
    ended: asyncio.Future[None]


class Answers:
    def __init__(self) -> None:
        self._running: dict[int, Running] = {}
        self._lost: dict[int, None] = {}
        """The last that were told as lost: a request may come after what tells that."""
        self._seen: dict[int, None] = {}
        """The last requests that had a number."""

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


def _note(noted: dict[int, None], requests: Collection[int]) -> None:
    noted.update(dict.fromkeys(requests))
    while len(noted) > REMEMBERED:
        del noted[next(iter(noted))]
