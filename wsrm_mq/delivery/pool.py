"""Threads that take work in turn: as many as it needs, and no more.

To wake a thread costs more than a quick operation does: it fights for the interpreter's lock with whoever reads and
answers requests. So while operations are quick, a thread that takes work wakes no other for what is left; it will be
back for that itself. In case it is not, because one operation blocks, an idle thread looks every few milliseconds
whether the rest is left lying, and goes on in its place. While operations are slow, each thread sends the next one
before it begins, and nobody looks.

An event loop can say that it will send a thread itself, at the moment when it waits for the disk and needs the
interpreter least. Should it not come to that, there is the one who looks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from wsrm_mq.events.telling import Events

__all__ = ["LOOK_SECONDS", "Pace", "Pool"]

W = TypeVar("W")

QUICK_SECONDS: Final = 0.000_5
"""An operation that takes less is quick: waking a thread for the next would take about as long."""
LOOK_SECONDS: Final = 0.005
"""So long, twice at most, work lies behind operations that turn out to block."""
_LOOKS: Final = 4
"""So often somebody looks after nothing was there to do any more."""
EXHAUSTED_EVERY_SECONDS: Final = 60.0


class Pace:
    """Whether operations are quick, by the last few dozen: not before that is known, nor where one of five is slow."""

    _MOST: Final = 16
    _SLOW_COUNTS: Final = 4

    def __init__(self) -> None:
        self._score = -self._MOST

    def took(self, seconds: float) -> None:
        """Called by many threads at a time: a count that is lost does no harm."""
        if seconds < QUICK_SECONDS:
            self._score = min(self._MOST, self._score + 1)
        else:
            self._score = max(-self._MOST, self._score - self._SLOW_COUNTS)

    @property
    def is_quick(self) -> bool:
        return self._score > 0


class Pool(Generic[W]):
    """Calls ``work(item)``, which raises nothing, for every item that is given, first come first served. It keeps
    ``threads`` and grows to ``max_threads`` while all are busy. ``of``: what waits for them, for the log."""

    def __init__(
        self,
        work: Callable[[W], None],
        *,
        threads: int,
        max_threads: int,
        events: Events,
        of: str = "sequences",
    ) -> None:
        self._work = work
        self._threads = threads
        self._max_threads = max_threads
        self._events = events
        self._of = of
        self.pace = Pace()
        self._items: deque[W] = deque()
        self._at_work: dict[threading.Thread, W] = {}
        self._taken = 0
        self._lock = threading.Lock()
        """Taken as itself, many times a message: a condition's own ``with`` is written in Python."""
        self._changed = threading.Condition(self._lock)
        self._idle = 0
        self._coming = False
        """A thread was told, or started, and has not looked yet."""
        self.has_lookout = False
        """One of the idle threads looks now and then."""
        self._is_put_off = False
        """Somebody will ``send`` soon."""
        self._workers: set[threading.Thread] = set()
        self._told_exhausted = float("-inf")
        self.is_stopping = False

    @property
    def size(self) -> int:
        """How many threads there are."""
        return len(self._workers)

    @property
    def waiting(self) -> int:
        """How many items nobody has taken yet."""
        return len(self._items)

    def give(self, item: W) -> None:
        """Never blocks."""
        with self._lock:
            self._items.append(item)
            if not (self._is_put_off and self._is_looked_after):
                self._send_for_one()

    def put_off(self, is_put_off: bool) -> None:
        """Whether the caller will ``send`` in a few milliseconds: until then no thread is woken for what is given,
        where that can wait."""
        self._is_put_off = is_put_off

    def send(self) -> None:
        """Wake a thread now for what was given, or start one: perhaps there is one to be had by now."""
        if self._items:
            with self._lock:
                self._send_for_one()

    def in_hand(self) -> list[W]:
        """What was given and is not done."""
        with self._lock:
            return [*self._items, *self._at_work.values()]

    def stop(self) -> None:
        """Let every thread finish what it has begun and what was given."""
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

    @property
    def _is_looked_after(self) -> bool:
        """Whether items may be left to those who are at work: they are quick, and if one is not, it is noticed."""
        return self.has_lookout and self.pace.is_quick

    def _send_for_one(self) -> None:
        """See to it that a thread is on its way while there are items: one."""
        if not self._items or self._coming:
            return
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
        except RuntimeError:  # the system has no thread left: those who are there come back
            return self._tell_exhausted()
        self._workers.add(worker)
        self._coming = True

    def _tell_exhausted(self) -> None:
        if time.monotonic() - self._told_exhausted > EXHAUSTED_EVERY_SECONDS:
            self._told_exhausted = time.monotonic()
            self._events.tell("dispatch.exhausted", of=self._of, threads=len(self._workers), waiting=len(self._items))

    def _take(self, worker: threading.Thread) -> W:
        self._taken += 1
        self._at_work[worker] = item = self._items.popleft()
        if not self._is_looked_after:
            self._send_for_one()
        return item

    def _wait(self) -> None:
        """Until there may be something to do."""
        self._idle += 1
        try:
            if self.pace.is_quick and not self.has_lookout:
                self._look_out()
            else:
                self._changed.wait()
        finally:
            self._idle -= 1
            self._coming = False

    def _look_out(self) -> None:
        """Until an item lies from one look to the next, or this thread is sent for; after a while in which there was
        nothing, only until it is sent for."""
        self.has_lookout = True
        try:
            looks = 0
            while looks < _LOOKS or self._items:
                taken, given = self._taken, self._taken + len(self._items)
                # Who is sent for just when the time is over learns it by ``_coming`` alone.
                if self._changed.wait(LOOK_SECONDS) or self.is_stopping or self._coming:
                    return
                if self._taken < given:
                    return
                looks = looks + 1 if self._taken == taken else 0
        finally:
            self.has_lookout = False
        self._changed.wait()

    # the threads

    def _run(self) -> None:
        worker = threading.current_thread()
        is_new = True
        try:
            while (item := self._next(worker, is_new)) is not None:
                is_new = False
                self._work(item)
                del item  # it may be large, and the next one far
        finally:  # an end that was not foreseen too: its place is free again, and what lies there another's
            with self._lock:
                self._workers.discard(worker)
                self._at_work.pop(worker, None)
                if is_new:  # it was sent for, and has not looked
                    self._coming = False
                self._send_for_one()

    def _next(self, worker: threading.Thread, is_new: bool) -> W | None:
        with self._lock:
            self._at_work.pop(worker, None)
            if is_new:
                self._coming = False
            while not self._items:
                if self.is_stopping or self._idle >= self._threads:
                    self._workers.discard(worker)  # at once: no longer counted, nor waited for
                    return None
                self._wait()
            return self._take(worker)
