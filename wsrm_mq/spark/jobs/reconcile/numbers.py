"""The numbers of sequences: what was received, what is missing, and in which order it came.

A sequence is known by its store and its identifier. Where messages were pruned, or are in no table that was given, the
store's own ``ranges`` and ``expected`` still say that their numbers were received.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, WindowSpec

_KEY: Final = ("store", "sequence")
_LARGEST: Final = 2**63 - 1
"""No number is as large (WS-RM: MessageNumber is at most 2**63 - 1, and that ends its sequence)."""


def arrived(messages: DataFrame) -> DataFrame:
    """Messages that a source has sent in a sequence, each once: no replays."""
    return messages.where("replay_of IS NULL AND sequence IS NOT NULL AND number IS NOT NULL")


def _sequence() -> WindowSpec:
    return Window.partitionBy(*_KEY)


def runs(messages: DataFrame) -> DataFrame:
    """Each run of numbers without a gap, from ``lower`` to ``upper``: how many ``messages`` it has, how many of them
    came ``late``, behind a higher number, and how far behind the ``deepest`` did.

    One shuffle: both orders, by arrival and by number, are sorts of the same partitions.
    """
    before = F.max("number").over(_sequence().orderBy("position").rowsBetween(Window.unboundedPreceding, -1))
    placed = (
        arrived(messages)
        .select(*_KEY, "number", "position")
        .withColumn("behind", before - F.col("number"))
        .withColumn("run", F.col("number") - F.dense_rank().over(_sequence().orderBy("number")))
    )
    return (
        placed.groupBy(*_KEY, "run")
        .agg(
            F.min("number").alias("lower"),
            F.max("number").alias("upper"),
            F.count("*").alias("messages"),
            F.count_if(F.col("behind") > 0).alias("late"),
            F.greatest(F.max("behind"), F.lit(0)).alias("deepest"),
        )
        .drop("run")
    )


def received(runs: DataFrame, ranges: DataFrame, sequences: DataFrame) -> DataFrame:
    """The acknowledgement ranges of sources' sequences: ``store``, ``sequence``, ``lower``, ``upper``."""
    below = sequences.where("expected > 1").select(
        *_KEY, F.lit(1).alias("lower"), (F.col("expected") - 1).alias("upper")
    )
    told = runs.select(*_KEY, "lower", "upper").union(ranges.select(*_KEY, "lower", "upper")).union(below)
    theirs = told.join(sequences.where("kind <> 'rm'").select(*_KEY), list(_KEY), "left_anti")
    in_order = _sequence().orderBy("lower", "upper")
    reached = F.max("upper").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(F.col("lower") > reached + 1, 1).otherwise(0)
    return (
        theirs.withColumn("begins", begins)
        .withColumn("range", F.sum("begins").over(in_order))
        .groupBy(*_KEY, "range")
        .agg(F.min("lower").alias("lower"), F.max("upper").alias("upper"))
        .drop("range")
    )


def _missing(received: DataFrame, ends: DataFrame) -> DataFrame:
    """The numbers between ranges, before the first, and behind the last up to ``end``, which ``ends`` has of each
    sequence that it is known of; ``place`` is ``first``, ``middle`` or ``last``."""
    at_end = ends.select(*_KEY, F.col("end").alias("lower"), F.col("end").alias("upper"), F.lit(True).alias("is_end"))
    edges = received.select(*_KEY, "lower", "upper", F.lit(False).alias("is_end")).union(at_end)
    before = _sequence().orderBy("lower").rowsBetween(Window.unboundedPreceding, -1)
    reached = F.coalesce(F.max("upper").over(before), F.lit(0))
    place = F.when(F.col("is_end"), "last").when(F.col("reached") == 0, "first").otherwise("middle")
    return (
        edges.withColumn("reached", reached)
        .where("lower > reached + 1")
        .select(
            *_KEY,
            (F.col("reached") + 1).alias("lower"),
            (F.col("lower") - 1).alias("upper"),
            (F.col("lower") - F.col("reached") - 1).alias("missing"),
            place.alias("place"),
        )
    )


def gaps(received: DataFrame, sequences: DataFrame) -> DataFrame:
    """Numbers that never came. That of the end of a sequence is known once its source has said its last number."""
    ends = (
        sequences.where("kind = 'rm'").select(*_KEY, (F.col("last_number") + 1).alias("end")).where("end IS NOT NULL")
    )
    return _named(_missing(received, ends), sequences, "state", "ended")


def repeated(messages: DataFrame, runs: DataFrame) -> DataFrame:
    """Messages whose number their store has more than once: it promises that there is none."""
    affected = runs.where("messages > upper - lower + 1").select(*_KEY).distinct()
    times = F.count("*").over(Window.partitionBy(*_KEY, "number"))
    return (
        arrived(messages)
        .join(F.broadcast(affected), list(_KEY), "left_semi")
        .select("store", "node", "sequence", "number", "position", "received_at", "outcome", times.alias("times"))
        .where("times > 1")
    )


def disorder(runs: DataFrame, sequences: DataFrame) -> DataFrame:
    """Sequences in which a number came behind a higher one."""
    by_sequence = runs.groupBy(*_KEY).agg(
        F.sum("messages").alias("messages"), F.sum("late").alias("late"), F.max("deepest").alias("deepest")
    )
    return _named(by_sequence.where("late > 0"), sequences)


def lacking(received: DataFrame, sequences: DataFrame) -> DataFrame:
    """Numbers of a sequence that one store lacks and another has, as after a store was put back from the past."""
    known = sequences.where("kind = 'rm'").select(*_KEY).distinct()
    shared = known.groupBy("sequence").count().where("count > 1").select("sequence")
    ranges = received.join(shared, "sequence", "left_semi")
    holes = _missing(ranges, known.join(shared, "sequence", "left_semi").withColumn("end", F.lit(_LARGEST)))
    other = ranges.select(
        F.col("store").alias("other_store"), "sequence", F.col("lower").alias("from"), F.col("upper").alias("upto")
    )
    found = (
        holes.join(other, "sequence")
        .where("store <> other_store AND lower <= upto AND upper >= from")
        .withColumn("lower", F.greatest("lower", "from"))
        .withColumn("upper", F.least("upper", "upto"))
        .withColumn("missing", F.expr("upper - lower + 1"))
    )
    return _named(found.drop("place", "from", "upto"), sequences)


def _named(found: DataFrame, sequences: DataFrame, *more: str) -> DataFrame:
    """Add the columns by which a reader knows these sequences."""
    named = sequences.select(*_KEY, "node", "queue", F.coalesce("partner", "principal", "peer").alias("partner"), *more)
    joined = found.join(named, list(_KEY), "left")
    rest = [name for name in joined.columns if name not in (*_KEY, "node", "queue", "partner")]
    return joined.select("store", "node", "sequence", "queue", "partner", *rest)
