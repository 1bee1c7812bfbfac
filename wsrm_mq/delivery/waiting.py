"""Requests that wait for the settlement of a message, by its position."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol


class Settable(Protocol):
    """An event, as threads or an event loop have it. ``set`` comes from another thread and must not block."""

    def set(self) -> None: ...


class Signal:
    """An event that one thread waits for. An error thrown into that thread, which is a server's, leaves nothing locked
    that ``set`` would wait for, as it may with a ``threading.Event``."""

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        with suppress(RuntimeError):  # it is set
            self._unset.release()

    def wait(self, seconds: float) -> bool:
        """Whether it was set within ``seconds``; then it is no longer."""
        return self._unset.acquire(timeout=max(0.0, seconds))


class Waiters:
    """``places`` is the number of requests that may wait for a gap to close at a time."""

    def __init__(self, places: int) -> None:
        self._lock = threading.Lock()
        self._places = places
        self._of: Counter[str] = Counter()
        self.waiting: dict[int, list[Settable]] = {}
        """The events that wait for a message, by its position."""

    def enter(self, who: str, most: int | None, *, bounded: bool) -> bool:
        """Let a request of ``who`` wait, at most ``most`` of them at a time (SEC-030); ``bounded``: it takes one of the
        places. Answers whether it may; then ``leave`` has to follow."""
        with self._lock:
            if (bounded and self._places <= 0) or (most is not None and self._of[who] >= most):
                return False
            self._places -= bounded
            self._of[who] += 1
            return True

    def leave(self, who: str, *, bounded: bool) -> None:
        with self._lock:
            self._places += bounded
            self._of[who] -= 1
            if not self._of[who]:
                del self._of[who]

    @contextmanager
    def expecting(self, position: int, event: Settable) -> Iterator[None]:
        """Set ``event`` when the message at ``position`` is settled. Look at the store after entering and before
        waiting: an earlier settlement is not told again."""
        with self._lock:
            self.waiting.setdefault(position, []).append(event)
        try:
            yield
        finally:
            with self._lock:
                waiting = self.waiting[position]
                waiting.remove(event)
                if not waiting:
                    del self.waiting[position]

    def notify(self, position: int) -> None:
        if position not in self.waiting:  # who begins to wait now looks at the store first
            return
        with self._lock:
            for event in self.waiting.get(position, ()):
                event.set()
