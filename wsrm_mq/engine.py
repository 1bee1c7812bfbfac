"""The engine of a front in one process: store, dispatcher and watch, started and stopped together, and kept whole
over a fork.

No SQLite connection may be open while a process forks: before it, every connection is closed; after it the parent opens
them again and the child starts anew, as an instance of its own. A lock may be held by a thread that the child does not
have; so all that has one is made by ``start``, and made again in the child. Where Python is not told of a fork it is
too late for that: uWSGI, which does so, is waited for (``_defer``); the child of any other forking server says so and
takes nothing.

A process that forks before its first request is taken for one that only forks workers: from then
on it leaves the delivering to them (``dispatcher.Duty``).

A process that ends in good order drains, whether ``close`` was called or not: a server's workers do not know us.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from wsrm_mq import tracing
from wsrm_mq.delivery.application import Gate
from wsrm_mq.delivery.chores import Gaps, tell_ends
from wsrm_mq.delivery.completion import Waiters
from wsrm_mq.delivery.delivery import Call, Delivery
from wsrm_mq.delivery.dispatcher import Dispatcher, Duty
from wsrm_mq.delivery.janitor import Janitor
from wsrm_mq.delivery.watch import Watch
from wsrm_mq.errors import ConfigurationError, StoreUnavailable
from wsrm_mq.events.telling import Events, OnEvent
from wsrm_mq.queue import ownership
from wsrm_mq.queue.arrival import Receipt
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.store.applications import NAMELESS, Serving
from wsrm_mq.store.cache import MaySend, may_send
from wsrm_mq.store.clock import Clock, wall_clock
from wsrm_mq.store.driver import ensure
from wsrm_mq.store.store import Store, store_path

if TYPE_CHECKING:
    from wsrm_mq.delivery.acknowledging import Acknowledging
    from wsrm_mq.delivery.hanging import Patient
    from wsrm_mq.delivery.posted import Post
    from wsrm_mq.delivery.posting import Written


# uWSGI, the server that forks its workers without telling Python.
#
# It loads the application in its master, unless told ``lazy-apps``, and forks in C: no hook of Python's runs. A
# SQLite connection that is open then would be worse than useless in a worker: SQLite goes by what it knows of its own
# process, and believes in locks there that only the master has. So nothing is opened in the master; each worker
# starts for itself.


def _defer(start: Callable[[], None]) -> bool:
    """Whether this process is one that workers are forked from; then each of them calls ``start``, once it is one.

    Raises ``ConfigurationError`` where threads could not run between requests.
    """
    try:
        import uwsgi
    except ImportError:
        return False
    if not hasattr(uwsgi, "opt"):  # a directory of that name can be imported too
        return False
    if not {"threads", "enable-threads"} & {_text(option) for option in uwsgi.opt}:
        raise ConfigurationError(
            "uWSGI runs Python's threads only during requests, so nothing would be delivered between them."
            " Give it `enable-threads = true`, or `threads`."
        )
    if uwsgi.worker_id():
        return False
    with suppress(Exception):  # importing it replaces the hook that there is: better now than after ours
        import uwsgidecorators  # noqa: F401
    before: Callable[[], None] | None = getattr(uwsgi, "post_fork_hook", None)

    def in_worker() -> None:
        if before is not None:
            before()
        if uwsgi.worker_id():  # and no mule or spooler
            start()

    uwsgi.post_fork_hook = in_worker
    return True


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


_LAST_COMMIT_SECONDS: Final = 1.0
"""The time for the last commit of a close, whose own time may be used up."""
_CALL_SECONDS: Final = 2.0
"""The longest wait of a fork for running operations, in a process that serves. A longer operation is forked with its
open files."""
_DRAIN_SECONDS: Final = 30.0
"""The longest wait for running operations at the end of the process, as servers give it to their workers; also that of
a fork in a process that has had no request."""

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_whole = threading.RLock()
"""Held while an engine starts and while the process forks: no child gets a store that is half open."""
_is_aside = False


@contextmanager
def standing_aside() -> Iterator[None]:
    """Within this block engines are made that never start in this process and make no store: an application is loaded
    for calls by another engine."""
    global _is_aside
    before, _is_aside = _is_aside, True
    try:
        yield
    finally:
        _is_aside = before


@dataclass(eq=False)
class Engine:
    """Delivers messages of a store. ``start`` recovers from a crash and begins to deliver without a request: at once
    after ``ask``, else after a grace, in which a process that only forks has forked.

    ``on_open`` is called with the store before anything is delivered, and may refuse it by an error. ``poster`` makes
    the poster of this process; ``None``: nothing leaves in requests of its own. ``patience`` makes a ``Patient`` of it,
    which has another way with hosts that do not answer. ``written``: writes what leaves otherwise than it is stored.
    ``hold_timeout``: ms that a gap may stay open before it is told; ``None``: for ever."""

    where: str | os.PathLike[str]
    call: Call
    policy_of: PolicyOf
    _: KW_ONLY
    request_threads: int = 64
    max_waiting: int = 4
    on_event: OnEvent | None = None
    clock: Clock = wall_clock
    chores: Sequence[Callable[[], None]] = ()
    serving: Serving = NAMELESS
    prunes: bool = True
    poster: Callable[[], Post] | None = None
    hold_timeout: int | None = None
    on_open: Callable[[Store], None] | None = None
    patience: Callable[..., Patient] | None = None
    written: Written | None = None

    def __post_init__(self) -> None:
        self.events = Events(self.on_event)
        self._pid = 0
        self._left_open = 0
        """The process in which a close did not finish."""
        self._deferred = os.getpid() if _is_aside else 0
        """The process that is not to start: one that only forks those that do, one that stands aside or ends."""
        self.starts_in_child = True
        """Whether a fork's child begins to deliver by itself; else its first request does."""
        self.runs_here: Callable[[], bool] = lambda: False
        """Answers whether the calls of the dispatcher's threads are run by this thread, as by that of an event loop."""
        self.acknowledging: Acknowledging | None = None
        self.store: Store
        self._gate: Gate
        self.waiters: Waiters
        self.dispatcher: Dispatcher
        self.duty: Duty
        self.watch: Watch
        self.janitor: Janitor
        _engines.add(self)

    @property
    def is_running(self) -> bool:
        return self._pid == os.getpid()

    @property
    def is_asked(self) -> bool:
        """Whether this process serves: it was asked to, was not forked since, and its watch runs."""
        return self._pid == os.getpid() and self.duty.is_asked and not self.watch.thread.is_missing

    def ask(self) -> None:
        """A request has come, or a server says that it begins: this process serves, and delivers from now on. Raises
        ``StoreUnavailable`` where no thread can be started for the watch."""
        if not self.is_running:
            return
        self.watch.thread.look_after()
        if self.watch.thread.is_missing:
            raise StoreUnavailable(f"{self.where}: no thread can be started that watches.", "Raise their limit.")
        if not self.duty.is_asked:
            self.duty.ask()
            self.watch.nudge()

    def start(self) -> None:
        """Open the store and begin to deliver; does nothing where that is done, nor in a master that forks its workers
        without telling Python: each worker does."""
        with _whole:
            if self.is_running or self._deferred == os.getpid():
                return
            if self._pid:
                raise StoreUnavailable(
                    f"{self.where}: was open when this process was forked, and Python was not told.",
                    "Have the workers load the application, or make the middleware with start=False.",
                )
            if _defer(self._start_in_worker):
                self._deferred = os.getpid()
            else:
                self._start()

    def serve(self, serving: Serving) -> None:
        """This process serves other queues from now on."""
        self.serving = serving
        self.store.serve(serving)
        self.watch.nudge()

    def check(self) -> None:
        """Make the store, or bring it up to date, for a later ``start``. Raises ``StoreError``."""
        if self._deferred != os.getpid():
            ensure(store_path(self.where))

    def _start_in_worker(self) -> None:
        try:
            self.start()
            self.ask()
        except Exception as error:  # the first request tries again, and has an answer to give
            self.events.tell("engine.start_failed", trouble=error)

    def _start(self) -> None:
        tracing.look()
        poster = None if self.poster is None else self.poster()  # it may raise
        self.events.start()
        store = Store(self.where, clock=self.clock, events=self.events, serving=self.serving)
        store.open()
        waiters = Waiters(self.max_waiting)
        call, self.acknowledging = self.call, None
        left_alone: MaySend = may_send
        send_threads = 1
        if poster is not None:
            from wsrm_mq.delivery import hanging
            from wsrm_mq.delivery.acknowledging import Acknowledging
            from wsrm_mq.delivery.hearing import Hearing
            from wsrm_mq.delivery.posting import Posting, has_taken

            send_threads = hanging.SENDING
            make = self.patience or hanging.Patient
            post = make(poster, knows=partial(has_taken, store), on_room=lambda: self.watch.look_soon())
            left_alone = post.left_alone
            hearing = Hearing(self.policy_of, self.events, self.hand_over)
            call = Posting(store, post, hearing, call, self.written)
            self.acknowledging = Acknowledging(store, post, hearing, self.policy_of, self.events)
        self._gate = Gate(call, self.runs_here)
        self.duty = Duty()
        dispatcher = Dispatcher(
            store,
            self._gate,
            self.policy_of,
            waiters,
            self.duty,
            request_threads=self.request_threads,
            send_threads=send_threads,
            events=self.events,
            left_alone=left_alone,
            on_retry=lambda at: self.watch.nudge(at),
            on_left=lambda: self.watch.look_elsewhere(),
        )
        self.store, self.waiters, self.dispatcher = store, waiters, dispatcher
        self.watch = self._watching(store, dispatcher, waiters)
        prunes = self.prunes and not self.serving.is_of_node
        self.janitor = Janitor(store, self.policy_of, self.events, prunes=prunes)
        self._pid = os.getpid()
        try:
            if self.on_open is not None:
                self.on_open(store)
            self.watch.look()
            self.watch.start()
            self.janitor.start()
        except BaseException:
            self.close()
            raise

    def _watching(self, store: Store, dispatcher: Dispatcher, waiters: Waiters) -> Watch:
        chores: tuple[Callable[[], None], ...] = (
            *self.chores,
            lambda: self.janitor.thread.look_after(),
            partial(tell_ends, store, dispatcher.give),
        )
        made = (store, dispatcher, waiters, self.policy_of, self.duty, self.events)
        sending = self.acknowledging
        if self.hold_timeout is not None:
            chores += (Gaps(store, self.hold_timeout, None if sending is None else sending.say).look,)
        if sending is None:
            return Watch(*made, chores)
        return Watch(*made, (*chores, sending.look), sending.next_look)

    def hand_over(self, receipt: Receipt, delivery: Delivery | None = None) -> None:
        """Hand the work that a commit has left to the dispatcher. ``delivery``: a message of it that is in memory."""
        if receipt.claim is not None:
            self.dispatcher.give(receipt.claim, delivery)
        elif delivery is not None:
            self.dispatcher.offer(receipt.lane, delivery)
        for sends in receipt.sends:
            self.dispatcher.give(sends)
        if receipt.needs_watch:
            self.watch.look_soon()
        if receipt.is_consumed:
            self.store.ring()
        for position in receipt.acknowledged:
            self.waiters.notify(position)

    def close(self, timeout: float | None = None) -> bool:
        """Drain: running messages finish and are settled, every sequence is given back. Answers whether all threads
        finished within ``timeout`` seconds. The next start finds the others as possible redeliveries, unless a second
        call finishes them."""
        if self.is_running:
            self._pid, self._left_open = 0, os.getpid()
        if self._left_open != os.getpid():
            return True
        deadline = None if timeout is None else time.monotonic() + timeout
        self.watch.stop()
        self.janitor.stop()
        if self.acknowledging is not None:
            self.acknowledging.stop()
        finished = self.dispatcher.stop(timeout)
        if finished:
            left = None if deadline is None else max(_LAST_COMMIT_SECONDS, deadline - time.monotonic())
            self.store.close(ownership.leave, left)
            self._left_open = 0
            self.events.stop()
            tracing.flush()
        return finished

    def drain(self) -> None:
        """``close``, for a process that ends: a request that still comes starts nothing anew."""
        self._deferred = os.getpid()
        if not self.close(_DRAIN_SECONDS):
            self.events.tell("engine.cut_off", path=self.where)

    def before_fork(self) -> None:
        if self._has_store:
            self.watch.stop()
            self.janitor.stop()
            if self._gate.is_inside:  # an operation that forks: this is no server's master
                self._gate.close(_CALL_SECONDS)
            else:
                self.duty.fork()
                self._end_calls()
            self.store.suspend()

    def _end_calls(self) -> None:
        """Let calls of the application end before a fork, for ``_DRAIN_SECONDS`` at most. Once this process has had a
        request, that is waited for no longer."""
        deadline = time.monotonic() + _DRAIN_SECONDS
        while not (self._gate.close(_CALL_SECONDS) or self.duty.is_asked or time.monotonic() > deadline):
            continue

    def after_fork_in_parent(self) -> None:
        if self._has_store:
            try:
                self.store.resume()
            finally:
                self._gate.open()
        if self.is_running:
            self.watch.start()
            self.janitor.start()

    def after_fork_in_child(self) -> None:
        """Begin anew in the child, where nothing that waits is taken before the grace is over: a child that execs, or
        does one job and ends, would be killed with it."""
        was_running = bool(self._pid)
        if was_running or self._left_open:
            self.store.abandon()
        self._pid = self._left_open = 0
        if was_running and self.starts_in_child:
            self._start()

    @property
    def _has_store(self) -> bool:
        return os.getpid() in (self._pid, self._left_open)


def _each(what: Callable[[Engine], object]) -> None:
    """Call ``what`` for each engine; an error in one is told, and the others go on. Python only prints errors of
    hooks."""
    for engine in list(_engines):
        try:
            what(engine)
        except BaseException as error:
            engine.events.tell("engine.fork_failed", trouble=error)


def _before() -> None:
    _whole.acquire()
    _each(Engine.before_fork)


def _in_parent() -> None:
    _each(Engine.after_fork_in_parent)
    _whole.release()


def _in_child() -> None:
    global _whole
    _whole = threading.RLock()
    _each(Engine.after_fork_in_child)


def _drain() -> None:
    _each(Engine.drain)


atexit.register(_drain)
os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
