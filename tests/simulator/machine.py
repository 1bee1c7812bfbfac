"""What a machine has beside the store: threads, a clock, and the means to see and to wake other processes.

The rooms of the product get these modules in place of ``threading`` and ``time`` while a schedule runs, whatever they
use of them; liveness and doorbell come in through ``wsrm_mq.store.port.Instances``.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import greenlet

from tests.simulator.tasks import Task, Tasks, running

# threads


class Lock(_thread.RLock):
    """``with`` needs no turn: no task waits while it has entered a lock, but for a condition of that lock. ``acquire``
    waits for a ``release``."""

    _is_held = False
    _waiting: tuple[Task, ...] = ()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        while self._is_held:
            if not blocking:
                return False
            self._waiting += (running(),)
            if not Tasks.current.sleep(None if timeout < 0 else timeout):
                return False
        self._is_held = True
        return True

    def release(self) -> None:
        if not self._is_held:
            raise RuntimeError("release unlocked lock")
        self._is_held = False
        for task in self._waiting[:1]:
            task.tasks.wake(task)
        self._waiting = self._waiting[1:]


class Condition:
    def __init__(self, _lock: Lock | None = None) -> None:
        self._waiting: list[Task] = []

    def __enter__(self) -> None:
        """No task waits while it has entered a lock: see ``Lock``."""

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        self._waiting.append(running())
        return Tasks.current.sleep(timeout)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        while not (found := predicate()):
            if not self.wait(timeout):
                return predicate()
        return found

    def notify(self, count: int = 1) -> None:
        self._waiting = [task for task in self._waiting if task.is_waiting]
        for task in self._waiting[:count]:
            task.tasks.wake(task)
        del self._waiting[:count]

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    def __init__(self) -> None:
        self._is_set = False
        self._changed = Condition()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._changed.notify_all()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._is_set or self._changed.wait(timeout) or self._is_set


class Thread:
    def __init__(self, target: Callable[[], object], name: str = "", daemon: bool = True) -> None:
        self.name = name
        self._target = target
        self._has_ended = Event()
        self._is_started = False

    def start(self) -> None:
        def run() -> None:
            try:
                self._target()
            finally:
                self._has_ended.set()

        Tasks.current.start(run, self.name)
        self._is_started = True

    def is_alive(self) -> bool:
        return self._is_started and not self._has_ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        self._has_ended.wait(timeout)


class Timer(Thread):
    def __init__(self, seconds: float, function: Callable[[], object]) -> None:
        def run() -> None:
            Tasks.current.sleep(seconds)
            function()

        super().__init__(run)


class Threading:
    """In place of the module."""

    Lock, RLock, Condition, Event, Thread, Timer = Lock, _thread.RLock, Condition, Event, Thread, Timer
    current_thread = staticmethod(greenlet.getcurrent)

    @staticmethod
    def get_ident() -> int:
        return id(greenlet.getcurrent())


# the clock


class Time:
    """In place of the module. ``clock``: milliseconds since the epoch."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        return self._clock() / 1000

    perf_counter = time = monotonic

    def time_ns(self) -> int:
        return self._clock() * 1_000_000

    def sleep(self, seconds: float) -> None:
        Tasks.current.sleep(seconds)


@contextmanager
def replaced(clock: Callable[[], int]) -> Iterator[None]:
    """While this lasts the product's modules that are loaded by now run on tasks, by ``clock``."""
    instead = {"threading": (threading, Threading()), "time": (time, Time(clock))}
    changed = [
        (module, name, real, other)
        for room, module in list(sys.modules.items())
        for name, (real, other) in instead.items()
        if room.startswith("wsrm_mq") and getattr(module, name, None) is real
    ]
    for module, name, _real, other in changed:
        setattr(module, name, other)
    try:
        yield
    finally:
        for module, name, real, _other in changed:
            setattr(module, name, real)


# liveness and doorbell


class Bell:
    """The place of a process among the others (``port.Presence``)."""

    home = Path()
    is_in_place = True
    """It does not notice that it was taken for dead."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.under_way: set[str] = set()
        """Words that were sent and have not arrived."""
        self._words: set[str] = set()
        self._waiting: Task | None = None

    def wait(self, seconds: float) -> set[str]:
        if not self._words:
            self._waiting = running()
            Tasks.current.sleep(seconds)
        words, self._words = self._words, set()
        return words

    def arrive(self, *, is_repeated: bool = False) -> None:
        """The words that are under way arrive; ``is_repeated``: they will do so again."""
        self._words |= self.under_way
        if not is_repeated:
            self.under_way.clear()
        if self._waiting is not None:
            self._waiting.tasks.wake(self._waiting)

    def take_place(self) -> None:
        pass

    def has_open(self, _files: Any) -> None:
        pass

    close = abandon = take_place


class Neighbourhood:
    """Who lives at one store, and whose doorbell is where (``port.Instances``). ``kind`` begins their names."""

    def __init__(self, kind: str = "process") -> None:
        self._kind = kind
        self.alive: set[str] = set()
        self._bells: dict[str, Bell] = {}
        self._begun: set[str] = set()
        """Tasks that an instance is at alone."""

    def enter(self) -> Bell:
        bell = Bell(f"{self._kind}{len(self._bells) + 1}")
        self.alive.add(bell.name)
        self._bells[bell.name] = bell
        return bell

    def lives(self, name: str) -> bool:
        return name in self.alive

    def bury(self, name: str) -> None:
        pass

    @contextmanager
    def alone(self, task: str) -> Iterator[bool]:
        if task in self._begun:
            yield False
            return
        self._begun.add(task)
        try:
            yield True
        finally:
            self._begun.discard(task)

    def listen(self, name: str) -> None:
        pass

    def ring(self, word: str, but: str = "") -> None:
        self.wake([name for name in self.alive if name != but], word)

    def wake(self, names: Iterable[str], word: str = "look") -> None:
        for name in names:
            self._bells[name].under_way.add(word)
