"""A message that a request waits for, run in another thread than its own: what the two tell each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from wsrm_mq.queue.answers import Settlement
from wsrm_mq.queue.settle import Settled
from wsrm_mq.store.writer import Verb

__all__ = ["Errand"]


class Errand(Protocol):
    """The request's side. Called from the pool's threads, where nothing may block."""

    def called(self) -> None:
        """The application has returned; what is left is to store what it said."""

    def submit(
        self, verb: Verb[Settled], told: Callable[[Settled | None, BaseException | None], None], *, size: int
    ) -> None:
        """Have the settlement stored, as ``Writer.submit`` with ``keep``."""

    def end(self, settlement: Settlement | None) -> None:
        """The settlement is stored; ``None``: something else came of it, which only the store knows. Called once at
        least; the first call counts."""
