"""The line at the writer: verbs that wait to be written, in the order they came, and whom to tell.

Whoever calls anything here holds the writer's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from wsrm_mq.store.transaction import Transaction

__all__ = ["LINGERING", "Line", "Verb", "Waiting"]

R = TypeVar("R")
Verb = Callable[[Transaction], R]

MAX_BATCH: Final = 512
LINGERING: Final = 32
"""Verbs that nobody waits for are written with the next that somebody waits for, or when there are so many."""


@dataclass(eq=False, slots=True)
class Waiting(Generic[R]):
    """A verb, and whom to tell. ``told`` gets (result, error). For the rest see ``Writer.submit``."""

    verb: Verb[R]
    told: Callable[[R | None, BaseException | None], None]
    keep: bool = False
    size: int = 0
    lingers: bool = False
    is_request: bool = False
    result: R | None = None
    error: BaseException | None = None
    is_told: bool = False


class Line:
    """``max_requests``, ``max_request_bytes``: what requests there may be at a time, in all."""

    def __init__(self, max_requests: int, max_request_bytes: int) -> None:
        self._waiting: deque[Waiting[Any]] = deque()
        self._max_requests = max_requests
        self._max_request_bytes = max_request_bytes
        self._urgent = 0
        """How many do not linger."""
        self.requests = 0
        """How many requests wait for their commit, those that are being written included."""
        self.request_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_due(self) -> bool:
        """Somebody waits, or there is enough that nobody waits for."""
        return self._urgent > 0 or len(self._waiting) >= LINGERING

    def admits(self, size: int) -> bool:
        """Whether there is room for a request of ``size`` bytes. One alone is never too large."""
        fits = self.request_bytes + size <= self._max_request_bytes or not self.requests
        return fits and self.requests < self._max_requests

    def join(self, item: Waiting[Any]) -> None:
        if item.is_request:
            self.requests += 1
            self.request_bytes += item.size
        self._waiting.append(item)
        self._urgent += not item.lingers

    def take(self, most_bytes: int, *, alone: bool = True) -> list[Waiting[Any]]:
        """What is to be written next. ``alone``: what is larger than ``most_bytes`` is taken by itself."""
        batch: list[Waiting[Any]] = []
        size = 0
        while self._waiting and len(batch) < MAX_BATCH:
            size += self._waiting[0].size
            if size > most_bytes and (batch or not alone):
                break
            item = self._waiting.popleft()
            batch.append(item)
            self._urgent -= not item.lingers
        return batch

    def take_all(self) -> list[Waiting[Any]]:
        batch, self._urgent = list(self._waiting), 0
        self._waiting.clear()
        return batch

    def take_refusable(self) -> list[Waiting[Any]]:
        """Whatever need not be stored in any case."""
        batch = self.take_all()
        self.put_back([item for item in batch if item.keep])
        return [item for item in batch if not item.keep]

    def put_back(self, batch: list[Waiting[Any]]) -> None:
        """To the front: it came before what waits."""
        self._waiting.extendleft(reversed(batch))
        self._urgent += sum(not item.lingers for item in batch)

    def urge(self) -> None:
        """Let nothing linger."""
        for item in self._waiting:
            item.lingers = False
        self._urgent = len(self._waiting)

    def leave(self, requests: list[Waiting[Any]]) -> None:
        """These are told how it went: there is room for others."""
        self.requests -= len(requests)
        self.request_bytes -= sum(item.size for item in requests)
