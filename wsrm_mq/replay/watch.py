"""The net under every wake-up: one thread that looks, when told and at least once a second.

Nothing announces a death, a clock that has run out, or a CLI that wrote to the store; so it looks for dead instances,
sequences that nobody runs, retries that are due, sequences whose time is over, and tails to bury.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from wsrm_mq.errors import StoreError
from wsrm_mq.queue import ending, ownership
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.replay.dispatcher import Dispatcher
from wsrm_mq.replay.waiting import Waiters
from wsrm_mq.store import instances
from wsrm_mq.store import statements as sql
from wsrm_mq.store.store import Store

__all__ = ["Watch"]

log = logging.getLogger("wsrm_mq.watch")

POLL_SECONDS: Final = 1.0
BATCH: Final = 200
_NUDGE_SECONDS: Final = 0.05


class Watch:
    def __init__(
        self,
        store: Store,
        dispatcher: Dispatcher,
        waiters: Waiters,
        policy_of: PolicyOf,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._waiters = waiters
        self._policy_of = policy_of
        self._poll_seconds = poll_seconds
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._nudged_at = 0.0

    def start(self) -> None:
        """Look once, in this thread, so that what was deliverable at a crash runs before the first request; then
        keep looking in an own thread."""
        self._stopping.clear()
        self._look()
        self._thread = threading.Thread(target=self._loop, name="wsrm-mq-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self.nudge()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def nudge(self, _retry_at: int = 0) -> None:
        """Look again now, to learn when the next retry is due."""
        presence = self._store.presence
        if presence is not None:
            instances.wake(self._store.path, [presence.name])

    def look_soon(self) -> None:
        """Something may be wrong with another instance, or a tail waits: do not leave it to the poll. Cheap to ask for
        by every request."""
        now = time.monotonic()
        if now - self._nudged_at > _NUDGE_SECONDS:
            self._nudged_at = now
            self.nudge()

    def _loop(self) -> None:
        presence = self._store.presence
        assert presence is not None
        while not self._stopping.is_set():
            try:
                self._store.writer.look_after_files()
                words = presence.wait(self._seconds())
                for word in words:
                    if word.isdigit():
                        self._waiters.notify(int(word))
                if not self._stopping.is_set() and (not words or any(not word.isdigit() for word in words)):
                    self._look()
            except StoreError as error:
                log.error("watch.store_error %s", error)
                self._stopping.wait(self._poll_seconds)
            except Exception:
                log.exception("watch.failed")
                self._stopping.wait(self._poll_seconds)

    def _seconds(self) -> float:
        """How long to sleep: to the next retry, at most one poll."""
        with self._store.reader() as db:
            retry_at: int | None = db.execute(sql.NEXT_RETRY).fetchone()[0]
        if retry_at is None:
            return self._poll_seconds
        return min(self._poll_seconds, max(0.001, (retry_at - self._store.clock()) / 1000))

    def _look(self) -> None:
        self._bury_instances()
        with self._store.reader() as db:
            now = self._store.clock()
            has_runnable = db.execute(sql.RUNNABLE, {"now": now, "count": 1}).fetchone() is not None
            due = [key for (key,) in db.execute(sql.DUE, {"now": now, "count": BATCH})]
            discarding = [key for (key,) in db.execute(sql.DISCARDING)]
        for key in due:
            self._store.call(lambda tx, key=key: ending.expire(tx, key))  # type: ignore[misc]
        while has_runnable:
            claims = self._store.call(lambda tx: ownership.runnable(tx, BATCH))
            for claim in claims:
                self._dispatcher.give(claim)
            has_runnable = len(claims) == BATCH
        for key in discarding:
            while self._store.call(lambda tx, key=key: ending.bury_batch(tx, key)):  # type: ignore[misc]
                pass
        if due:
            self._look()

    def _bury_instances(self) -> None:
        """Free what dead instances ran."""
        with self._store.reader() as db:
            holders = db.execute(sql.LIVE_INSTANCES).fetchall() + db.execute(sql.ENDED_OWNERS).fetchall()
        for key, name in holders:
            if key == self._store.instance or instances.is_alive(self._store.path, name):
                continue
            freed = self._store.call(lambda tx, key=key: ownership.take_over(tx, key, self._policy_of))  # type: ignore[misc]
            instances.bury(self._store.path, name)
            log.warning("instance.gone name=%s sequences=%d", name, freed)
