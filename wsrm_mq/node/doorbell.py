"""The watch of a node: it hears the doorbell, wakes who waits in this process, and ends what time has ended."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from wsrm_mq.errors import StoreError
from wsrm_mq.events.telling import Events
from wsrm_mq.queue import expiring
from wsrm_mq.store import consuming, queues
from wsrm_mq.store.lasting import Lasting, Repeated
from wsrm_mq.store.port import MAY_BE_READY, Neighbours
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

POLL_SECONDS: Final = 1.0
SOONEST_SECONDS: Final = 0.002
PAUSE_SECONDS: Final = 0.05
"""The pause between two looks at what time has ended, where others ring more often than that."""


class Doorbell:
    """One thread of a node. ``rings`` grows whenever something may be ready."""

    def __init__(
        self,
        store: Store,
        events: Events,
        rung: Callable[[], None],
        look: Callable[[], float],
    ) -> None:
        """``rung`` is told of every ring. ``look`` is called in every turn of the watch, and answers after how many
        seconds it wants the next one."""
        self._store = store
        self._events = events
        self._rung = rung
        self._look = look
        self._is_to_tell = self._listens = False
        self._waiters: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._rings = 0
        self._stopping = threading.Event()
        self._neighbours = Neighbours(store.instances)
        self._trouble = Repeated()
        self._ends_at = math.inf
        """When something ends that the last look has seen, by the monotonic clock."""
        self._thread = Lasting("wsrm-mq-node", self._loop, self._broke, events)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self.ring()
        self.nudge()
        self._thread.join()

    @property
    def rings(self) -> int:
        return self._rings

    def ring(self) -> None:
        """Something may be ready: wake who waits in this process."""
        self.settled()
        self._rung()

    def settled(self) -> None:
        """Something was settled: there may be room for producers of this process."""
        with self._changed:
            self._rings += 1
            self._changed.notify_all()
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()

    def listen(self) -> bool:
        """Have other processes ring here too, from now on; answers whether they did not before."""
        is_new, self._listens = not self._listens, True
        presence = self._store.presence
        if presence is not None and is_new:
            self._store.instances.listen(presence.name)
        return is_new

    def when_rung(self, waiter: Callable[[], None]) -> None:
        """Have ``waiter`` called, once, when it rings next."""
        self.listen()
        with self._changed:
            self._waiters.append(waiter)

    def nudge(self) -> None:
        """Have the watch look now."""
        presence = self._store.presence
        if presence is not None:
            self._store.instances.wake([presence.name], MAY_BE_READY)

    def tell_soon(self) -> None:
        """``tell``, of the watch: this waits for nothing."""
        self.ring()
        if not self._is_to_tell:
            self._is_to_tell = True
            self.nudge()

    def tell(self) -> None:
        """Wake who waits, here and in other processes."""
        self.ring()
        self._store.ring()

    def wait(self, since: int, seconds: float) -> bool:
        """Wait until it has rung more often than ``since``, or for so long; answers whether it has, or may have."""
        if self.listen():
            return True
        with self._changed:
            return self._changed.wait_for(lambda: self._rings > since or self._stopping.is_set(), seconds)

    def _loop(self) -> None:
        presence = self._store.presence
        assert presence is not None
        seconds = due = turned_at = looked_at = 0.0
        while not self._stopping.is_set():
            try:
                heard = presence.wait(seconds)
                if heard:
                    self.ring()
                if self._is_to_tell:
                    self._is_to_tell = False
                    self._store.ring()
                now = time.monotonic()
                if now - looked_at >= POLL_SECONDS:
                    looked_at = now
                    self._look_around()
                if heard and now < turned_at + PAUSE_SECONDS:
                    due = min(due, turned_at + PAUSE_SECONDS)
                else:
                    turned_at, due = now, now + self._turn()
                seconds = min(max(0.0, due - time.monotonic()), self._look())
                self._trouble.over()
            except StoreError as error:
                if not error.lasts:  # that a keeper is gone is told once, as `express.lost`
                    self._trouble.tell(self._events, "watch.store_error", error)
                seconds = POLL_SECONDS
                self._stopping.wait(POLL_SECONDS)

    def _broke(self, error: BaseException) -> None:
        self._trouble.tell(self._events, "watch.failed", error)
        self._stopping.wait(POLL_SECONDS)

    def _turn(self) -> float:
        """End what is over; answers after how many seconds there is more to do."""
        if time.monotonic() >= self._ends_at:
            self.ring()  # the wait of a group is over by itself
        self._ends_at = math.inf
        measured = self._store.believed.steady or self._store.clock
        with self._store.reader() as db:
            left = expiring.time_left(db, self._store.clock(), self._store.reached(), measured()) / 1000
        if left > 0:
            self._ends_at = time.monotonic() + left
            return max(SOONEST_SECONDS, min(left, POLL_SECONDS))
        ended = self._store.call(expiring.sweep, drains=True)
        self.tell()
        return 0.0 if ended else SOONEST_SECONDS

    def _look_around(self) -> None:
        """End what needs no end of its own time: leases of the dead, waits of a clock that was set back, old ids."""
        self._store.stay_in_place()
        if self._listens and self._store.presence is not None:  # its files may have been made again
            self._store.instances.listen(self._store.presence.name)
        self._store.look_after()
        self.bury()
        with self._store.reader() as db:
            back = db.execute(consuming.TURNED_BACK, {"now": self._store.clock(), "count": 1}).fetchone()
            forgotten = db.execute(consuming.DUE_TO_BE_FORGOTTEN, {"now": self._store.reached()}).fetchone()
        if back is not None:
            self._store.call(expiring.end_turned_back, drains=True)
        if forgotten is not None:
            self._store.call(expiring.forget_put_before, drains=True)
        if back is not None:
            self.tell()

    def bury(self) -> None:
        """Give back what the dead have leased, and wake who waits for it."""
        with self._store.reader() as db:
            holders = db.execute(consuming.HOLDERS).fetchall()
        gone = [one for one in holders if one[0] != self._store.instance and self._is_gone(*one)]
        for key, name, _pid, _has_ended in gone:
            while self._store.call(partial(_take_over, key=key, name=name), drains=True):
                continue
        if gone:
            self.tell()

    def _is_gone(self, _key: int, name: str, _pid: int, has_ended: int) -> bool:
        if has_ended:
            return not self._store.instances.lives(name)
        return bool(self._neighbours.is_dead(name))


def _take_over(tx: Transaction, key: int, name: str) -> bool:
    """Take messages over from a process that is gone; answers whether there is more."""
    more = expiring.holder_gone(tx, key, name) >= expiring.PORTION
    if not more:
        tx.execute(queues.LEAVE, {"key": key, "now": tx.now})
    return more
