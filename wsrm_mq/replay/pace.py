"""How often a target is called."""

from __future__ import annotations

import threading
import time


class Pace:
    """At most ``rate`` calls a second, of all threads together; ``None``: any number."""

    def __init__(self, rate: float | None) -> None:
        self._seconds = 0.0 if rate is None else 1 / rate
        self._next = 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def wait(self) -> bool:
        """Wait for the turn of one call; ``False``: it does not come, as the run was stopped."""
        if not self._seconds:
            return True
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next)
            self._next = turn + self._seconds
        return not self._stopped.wait(turn - now)

    def stop(self) -> None:
        """No turn comes any more: who waits for one is told."""
        self._stopped.set()
