"""Requests that wait for what becomes of a message, by position."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Settable", "Waiters"]


class Settable(Protocol):
    """An event, as threads or an event loop have it. ``set`` comes from another thread and must not block."""

    def set(self) -> None: ...


class Waiters:
    """``places``: how many requests at a time may wait for a gap to close."""

    def __init__(self, places: int) -> None:
        self.places = threading.Semaphore(places)
        self._lock = threading.Lock()
        self._waiting: dict[int, list[Settable]] = {}

    @contextmanager
    def expecting(self, position: int, event: Settable) -> Iterator[None]:
        """Have ``event`` set when the message at ``position`` is settled. Look at the store after entering and before
        waiting: what was settled earlier tells nobody again."""
        with self._lock:
            self._waiting.setdefault(position, []).append(event)
        try:
            yield
        finally:
            with self._lock:
                waiting = self._waiting[position]
                waiting.remove(event)
                if not waiting:
                    del self._waiting[position]

    def notify(self, position: int) -> None:
        if not self._waiting:
            return
        with self._lock:
            for event in self._waiting.get(position, ()):
                event.set()
