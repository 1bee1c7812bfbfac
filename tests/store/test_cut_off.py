"""A store whose last write was cut off has all that was committed, and says what it dropped."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.queue.build import Instance, Node
from tests.support.in_process import until
from wsrm_mq.events.telling import Event, Events
from wsrm_mq.store.driver import dropped_pages, log_bytes
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.store import Store

Cut = Callable[[Path], None]


def truncated(log: Path) -> None:
    """The last of its pages were never written."""
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 5_000)


def torn(log: Path) -> None:
    """The end of the last page was never written."""
    content = log.read_bytes()
    log.write_bytes(content[:-500] + bytes(500))


def whole(_log: Path) -> None:
    pass


@pytest.fixture
def one(tmp_path: Path) -> Instance:
    return Node(tmp_path / "store.db").start()


@pytest.mark.scenario("Q-020")
@pytest.mark.parametrize(("cut", "left"), [(truncated, 3), (torn, 3), (whole, 4)], ids=["truncated", "torn", "whole"])
def test_what_was_committed_is_there_and_what_was_cut_off_is_told(
    one: Instance, tmp_path: Path, cut: Cut, left: int
) -> None:
    identifier = one.create().terms.identifier
    for number in (1, 2, 3, 4):
        one.take(identifier, number)
    files = {path: path.read_bytes() for path in tmp_path.glob("store.db*") if path.is_file()}
    one.close()
    for path, content in files.items():  # as a power cut leaves them
        path.write_bytes(content)
    cut(tmp_path / "store.db-wal")
    told: list[Event] = []
    store = Store(tmp_path / "store.db", events=Events(told.append))
    store.open()
    try:
        with store.reader() as db:
            assert db.execute("SELECT number FROM entry ORDER BY number").fetchall() == [
                (number,) for number in range(1, left + 1)
            ]
            assert list(all_findings(db)) == []
        assert until(lambda: len(pages(told)) == 4 - left)
        assert all(count > 0 for count in pages(told))
    finally:
        store.close()


def test_what_another_process_is_about_to_commit_is_not_taken_for_cut_off(tmp_path: Path, one: Instance) -> None:
    """One that makes the store, or brings it forward, has no lock file yet."""
    one.close()
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writing:
        writing.execute("PRAGMA cache_size = 8")
        writing.execute("BEGIN IMMEDIATE")
        writing.execute("CREATE TABLE large AS SELECT zeroblob(100000) AS body")
        assert log_bytes(path) > 50_000, "its first pages are written before it commits"
        assert dropped_pages(path) == 0
        (tmp_path / "killed").mkdir()
        for file in (path, tmp_path / "store.db-wal"):
            shutil.copy(file, tmp_path / "killed")
    assert dropped_pages(tmp_path / "killed" / "store.db") > 10


def pages(told: list[Event]) -> list[int]:
    return [event.fields["pages"] for event in told if event.name == "store.cut_off"]
