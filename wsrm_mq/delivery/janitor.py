"""The thread that keeps house: it tells the witness the state that is durable, and prunes rows that are kept no longer.

It never delays an acceptance: due rows are found by reading, deleted in short transactions, and after each it rests for
longer than that took. One instance at a time prunes; a lock says which.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from wsrm_mq.errors import StoreError
from wsrm_mq.events.telling import Events
from wsrm_mq.queue import retention
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.queue.retention import Kept, Pruned
from wsrm_mq.store.lasting import Lasting, Repeated
from wsrm_mq.store.pruning import FORGET_ARRIVED, OLD_ARRIVED, OLD_INSTANCE
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

WITNESS_SECONDS: Final = 5.0
SWEEP_SECONDS: Final = 60.0
_RESTS: Final = 3.0
"""The factor of a rest to the time of its batch; a rest is at least ``_LEAST_REST``."""
_LEAST_REST: Final = 0.01
_ARRIVED_BATCH: Final = 5_000
_ROW_BYTES: Final = 2048
"""The bytes that the end of a message adds to the write-ahead log, about."""


def rest_after(took: float) -> float:
    """Seconds between two batches."""
    return max(_LEAST_REST, _RESTS * took)


class Janitor:
    """A thread that deletes rows whose retention is over, and looks after the store's files. With ``prunes`` it
    deletes; a run of a plan does not."""

    def __init__(
        self,
        store: Store,
        policy_of: PolicyOf,
        events: Events | None = None,
        *,
        prunes: bool = True,
        witness_seconds: float = WITNESS_SECONDS,
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        self._store = store
        self._policy_of = policy_of
        self._events = events or Events()
        self._witness_seconds = witness_seconds
        self._sweep_seconds = sweep_seconds
        self._prunes = prunes
        """Whether it deletes. The service says how long rows are kept: a process with a configuration of its own leaves
        them."""
        self._stopping = threading.Event()
        self.thread = Lasting("wsrm-mq-janitor", self._loop, self._broke, self._events)
        self._trouble = Repeated()

    def start(self) -> None:
        self._stopping.clear()
        self.thread.start()

    def stop(self) -> None:
        """End the thread, once it is through with its batch."""
        self._stopping.set()
        self.thread.join()

    def _loop(self) -> None:
        sweep_at = time.monotonic() + min(self._sweep_seconds, self._witness_seconds)
        while not self._stopping.wait(self._witness_seconds):
            try:
                self._store.bear_witness()
                if self._prunes and time.monotonic() >= sweep_at:
                    sweep_at = time.monotonic() + self._sweep_seconds
                    self.sweep()
                self._trouble.over()
            except StoreError as error:
                self._trouble.tell(self._events, "janitor.store_error", error)
            except BaseException as error:
                self._broke(error)

    def _broke(self, error: BaseException) -> None:
        self._events.tell("janitor.failed", trouble=error)

    def sweep(self) -> Pruned:
        """Prune all that is due, unless another instance is at it; ends early where it is stopped."""
        pruned = Pruned()
        with self._store.instances.alone("janitor") as is_alone:
            if not is_alone:
                return pruned
            now = self._store.reached()
            for batch in retention.batches(self._store.reader, self._kept, now):
                began = time.monotonic()
                pruned = pruned.plus(self._store.call(batch, size=_ROW_BYTES * len(batch.entries), drains=True))
                if self._stopping.wait(rest_after(time.monotonic() - began)):
                    break
            if not self._stopping.is_set():
                self._forget(now - self._policy_of(None).retain_ended)
                self._forget_clients(now - retention.CLIENTS)
                self._forget_arrived(now - max(self._policy_of(None).retain_ended, retention.ARRIVED))
        if any(pruned):
            self._events.tell("janitor.pruned", **pruned._asdict())
        return pruned

    def _kept(self, partner: str | None) -> Kept:
        policy = self._policy_of(partner)
        return Kept(policy.retain, policy.retain_ended, policy.retain_ledger, policy.retain_until_archived)

    def _forget(self, before: int) -> None:
        """Delete instances that ended ``before``, and queues of which nothing is left: a stranger may have named any
        number of them by paths."""
        with self._store.reader() as db:
            are_old = db.execute(OLD_INSTANCE, (before,)).fetchone() is not None
            unused = retention.unused_queues(db, before)
        if are_old:
            self._store.call(lambda tx: retention.forget_instances(tx, before))
        if unused.queues:
            self._store.call(lambda tx: retention.forget_queues(tx, unused))

    def _forget_clients(self, before: int) -> None:
        with self._store.reader() as db:
            are_old = retention.are_old_clients(db, before)
        if are_old:
            self._in_portions(lambda tx: retention.forget_clients(tx, before) == retention.BATCH)

    def _forget_arrived(self, before: int) -> None:
        """Forget which messages of other nodes arrived before ``before``: a repeat of one would be taken as new."""
        with self._store.reader() as db:
            are_old = db.execute(OLD_ARRIVED, {"before": before}).fetchone() is not None
        if are_old:
            which = {"before": before, "count": _ARRIVED_BATCH}
            self._in_portions(lambda tx: tx.execute(FORGET_ARRIVED, which).rowcount == _ARRIVED_BATCH)

    def _in_portions(self, forget: Callable[[Transaction], bool]) -> None:
        """Each in a transaction, and with a rest behind it; ``forget`` answers whether there is more."""
        is_more = True
        while is_more:
            began = time.monotonic()
            is_more = self._store.call(forget)
            if self._stopping.wait(rest_after(time.monotonic() - began)):
                return
