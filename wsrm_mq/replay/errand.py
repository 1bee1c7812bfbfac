"""A message that a request waits for, run in another thread than its own: what the two tell each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from wsrm_mq.queue.answers import Settlement
from wsrm_mq.store.writer import Verb

__all__ = ["Errand"]

R = TypeVar("R")


class Errand(Protocol):
    """The request's side. Called from the pool's threads, where nothing may block."""

    def calling(self) -> None:
        """It is the application's turn, which uses up none of the request's patience. So it is at the beginning."""

    def storing(self) -> None:
        """It is the store's turn."""

    def submit(self, verb: Verb[R], told: Callable[[R | None, BaseException | None], None], *, size: int) -> None:
        """Have what became of it stored, as ``Writer.submit`` with ``keep``."""

    def end(self, settlement: Settlement | None) -> None:
        """The settlement is stored; ``None``: something else came of it, which only the store knows. Called once at
        least; the first call counts."""
