"""The audit's rules against a reference in plain Python, on logs with loss, disorder, clocks that are set back and
mistakes of every kind; and the command on stores."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import defaultdict
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.crash.test_boundaries import live_and_die
from tests.crash.witness import Witness, settled
from tests.soak.run import soak
from tests.soak.test_soak import kills
from tests.spark.audited import PLANTS, Log, Message, served, told_at
from tests.support.filled import Filled
from tests.support.orders import OrderSender
from wsrm_mq.cli import program
from wsrm_mq.export import Asked, export
from wsrm_mq.spark.jobs import audit
from wsrm_mq.store.invariants import ACCOUNTED_FOR, IN_RANGES, ONE_OUTCOME

Row = tuple[Any, ...]
NEVER = 2**60
TELLING = {"dead": "dead", "discarded": "discarded"}


def reference(log: Log) -> list[Row]:
    found: list[Row] = []
    of_sequence = defaultdict(list)
    told = {(e.store, e.position, e.event) for e in log.ledger}
    told |= {(m.store, m.replay_of, "replayed") for m in log.messages}

    def violated(m: Message, invariant: str, detail: str) -> None:
        found.append((m.store, "node", m.sequence, invariant, m.number, m.position, detail))

    for m in log.messages:
        of_sequence[m.store, m.sequence].append(m)
        same = [o for o in log.messages if o.outcome and m.outcome and o[1:3] == m[1:3] and o.sequence]
        is_twice = len({(o.settled_at, o.position) for o in same if "delivered" == o.outcome == m.outcome}) > 1
        if is_twice or sum(o.store == m.store for o in same) > 1:
            violated(m, audit.SETTLED_ONCE, f"{m.outcome} at {told_at(m.settled_at)}")
        its = [r for r in log.ranges if r[:2] == m[:2]]
        if its and not any(r.lower <= (m.number or 0) <= r.upper for r in its):
            violated(m, IN_RANGES, f"number {m.number}")
        if (m.outcome is None) != (m.settled_at is None) or (m.outcome and not m.named):
            violated(m, ONE_OUTCOME, (m.outcome or "no outcome") + ("" if m.named else ", not named"))
        early = 0 if m.settled_at is None else m.received_at - m.settled_at
        falls = (pair for times in log.written(m.store) for pair in pairwise(times))
        if early > audit.SLIP and not any(
            m.received_at > low and (m.settled_at or 0) < high > low for high, low in falls
        ):
            violated(m, audit.AFTERWARDS, f"settled {early} ms before")
        event = m.reason if m.reason in ("replayed", "answered_with_fault") else TELLING.get(m.outcome or "")
        since = min((e.at for e in log.ledger if e.store == m.store), default=NEVER)
        is_covered = m.settled_at is not None and since <= m.settled_at < log.begun.get(m.store, NEVER)
        if event and is_covered and (m.store, m.position, event) not in told:
            violated(m, audit.TOLD, ", ".join(filter(None, (m.outcome, m.reason))))
    for s in log.sequences:
        entries, begun = len(of_sequence[s[:2]]), log.begun.get(s.store)
        is_short = s.received > entries + s.pruned and (begun is None or s.active_at < begun)
        if is_short or s.received < entries + (s.pruned if begun is None else 0):
            detail = f"{s.received} received, {entries} entries, {s.pruned} pruned"
            found.append((s.store, "node", s.sequence, ACCOUNTED_FOR, None, None, detail))
        delivered = [m for m in of_sequence[s[:2]] if m.outcome == "delivered" and s.ordered]
        for one, other in pairwise(sorted(delivered, key=lambda m: (m.number or 0, m.position))):
            before, at = one.settled_at or 0, other.settled_at or NEVER
            steps = (pair for times in log.written(s.store) for pair in pairwise(times))
            if one.settled_at and at < before and not any(before > low and at < high > low for high, low in steps):
                violated(other, audit.IN_ORDER, f"number {one.number} was settled {before - at} ms later")
    return found


def order(row: Row) -> tuple[str, ...]:
    return tuple(map(str, row))


def found(spark: SparkSession, log: Log) -> list[Row]:
    return sorted(map(tuple, audit.violations(log.tables(spark)).collect()), key=order)


@pytest.mark.timeout(400)
@pytest.mark.invariant("I6", "I11")
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), steps=st.booleans(), plants=st.lists(st.sampled_from(sorted(PLANTS)), max_size=9))
def test_every_violation_is_found_with_its_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int, steps: bool, plants: list[str]
) -> None:
    monkeypatch.setattr(audit, "BLOCK", 3)
    chance = random.Random(seed)
    log = served(chance, steps=steps)
    assert steps or reference(log) == []
    for name in plants:
        PLANTS[name](log, chance)
    assert found(spark, log) == sorted(reference(log), key=order)


# stores


def run(out: Path, *arguments: object) -> Result:
    return CliRunner().invoke(program, ["pipeline", "audit", *map(str, arguments), "--out", str(out)])


def audited(out: Path, *paths: object) -> tuple[int, dict[str, Any], list[Row]]:
    """Exit status, summary, and what was violated by which number."""
    done = run(out, *paths, "--json")
    assert not done.stderr, done.stderr
    rows = pyarrow.parquet.read_table(out / "violations").to_pylist()
    return done.exit_code, json.loads(done.stdout), [(row["invariant"], row["number"]) for row in rows]


def alter(store: Path, *statements: str) -> None:
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            assert db.execute(statement).rowcount == 1


MISTAKES = {
    (audit.IN_ORDER, 2): "UPDATE entry SET outcome = 'delivered', settled_at = 1767225600122 WHERE id = 2",
    (audit.TOLD, 3): "UPDATE entry SET outcome = 'dead', reason = 'skipped', settled_at = 1767225600123 WHERE id = 3",
    (ACCOUNTED_FOR, None): "DELETE FROM entry WHERE id = 5",
    (ONE_OUTCOME, 1): "UPDATE entry SET named = 0 WHERE id = 1",
    (IN_RANGES, 6): "UPDATE range SET lower = 7, upper = 7 WHERE lower = 6",
}


def test_mistakes_in_a_store_are_violations_and_listed(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    alter(filled.path, *MISTAKES.values())
    done = run(tmp_path / "out", filled.path)
    assert done.exit_code == 1
    lines = [line.split("\t") for line in done.stdout.splitlines()[1:6]]
    assert sorted(line[3].partition(":")[0] for line in lines) == sorted(invariant for invariant, _ in MISTAKES)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["by_invariant"] == {invariant: 1 for invariant, _ in MISTAKES}
    rows = pyarrow.parquet.read_table(tmp_path / "out" / "violations").to_pylist()
    assert {(row["invariant"], row["number"]) for row in rows} == set(MISTAKES)


def test_the_export_of_a_sound_store_is_clean_and_ties_are_told(
    spark: SparkSession, filled: Filled, tmp_path: Path
) -> None:
    alter(filled.path, "UPDATE entry SET outcome = 'delivered', settled_at = 1767225600123 WHERE id = 2")
    export(filled.path, tmp_path / "export", Asked(encoding="parquet"))
    done = run(tmp_path / "out", tmp_path / "export")
    assert done.exit_code == 0, done.output
    assert "1 deliveries were settled in the ms of the one before them" in done.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    expected = {"stores": 1, "messages": 5, "delivered": 2, "violations": 0, "in_motion": 0, "ties": 1}
    assert expected.items() <= summary.items()


def test_an_export_of_a_query_is_refused(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    export(filled.path, tmp_path / "export", Asked(query="state:held"))
    done = run(tmp_path / "out", tmp_path / "export")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "has only what fits 'state:held'. Export without a query." in done.stderr


@pytest.mark.timeout(400)
@pytest.mark.scenario("Q-112")
@pytest.mark.invariant("I6", "I11")
def test_what_a_killed_server_and_a_soak_leave_behind_has_no_violation(spark: SparkSession, tmp_path: Path) -> None:
    """In two runs alike. And a store that a message is taken out of has one."""
    (tmp_path / "killed").mkdir()
    witness = Witness(tmp_path / "killed")
    witness.start()
    source = OrderSender(witness)
    for point in ("before_settle", "after_commit"):
        live_and_die(witness, source, point, 3)
        witness.start()
    settled(witness, source.identifier, len(source.acknowledged))
    witness.stop()
    export(soak(tmp_path, 5, 20261123, disturb=kills, preload=True).store, tmp_path / "export", Asked())
    first = audited(tmp_path / "out", witness.store, tmp_path / "export")
    status, summary, found = first
    assert (status, found) == (0, [])
    assert summary["stores"] == 2
    assert summary["messages"] > len(source.acknowledged)
    assert audited(tmp_path / "out", witness.store, tmp_path / "export") == first
    alter(witness.store, "DELETE FROM entry WHERE lane IS NOT NULL AND id = (SELECT max(id) FROM entry)")
    assert audited(tmp_path / "out", witness.store)[2] == [(ACCOUNTED_FOR, None)]
