"""``reconcile`` against a few lines of plain Python (``reconciled``), on logs with loss, repetition and disorder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import product
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.spark import reconciled
from wsrm_mq.spark.jobs import reconcile as jobs

Row = dict[str, Any]

MESSAGES = """
store string, node string, queue string, sequence string, number long, position long, message_id string, state string,
outcome string, reason string, received_at timestamp, settled_at timestamp, origin string, replay_of long,
confirmed_at timestamp, body_digest string, message long, deliveries long"""
SEQUENCES = """
store string, node string, queue string, sequence string, kind string, partner string, principal string, peer string,
state string, ended string, last_number long, expected long"""
RANGES = "store string, sequence string, lower long, upper long"
LEDGER = "store string, position long, event string, fault string"

BEGAN = datetime(2026, 3, 1, 23, 50, tzinfo=UTC)
ONE_OF_TWO = st.sampled_from("ab")


@st.composite
def _message(draw: st.DrawFn) -> Row:
    """Rows differ in all that is looked at; ``position`` is given where they are in a log."""
    outcome = draw(st.sampled_from(("delivered", "delivered", "dead", None)))
    received_at = BEGAN + timedelta(milliseconds=draw(st.integers(0, 2_000_000)))
    took = timedelta(milliseconds=draw(st.integers(0, 50)))
    store = draw(ONE_OF_TWO)
    return {
        "store": store,
        "node": f"node {store}",
        "queue": draw(st.sampled_from(("/orders", "/stock"))),
        "sequence": draw(st.sampled_from("abcd")),
        "number": draw(st.integers(1, 9)),
        "message_id": draw(st.none() | st.sampled_from("mno")),
        "outcome": outcome,
        "reason": draw(st.sampled_from(("answered_with_fault", None))) if outcome else None,
        "received_at": received_at,
        "settled_at": received_at + took if outcome else None,
        "origin": draw(st.none() | st.just("/orders")) if outcome == "dead" else None,
        "replay_of": draw(st.sampled_from((None, None, None, 1))),
        "confirmed_at": draw(st.none() | st.just(BEGAN)) if outcome else None,
        "body_digest": draw(st.none() | st.sampled_from("xy")),
    }


def _placed(rows: list[Row]) -> list[Row]:
    """In the order of receipt; a part of what one store has another has as a copy."""
    placed = [{**row, "position": place + 1} for place, row in enumerate(rows)]
    return placed + [
        {**row, "store": "b", "node": "node b"} for row in placed[: len(placed) // 4] if row["store"] == "a"
    ]


MESSAGE_LOGS = st.lists(_message(), max_size=60).map(_placed)


@st.composite
def _of_sequences(draw: st.DrawFn) -> tuple[list[Row], list[Row], list[Row]]:
    """Messages, their sequences, and ranges of those and of numbers whose messages were pruned."""
    messages = draw(MESSAGE_LOGS)
    sequences, ranges = [], []
    for store, sequence in product("ab", "abcd"):
        own = [one for one in messages if (one["store"], one["sequence"]) == (store, sequence)]
        accepted = {one["number"] for one in own if one["replay_of"] is None}
        accepted |= draw(st.frozensets(st.integers(1, 12), max_size=3))
        last = draw(st.none() | st.integers(0, 3))
        row = {"store": store, "node": f"node {store}", "sequence": sequence, "kind": "rm", "state": "created"}
        if draw(st.integers(0, 9)) == 0:
            row["kind"] = "replay"
        row["last_number"] = max(accepted, default=0) + last if last is not None else None
        row["expected"] = min({*range(1, 15)} - accepted)
        sequences.append(row)
        ranges += [
            {"store": store, "sequence": sequence, "lower": lower, "upper": upper}
            for lower, upper in reconciled.runs(accepted)
        ]
    return messages, sequences, ranges


few = settings(max_examples=4, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
"""A log is many sequences; a question to Spark takes a second where the machine is busy."""


def frame(spark: SparkSession, rows: list[Row], schema: str) -> DataFrame:
    names = [column.split()[0] for column in schema.split(",")]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], schema)


def rows(found: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """In an order of their own."""
    return ordered(tuple(row) for row in found.select(*names).collect())


def together(found: dict[str, DataFrame]) -> dict[str, list[tuple[str, ...]]]:
    """The rows of several tables, as text, of one job of Spark."""
    of_each = (
        table.select(f.lit(name), f.array(*(f.col(column).cast("string") for column in table.columns)))
        for name, table in found.items()
    )
    got = reduce(DataFrame.union, of_each).collect()
    return {name: ordered(tuple(texts) for of, texts in got if of == name) for name in found}


def ordered(found: Any) -> list[tuple[Any, ...]]:
    return sorted(found, key=repr)


@few
@given(_of_sequences())
def test_what_numbers_tell_is_what_sets_of_them_tell(
    spark: SparkSession, log: tuple[list[Row], list[Row], list[Row]]
) -> None:
    messages, sequences, ranges = (frame(spark, *one) for one in zip(log, (MESSAGES, SEQUENCES, RANGES), strict=True))
    expected = {name: ordered(each) for name, each in reconciled.of_numbers(*log).items()}
    runs = jobs.runs(messages).persist()
    received = jobs.received(runs, ranges, sequences).persist()
    key = ("store", "sequence")
    found = {
        "ranges": received.select(*key, "lower", "upper"),
        "gaps": jobs.gaps(received, sequences).select(*key, "lower", "upper", "missing", "place"),
        "disorder": jobs.disorder(runs, sequences).select(*key, "messages", "late", "deepest"),
        "repeated": jobs.repeated(messages, runs).select(*key, "number").distinct(),
        "lacking": jobs.lacking(received, sequences).select(*key, "lower", "upper", "other_store"),
    }
    assert together(found) == {name: ordered(tuple(map(str, row)) for row in each) for name, each in expected.items()}


@few
@given(MESSAGE_LOGS)
def test_messages_that_came_twice_are_found_with_what_their_bodies_say(spark: SparkSession, log: list[Row]) -> None:
    messages = frame(spark, log, MESSAGES)
    found = jobs.twice(jobs.came_again(messages), messages.select("store", "position", "body_digest"))
    names = ("message_id", "position", "times", "stores", "deliveries", "body")
    assert rows(found, *names) == ordered(reconciled.of_receipts(log))


@few
@given(MESSAGE_LOGS)
def test_latencies_faults_and_dead_letters_are_those_of_the_log(spark: SparkSession, log: list[Row]) -> None:
    ledger = [
        {"store": row["store"], "position": row["position"], "event": "answered_with_fault", "fault": "Client.NoStock"}
        for row in log
        if row["reason"] and row["position"] % 2
    ]
    messages, told = frame(spark, log, MESSAGES), frame(spark, ledger, LEDGER)
    expected = {name: ordered(each) for name, each in reconciled.of_outcomes(log, ledger).items()}
    latency = jobs.latency(messages, "hour")
    got = [
        (row.queue, row.at and row.at.astimezone(UTC), *tuple(row)[2:])
        for row in latency.select("queue", "at", "messages", *jobs.PERCENTILES, "longest").collect()
    ]
    assert ordered(got) == expected["latency"]
    faults = jobs.faults(messages, told)
    assert rows(faults, "store", "queue", "outcome", "fault", "messages", "unconfirmed") == expected["faults"]
    dead = jobs.dead(messages)
    assert rows(dead, "store", "queue", "reason", "messages", "unconfirmed") == expected["dead"]
