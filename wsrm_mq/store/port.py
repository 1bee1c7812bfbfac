"""The port: what the rooms above ask of a database. ``sqlite3.Connection`` fills it as it is; another engine will by an
adapter beside ``database``.

A statement is text that ``store`` has: built from the tables (``queues``, ``entries``, ``sequences``) or written there.
Parameters are given by name or by position, rows are tuples. An error of the driver that concerns the whole store
leaves this room as a ``StoreError`` (``database.store_errors``). A large body is written and read as a stream
(``bodies``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

__all__ = ["Database", "Parameters", "Rows"]

Parameters = Mapping[str, Any] | Sequence[Any]


class Rows(Protocol):
    """What a statement answers; ``rowcount`` is how many rows it changed. Until all is fetched or it is closed, it
    holds up checkpoints."""

    @property
    def rowcount(self) -> int: ...
    @property
    def lastrowid(self) -> int | None: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def close(self) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection to the store, to be used by one thread at a time."""

    def execute(self, statement: str, parameters: Parameters = ..., /) -> Rows: ...
