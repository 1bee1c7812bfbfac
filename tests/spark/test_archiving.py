"""A store is archived by Spark, and again: what its archive has is what was settled, and the store is told."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.functions import spark_partition_id, unix_millis

from tests.archive.test_batches import World
from tests.queue.build import Node
from tests.support.filled import Filled
from wsrm_mq.archive.files import load
from wsrm_mq.cli import program
from wsrm_mq.errors import NotAllowed
from wsrm_mq.export.pieces import Exposure, opened
from wsrm_mq.spark.archiving import Archived, archive_of, ordered
from wsrm_mq.store.identity import identify

COMPARED = ("queue", "sequence", "number", "message_id", "state", "reason", "outcome", "deliveries", "body_size")


class Row(NamedTuple):
    position: int
    queue: str | None
    sequence: str | None
    number: int | None
    received_at: datetime


def rows(spark: Any, directory: Path, table: str, *columns: str) -> list[tuple[Any, ...]]:
    from wsrm_mq.spark import read

    found = read(spark, str(directory), table=table, columns=columns)
    return sorted(tuple(row) for row in found.collect())


def archived(spark: Any, filled: Filled, directory: Path) -> Archived:
    return archive_of(spark, filled.path, directory, Exposure(), "ada", node="n", clock=filled.clock)


def test_a_second_run_adds_what_was_settled_since_and_nothing_else(spark: Any, filled: Filled, tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    first = archived(spark, filled, directory)
    assert first.wrong == []
    assert rows(spark, directory, "messages", "position", "outcome") == [(1, "delivered")]
    assert rows(spark, directory, "replies", "position", "body") == [(1, b"<ok/>")]
    assert load(directory).unverified == ()
    assert archived(spark, filled, directory).known.number == 1
    filled.clock.advance(120_000)
    filled.deliver(2)
    second = archived(spark, filled, directory)
    assert (second.wrong, second.known.number) == ([], 2)
    assert rows(spark, directory, "messages", "position") == [(1,), (2,)]


def test_an_archive_is_begun_again_with_what_it_shows_only(spark: Any, filled: Filled, tmp_path: Path) -> None:
    archived(spark, filled, tmp_path / "archive")
    with pytest.raises(NotAllowed, match="was begun with neither --header nor --with-security"):
        archive_of(spark, filled.path, tmp_path / "archive", Exposure(security=True), "ada")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(program, list(map(str, arguments)), prog_name="wsrm-mq")


def test_stores_are_archived_by_a_command_and_may_prune_then(spark: Any, filled: Filled, tmp_path: Path) -> None:
    other = Node(tmp_path / "other.db")
    other.close()
    done = run("pipeline", "archive", filled.path, other.path, "--out", tmp_path / "out", "--actor", "ada", "--json")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout.splitlines()[-1])
    assert {"stores": 2, "archived": 1, "differences": 0}.items() <= summary.items()
    assert len(rows(spark, tmp_path / "out", "messages", "position")) == 1
    assert filled.instance.rows("SELECT lower, upper, actor FROM archived JOIN archive ON id = archive") == [
        {"lower": 1, "upper": 1, "actor": "ada"}
    ]
    again = run("pipeline", "archive", filled.path, "--out", tmp_path / "out", "--with-security")
    assert (again.exit_code, again.stderr.splitlines()[-1][:8]) == (4, "wsrm-mq:")
    assert len(filled.instance.ledger("archived")) == 1
    refused = run("pipeline", "audit", tmp_path / "out", "--out", tmp_path / "audit")
    assert (refused.exit_code, "has only what is settled. Audit the store itself." in refused.stderr) == (2, True)


def test_a_place_that_cannot_be_written_is_told_in_a_line_and_nothing_is_left(
    spark: Any, filled: Filled, tmp_path: Path
) -> None:
    with opened(filled.path) as db:
        place = tmp_path / "out" / identify(db).id
    place.mkdir(parents=True)
    (place / "messages").write_text("in the way")
    (tmp_path / "out" / "summary.json").write_text('{"job": "archive"}')
    done = run("pipeline", "archive", filled.path, "--out", tmp_path / "out")
    assert done.exit_code == 5, done.output
    assert "cannot be written: " in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.output
    assert not list(place.rglob("*.parquet*"))
    (place / "messages").unlink()
    assert run("pipeline", "archive", filled.path, "--out", tmp_path / "out").exit_code == 0


# against plain Python


def laid_out(found: list[Row]) -> list[Row]:
    """How the rows of messages have to lie within a partition."""

    def place(row: Row) -> tuple[Any, ...]:
        known = (row.received_at.date(), row.queue, row.sequence, row.number, row.position)
        return tuple((one is not None, one) for one in known)

    return sorted(found, key=place)


@given(st.data())
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_lie_by_day_queue_sequence_and_number_and_none_is_lost(spark: Any, data: Any) -> None:
    """Numbers come late, twice, or not at all; some messages have no sequence."""
    word = st.sampled_from([None, "a", "b", "c/ü"])
    row = st.tuples(word, word, st.none() | st.integers(1, 9), st.integers(0, 5))
    drawn = data.draw(st.lists(row, max_size=60))
    began = datetime(2026, 3, 1, 20, tzinfo=UTC)
    stored = [
        Row(position, queue, sequence, number, began + timedelta(hours=hours))
        for position, (queue, sequence, number, hours) in enumerate(drawn, 1)
    ]
    schema = "position long, queue string, sequence string, number long, received_at timestamp"
    parts = data.draw(st.integers(1, 4))
    frame = ordered(spark.createDataFrame(stored, schema), "messages", parts)
    found: dict[int, list[Row]] = {}
    for each in frame.withColumns({"part": spark_partition_id(), "received_at": unix_millis("received_at")}).collect():
        moment = datetime.fromtimestamp(each.received_at / 1000, UTC)
        found.setdefault(each.part, []).append(Row(*each[:4], moment))
    assert sorted((row for part in found.values() for row in part), key=lambda row: row.position) == stored
    for part in found.values():
        assert part == laid_out(part)
    homes: dict[tuple[Any, ...], set[int]] = {}
    for part, its in found.items():
        for one in its:
            homes.setdefault((one.received_at.date(), one.queue, one.sequence), set()).add(part)
    assert all(len(home) == 1 for home in homes.values())


@pytest.mark.parametrize("seed", [1, 2])
def test_two_batches_have_what_the_store_had_row_by_row(spark: Any, tmp_path: Path, seed: int) -> None:
    """Every table against its read view, after a batch in the midst of the traffic and one at its end."""
    node = Node(tmp_path / "store.db")
    world = World(node.start(), node.path, tmp_path / "unused", random.Random(seed))
    settled: dict[int, Any] = {}
    for _ in range(2):
        for _ in range(40):
            getattr(world, world.chance.choice(("take", "take", "deliver", "deliver", "discard", "restore")))()
        made = archive_of(spark, node.path, tmp_path / "archive", Exposure(), "ada", clock=node.clock)
        assert made.wrong == []
        views = world.one.rows("SELECT * FROM messages WHERE outcome IS NOT NULL")
        settled |= {view["position"]: [view[name] for name in COMPARED] for view in views}
    found = rows(spark, tmp_path / "archive", "messages", "position", *COMPARED)
    assert [[*row] for row in found] == [[position, *settled[position]] for position in sorted(settled)]
    kept = rows(spark, tmp_path / "archive", "ledger", "key", "event")
    assert kept == [(row["id"], row["event"]) for row in world.one.ledger()]
    sequences = rows(spark, tmp_path / "archive", "sequences", "key", "sequence")
    assert sequences == [(row["id"], row["identifier"]) for row in world.one.rows("SELECT * FROM lane")]
    node.close()
