"""The verbs that a program wants done together: each is collected, and done in one transaction of the store, or not at
all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wsrm_mq.store.transaction import Transaction as Unit


class Transaction:
    """Acts of one thread that are committed together. ``positions``: once it is committed, those of the messages that
    were put, in their order."""

    def __init__(self, commit: Callable[[], object], roll_back: Callable[[], None]) -> None:
        self._commit = commit
        self._roll_back = roll_back
        self.verbs: list[Callable[[Unit], Any]] = []
        self.committed: list[Callable[[], object]] = []
        """Called when it is committed."""
        self.size = 0
        self.positions: list[int] = []

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._commit()
        else:
            self._roll_back()

    def __call__(self, tx: Unit) -> list[Any]:
        """The verb of all of it."""
        return [verb(tx) for verb in self.verbs]
