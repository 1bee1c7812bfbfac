"""A unit of work needs no sequence: what a queue's leases will be written with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from wsrm_mq.store.cache import Cache
from wsrm_mq.store.sqlite.connection import connect_writer, file_of
from wsrm_mq.store.sqlite.presence import InstanceFiles
from wsrm_mq.store.unit_of_work import Session, UnitOfWork


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    db = connect_writer(path)
    yield db
    db.close()


@contextmanager
def unit(db: sqlite3.Connection, cache: Cache) -> Iterator[UnitOfWork]:
    db.execute("BEGIN IMMEDIATE")
    tx = UnitOfWork(Session(db, cache, 1, "one", InstanceFiles(file_of(db))), 7)
    yield tx
    tx.flush()
    db.execute("COMMIT")
    tx.committed()


def message(**columns: object) -> dict[str, Any]:
    names = ("message_id", "action", "principal", "connection", "body")
    return {**dict.fromkeys(names), "environ": "{}", "received_at": 7, "body_size": 3, **columns}


def entry(queue: int, position: int) -> dict[str, Any]:
    names = ("lane", "number", "waiter", "outcome", "reason", "settled_at", "priority", "expires_at")
    return {**dict.fromkeys(names), "id": position, "queue": queue, "message": position, "wants_reply": 0, "named": 1}


def test_messages_entries_deliveries_counts_and_the_ledger_are_one_commit(db: sqlite3.Connection) -> None:
    cache = Cache()
    with unit(db, cache) as tx:
        queue = tx.queue("/leased")
        positions = [tx.add_message(None, None, b"abc") for _ in range(40)]
        for position in positions:
            tx.add_entry(entry(queue, position))
        tx.delivered(positions[0])
        tx.counts["accepted", queue, ""] += 40
        tx.add_ledger("resumed", queue, position=positions[1])
    assert positions == list(range(1, 41))
    assert db.execute("SELECT count(*), sum(outcome = 'delivered'), max(settled_at) FROM entry").fetchone() == (
        40,
        1,
        7,
    )
    assert db.execute("SELECT value FROM counter WHERE name = 'accepted'").fetchone() == (40,)
    assert db.execute("SELECT event, queue, position, instance FROM ledger").fetchall() == [
        ("resumed", queue, 2, "one")
    ]
    with unit(db, cache) as tx:
        assert tx.queue("/leased") == queue
        assert tx.add_message(None, None, b"abc") == 41


def test_a_statement_sees_the_rows_that_were_collected_before_it(db: sqlite3.Connection) -> None:
    with unit(db, Cache()) as tx:
        position = tx.add_message(None, None, None, size=5)
        tx.write_body(position, 5, BytesIO(b"large"))
        assert tx.execute("SELECT id, body FROM message").fetchall() == [(position, b"large")]
