"""The application is not forked in the middle of a call.

An application may fork while it is served, and a server's master delivers where no worker lives. Open files of a
call would be in the child as well, and a SQLite connection of the application's own that is carried over a fork breaks
its file. So a fork waits for the calls to end, and none begins meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from wsrm_mq.delivery.delivery import Call, Delivery, Outcome


class Gate:
    """Calls the application while it is open. ``runs_here`` answers whether this very thread, as that of an event loop,
    runs the calls of other threads: such calls cannot end while it waits."""

    def __init__(self, call: Call, runs_here: Callable[[], bool] = lambda: False) -> None:
        self._call = call
        self._runs_here = runs_here
        self._lock = threading.Lock()
        """Taken as itself: an error thrown into a request's thread could leave a condition's own ``with`` locked."""
        self._changed = threading.Condition(self._lock)
        self._inside: set[int] = set()
        """The threads that call."""
        self._is_open = True

    def __call__(self, delivery: Delivery) -> Outcome:
        me = threading.get_ident()
        with self._lock:
            while not self._is_open:
                self._changed.wait()
            self._inside.add(me)
        try:
            return self._call(delivery)
        finally:
            with self._lock:
                self._inside.discard(me)
                if not self._is_open:
                    self._changed.notify_all()

    @property
    def is_inside(self) -> bool:
        """Whether the caller is the application, within a call."""
        return threading.get_ident() in self._inside or (bool(self._inside) and self._runs_here())

    def close(self, seconds: float) -> bool:
        """Let no call in, and wait for the calls inside to end, at most ``seconds``; not for one of this thread, where
        it is the application itself that forks, nor for calls that this thread has to run. Answers whether all have
        ended."""
        me = threading.get_ident()
        with self._lock:
            self._is_open = False
            return self._changed.wait_for(lambda: not self._inside - {me}, 0 if self._runs_here() else seconds)

    def open(self) -> None:
        with self._lock:
            self._is_open = True
            self._changed.notify_all()
