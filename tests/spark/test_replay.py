"""Replay at scale: what a plan has against a reference in plain Python, and what arrives of it at an address."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections import defaultdict
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.stores import made
from tests.support.filled import Filled
from tests.support.target import Target
from wsrm_mq.errors import ConfigurationError, NotAllowed, NotFound, QueryError
from wsrm_mq.export import Asked, export
from wsrm_mq.export.pieces import Exposure
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.replay import Wishes
from wsrm_mq.replay.divided import GIVES_UP, DividedPlan, Tally
from wsrm_mq.spark.archiving import archive_of
from wsrm_mq.spark.replay import Sources, make_plan, planned, run_plan
from wsrm_mq.spark.replay import _alone as alone

NOW = 1_800_000_000_000
PARTS = 3


class Row(NamedTuple):
    """What of ``messages`` a plan is made of."""

    store: str
    position: int
    sequence: str | None
    number: int | None
    original_sequence: str | None
    original_number: int | None
    state: str
    received_at: datetime
    has_body: bool
    replayable: bool
    queue: str = "/orders"
    message_id: str | None = None
    action: str | None = None
    settled_at: datetime | None = None
    body_size: int | None = 7


ROWS = """store string, position long, sequence string, number long, original_sequence string, original_number long,
state string, received_at timestamp, has_body boolean, replayable boolean, queue string, message_id string,
action string, settled_at timestamp, body_size long"""


def ms(row: Row) -> int:
    return int(row.received_at.timestamp() * 1000)


def why_not(row: Row) -> str | None:
    """The first words of why a row that is wanted is left out."""
    if row.state in ("held", "ready", "leased"):
        return "not settled"
    if row.state == "discarded":
        return "discarded"
    return None if row.replayable else "not replayable" if row.has_body else "without a body"


def reference(rows: list[Row], wanted: str) -> set[tuple[object, ...]]:
    """Store, sequence, number, position, why, whether more stores have it; of those in the plan, when they run, and
    whether that breaks order."""
    by_sequence: dict[str, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_sequence[row.original_sequence or row.sequence or ""][row.original_number or row.number or 0].append(row)
    found: set[tuple[object, ...]] = set()
    for sequence, numbers in by_sequence.items():
        best = {
            number: min(its, key=lambda one: (one.state != wanted, not one.replayable, -one.position, one.store))
            for number, its in numbers.items()
        }
        taken = {n for n, one in best.items() if one.state == wanted and why_not(one) is None}
        left = max((number for number in best if number not in taken), default=0)
        released = 0
        for number in sorted(best):
            one = best[number]
            if number in taken:
                released = max(released, ms(one))
                told = (None, released, number < left)
            elif one.state == wanted:
                told = (why_not(one), None, None)
            else:
                continue
            stores = {each.store for each in numbers[number]}
            found.add((one.store, sequence, number, one.position, *told, len(stores) > 1))
    return found


@st.composite
def logs(draw: st.DrawFn) -> list[Row]:
    """Messages of some sequences; some were replayed, some are read twice: of a store and of its archive."""
    random = draw(st.randoms(use_true_random=False))
    rows, position = [], 0
    for name in range(draw(st.integers(1, 60))):
        store, sequence = f"store {name % 2}", f"urn:{name}"
        for number in [n for n in range(1, random.randint(2, 8)) if random.random() > 0.1]:
            position += 1
            state = random.choice(["delivered", "delivered", "dead", "held", "discarded"])
            at = datetime.fromtimestamp(random.randint(1, 50) * 60, UTC)
            row = Row(store, position, sequence, number, sequence, number, state, at, True, random.random() > 0.1)
            rows.append(row)
            if random.random() < 0.2:
                position += 1
                again = random.choice(["delivered", "dead"])
                rows.append(row._replace(position=position, sequence=f"{sequence}:replays", number=1, state=again))
            if random.random() < 0.2:
                rows.append(row._replace(has_body=False, replayable=False))
            if store == "store 1" and random.random() < 0.5:
                rows.append(row._replace(store="adopted"))
    return rows


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(logs(), st.sampled_from(["delivered", "dead", "held"]))
def test_a_plan_has_what_the_reference_has(spark: SparkSession, rows: list[Row], wanted: str) -> None:
    found = planned(spark.createDataFrame(rows, ROWS), f.col("state") == wanted, PARTS).collect()
    compared = {
        (row.store, row.sequence, row.number, row.position, *told, row.copied)
        for row in found
        for told in [
            (None, row.released, row.breaks_order) if row.why is None else (row.why[: len("not settled")], None, None)
        ]
    }
    expected = {(*row[:4], row[4] and str(row[4])[: len("not settled")], *row[5:]) for row in reference(rows, wanted)}
    assert compared == expected
    assert len(found) == len(expected)
    groups = {row.sequence: row.group for row in found}
    assert all((row.group, row.part) == (groups[row.sequence], row.group % PARTS) for row in found)


# with stores, and an address


class Site:
    """A store with four messages of each of five sequences, and plans of it."""

    def __init__(self, spark: SparkSession, directory: Path, target: Target) -> None:
        self.spark, self.directory, self.target = spark, directory, target
        self.store = made(directory / "a.db", 20, 5)
        self.plans = 0

    def plan(self, query: str = "state = 'delivered'", *paths: Path, **options: Any) -> Path:
        self.plans += 1
        output = self.directory / f"plan{self.plans}"
        sources = options.pop("sources", Sources(tuple(map(str, paths or (self.store,)))))
        wishes = Wishes(query, f"{self.target.url}/orders", actor="ann", reason="a test", **options)
        make_plan(self.spark, sources, wishes, output, parts=PARTS, now=NOW)
        return output

    def run(self, plan: Path, **options: Any) -> Tally:
        return run_plan(self.spark, plan, [self.target.url], **options)


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path, target: Target) -> Site:
    return Site(spark, tmp_path, target)


def positions(plan: Path) -> list[list[int]]:
    """Of each part, in the order of its lines."""
    found = DividedPlan(plan)
    return [[line.position for _number, line in found.lines(part)] for part in range(PARTS)]


def numbers(keys: list[str]) -> dict[str, list[int]]:
    """By sequence, in the order of arrival."""
    found: dict[str, list[int]] = defaultdict(list)
    for key in keys:
        sequence, number, *_ = key.split(";")
        found[sequence].append(int(number))
    return found


def test_every_message_of_a_plan_arrives_in_the_order_of_its_sequence(site: Site) -> None:
    plan = site.plan()
    assert positions(plan) == list(map(sorted, positions(plan)))
    assert site.run(plan, dry=True) == Tally(delivered=20)
    assert site.target.keys == []
    assert site.run(plan) == Tally(delivered=20)
    assert set(map(tuple, numbers(site.target.keys).values())) == {(1, 2, 3, 4)}
    assert len(numbers(site.target.keys)) == 5
    assert all(b"Sequence" not in body for _fields, body in site.target.requests)
    with pytest.raises(NotAllowed, match="ran to its end"):
        site.run(plan)


def test_a_plan_says_what_it_is_made_of_and_what_it_replays_as_new_has_its_key(site: Site) -> None:
    plan = site.plan("number <= 3", marks_kept=1, as_new=True)
    manifest = DividedPlan(plan).manifest
    assert (manifest.messages, manifest.groups, len(manifest.parts), len(manifest.stores)) == (15, 5, PARTS, 1)
    assert manifest.counts == {"delivered": 15, "duplicate": 15, "breaks_order": 15, "old": 15}
    assert any("Effects repeat" in warning for warning in manifest.warnings)
    site.run(plan)
    assert {key.split(";")[2] for key in site.target.keys} == {manifest.id}


def test_a_run_that_is_resumed_sends_nothing_twice(site: Site) -> None:
    """A sequence stands still at its first fault; the next run sends that message again and goes on."""
    site.target.answers[7] = (500, b"")
    plan = site.plan()
    first = site.run(plan)
    assert (first.stopped, first.gave_up) == (1, False)
    sent = list(site.target.keys)
    assert site.run(plan).delivered == 20 - first.delivered
    assert site.target.keys[len(sent) :][0] == sent[6]
    assert sorted(set(site.target.keys)) == sorted({*site.target.keys[:6], *site.target.keys[7:]})
    assert len(site.target.keys) == 21
    assert {tuple(dict.fromkeys(found)) for found in numbers(site.target.keys).values()} == {(1, 2, 3, 4)}


def test_a_store_and_its_export_are_replayed_once(site: Site, tmp_path: Path) -> None:
    """The export stands in for what retention has freed since."""
    export(site.store, tmp_path / "export", Asked(encoding="parquet", bodies=True, tables=("messages",)))
    site.run(site.plan("true", site.store, tmp_path / "export"))
    assert set(map(tuple, numbers(site.target.keys).values())) == {(1, 2, 3, 4)}


@pytest.mark.timeout(400)  # an archive is many jobs of Spark
def test_an_archive_is_replayed_without_its_store(site: Site, tmp_path: Path) -> None:
    archive_of(site.spark, site.store, tmp_path / "archive", Exposure(), "ann")
    site.store.unlink()
    assert site.run(site.plan("queue = '/orders'", tmp_path / "archive")) == Tally(delivered=20)
    assert set(map(tuple, numbers(site.target.keys).values())) == {(1, 2, 3, 4)}


def test_a_store_that_was_put_back_and_its_original_are_replayed_once_and_the_plan_says_so(
    site: Site, tmp_path: Path
) -> None:
    copy = Path(shutil.copy(site.store, tmp_path / "b.db"))
    with closing(sqlite3.connect(copy)) as db, db:
        db.execute("UPDATE identity SET id = 'adopted'")
        db.execute("DELETE FROM entry WHERE number > 2")
    plan = site.plan("true", site.store, copy)
    manifest = DividedPlan(plan).manifest
    assert (manifest.messages, manifest.groups, manifest.counts["copied"]) == (20, 5, 10)
    assert any(one.startswith("In more than one store: 10.") for one in manifest.warnings)
    assert site.run(plan) == Tally(delivered=20)
    assert set(map(tuple, numbers(site.target.keys).values())) == {(1, 2, 3, 4)}


def test_a_small_plan_reads_only_what_it_needs(site: Site, tmp_path: Path) -> None:
    """Of an export whose other segments are gone meanwhile."""
    export(site.store, tmp_path / "out", Asked(encoding="parquet", bodies=True, tables=("messages",), segment_rows=5))
    plan = site.plan("position IN (7, 12)", tmp_path / "out")
    for name in ("000001", "000004"):
        (tmp_path / "out" / "messages" / f"{name}.parquet").unlink()
    assert site.run(plan) == Tally(delivered=2)


def test_a_condition_that_cannot_be_read_is_wrong_usage(site: Site) -> None:
    for query in ("number = 'abc'", "queue + 1 > 2", "number = 1 AND", "count(*) > 1", "number"):
        with pytest.raises(QueryError, match=re.escape(f"the condition {query!r} cannot be read: ")):
            site.plan(query)


def test_a_plan_tells_what_retention_has_deleted_of_its_stores(site: Site) -> None:
    with closing(sqlite3.connect(site.store)) as db, db:
        db.execute("DELETE FROM entry WHERE number = 1")
        db.execute("UPDATE lane SET pruned = 1")
    [told] = [one for one in DividedPlan(site.plan()).manifest.warnings if one.startswith("Deleted")]
    assert "from these stores: 5." in told


def test_a_target_that_takes_nothing_is_left_in_peace(site: Site) -> None:
    many = made(site.directory / "many.db", 60, 30)
    site.target.answers = dict.fromkeys(range(1, 100), (503, b""))
    plan = site.plan("true", many)
    tally = site.run(plan)
    assert (tally.delivered, tally.gave_up) == (0, True)
    assert len(site.target.keys) <= PARTS * GIVES_UP
    site.target.answers = {}
    assert site.run(plan) == Tally(delivered=60)


def test_what_is_redacted_is_refused_left_out_or_kept_as_it_was_received(
    spark: SparkSession, filled: Filled, tmp_path: Path, target: Target
) -> None:
    record = filled.instance.record(filled.second)
    filled.instance.settle(Claim(record.id, record.fence), 1)
    wishes = Wishes("outcome = 'delivered'", target.url)

    def plan(name: str, *, security: bool = False, skip: bool = False) -> Path:
        sources = Sources((str(filled.path),), security=security)
        make_plan(spark, sources, wishes._replace(skip_missing=skip), tmp_path / name, parts=1, now=NOW)
        return tmp_path / name

    with pytest.raises(NotAllowed, match="1 not replayable: its wsse:Security was taken out"):
        plan("refused")
    run_plan(spark, plan("without", skip=True), [target.url])
    assert target.keys == [f"{filled.first};1"]
    kept = plan("kept", security=True)
    redacting = Sources((str(filled.path),))
    assert run_plan(spark, kept, [target.url], sources=redacting).stopped == 1
    run_plan(spark, kept, [target.url])
    assert target.keys[2:] == [f"{filled.second};1"]
    assert b"MIIsecret" in target.requests[2][1]


def test_a_plan_that_cannot_be_made_leaves_nothing_behind(site: Site) -> None:
    with pytest.raises(NotFound, match="Nothing that can be replayed fits"):
        site.plan("number > 9")
    with pytest.raises(QueryError, match="cannot be read"):
        site.plan("nunber > 9")
    with pytest.raises(QueryError, match="cannot be read"):
        site.plan("number >")
    assert not list(site.directory.glob("plan*"))


def test_an_address_that_is_not_allowed_a_session_that_copies_tasks_and_a_second_run_are_refused(site: Site) -> None:
    class Speculating:
        conf: ClassVar = {"spark.speculation": "true"}

    plan = site.plan()
    with pytest.raises(NotAllowed, match="replay_targets"):
        run_plan(site.spark, plan, [])
    with pytest.raises(ConfigurationError, match=r"spark\.speculation=false"):
        run_plan(Speculating(), plan, [site.target.url])  # type: ignore[arg-type]
    with alone(DividedPlan(plan)), pytest.raises(NotAllowed, match="is being run by another process"):
        site.run(plan)
    assert site.target.keys == []


def test_a_rate_holds_for_all_parts_together(site: Site) -> None:
    began = datetime.now(UTC)
    site.run(site.plan("number <= 2"), rate=10)
    assert (datetime.now(UTC) - began).total_seconds() > 0.9 * 10 / 10 / PARTS
