"""Threads that take work in turn: as many as it needs, and no more."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from wsrm_mq.events.telling import Events

W = TypeVar("W")

EXHAUSTED_EVERY_SECONDS: Final = 60.0


class Pool(Generic[W]):
    """Calls ``work(item)``, which raises nothing, for every item that is given, first come first served. It keeps
    ``threads`` and grows to ``max_threads`` while all are busy. ``of`` names the items in the log.

    One thread at a time is on its way to the items; each that takes one sends the next. So a thread that comes back
    before the next one has woken takes the next item itself: of quick items one thread does many.
    """

    def __init__(
        self, work: Callable[[W], None], *, threads: int, max_threads: int, events: Events, of: str = "sequences"
    ) -> None:
        self._work = work
        self._threads = threads
        self._max_threads = max_threads
        self._events = events
        self._of = of
        self.waiting: deque[W] = deque()
        """The items that no thread has taken yet."""
        self._at_work: dict[threading.Thread, W] = {}
        self._lock = threading.Lock()
        """Taken as itself, many times a message: a condition's own ``with`` is written in Python."""
        self._changed = threading.Condition(self._lock)
        self._idle = 0
        self._coming = False
        """A thread was woken, or started, and has not looked yet."""
        self._workers: set[threading.Thread] = set()
        self._told_exhausted = float("-inf")
        self.is_stopping = False
        self.is_put_off = False
        """Given items wait for ``look_after``: an event loop sends its answers first. A thread that is woken while
        the loop runs fights with it for the interpreter's lock, which costs a tenth of the CPU and of the rate."""

    @property
    def free(self) -> int:
        """How many items more have a thread: one that is idle, or that may be started."""
        return self._max_threads - len(self.waiting) - len(self._at_work)

    def give(self, item: W) -> bool:
        """Never blocks. Answers whether the item is taken: after ``stop`` none is."""
        with self._lock:
            if self.is_stopping:
                return False
            self.waiting.append(item)
            if not (self._coming or self.is_put_off):
                self._send_thread()
            return True

    def look_after(self) -> None:
        """Send a thread for the items that wait: perhaps one can be had by now."""
        with self._lock:
            if self.waiting and not self._coming:
                self._send_thread()

    def done(self) -> None:
        """The thread that calls this has done its item: it is free, though it has not come back for the next."""
        with self._lock:
            self._at_work.pop(threading.current_thread(), None)

    def in_hand(self) -> list[W]:
        """The items that were given and are not done."""
        with self._lock:
            return [*self.waiting, *self._at_work.values()]

    def stop(self) -> None:
        """Let every thread finish the items that were given."""
        with self._lock:
            self.is_stopping = True
            self._changed.notify_all()

    def join(self, deadline: float | None = None) -> bool:
        """After ``stop``: wait for the threads, until ``deadline`` of ``time.monotonic``. Answers whether all ended."""
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            worker.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(worker.is_alive() for worker in workers)

    # the caller holds the lock

    def _send_thread(self) -> None:
        """Wake an idle thread, or start another."""
        if self._idle:
            self._coming = True
            self._changed.notify()
        elif not self.is_stopping:
            self._start_another()

    def _start_another(self) -> None:
        if len(self._workers) >= self._max_threads:
            return self._tell_exhausted()
        worker = threading.Thread(target=self._run, name="wsrm-mq-dispatch", daemon=True)
        try:
            worker.start()  # it waits for the lock that is held here
        except RuntimeError:  # the system has no thread left: those that run come back
            return self._tell_exhausted()
        self._workers.add(worker)
        self._coming = True

    def _tell_exhausted(self) -> None:
        if time.monotonic() - self._told_exhausted > EXHAUSTED_EVERY_SECONDS:
            self._told_exhausted = time.monotonic()
            self._events.tell("dispatch.exhausted", of=self._of, threads=len(self._workers), waiting=len(self.waiting))

    def _wait(self) -> None:
        self._idle += 1
        try:
            self._changed.wait()
        finally:
            self._idle -= 1
            self._coming = False

    # the threads

    def _run(self) -> None:
        worker = threading.current_thread()
        is_new = True
        try:
            while (item := self._next(worker, is_new)) is not None:
                is_new = False
                self._work(item)
                del item  # it may be large, and the next one far
        finally:  # whatever ended it: its place is free again, and what waits is another thread's
            with self._lock:
                self._workers.discard(worker)
                self._at_work.pop(worker, None)
                if is_new:  # it was on its way, and has not looked
                    self._coming = False
                if self.waiting and not self._coming:
                    self._send_thread()

    def _next(self, worker: threading.Thread, is_new: bool) -> W | None:
        with self._lock:
            self._at_work.pop(worker, None)
            if is_new:
                self._coming = False
            while not self.waiting:
                if self.is_stopping or self._idle >= self._threads:
                    self._workers.discard(worker)  # at once: no longer counted, nor waited for
                    return None
                self._wait()
            self._at_work[worker] = item = self.waiting.popleft()
            if self.waiting and not self._coming:
                self._send_thread()
            return item
