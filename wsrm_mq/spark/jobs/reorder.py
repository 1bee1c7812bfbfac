"""The verdict of a sequence in order on its arrivals: released, held, or a duplicate."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

FRONTIER: Final = "store string, sequence string, next long"
"""Columns of a frontier: the number that a sequence releases next. In the table ``sequences`` that is its ``limit``."""


def reorder(arrivals: DataFrame, frontier: DataFrame) -> DataFrame:
    """Judge ``arrivals`` (store, sequence, number, position, and any other columns). The answer has a ``verdict``:
    ``duplicate`` of a released number or of an earlier position, ``release``, or ``held`` behind a gap; and ``next``,
    the number that its sequence releases next. ``frontier`` (store, sequence, next) is where each sequence begins; one
    without a row begins at 1.

    Nothing else says which numbers were released before: for a sequence whose first messages retention has deleted, the
    frontier has to be given.
    """
    sequence = Window.partitionBy("store", "sequence")
    upwards = sequence.orderBy("number", "position")
    begun = arrivals.join(
        frontier.select("store", "sequence", f.col("next").alias("begun")), ["store", "sequence"], "left"
    )
    before = f.lag("number").over(upwards)
    is_new = (f.col("number") >= f.col("begun")) & ~f.col("number").eqNullSafe(before)
    is_next = f.col("number") == f.col("begun") + f.col("new") - 1
    verdict = f.when(~f.col("is_new"), "duplicate").when(is_next, "release").otherwise("held")
    released = f.max(f.when(f.col("verdict") == "release", f.col("number"))).over(sequence)
    return (
        begun.withColumn("begun", f.coalesce("begun", f.lit(1)))
        .withColumn("is_new", is_new)
        .withColumn("new", f.sum(f.col("is_new").cast("long")).over(upwards.rowsBetween(Window.unboundedPreceding, 0)))
        .withColumn("verdict", verdict)
        .withColumn("next", f.coalesce(released + 1, "begun"))
        .drop("begun", "is_new", "new")
    )


def frontiers(reordered: DataFrame) -> DataFrame:
    """The frontier behind ``reordered`` arrivals, from which later arrivals go on."""
    return reordered.groupBy("store", "sequence").agg(f.max("next").alias("next"))
