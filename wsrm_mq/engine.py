"""What runs behind a front in one process: store, dispatcher and watch, started and stopped together, and kept
whole over a fork.

No SQLite connection may be open while a process forks: before it, every connection is closed; after it the parent
opens them again and the child starts anew, as an instance of its own.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from typing import Final

from wsrm_mq.queue import ownership
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.replay.delivery import Call
from wsrm_mq.replay.dispatcher import Dispatcher, OnEvent
from wsrm_mq.replay.waiting import Waiters
from wsrm_mq.replay.watch import Watch
from wsrm_mq.store.store import Store
from wsrm_mq.store.writer import Clock, wall_clock

__all__ = ["Engine"]

log = logging.getLogger("wsrm_mq.engine")

_LAST_COMMIT_SECONDS: Final = 1.0
"""For the last commit of a close, whose time may be used up."""

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class Engine:
    """``start`` recovers what a crash left and begins to deliver; no request is needed for it."""

    def __init__(
        self,
        where: str | os.PathLike[str],
        call: Call,
        policy_of: PolicyOf,
        *,
        threads: int = 8,
        on_event: OnEvent | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        self._where = where
        self._call = call
        self._policy_of = policy_of
        self._threads = threads
        self._on_event = on_event
        self._clock = clock
        self._pid = 0
        self.store: Store
        self.waiters: Waiters
        self.dispatcher: Dispatcher
        self.watch: Watch
        _engines.add(self)

    @property
    def is_running(self) -> bool:
        return self._pid == os.getpid()

    def start(self) -> None:
        store = Store(self._where, clock=self._clock)
        store.open()
        waiters = Waiters()
        dispatcher = Dispatcher(
            store,
            self._call,
            self._policy_of,
            waiters,
            threads=self._threads,
            on_event=self._on_event,
            on_retry=lambda at: self.watch.nudge(at),
        )
        self.store, self.waiters, self.dispatcher = store, waiters, dispatcher
        self.watch = Watch(store, dispatcher, waiters, self._policy_of)
        self._pid = os.getpid()
        try:
            self.watch.start()
        except BaseException:
            self.close()
            raise

    def close(self, timeout: float | None = None) -> bool:
        """Drain: running messages finish and are settled, every sequence is given back. Answers whether all threads
        finished within ``timeout`` seconds; what did not is found by the next start as a possible redelivery."""
        if not self.is_running:
            return True
        self._pid = 0
        deadline = None if timeout is None else time.monotonic() + timeout
        self.watch.stop()
        finished = self.dispatcher.stop(timeout)
        if finished:
            left = None if deadline is None else max(_LAST_COMMIT_SECONDS, deadline - time.monotonic())
            self.store.close(ownership.leave, left)
        return finished

    def before_fork(self) -> None:
        if self.is_running:
            self.watch.stop()
            self.store.suspend()

    def after_fork_in_parent(self) -> None:
        if self.is_running:
            self.store.resume()
            self.watch.start()

    def after_fork_in_child(self, parent: int) -> None:
        if self._pid == parent:
            self._pid = 0
            self.store.abandon()
            self.start()


def _before() -> None:
    for engine in list(_engines):
        engine.before_fork()


def _in_parent() -> None:
    for engine in list(_engines):
        engine.after_fork_in_parent()


def _in_child() -> None:
    parent = os.getppid()
    for engine in list(_engines):
        try:
            engine.after_fork_in_child(parent)
        except Exception:
            log.exception("engine.start_failed after a fork")


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
