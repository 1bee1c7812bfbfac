"""A request that waits for its message, and the thread of the dispatcher that runs the message: the calls between the
two."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeVar

from wsrm_mq.queue.settle import Settlement
from wsrm_mq.store.group_commit import Verb
from wsrm_mq.store.store import Store

# Requests that wait for the settlement of a message, by its position.


class Settable(Protocol):
    """An event, as threads or an event loop have it. ``set`` comes from another thread and must not block."""

    def set(self) -> None: ...


class Signal:
    """An event that one thread waits for. An error thrown into that thread, which is a server's, leaves nothing locked
    that ``set`` would wait for, as it may with a ``threading.Event``."""

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        with suppress(RuntimeError):  # it is set
            self._unset.release()

    def wait(self, seconds: float) -> bool:
        """Whether it was set within ``seconds``; then it is no longer."""
        return self._unset.acquire(timeout=max(0.0, seconds))


class Waiters:
    """``places`` is the number of requests that may wait for a gap to close at a time."""

    def __init__(self, places: int) -> None:
        self._lock = threading.Lock()
        self._places = places
        self._of: Counter[str] = Counter()
        self.waiting: dict[int, list[Settable]] = {}
        """The events that wait for a message, by its position."""

    def enter(self, who: str, most: int | None, *, bounded: bool) -> bool:
        """Let a request of ``who`` wait, at most ``most`` of them at a time (SEC-030); ``bounded``: it takes one of the
        places. Answers whether it may; then ``leave`` has to follow."""
        with self._lock:
            if (bounded and self._places <= 0) or (most is not None and self._of[who] >= most):
                return False
            self._places -= bounded
            self._of[who] += 1
            return True

    def leave(self, who: str, *, bounded: bool) -> None:
        with self._lock:
            self._places += bounded
            self._of[who] -= 1
            if not self._of[who]:
                del self._of[who]

    @contextmanager
    def expecting(self, position: int, event: Settable) -> Iterator[None]:
        """Set ``event`` when the message at ``position`` is settled. Look at the store after entering and before
        waiting: an earlier settlement is not told again."""
        self.expect(position, event)
        try:
            yield
        finally:
            self.forget(position, event)

    def expect(self, position: int, event: Settable) -> None:
        """``expecting``, from now until ``forget``."""
        with self._lock:
            self.waiting.setdefault(position, []).append(event)

    def forget(self, position: int, event: Settable) -> None:
        with self._lock:
            waiting = self.waiting[position]
            waiting.remove(event)
            if not waiting:
                del self.waiting[position]

    def notify(self, position: int) -> None:
        if position not in self.waiting:  # who begins to wait now looks at the store first
            return
        with self._lock:
            for event in self.waiting.get(position, ()):
                event.set()


R = TypeVar("R")

LOOK_SECONDS: Final = 0.05
"""The least time between two looks of a request whether it has waited long enough."""


class Completion(Protocol):
    """Tells a request of the message that it waits for. Called in the dispatcher's threads: nothing may block."""

    def calling(self) -> None:
        """The application is called from now on: its time uses up none of the request's patience."""

    def storing(self) -> None:
        """The store writes from now on: its time counts, as that does in which the message waits for a thread."""

    def submit(self, verb: Verb[R], on_commit: Callable[[R | None, BaseException | None], None], *, size: int) -> None:
        """Have the outcome of the message stored, as ``Writer.submit`` with ``keep``."""

    def complete(self, settlement: Settlement | None) -> None:
        """The settlement is stored; with ``None`` the outcome has to be looked for in the store. Called once at least;
        the first call counts."""


class Patience:
    """The time that a request waits for a thread and for the store, without the time of the application. One thread
    says when the application runs; others look."""

    def __init__(self) -> None:
        self._waited = 0.0
        self._since: float | None = time.monotonic()
        self._caller: threading.Thread | None = None

    def stop(self) -> None:
        """This thread calls the application from now on."""
        self._caller = threading.current_thread()
        since, self._since = self._since, None  # first: a look meanwhile must not count it twice
        if since is not None:
            self._waited += time.monotonic() - since

    def go_on(self) -> None:
        """The application has answered: time counts again."""
        if self._since is None:
            self._since = time.monotonic()

    @property
    def is_used(self) -> bool:
        """Whether time counts now: the application does not run."""
        return self._since is not None

    def left(self, seconds: float) -> float:
        """The part of so many ``seconds`` that the request has still to wait; negative where they are over."""
        if self._since is None and self._caller is not None and not self._caller.is_alive():
            self.go_on()  # it has ended without a word: the watch takes up what it ran
        since = self._since
        return seconds - self._waited - (0.0 if since is None else time.monotonic() - since)


class ThreadCompletion:
    """For a request that has a thread of its own, which waits. ``is_bounded``: the application's time counts too, as
    the reply may leave later."""

    def __init__(self, store: Store, *, is_bounded: bool = False) -> None:
        self._store = store
        self._patience = Patience()
        self.calling = self._patience.go_on if is_bounded else self._patience.stop
        self.storing = self._patience.go_on
        self._is_complete = Signal()
        self._settlement: Settlement | None = None

    def submit(self, verb: Verb[R], on_commit: Callable[[R | None, BaseException | None], None], *, size: int) -> None:
        self._store.submit(verb, on_commit, keep=True, size=size)

    def complete(self, settlement: Settlement | None) -> None:
        self._settlement = self._settlement or settlement
        self._is_complete.set()

    def wait(self, patience: float) -> tuple[Settlement | None, float]:
        """Wait, for a thread and for the store at most ``patience`` seconds, for the application as long as it takes.
        Answers the settlement, if it is known, and the seconds that are left."""
        left = patience
        while not self._is_complete.wait(max(left, LOOK_SECONDS)):
            left = self._patience.left(patience)
            if left <= 0 and self._patience.is_used:
                return None, 0.0
        return self._settlement, max(0.0, self._patience.left(patience))
