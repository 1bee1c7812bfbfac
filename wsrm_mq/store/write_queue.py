"""The write queue: verbs that wait for their commit, in the order they came. Its caller holds the writer's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from wsrm_mq.store.transaction import Transaction

R = TypeVar("R")
Verb = Callable[[Transaction], R]
OnCommit = Callable[[R | None, BaseException | None], None]
"""Gets (result, error), one of them ``None``."""

MAX_BATCH: Final = 512
LINGERING: Final = 32
"""Verbs whose results are not awaited are written with the next awaited one, or when there are so many."""

_SIZE: Final = attrgetter("size")


@dataclass(eq=False, slots=True)
class Write(Generic[R]):
    """A verb that waits for its commit. See ``Writer.submit``."""

    verb: Verb[R]
    on_commit: OnCommit[R]
    keep: bool = False
    size: int = 0
    lingers: bool = False
    is_request: bool = False
    result: R | None = None
    error: BaseException | None = None
    is_told: bool = False


def total_size(writes: list[Write[Any]]) -> int:
    """Bytes that they write, about."""
    return sum(map(_SIZE, writes))


class WriteQueue:
    """``max_requests``, ``max_request_bytes``: what requests there may be at a time, in all."""

    def __init__(self, max_requests: int, max_request_bytes: int) -> None:
        self._waiting: deque[Write[Any]] = deque()
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
        """One does not linger, or enough do."""
        return self._urgent > 0 or len(self._waiting) >= LINGERING

    def put(self, write: Write[Any]) -> bool:
        """Append it; ``False``: it is a request for which there is no room. One alone is never too large."""
        if write.is_request:
            size = self.request_bytes + write.size
            if self.requests and (size > self._max_request_bytes or self.requests >= self._max_requests):
                return False
            self.requests += 1
            self.request_bytes = size
        self._waiting.append(write)
        self._urgent += not write.lingers
        return True

    def take(self, most_bytes: int, *, alone: bool = True) -> list[Write[Any]]:
        """What is to be written next. ``alone``: what is larger than ``most_bytes`` is taken by itself."""
        batch: list[Write[Any]] = []
        size = 0
        while self._waiting and len(batch) < MAX_BATCH:
            size += self._waiting[0].size
            if size > most_bytes and (batch or not alone):
                break
            write = self._waiting.popleft()
            batch.append(write)
            self._urgent -= not write.lingers
        return batch

    def take_all(self) -> list[Write[Any]]:
        batch, self._urgent = list(self._waiting), 0
        self._waiting.clear()
        return batch

    def take_refusable(self) -> list[Write[Any]]:
        """What need not be stored in any case."""
        batch = self.take_all()
        self.put_back([write for write in batch if write.keep])
        return [write for write in batch if not write.keep]

    def put_back(self, batch: list[Write[Any]]) -> None:
        """To the front: it came before what waits."""
        self._waiting.extendleft(reversed(batch))
        self._urgent += sum(not write.lingers for write in batch)

    def urge(self) -> None:
        """Let nothing linger."""
        for write in self._waiting:
            write.lingers = False
        self._urgent = len(self._waiting)

    def release(self, requests: list[Write[Any]]) -> None:
        """These are told how it went: there is room for others."""
        self.requests -= len(requests)
        self.request_bytes -= total_size(requests)
