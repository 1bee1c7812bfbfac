"""Threads as tasks: greenlets that run one at a time, each until it waits, in the order that a schedule says."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import greenlet


class Task(greenlet.greenlet):
    """``name``: the thread's."""

    def __init__(self, function: Callable[[], object], tasks: Tasks, name: str) -> None:
        super().__init__(function, tasks.hub)
        self.tasks = tasks
        self.name = name
        self.is_waiting = False
        self.was_woken = False

    def is_alive(self) -> bool:
        """As threads answer it."""
        return not self.dead


class Tasks:
    """The tasks of one process. A task that is ready runs on by ``step``, which is the schedule's to call."""

    current: ClassVar[Tasks]
    """Those of the process whose code is running."""

    def __init__(self, now: Callable[[], int]) -> None:
        """``now``: milliseconds."""
        self.hub = greenlet.getcurrent()
        self.ready: list[Task] = []
        self.is_dead = False
        self._now = now
        self._timers: dict[Task, float] = {}
        """Tasks that wait no longer than until then."""
        self._all: dict[Task, None] = {}

    def start(self, function: Callable[[], object], name: str) -> None:
        if self.is_dead:
            raise RuntimeError("can't start new thread")

        def run() -> None:
            try:
                function()
            finally:
                self._all.pop(task, None)

        task = Task(run, self, name)
        self._all[task] = None
        self.ready.append(task)

    def step(self, which: int) -> None:
        """Run one ready task until it waits."""
        Tasks.current = self
        self.ready.pop(which % len(self.ready)).switch()

    def step_named(self, name: str) -> bool:
        """Run the ready task of this name; answers whether there is one."""
        found = [at for at, task in enumerate(self.ready) if task.name == name]
        if found:
            self.step(found[0])
        return bool(found)

    def kill(self) -> None:
        """The process is gone: none of its tasks runs again."""
        Tasks.current = self
        self.is_dead = True
        self.ready.clear()
        self._timers.clear()
        for task in list(self._all):
            if task:
                task.throw()
        self._all.clear()

    # for the task that runs

    def pause(self) -> None:
        """Any other task may run before this one goes on."""
        self.ready.append(running())
        self.hub.switch()

    def sleep(self, seconds: float | None = None) -> bool:
        """Wait for ``wake``; answers whether that came within ``seconds``."""
        if self.is_dead:
            raise greenlet.GreenletExit
        task = running()
        task.is_waiting, task.was_woken = True, False
        if seconds is not None:
            self._timers[task] = self._now() + seconds * 1000
        self.hub.switch()
        return task.was_woken

    def wake(self, task: Task) -> None:
        if task.is_waiting and not self.is_dead:
            task.is_waiting, task.was_woken = False, True
            self._timers.pop(task, None)
            self.ready.append(task)

    # time

    @property
    def now(self) -> int:
        return self._now()

    @property
    def next_at(self) -> float:
        """When the first task has waited for long enough."""
        return min(self._timers.values(), default=float("inf"))

    def ring(self) -> None:
        """Time has passed."""
        if self._timers and self.next_at <= self._now():
            for task, at in sorted(self._timers.items(), key=lambda timer: timer[1]):
                if at <= self._now():
                    del self._timers[task]
                    task.is_waiting = False
                    self.ready.append(task)


def running() -> Task:
    task = greenlet.getcurrent()
    assert isinstance(task, Task), "only a task may wait"
    return task
