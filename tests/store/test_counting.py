"""Counts in the store: right after a rollback, between processes, and without the rows that were counted."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from wsrm_mq.store.counting import EVERY_SECONDS, Tally
from wsrm_mq.store.outside import run_once
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction


def counters(path: Path) -> dict[tuple[str, int, str], int]:
    db = sqlite3.connect(path)
    try:
        return {(name, queue, label): value for name, queue, label, value in db.execute("SELECT * FROM counter")}
    finally:
        db.close()


def accept(tx: Transaction) -> None:
    tx.counts["accepted", 1, "1.1"] += 1


def test_what_is_frequent_is_written_with_a_later_transaction_and_at_the_latest_at_the_end(path: Path) -> None:
    store = Store(path)
    store.open()
    store.call(accept)
    for _ in range(50):
        store.call(accept)
    store.close()
    assert counters(path) == {("accepted", 1, "1.1"): 51}


def test_few_statements_are_written_for_many_transactions(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    true = Tally.written
    monkeypatch.setattr(Tally, "written", lambda self: (written.append(1), true(self))[1])
    store = Store(path)
    store.open()
    for _ in range(30):
        store.call(accept)
    store.close()
    assert len(written) < 15


def test_what_has_a_row_in_the_ledger_is_counted_with_it(path: Path) -> None:
    store = Store(path)
    store.open()
    store.call(accept)
    store.call(accept)
    store.call(lambda tx: tx.ledger("resumed"))
    assert counters(path) == {("accepted", 1, "1.1"): 2, ("ledger", 0, "resumed"): 1}
    store.close()


def test_what_was_rolled_back_is_not_counted(path: Path) -> None:
    def fails(tx: Transaction) -> None:
        accept(tx)
        raise RuntimeError

    store = Store(path)
    store.open()
    store.call(accept)
    with pytest.raises(RuntimeError):
        store.call(fails)
    store.close()
    assert counters(path) == {("accepted", 1, "1.1"): 1}


def test_several_processes_and_the_command_line_add_up(path: Path) -> None:
    stores = [Store(path), Store(path)]
    for store in stores:
        store.open()
    for store in stores * 3:
        store.call(accept)
    run_once(path, accept)
    for store in stores:
        store.close()
    assert counters(path) == {("accepted", 1, "1.1"): 7}


def test_what_waits_is_due_after_a_while() -> None:
    tally = Tally()
    assert tally.due_at < time.monotonic()
    tally.written()
    assert tally.due_at > time.monotonic()
    tally.wait({("accepted", 1, ""): 2})
    tally.wait({("accepted", 1, ""): 3})
    assert tally.is_waiting
    assert tally.with_waiting({("accepted", 1, ""): 1}) == [("accepted", 1, "", 6)]
    assert EVERY_SECONDS < 1
