"""Stores of queues in jobs: each entry has one outcome, and what is copied into several queues came once."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests.routes.net import Net, until
from tests.support.pages import DOCS, blocks
from tests.support.queued import STATES, queued
from wsrm_mq.cli import program
from wsrm_mq.export import Asked, export
from wsrm_mq.queue.hopping import UNKNOWN
from wsrm_mq.spark import read


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Path:
    queued(tmp_path / "queues.db")
    return tmp_path / "queues.db"


def done(job: str, out: Path, *paths: Path) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(program, ["pipeline", job, *map(str, paths), "--out", str(out), "--json"])
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


def test_an_audit_finds_one_outcome_of_each_entry(store: Path, tmp_path: Path) -> None:
    export(store, tmp_path / "export", Asked())
    for place in (store, tmp_path / "export"):
        code, found = done("audit", tmp_path / f"out of {place.name}", place)
        assert (code, found["violations"], found["messages"]) == (0, 0, sum(STATES.values()))
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("DELETE FROM ledger WHERE event = 'purged' AND position = (SELECT max(position) FROM ledger)")
        db.execute("DELETE FROM ledger WHERE event = 'dead'")
    code, found = done("audit", tmp_path / "planted", store)
    assert (code, found["violations"]) == (1, STATES["dead"])


def test_a_reconciliation_counts_what_was_redelivered_and_died(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    _code, found = done("reconcile", tmp_path / "out", store)
    assert (found["twice"], found["redelivered"], found["dead"]) == (0, 1, STATES["dead"])
    assert found["findings"] == ["dead_letters_unconfirmed"]
    dead = spark.read.parquet(str(tmp_path / "out" / "dead")).collect()
    assert {(row.queue, row.reason, row.messages) for row in dead} == {
        ("orders", "rejected", 1),
        ("orders", "forced_expire", 1),
    }
    latency = spark.read.parquet(str(tmp_path / "out" / "latency")).where("at IS NULL AND queue IS NOT NULL").collect()
    assert {row.queue: row.messages for row in latency} == {"orders": 2, "grouped": 1, "once": 1, "shop/thanks": 1}


@pytest.mark.timeout(300)
def test_the_way_of_a_message_is_followed_over_the_stores_of_its_nodes_as_the_page_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    net = Net(tmp_path)
    a, b, c = (net.add(name) for name in "abc")
    a.node.route("x/*", b.url)
    b.node.route("x/*", c.url, strip=True)
    c.node.declare("orders")
    arrives, dies = a.node.put("x/orders", b"1"), a.node.put("x/none", b"2")
    assert until(lambda: c.bodies("orders") == [b"1"] and c.dead() and not a.waiting() and not b.waiting())
    ((incarnation,),) = a.rows("SELECT DISTINCT incarnation FROM routed")
    net.stop()
    page: dict[str, Any] = {}
    (shown,) = (one.text for one in blocks(DOCS / "howto" / "spark.md") if "def way(" in one.text)
    exec(shown, page)
    for position, queue, state, reason in ((arrives, "orders", "ready", None), (dies, "none", "dead", UNKNOWN)):
        rows = page["way"](spark, f"{tmp_path}/*.db", f"a/{incarnation}/{position}").collect()
        assert [(row.hop, row.node, row.target, row.state, row.reason) for row in rows] == [
            (0, "a", f"x/{queue}", "delivered", None),
            (1, "b", f"x/{queue}", "delivered", None),
            (2, "c", queue, state, reason),
        ]


def test_the_data_source_reads_who_consumes(spark: SparkSession, store: Path) -> None:
    assert [row.queue for row in read(spark, store, table="bindings").orderBy("key").collect()] == [
        "audit",
        "shop/thanks",
    ]
    assert read(spark, store, table="subscriptions").where("pattern IS NOT NULL").first()["client"] == "shop"
