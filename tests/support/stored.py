"""A store from outside, while its server runs: what it would still know after a power cut, and its write lock."""

from __future__ import annotations

import functools
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.sqlite.witness import LOOK_SECONDS

_KEPT = ("queue", "message", "entry", "sequence", "range", "reply")
_SEQUENCE = "sequence, state, ended, last_number, expected, discard_from"


@functools.cache
def empty_store() -> bytes:
    """A store file, made once: made anew for each example of Hypothesis it would be most of the time."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "store.db"
        schema.ensure(path)
        return path.read_bytes()


@contextmanager
def write_locked(store: Path) -> Iterator[None]:
    """Another program holds the store's write lock."""
    db = sqlite3.connect(store, isolation_level=None, timeout=10)
    try:
        db.execute("begin immediate")
        yield
    finally:
        db.close()


def a_look_is_due() -> None:
    """After files were taken away: the writer looks where they are only so often."""
    time.sleep(2 * LOOK_SECONDS)


class Stored:
    """Reads the store's file anew with every question."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def identifiers(self) -> list[str]:
        """Of every sequence, oldest first."""
        return [identifier for (identifier,) in self.rows("select identifier from lane order by id")]

    def sequence(self, identifier: str) -> dict[str, Any]:
        """The columns of a sequence, those of its lane, and of the view of both; empty if there is none."""
        tables = ("sequences", "sequence", "lane")
        names = [name for table in tables for (name,) in self.rows("select name from pragma_table_info(?)", table)]
        found = self.rows(
            f"select {', '.join(f'{table}.*' for table in tables)} from lane"
            " left join sequence on sequence.lane = lane.id join sequences on sequences.key = lane.id"
            " where identifier = ?",
            identifier,
        )
        said = list(zip(names, found[0], strict=True)) if found else []
        return dict(reversed(said))  # the view's columns stand before those of the tables

    def received(self, identifier: str) -> list[tuple[int, int]]:
        """The ranges of accepted numbers."""
        return self.rows(
            "select lower, upper from range where lane = (select id from lane where identifier = ?) order by lower",
            identifier,
        )

    def outcomes(self, identifier: str) -> dict[int, str | None]:
        """Accepted number → outcome; ``None`` while it is not settled."""
        return dict(
            self.rows(
                "select number, outcome from entry"
                " where lane = (select id from lane where identifier = ?) order by number",
                identifier,
            )
        )

    def dead_letters(self, identifier: str) -> dict[int, str]:
        """Number → reason of the dead letters of a sequence."""
        return dict(
            self.rows(
                "select number, reason from entry where outcome = 'dead'"
                " and lane = (select id from lane where identifier = ?)",
                identifier,
            )
        )

    def body(self, identifier: str, number: int) -> bytes:
        """The bytes kept of a message."""
        [(body,)] = self.rows(
            "select message.body from entry join message on message.id = entry.message where number = ?"
            " and lane = (select id from lane where identifier = ?)",
            number,
            identifier,
        )
        assert isinstance(body, bytes)
        return body

    def unsettled(self, identifier: str) -> int:
        """How many accepted messages could be delivered and are not settled."""
        [(count,)] = self.rows(
            "select count(*) from entry, lane where entry.lane = lane.id and identifier = ?"
            ' and outcome is null and number < "limit"',
            identifier,
        )
        return int(count)

    def everything(self) -> list[Any]:
        """All that a refused request must leave as it is: how much there is of each kind, and each sequence that does
        not end by itself within a minute."""
        counts = [self.rows(f"select count(*) from {table}") for table in _KEPT]
        return [
            *counts,
            self.rows(
                f"select {_SEQUENCE} from sequences where coalesce(expires_at - created_at, 60001) > 60000 order by key"
            ),
            self.rows("select * from range order by 1, 2"),
        ]
