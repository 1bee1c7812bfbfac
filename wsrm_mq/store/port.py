"""The port: what a driver offers. There is one, ``sqlite``; another stands beside it, and runs
``tests/store/conformance``.

A statement is text that ``store`` has: built from the tables (``queues``, ``entries``, ``lanes``) or written there;
words in which databases differ are in ``sql``. Parameters are given by name or by position, rows are tuples. An
error of the driver that concerns the whole store leaves this room as a ``StoreError`` (``store_errors``).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple, Protocol

Log = Literal["RESTART", "TRUNCATE"]
"""The next commit writes from the beginning of the log; or the log gives its room back to the disk too."""
Parameters = Mapping[str, Any] | Sequence[Any]


class Rows(Protocol):
    """The answer of a statement; ``rowcount`` is the number of rows that it changed. Until all rows are fetched or it
    is closed, it holds up checkpoints."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def close(self) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection to the store, to be used by one thread at a time."""

    def execute(self, statement: str, parameters: Parameters = ..., /) -> Rows: ...


class Connection(Database, Protocol):
    """A connection that begins no transaction by itself: ``begin`` begins one that writes, ``COMMIT`` or ``ROLLBACK``
    ends it."""

    @property
    def Error(self) -> type[Exception]:
        """The class of this driver's errors."""

    @property
    def in_transaction(self) -> bool: ...

    def for_writing(self) -> None:
        """From now on it writes. A reader's connection may not otherwise."""

    def sync_commits(self, wanted: bool) -> None:
        """From now on a commit survives a loss of power, as it does by default; or, unless that is ``wanted``, the
        death of its process only. Not to be called within a transaction."""

    def begin(self, *, wait: bool = True) -> int:
        """Begin a transaction that writes, alone until it ends. It waits for other writers, the usual time, or not at
        all. Answers the version of the store: another number than before where another connection has committed
        since."""

    def positions(self) -> Iterator[int]:
        """Keys for messages and entries, rising, each given once; to be asked for within a transaction. They are good
        until one is rolled back, or the version changes."""

    def reserve_positions(self, wanted: int) -> range:
        """Give away so many positions: no entry of this store gets one of them. To be asked for within a transaction
        that has written what it has."""

    def write_body(self, message: int, size: int, body: BinaryIO) -> None:
        """Give the row of a message its body of ``size`` bytes, piece by piece."""

    def open_body(self, message: int) -> BinaryIO:
        """The stored body of a message, while this is open."""

    def checkpoint(self, then: Log | None = None) -> bool:
        """Do now what a commit leaves to be done later. ``then``: what becomes of the log, where nothing in it is
        needed; answers whether it does."""

    def close(self) -> None: ...


class Obstacle(NamedTuple):
    """Why a reader cannot write. ``is_of_asker``: it is not allowed to, which says nothing about a service."""

    what: str
    is_of_asker: bool


class Presence(Protocol):
    """The place of one instance among the others: it shows that the instance lives, and it has the instance's
    doorbell."""

    name: str
    home: Path

    @property
    def is_in_place(self) -> bool:
        """Whether the others can still see that the instance lives."""

    def take_place(self) -> None:
        """Show it again."""

    def has_open(self, files: Any) -> None:
        """Tell the others which files the instance has open; ``()`` for none."""

    def wait(self, seconds: float) -> set[str]:
        """Wait until the doorbell rings; answers the words that came, or nothing after ``seconds``."""

    def close(self) -> None:
        """Leave."""

    def abandon(self) -> None:
        """Close what is open here without leaving: after a fork the place is the parent's."""


class Instances(Protocol):
    """The instances of a store: their liveness and their doorbells."""

    def enter(self) -> Presence:
        """Take a place for a new instance."""

    def lives(self, name: str) -> bool | None:
        """Whether the instance of this name lives; ``None`` where that cannot be told now."""

    def bury(self, name: str) -> None:
        """Take away what a dead instance has left."""

    def alone(self, task: str) -> AbstractContextManager[bool]:
        """Whether no other instance is at this task; none will be while this lasts."""

    def listen(self, name: str) -> None:
        """From now on ``ring`` reaches the instance of this name."""

    def ring(self, word: str, but: str = "") -> None:
        """Send a word to all instances that listen, ``but`` to one. See ``wake``."""

    def wake(self, names: Iterable[str], word: str = "look") -> None:
        """Tell instances that there may be something to do. A word may be lost; no correctness hangs on it."""


# the other instances of a store, as one of them sees them over time

MAY_BE_READY: Final = "queue"
"""The word of a doorbell for consumers: something may be ready for them."""
MISSING_SECONDS: Final = 5.0
"""A lock file that is missing for so long is taken for a death: several polls of a watch."""


class Neighbours:
    """The other instances. For each whose lock file is missing it remembers since when."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._missing_since: dict[str, float] = {}

    def is_dead(self, name: str) -> bool:
        lives = self._instances.lives(name)
        if lives is not None:
            self._missing_since.pop(name, None)
            return not lives
        since = self._missing_since.setdefault(name, time.monotonic())
        return time.monotonic() - since > MISSING_SECONDS
