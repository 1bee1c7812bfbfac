"""The write queue: verbs that wait for their commit, in the order they came. Its caller holds the writer's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from wsrm_mq.store.transaction import Transaction

R = TypeVar("R")
Verb = Callable[[Transaction], R]
OnCommit = Callable[[R | None, BaseException | None], None]
"""Gets (result, error), one of them ``None``."""

MAX_BATCH: Final = 512
LINGERING: Final = 32
"""Verbs whose results are not awaited are written with the next awaited one, or when there are so many."""


@dataclass(eq=False, slots=True)
class Write(Generic[R]):
    """A verb that waits for its commit. See ``Writer.submit``."""

    verb: Verb[R]
    on_commit: OnCommit[R]
    keep: bool = False
    drains: bool = False
    size: int = 0
    lingers: bool = False
    is_request: bool = False
    is_relaxed: bool = False
    result: R | None = None
    error: BaseException | None = None
    is_told: bool = False


class WriteQueue:
    """``max_requests``, ``max_request_bytes``: what requests there may be at a time, in all."""

    def __init__(self, max_requests: int, max_request_bytes: int) -> None:
        self.waiting: deque[Write[Any]] = deque()
        self.is_due = False
        """Whether a batch is due: a write does not linger, enough do, or one was put back or left over."""
        self._max_requests = max_requests
        self._max_request_bytes = max_request_bytes
        self.requests = 0
        """How many requests wait for their commit, those that are being written included."""
        self.request_bytes = 0

    def put(self, write: Write[Any]) -> bool:
        """Append it; ``False``: it is a request for which there is no room. One alone is never too large."""
        if write.is_request:
            size = self.request_bytes + write.size
            if self.requests and (size > self._max_request_bytes or self.requests >= self._max_requests):
                return False
            self.requests += 1
            self.request_bytes = size
        self.waiting.append(write)
        self.is_due = self.is_due or not write.lingers or len(self.waiting) >= LINGERING
        return True

    def take(self, most_bytes: int, *, alone: bool = True) -> list[Write[Any]]:
        """Take the writes that come next. ``alone``: one that is larger than ``most_bytes`` is taken by itself."""
        batch: list[Write[Any]] = []
        size = 0
        while self.waiting and len(batch) < MAX_BATCH:
            size += self.waiting[0].size
            if size > most_bytes and (batch or not alone):
                break
            batch.append(self.waiting.popleft())
        self.is_due = bool(self.waiting)
        return batch

    def take_all(self) -> list[Write[Any]]:
        batch, self.is_due = list(self.waiting), False
        self.waiting.clear()
        return batch

    def take_refusable(self) -> list[Write[Any]]:
        """Take the writes that may be refused."""
        batch = self.take_all()
        self.put_back([write for write in batch if write.keep])
        return [write for write in batch if not write.keep]

    def put_back(self, batch: list[Write[Any]]) -> None:
        """Put a batch back to the front: it came before what waits."""
        self.waiting.extendleft(reversed(batch))
        self.urge()

    def urge(self) -> None:
        """Make a batch due now, of writes that linger too."""
        self.is_due = bool(self.waiting)

    def release(self, batch: list[Write[Any]]) -> None:
        """Let a batch go, which is told how it went: there is room for other requests."""
        for write in batch:
            if write.is_request:
                self.requests -= 1
                self.request_bytes -= write.size
