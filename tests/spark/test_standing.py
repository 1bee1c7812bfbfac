"""Sequences that stand still have the verdicts of ``wsrm-mq sequence list``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.nodes import Node, every_verdict
from wsrm_mq.sequence.elements import CloseSequence
from wsrm_mq.spark import read
from wsrm_mq.spark.jobs.reconcile import STALLED_AFTER, standing
from wsrm_mq.views.reading import sequence
from wsrm_mq.views.rows import Instance
from wsrm_mq.views.verdict import WORDS, judge

ALIVE = [Instance(1, "one", "here", 1, 0)]


def test_verdicts_are_those_of_the_views(spark: SparkSession, tmp_path: Path) -> None:
    node = Node(tmp_path / "wsrm.db")
    expected = every_verdict(node)
    incomplete = node.sequence(partner="acme")
    node.send(incomplete, 1)
    node.deliver(incomplete, 1)
    node.instance.end(CloseSequence(incomplete, 3))
    expected[incomplete] = "incomplete"
    now = node.clock()
    db = node.instance.db
    assert {one: judge(db, sequence(db, one), now, live=ALIVE).word for one in expected} == expected
    assert set(WORDS) - {"running"} == set(expected.values())
    found = standing(*(read(spark, str(node.path), table=one) for one in ("sequences", "messages")), at(now))
    told = {row.sequence: row.verdict for row in found.collect()}
    assert told == {one: word for one, word in expected.items() if word not in ("ok", "ended")}


def test_what_is_run_or_ready_for_long_stands_still(spark: SparkSession, tmp_path: Path) -> None:
    node = Node(tmp_path / "wsrm.db")
    ready, running = node.sequence(), node.sequence()
    for one in (ready, running):
        node.send(one, 1)
    node.fail(ready, 1, 1_000)
    tables = [read(spark, str(node.path), table=one) for one in ("sequences", "messages")]
    assert standing(*tables, at(node.clock())).count() == 0
    later = standing(*tables, at(node.clock() + STALLED_AFTER)).collect()
    assert {row.sequence: row.verdict for row in later} == {ready: "blocked", running: "running"}


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1_000, UTC) + timedelta(milliseconds=ms % 1_000)
