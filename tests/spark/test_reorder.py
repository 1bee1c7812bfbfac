"""Release, held, duplicate: against a reference in plain Python that takes one arrival after the other."""

from __future__ import annotations

from collections import defaultdict
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from wsrm_mq.spark.jobs.reorder import FRONTIER, frontiers, reorder

Arrival = tuple[str, str, int, int]
"""Store, sequence, number, position."""
ARRIVALS = "store string, sequence string, number long, position long"


def reference(arrivals: list[Arrival], frontier: dict[tuple[str, str], int]) -> set[tuple[object, ...]]:
    """Each arrival with its verdict and where its sequence stands at the end."""
    upto = defaultdict(lambda: 1, frontier)
    first: dict[tuple[str, str, int], int] = {}
    for store, sequence, number, position in sorted(arrivals, key=lambda one: one[3]):
        if number >= upto[store, sequence]:
            first.setdefault((store, sequence, number), position)
    ends = {}
    for store, sequence, *_ in arrivals:
        end = upto[store, sequence]
        while (store, sequence, end) in first:
            end += 1
        ends[store, sequence] = end
    found = set()
    for arrival in arrivals:
        store, sequence, number, position = arrival
        is_first = first.get((store, sequence, number)) == position
        verdict = "release" if number < ends[store, sequence] else "held"
        found.add((*arrival, verdict if is_first else "duplicate", ends[store, sequence]))
    return found


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Arrival], dict[tuple[str, str], int]]:
    """What a lossy network makes of some hundred sequences: lost, repeated and shuffled."""
    # By a seed: some hundred sequences, drawn value by value, are more than Hypothesis lets an example have.
    random = Random(draw(st.integers(0, 2**32)))
    arrivals, frontier, position = [], {}, 0
    for name in range(draw(st.integers(1, 200))):
        store, sequence = f"store {name % 3}", f"urn:{name}"
        numbers = [n for n in range(1, random.randint(1, 12)) if random.random() > 0.1]
        numbers += [n for n in numbers if random.random() < 0.2]
        random.shuffle(numbers)
        if random.random() < 0.5:
            frontier[store, sequence] = random.randint(1, 6)
        for number in numbers:
            position += 1
            arrivals.append((store, sequence, number, position))
    return arrivals, frontier


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(logs())
def test_every_arrival_has_the_verdict_of_the_reference(
    spark: SparkSession, log: tuple[list[Arrival], dict[tuple[str, str], int]]
) -> None:
    arrivals, frontier = log
    begun = spark.createDataFrame([(*key, upto) for key, upto in frontier.items()], FRONTIER)
    found = reorder(spark.createDataFrame(arrivals, ARRIVALS), begun)
    names = ("store", "sequence", "number", "position", "verdict", "next")
    assert sorted(map(tuple, found.select(*names).collect())) == sorted(reference(arrivals, frontier))


def test_what_arrives_later_goes_on_at_the_frontier(spark: SparkSession) -> None:
    none = spark.createDataFrame([], FRONTIER)
    first = reorder(spark.createDataFrame([("a", "s", 1, 1), ("a", "s", 2, 2), ("a", "s", 4, 3)], ARRIVALS), none)
    assert [tuple(row) for row in frontiers(first).collect()] == [("a", "s", 3)]
    later = spark.createDataFrame([("a", "s", 2, 4), ("a", "s", 3, 5), ("a", "s", 4, 6)], ARRIVALS)
    verdicts = reorder(later, frontiers(first)).orderBy("position").select("verdict").collect()
    assert [row.verdict for row in verdicts] == ["duplicate", "release", "release"]
