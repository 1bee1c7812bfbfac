"""One commit for all that came since the last: an event loop's way to write.

A commit costs the same for one message as for eight. A loop that began one as soon as a message is there would write
each by itself; so a tick waits, not long, for those who are about to come: for what the loop is still reading, and for
clients that had their answer a moment ago and are known to be quick.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final, TypeVar

from wsrm_mq.replay.pool import Pool
from wsrm_mq.store.writer import LINGER_SECONDS, Verb, Writer

__all__ = ["Tick"]

R = TypeVar("R")

QUICK_SECONDS: Final = 0.002
"""A client that sends again so soon after its answer is waited for."""
NAP_SECONDS: Final = 0.0002
NAPS: Final = 1
"""So often, and so long each time, a tick waits for quick clients: most have come by themselves, while the loop wrote
the answers and read."""
_REMEMBERED: Final = 4_096


class Regulars:
    """Which clients are about to send: they had their answer a moment ago, and the last times they came back soon."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._slow: dict[str, float] = {}

    def came(self, client: str, now: float) -> None:
        """Times are those of ``time.monotonic``."""
        if self._due.pop(client, None) is None and now - self._slow.get(client, now) < QUICK_SECONDS:
            self._slow.pop(client, None)

    def answered(self, client: str, now: float) -> None:
        if client in self._slow:
            self._slow[client] = now
        else:
            self._due[client] = now

    @property
    def are_due(self) -> bool:
        return bool(self._due)

    def give_up(self) -> None:
        """Those who did not come are slow until they show that they are not."""
        if len(self._slow) > _REMEMBERED:
            self._slow.clear()
        self._slow |= self._due
        self._due.clear()


class Tick:
    """Run by ``loop`` when it has looked at every connection. Of one thread, the loop's. While one tick follows the
    other, the threads of ``pool`` are woken when the loop waits for the disk: at any other moment they would fight with
    it for the interpreter's lock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: Writer, pool: Pool[Any]) -> None:
        self.loop = loop
        self.writer = writer
        self.pool = pool
        self._thread = get_ident()
        self._regulars = Regulars()
        self._here: list[str | None] = []
        """Who waits for the next commit."""
        self._seen = 0
        self._naps = 0
        self._timer: asyncio.TimerHandle | None = None
        self._led_at = 0.0

    def commit(self, verb: Verb[R], size: int, committed: Callable[[R], None], client: str | None) -> asyncio.Future[R]:
        """Run ``verb`` in the next commit, which the future tells of. ``committed(result)`` is called at once after
        it. ``client`` names who waits."""
        future: asyncio.Future[R] = self.loop.create_future()

        def told(result: Any, error: BaseException | None) -> None:
            try:
                if error is None:
                    committed(result)
            finally:
                if get_ident() == self._thread:
                    _resolve(future, result, error)
                else:
                    with contextlib.suppress(RuntimeError):  # the loop has ended, and with it who waits
                        self.loop.call_soon_threadsafe(_resolve, future, result, error)

        self.writer.submit_led(verb, told, size=size)
        if client is not None:
            self._regulars.came(client, time.monotonic())
        if not self._here:
            self._seen, self._naps = 0, NAPS
            self.loop.call_soon(self._run)
        self._here.append(client)
        return future

    def _run(self) -> None:
        if self._seen < len(self._here):  # more came since the last look: perhaps the loop is not done with reading
            self._seen = len(self._here)
        elif self._regulars.are_due and self._naps:
            self._naps -= 1
            time.sleep(NAP_SECONDS)  # shorter than the commit, for which the loop would stand still too
        else:
            self._lead()
            return
        self.loop.call_soon(self._run)

    def _lead(self) -> None:
        self._regulars.give_up()
        here, self._here = self._here, []
        if self._timer is None:
            # What is delivered is settled soon: written with the next tick, or by the timer if there is none.
            self.writer.attend(True)
            self._timer = self.loop.call_later(LINGER_SECONDS, self._late)
        self.pool.put_off(self.loop.time() - self._led_at < LINGER_SECONDS)
        self.writer.lead(self.pool.send)
        self._led_at = self.loop.time()
        now = time.monotonic()
        for client in here:
            if client is not None:
                self._regulars.answered(client, now)

    def _late(self) -> None:
        left = self._led_at + LINGER_SECONDS - self.loop.time()
        if left > LINGER_SECONDS / 8:
            self.writer.attend(True)
            self._timer = self.loop.call_later(left, self._late)
            return
        self._timer = None
        self.writer.attend(False)
        self.pool.put_off(False)
        self.pool.send()
        self.writer.lead()


def _resolve(future: asyncio.Future[R], result: R, error: BaseException | None) -> None:
    if future.done():  # whoever waited was cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
