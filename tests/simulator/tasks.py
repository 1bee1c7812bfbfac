"""Threads as tasks: greenlets that run one at a time, each until it waits, in the order that a schedule says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import greenlet

W = TypeVar("W")


class Tasks:
    """The tasks of one process. A task that waits is run again by ``step``, which is the schedule's to call."""

    def __init__(self) -> None:
        self.ready: list[greenlet.greenlet] = []
        self._all: set[greenlet.greenlet] = set()
        self._hub = greenlet.getcurrent()

    def start(self, function: Callable[[], object]) -> greenlet.greenlet:
        def run() -> None:
            try:
                function()
            finally:
                self._all.discard(greenlet.getcurrent())

        task = greenlet.greenlet(run, self._hub)
        self._all.add(task)
        self.ready.append(task)
        return task

    def kill(self) -> None:
        """The process is gone: none of its tasks runs again."""
        self.ready.clear()
        for task in list(self._all):
            if task:
                task.throw()

    def step(self, which: int) -> None:
        """Run one ready task until it waits."""
        self.ready.pop(which % len(self.ready)).switch()

    def pause(self) -> None:
        """The task that calls this may be followed by any other."""
        self.ready.append(greenlet.getcurrent())
        self.sleep()

    def waker(self) -> Callable[[], None]:
        """What wakes the task that calls this, once it is called, after it has gone to ``sleep``."""
        task = greenlet.getcurrent()
        assert task is not self._hub, "only a task may wait"
        return lambda: self.ready.append(task)

    def sleep(self) -> None:
        self._hub.switch()


class Lock:
    """One task runs at a time, and none waits while it has a lock."""

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass


class Condition:
    """``threading.Condition`` for tasks."""

    tasks: Tasks
    """Of the process whose task is running; the process says so before each step."""

    def __init__(self, _lock: Lock) -> None:
        self._wakers: list[Callable[[], None]] = []

    def wait(self) -> None:
        self._wakers.append(Condition.tasks.waker())
        Condition.tasks.sleep()

    def notify_all(self) -> None:
        wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()


class Pool(Generic[W]):
    """``wsrm_mq.delivery.pool.Pool`` on tasks."""

    def __init__(
        self, work: Callable[[W], None], *, threads: int, max_threads: int, events: Any, of: str = "sequences"
    ) -> None:
        self._work = work
        self._most = max_threads
        self._items: list[W] = []
        self._at_work: dict[greenlet.greenlet, W] = {}
        self._tasks = Condition.tasks
        self.is_stopping = False

    @property
    def waiting(self) -> int:
        return len(self._items)

    @property
    def free(self) -> int:
        return self._most - len(self._items) - len(self._at_work)

    def give(self, item: W) -> bool:
        if self.is_stopping:
            return False
        self._items.append(item)
        self._send()
        return True

    def look_after(self) -> None:
        self._send()

    def done(self) -> None:
        self._at_work.pop(greenlet.getcurrent(), None)

    def in_hand(self) -> list[W]:
        return [*self._items, *self._at_work.values()]

    def _send(self) -> None:
        if self._items and len(self._at_work) < self._most:
            item = self._items.pop(0)
            self._at_work[self._tasks.start(lambda: self._run(item))] = item

    def _run(self, item: W) -> None:
        try:
            self._work(item)
        finally:
            self._at_work.pop(greenlet.getcurrent(), None)
            self._send()
