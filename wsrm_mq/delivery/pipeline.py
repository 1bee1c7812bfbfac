"""Settlements in flight: a run may be ahead of its last settled commit, but not far."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from wsrm_mq.delivery.delivery import Heard
from wsrm_mq.errors import FenceLost
from wsrm_mq.queue.ownership import RUN_AHEAD
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.write_queue import Verb

R = TypeVar("R")
B = TypeVar("B")

_AHEAD_SECONDS: Final = 0.020


class Pipeline(Generic[B]):
    """Counts settlements that are submitted and not yet committed; they commit, and are told, in the order they were
    submitted. ``lead``: has this thread write them, where it does so itself."""

    def __init__(self, lead: Callable[[], object] = lambda: None) -> None:
        self._lead = lead
        self._submitted: deque[float] = deque()
        self._lock = threading.Lock()
        """Taken as itself: an error thrown into this thread could leave a condition's own ``with`` locked."""
        self._changed = threading.Condition(self._lock)
        self.broken: B | None = None
        """The first that was not settled. Nothing is to follow it."""
        self.heard: Heard | None = None
        """The last answer to what was sent."""
        self.is_over = False
        """A settlement found that nothing may follow it: the sequence was held, or ended, meanwhile."""

    def enter(self) -> None:
        """Wait until one more may be under way."""
        self.keep_up()
        with self._lock:
            while self._is_far_ahead():
                self._changed.wait()
            self._submitted.append(time.monotonic())

    def keep_up(self, seconds: float = 0.0) -> None:
        """Write what will have been under way for too long in so many seconds."""
        with self._lock:
            is_due = self._is_far_ahead(seconds)
        if is_due:
            self._lead()

    def _is_far_ahead(self, seconds: float = 0.0) -> bool:
        since = time.monotonic() + seconds - _AHEAD_SECONDS
        return bool(self._submitted) and (len(self._submitted) >= RUN_AHEAD or self._submitted[0] < since)

    def guarded(self, verb: Verb[R]) -> Verb[R]:
        """Make a verb that settles a message, and is refused behind a message that was not settled: in order it would
        say that those before it are settled too."""

        def settle(tx: Transaction) -> R:
            if self.broken is not None:
                raise FenceLost("a message before it could not be settled")
            return verb(tx)

        return settle

    def leave(self, broken: B | None = None) -> B | None:
        """One is committed, or ``broken``. Answers the first that is."""
        with self._lock:
            self._submitted.popleft()
            self.broken = self.broken or broken
            self._changed.notify_all()
            return self.broken

    def drain(self) -> None:
        self._lead()
        with self._lock:
            while self._submitted:
                self._changed.wait()
