"""Group commit: one connection of a process writes, in the writer's own thread or in that of an event loop.

What waits is taken together: BEGIN IMMEDIATE, each verb in turn, COMMIT, then the callbacks. A batch forms by
itself while the previous one is being synced. Commit first, then acknowledge: no result is told before it is on
disk.

What can go wrong in a batch:

* busy, full, I/O: nothing of the batch is stored. Verbs that may be refused (an acceptance) fail at once, the sender
  resends. Verbs that must not be dropped (a settlement) stay and are tried again until they are stored; when the disk
  is full they get the reserve, and nothing else is admitted until there is room again.
* the files are not where they were: they were removed or replaced, and what is committed would be gone with the
  process. Nothing is begun until they are back (see ``rescue``).
* anything else is one verb's own mistake: the batch is rolled back and its verbs run one by one.

An event loop writes in its own thread, once a tick (``lead``): waking another thread costs more than the commit. It
does only what goes well at once. Whatever needs patience (the lock is taken, the disk is full, a verb fails, the WAL
has grown) it leaves to the writer's thread, and goes on. A thread of a program that uses queues does the same; what is
thrown into it (Ctrl-C) leaves the batch to the writer's thread, and goes on its way. A request's thread does not write,
although that would spare it the wake-up: its server may break it off between any two lines.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from wsrm_mq.errors import StoreBusy, StoreError, StoreFull, StoreOverloaded, StoreUnavailable
from wsrm_mq.events.inert import as_error
from wsrm_mq.store.cache import MaySend
from wsrm_mq.store.driver import FileIds
from wsrm_mq.store.group_commit import LINGERING, GroupCommit, OnCommit, Verb, Write, WriteQueue
from wsrm_mq.store.lasting import Lasting, Repeated
from wsrm_mq.store.port import Database

R = TypeVar("R")
MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
LEAD_SECONDS: Final = 0.02
"""An event loop waits so long for a commit that the writer's thread has begun, and no longer than a look once that
thread waits for the lock of another process or makes a checkpoint."""
_LEAD_WAITS: Final = (0.0, *[LEAD_SECONDS / 20] * 20)
LED_BYTES: Final = 1024 * 1024
"""Bytes that an event loop writes itself, at most: more would keep its connections waiting."""
NET_SECONDS: Final = 1.0
"""The writer's thread looks by itself so often: a loop that was to come may have ended."""
LINGER_SECONDS: Final = 0.005
"""How long a write whose result is not awaited waits for others."""
RETRY_SECONDS: Final = (0.02, 0.1, 0.5, 1.0)


class Writer:
    """Runs verbs in transactions, in the order they came, in its own thread."""

    def __init__(self, commit: GroupCommit, queue: WriteQueue) -> None:
        self.path = commit.path
        self.tally = commit.tally
        self._commit = commit
        self._queue = queue
        self._reserve = commit.reserve
        self._events = commit.events
        self._refused_at = 0.0
        self._writing = threading.RLock()
        """Held by the thread that takes from the queue and writes: what is taken first is written first. It knows whose
        it is: a thread that something is thrown into lets go of it where it has it, and only there."""
        self.is_attended = False
        """Whether a ``lead`` will come soon in any case: what lingers waits for it, and wakes no thread."""
        self._lock = threading.Lock()
        """Taken as itself, many times a message: a condition's own ``with`` is written in Python."""
        self._changed = threading.Condition(self._lock)
        self._stopping = False
        self._closed = True
        self._give_up_at = float("inf")
        self._idle = True
        self._trouble = Repeated()
        self._thread = Lasting("wsrm-mq-writer", self._loop, self._thread_broke, self._events)
        self._taken: list[Write[Any]] = []
        """The writes that the thread took from the queue last."""

    # for callers

    @property
    def commits(self) -> int:
        return self._commit.commits

    @property
    def committed_verbs(self) -> int:
        return self._commit.committed_verbs

    @property
    def instance(self) -> int:
        return self._commit.instance

    @property
    def is_open(self) -> bool:
        """It takes what is submitted, be it for after a fork."""
        return not self._closed

    def start(self, instance: int, instance_name: str, has_open: Callable[[FileIds], None]) -> None:
        """``GroupCommit.start``, and begin."""
        self._commit.start(instance, instance_name, has_open)
        self._give_up_at = float("inf")
        self.resume()

    def resume(self) -> None:
        """Begin, after ``suspend`` too: write what waits. The thread opens what is not open."""
        self._stopping = self._closed = False
        self._thread.start()

    def submit(
        self,
        verb: Verb[R],
        on_commit: OnCommit[R],
        *,
        keep: bool = False,
        drains: bool = False,
        size: int = 0,
        lingers: bool = False,
        is_led: bool = False,
        is_request: bool = False,
        is_relaxed: bool = False,
    ) -> None:
        """Queue ``verb``. ``on_commit`` runs in the thread that wrote, after the commit or the failure, and must not
        block. ``keep``: try until it is stored. ``drains``: it helps to make room, as a lease does, and is stored on a
        full disk too while settlements have theirs. ``size`` is the number of bytes it will write, about. ``lingers``:
        its result is not waited for, so a commit of its own can be spared. ``is_led``: a ``lead`` follows soon; it
        lingers until then. ``is_request``: a peer asks for it; ``StoreOverloaded`` at once where too many wait already.
        ``is_relaxed``: it need not survive a loss of power; a batch of such verbs alone is not synced."""
        if is_relaxed:
            self._commit.may_relax = True
        write = Write(verb, on_commit, keep, drains, size, lingers or is_led, is_request, is_relaxed)
        with self._lock:
            if self._closed:
                raise StoreUnavailable(f"{self.path}: the store is closed.", "")
            if self._thread.is_missing:
                self._need_thread(keep)
            if not self._queue.put(write):
                raise self._overloaded()
            # The first that lingers: the thread begins to wait for others. A loop that comes in any case does that.
            if (
                self._idle
                and not is_led
                and (not lingers or (not self.is_attended and len(self._queue.waiting) in (1, LINGERING)))
            ):
                self._idle = False
                self._changed.notify()

    def _need_thread(self, keep: bool) -> None:
        self._thread.start()
        if self._thread.is_missing and not keep:
            raise StoreUnavailable(f"{self.path}: no thread can be started that writes.", "Raise their limit.")

    def _overloaded(self) -> StoreOverloaded:
        requests, now = self._queue.requests, time.monotonic()
        if now - self._refused_at >= 1:
            self._refused_at = now
            self._events.tell("store.overloaded", requests=requests, size=self._queue.request_bytes)
        return StoreOverloaded(f"{self.path}: {requests} requests wait to be written.")

    def bound(self, has_slot: Callable[[int], bool], left_alone: MaySend) -> None:
        """Take no more sequences than ``has_slot`` says there are threads for, and none whose host is ``left_alone``:
        see ``Cache``."""
        self._commit.bound(has_slot, left_alone)

    def lead(self, waits: Sequence[float] = _LEAD_WAITS) -> None:
        """Write what waits, in this thread, without waiting for more than a commit; what cannot be written so is left
        to the writer's thread. ``waits``: seconds of each look for the end of what another thread writes."""
        is_left = True
        try:
            is_left = not self._has_turn(waits) or self._lead()
        finally:
            with contextlib.suppress(RuntimeError):  # it is not this thread's turn
                self._writing.release()
            if is_left:
                self.urge()

    def _has_turn(self, waits: Sequence[float]) -> bool:
        for seconds in waits:
            if self._writing.acquire(timeout=seconds):
                return True
            if self._commit.at_lock or self._commit.checkpoint_due:
                return False
        return False

    def _lead(self) -> bool:
        """Write what waits, in the thread that asks; answers whether something is left."""
        commit = self._commit
        with self._lock:
            is_in_trouble = self._reserve.is_spent or self._trouble.is_on or commit.guard.lost is not None
            is_ready = commit.is_open and not (self._stopping or commit.checkpoint_due or is_in_trouble)
            batch = self._queue.take(LED_BYTES, alone=False) if is_ready else []
            is_left = bool(self._queue.waiting)
        kept = self._led(batch) if batch else []
        if kept:
            with self._lock:
                self._queue.put_back(kept)
        if batch and commit.thrown is not None:
            raise commit.thrown
        return bool(kept) or is_left or commit.checkpoint_due

    def _led(self, batch: list[Write[Any]]) -> list[Write[Any]]:
        """Write a batch at once or not at all; answers what is left to the writer's thread."""
        try:
            if self._commit.run(batch, wait=False) is not None:
                return batch
            self._tell(batch)
            return []
        except BaseException as error:
            return self._broke(batch, error)

    def urge(self) -> None:
        """No ``lead`` follows: what lingers is left to the thread."""
        with self._lock:
            self._queue.urge()
            if self._idle:
                self._idle = False
                self._changed.notify()

    def call(
        self,
        verb: Verb[R],
        *,
        keep: bool = False,
        drains: bool = False,
        size: int = 0,
        committed: Callable[[R], object] | None = None,
        is_request: bool = False,
        leads: bool = False,
        is_relaxed: bool = False,
    ) -> R:
        """Run ``verb`` and wait until it is on disk. ``committed(result)`` is called before this
        returns, in the thread that wrote. ``leads``: this thread writes, where it can at once (``lead``)."""
        done = threading.Lock()
        done.acquire()
        outcome: list[Any] = []

        def on_commit(result: R | None, error: BaseException | None) -> None:
            outcome.extend((result, error))
            try:
                if committed is not None and error is None:
                    committed(cast(R, result))
            finally:
                done.release()

        which = {"is_request": is_request, "is_led": leads, "is_relaxed": is_relaxed}
        self.submit(verb, on_commit, keep=keep, drains=drains, size=size, **which)
        if leads:
            self.lead(waits=(0.0,))  # while another thread writes, a batch forms
        done.acquire()
        result, error = outcome
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def suspend(self) -> None:
        """Write what can be written, then close the connection. The rest, and what is submitted meanwhile, waits for
        the next ``start``: a fork is near."""
        with self._lock:
            self._stopping = True
            self._changed.notify()
        self._thread.join()
        self._disconnect()  # once more, where there was no thread

    def close(self, last: Verb[object], timeout: float | None = None) -> None:
        """Write what waits, and ``last`` behind it, then close the connection. What is submitted from now on is
        refused; what cannot be written within ``timeout`` seconds is left undone, loudly."""
        with self._lock:
            self._closed = self._stopping = True  # a loop that leads leaves ``last`` to the thread
            self._give_up_at = float("inf") if timeout is None else time.monotonic() + timeout
            self._queue.put(Write(last, lambda _result, _error: None))
        self.suspend()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive

    @property
    def is_disk_full(self) -> bool:
        """The reserve is spent: what must be stored still is, nothing else is admitted."""
        return self._reserve.is_spent

    def look_after(self, reader: Database | None = None) -> None:
        """Find out, although nothing is written, that the thread or the files are gone, or as ``reader`` shows, went
        back."""
        with self._lock:
            self._thread.look_after()
        guard = self._commit.guard
        if guard.lost is None and (guard.are_gone() or (reader is not None and guard.is_behind(reader))):
            self.submit(lambda _tx: None, lambda _result, _error: None)

    # the thread

    def _loop(self) -> None:
        attempt = 0
        while self._await():
            with self._writing:
                with self._lock:
                    self._taken = batch = self._queue.take(MAX_BATCH_BYTES)
                kept = self._handled(batch)
                self._taken = []
                if kept:
                    with self._lock:
                        self._queue.put_back(kept)
            if not kept:
                attempt = 0
                continue
            if self._stopping and not self._closed:
                break  # a fork is near: they wait for the next start
            left = self._give_up_at - time.monotonic()
            if left <= 0:
                self._give_up()
                break
            self._pause(min(RETRY_SECONDS[attempt], left))
            attempt = min(attempt + 1, len(RETRY_SECONDS) - 1)
        self._disconnect()

    def _pause(self, seconds: float) -> None:
        """Before what has to be stored is tried again. A request does not wait for the end of it."""
        with self._lock:
            if not self._queue.requests:
                self._idle = True
                self._changed.wait(seconds)
                self._idle = False

    def _disconnect(self) -> None:
        with self._writing:
            self._commit.close()

    def _handled(self, batch: list[Write[Any]]) -> list[Write[Any]]:
        """Write a batch; answers what has to be tried again. Raises nothing."""
        try:
            reserve = self._reserve
            if reserve.is_spent or (reserve.is_small and self._commit.is_short(sum(write.size for write in batch))):
                batch = self._admitted(batch)
            kept = self._write(batch)
            if self._commit.checkpoint_due and (not kept or reserve.is_spent):
                self._commit.checkpoint()
            if not kept and time.monotonic() >= reserve.due_at:
                self._commit.restore()
            return kept
        except BaseException as error:
            return self._broke(batch, error)

    def _thread_broke(self, error: BaseException) -> None:
        """It was thrown into the thread: nothing there raises it."""
        with self._writing:
            kept, self._taken = self._broke(self._taken, error), []
            with self._lock:
                self._queue.put_back(kept)

    def _broke(self, batch: list[Write[Any]], error: BaseException) -> list[Write[Any]]:
        """This error was not foreseen: the callbacks are called all the same. Answers what has to be tried again."""
        self._commit.roll_back()
        what = as_error(error)
        self._events.tell("store.writer_failed", error=what, trouble=error)
        untold = [write for write in batch if not write.is_told]
        if isinstance(error, StoreError):
            return self._fail(untold, error)
        return self._fail(untold, StoreUnavailable(f"{self.path}: {what}.", "See the log of the service."))

    def _give_up(self) -> None:
        """The time to close is over. What was not settled is found by the next start, as a possible redelivery."""
        with self._lock:
            batch = self._queue.take_all()
        self._events.tell("store.not_written", verbs=len(batch), path=self.path)
        failure = StoreUnavailable(f"{self.path}: the store was closed before it could be written.", "")
        for write in batch:
            write.error = failure
        self._tell(batch)

    def _await(self) -> bool:
        """Wait for something to write; ``False`` is the end."""
        with self._lock:
            lingered = False
            while not (lingered or self._queue.is_due or self._stopping or self._commit.checkpoint_due):
                lingered = bool(self._queue.waiting)
                self._idle = True
                self._changed.wait(LINGER_SECONDS if lingered else NET_SECONDS)
            if lingered:
                self.is_attended = False  # no loop has come
            self._idle = False
            return bool(self._queue.waiting) or not self._stopping

    def _admitted(self, batch: list[Write[Any]]) -> list[Write[Any]]:
        """The part of a batch that is written while the reserve is spent: what must be stored, and what makes room
        while there is enough for that. The rest is refused."""
        self._commit.restore()
        if not (self._reserve.is_spent and self._commit.guard.are_there):  # gone with its directory, it is not spent
            return batch
        may_drain, why = True, ""
        if any(write.drains for write in batch) and not self._commit.has_room():
            may_drain, why = False, ", and what is left is kept for settlements"
        admitted = [write for write in batch if write.keep or (write.drains and may_drain)]
        if refused := [write for write in batch if write not in admitted]:
            self._fail(refused, StoreFull(f"{self.path}: the disk is full{why}."))
        return admitted

    def _write(self, batch: list[Write[Any]]) -> list[Write[Any]]:
        """Write a batch and tell its waiters; answers those that have to be tried again."""
        failure = self._commit.run(batch) if batch else None
        if failure is None:
            if batch and self._trouble.is_on:
                self._trouble.over()
            self._tell(batch)
            return []
        if isinstance(failure, StoreError):
            return self._fail(batch, failure)
        for index, write in enumerate(batch):
            error = self._commit.run([write])
            if isinstance(error, StoreError):
                return self._fail(batch[index:], error)
            write.error = error
            self._tell([write])
        return []

    def _fail(self, batch: list[Write[Any]], failure: StoreError) -> list[Write[Any]]:
        if isinstance(failure, StoreBusy):
            with self._lock:  # what came meanwhile too: no request waits for a lock twice (I16)
                batch = batch + self._queue.take_refusable()
        if not failure.lasts:  # its callers are told, and what has ended is told where that is seen
            self._trouble.tell(self._events, "store.write_failed", failure)
        is_first = isinstance(failure, StoreFull) and not self._reserve.is_spent
        if isinstance(failure, StoreFull):
            self._reserve.release()
        kept = [] if failure.lasts else [write for write in batch if write.keep or (is_first and write.drains)]
        refused = [write for write in batch if write not in kept]
        for write in refused:
            write.error = failure
        self._tell(refused)
        return kept

    def _tell(self, batch: list[Write[Any]]) -> None:
        with self._lock:
            self._queue.release(batch)
        for write in batch:
            write.is_told = True
            try:
                write.on_commit(write.result if write.error is None else None, write.error)
            except BaseException as error:
                self._events.tell("store.callback_failed", trouble=error)
