"""The port: what the rooms above ask of a database. ``sqlite3.Connection`` fills it as it is; another engine will by an
adapter beside ``database``.

A statement is text that ``store`` has: built from the tables (``queues``, ``entries``, ``sequences``) or written there.
Parameters are given by name or by position, rows are tuples. An error of the driver that concerns the whole store
leaves this room as a ``StoreError`` (``database.store_errors``). A large body is written and read as a stream
(``bodies``). Which instances of a store live, and how one wakes them, is asked of ``Instances``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

Parameters = Mapping[str, Any] | Sequence[Any]


class Rows(Protocol):
    """What a statement answers; ``rowcount`` is how many rows it changed. Until all is fetched or it is closed, it
    holds up checkpoints."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def close(self) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection to the store, to be used by one thread at a time."""

    def execute(self, statement: str, parameters: Parameters = ..., /) -> Rows: ...


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

    def wake(self, names: Iterable[str], word: str = "look") -> None:
        """Tell instances that there may be something to do. A word may be lost; no correctness hangs on it."""
