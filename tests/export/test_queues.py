"""What a store of queues exports: every entry once, with its topic and its outcome, and who consumes."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.queued import STATES, queued
from wsrm_mq.export import Asked, export


@pytest.fixture
def store(tmp_path: Path) -> Path:
    queued(tmp_path / "queues.db")
    return tmp_path / "queues.db"


def exported(directory: Path, table: str) -> list[dict[str, Any]]:
    files = sorted((directory / table).glob("*"))
    return [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]


def test_every_entry_is_exported_once_with_its_outcome_and_its_topic(store: Path, tmp_path: Path) -> None:
    export(store, tmp_path / "out", Asked())
    found = exported(tmp_path / "out", "messages")
    assert Counter(one["state"] for one in found) == STATES
    with closing(sqlite3.connect(store)) as db:
        names = ("position", "message", "queue", "state", "topic", "priority", "properties", "producer", "origin")
        rows = db.execute(f"SELECT {', '.join(names)} FROM messages ORDER BY position").fetchall()
    assert [tuple(one[name] for name in names) for one in found] == rows
    copies = [one for one in found if one["message"] != one["position"]]
    assert {(one["queue"], one["topic"]) for one in copies} == {("shop/thanks", "orders/placed")}


def test_who_consumes_is_exported(store: Path, tmp_path: Path) -> None:
    export(store, tmp_path / "out", Asked())
    assert [(one["pattern"], one["queue"]) for one in exported(tmp_path / "out", "bindings")] == [
        ("orders/#", "audit"),
        ("orders/placed", "shop/thanks"),
    ]
    durable, reader = exported(tmp_path / "out", "subscriptions")
    assert (durable["subscription"], durable["pattern"], durable["ended_at"]) == ("thanks", "orders/placed", None)
    assert (reader["pattern"], reader["granted"], reader["ended_at"] is None) == (None, 5, False)
    assert [one["client"] for one in exported(tmp_path / "out", "clients")] == ["shop"]
    queues = {one["queue"]: one for one in exported(tmp_path / "out", "queues")}
    assert (queues["orders"]["messages"], queues["audit"]["messages"], queues["orders#dead"]["messages"]) == (
        1,
        2,
        None,
    )
    assert json.loads(queues["orders"]["policy"]) == {"max_failures": 2, "retry": [0.0]}
