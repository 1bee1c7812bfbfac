"""A message that a request waits for, run in another thread than its own: what the two tell each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeVar

from wsrm_mq.delivery.waiting import Signal
from wsrm_mq.queue.settlement import Settlement
from wsrm_mq.store.store import Store
from wsrm_mq.store.writer import Verb

__all__ = ["Errand", "Patience", "Ran", "ThreadErrand"]

R = TypeVar("R")

LOOK_SECONDS: Final = 0.05
"""Not more often does a request look whether it has waited long enough."""


class Ran(NamedTuple):
    settlement: Settlement | None
    """What the request is answered with; ``None``: that has to be looked for in the store."""
    left: float
    """Of its patience, seconds."""


class Errand(Protocol):
    """The request's side. Called from the pool's threads, where nothing may block."""

    def calling(self) -> None:
        """It is the application's turn, which uses up none of the request's patience."""

    def storing(self) -> None:
        """It is the store's turn. At the beginning it is that of a thread, which counts as much."""

    def submit(self, verb: Verb[R], told: Callable[[R | None, BaseException | None], None], *, size: int) -> None:
        """Have what became of it stored, as ``Writer.submit`` with ``keep``."""

    def end(self, settlement: Settlement | None) -> None:
        """The settlement is stored; ``None``: something else came of it, which only the store knows. Called once at
        least; the first call counts."""


class Patience:
    """How long a request waits for what is not the application: a thread, the store. One thread says whose turn it is,
    others look."""

    def __init__(self) -> None:
        self._waited = 0.0
        self._since: float | None = time.monotonic()
        self._caller: threading.Thread | None = None

    def stop(self) -> None:
        """It is the application's turn, which this thread calls."""
        self._caller = threading.current_thread()
        since, self._since = self._since, None  # first: who looks meanwhile must not count it twice
        if since is not None:
            self._waited += time.monotonic() - since

    def go_on(self) -> None:
        if self._since is None:
            self._since = time.monotonic()

    @property
    def is_used(self) -> bool:
        """It is not the application's turn."""
        return self._since is not None

    def left(self, seconds: float) -> float:
        if self._since is None and self._caller is not None and not self._caller.is_alive():
            self.go_on()  # it has ended without a word: the watch takes up what it ran
        since = self._since
        return seconds - self._waited - (0.0 if since is None else time.monotonic() - since)


class ThreadErrand:
    """For a request that has a thread of its own, which waits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._patience = Patience()
        self.calling = self._patience.stop
        self.storing = self._patience.go_on
        self._ended = Signal()
        self._settlement: Settlement | None = None

    def submit(self, verb: Verb[R], told: Callable[[R | None, BaseException | None], None], *, size: int) -> None:
        self._store.submit(verb, told, keep=True, size=size)

    def end(self, settlement: Settlement | None) -> None:
        self._settlement = self._settlement or settlement
        self._ended.set()

    def wait(self, patience: float) -> Ran:
        """Wait, for a thread and for the store at most ``patience`` seconds, for the application as long as it
        takes."""
        left = patience
        while not self._ended.wait(max(left, LOOK_SECONDS)):
            left = self._patience.left(patience)
            if left <= 0 and self._patience.is_used:
                return Ran(None, 0.0)
        return Ran(self._settlement, max(0.0, self._patience.left(patience)))
