"""One commit for all messages since the last: an event loop's way to write.

A commit costs the same for one message as for eight. A loop that began one as soon as a message is there would write
each by itself; so a tick waits until the loop has read its connections.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, TypeVar

from wsrm_mq.delivery.completion import LOOK_SECONDS, Patience
from wsrm_mq.delivery.pool import Pool
from wsrm_mq.queue.settle import Settlement
from wsrm_mq.store.group_commit import Verb
from wsrm_mq.store.store import Store
from wsrm_mq.store.writer import LINGER_SECONDS

R = TypeVar("R")
S = TypeVar("S")


class Tick:
    """Commits for ``loop`` when that has looked at every connection; used by the loop's thread alone. ``pools`` run the
    messages that a commit has made deliverable."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store, pools: Sequence[Pool[Any]]) -> None:
        self.loop = loop
        self.store = store
        self._pools = pools
        self.writer = store.writer
        self._thread = get_ident()
        self._is_due = False
        """A commit is about to be made."""
        self._is_called = False
        """Another thread has something for it."""
        self._has_more = False
        """A verb came since the last look."""
        self._timer: asyncio.TimerHandle | None = None
        self._led_at = 0.0

    def commit(self, verb: Verb[R], size: int, finish: Callable[[R], S]) -> asyncio.Future[S]:
        """Run ``verb`` in the next commit, and at once after it ``finish(result)``, which the future tells of."""
        future: asyncio.Future[S] = self.loop.create_future()

        def told(result: Any, error: BaseException | None) -> None:
            finished: Any = None
            try:
                if error is None:
                    finished = finish(result)
            except BaseException as raised:
                error = raised
            self.resolve(future, finished, error)

        self.writer.submit(verb, told, size=size, is_request=True, is_led=True)
        self._has_more = True
        if not self._is_due:
            self._be_due()
        return future

    def call(self) -> None:
        """Make a commit soon, with verbs that were submitted before. May be called in any thread."""
        if self._is_called:
            return
        self._is_called = True
        try:
            self.loop.call_soon_threadsafe(self._called)
        except RuntimeError:  # the loop has ended
            self._is_called = False
            self.writer.urge()

    def resolve(self, future: asyncio.Future[R], result: R, error: BaseException | None = None) -> None:
        """Resolve ``future``. May be called in any thread."""
        if get_ident() != self._thread:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and its waiters with it
                self.loop.call_soon_threadsafe(self.resolve, future, result, error)
        elif future.done():  # its waiter was cancelled
            pass
        elif error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def _called(self) -> None:
        self._is_called = False
        if not self._is_due:
            self._be_due()

    def _be_due(self) -> None:
        self._is_due = True
        self.loop.call_soon(self._run)

    def _run(self) -> None:
        if self._has_more:  # perhaps the loop is not done with reading
            self._has_more = False
            self.loop.call_soon(self._run)
        else:
            self._lead()

    def _lead(self) -> None:
        self._is_due = False
        if self._timer is None:
            # What is delivered is settled soon: written with the next tick, or by the timer if there is none.
            self.writer.is_attended = True
            self._timer = self.loop.call_later(LINGER_SECONDS, self._late)
        for pool in self._pools:
            pool.is_put_off = True
        try:
            self.writer.lead()
        finally:
            for pool in self._pools:
                pool.is_put_off = False
                if pool.waiting:
                    self.loop.call_soon(pool.look_after)  # behind the tasks that send the answers
        self._led_at = self.loop.time()

    def _late(self) -> None:
        left = self._led_at + LINGER_SECONDS - self.loop.time()
        if left > LINGER_SECONDS / 8:
            self.writer.is_attended = True
            self._timer = self.loop.call_later(left, self._late)
            return
        self._timer = None
        self.writer.is_attended = False
        self.writer.lead()


class LoopCompletion:
    """A message that a request waits for, while a thread has it: its outcome is stored with one of the ticks. See
    ``delivery.completion``."""

    def __init__(self, tick: Tick, *, is_bounded: bool = False) -> None:
        self._tick = tick
        self._future: asyncio.Future[Settlement | None] = tick.loop.create_future()
        self._patience = Patience()
        self.calling = self._patience.go_on if is_bounded else self._patience.stop
        self.storing = self._patience.go_on

    def submit(self, verb: Verb[R], on_commit: Callable[[R | None, BaseException | None], None], *, size: int) -> None:
        self._tick.writer.submit(verb, on_commit, keep=True, size=size, is_led=True)
        self._tick.call()

    def complete(self, settlement: Settlement | None) -> None:
        self._tick.resolve(self._future, settlement)

    async def settled(self, patience: float) -> tuple[Settlement | None, float]:
        """Wait, in the loop, for a thread and for the store at most ``patience`` seconds, for the application as long
        as it takes. Answers the settlement, if it is known, and the seconds that are left."""
        self._look_in(patience, patience)
        try:
            settlement = await self._future
        finally:
            self._timer.cancel()
        return settlement, max(0.0, self._patience.left(patience))

    def _look_in(self, seconds: float, patience: float) -> None:
        self._timer = self._tick.loop.call_later(max(seconds, LOOK_SECONDS), self._look, patience)

    def _look(self, patience: float) -> None:
        left = self._patience.left(patience)
        if left > 0 or not self._patience.is_used:
            self._look_in(left, patience)
        else:
            self._tick.resolve(self._future, None)
