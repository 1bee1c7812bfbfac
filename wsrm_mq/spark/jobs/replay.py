"""The messages of a plan over many stores, in the order in which they run, and the contents with which they are sent.
``spark.replay_plan`` writes the plan, ``spark.replay_run`` runs it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

CONTENT: Final = ("store", "position", "envelope", "replayable", "request")
"""Columns that a message is sent with."""

_WHY_NOT: Final = {
    "not settled: `wsrm-mq replay` on its node takes it out of its queue": "state IN ('held', 'ready', 'leased')",
    "discarded: `wsrm-mq replay` on its node delivers it": "state IN ('discarded', 'purged')",
    "of a sequence that is forgotten": "sequence IS NULL OR number IS NULL",
    "without a body: `retain` has passed": "NOT has_body",
    "not replayable: its wsse:Security was taken out (--with-security keeps it)": "NOT replayable",
}
"""Why a message is left out, and of which that is true."""
MISSING: Final = tuple(_WHY_NOT)[-2:]
"""Reasons for which a message cannot be sent although it should."""


def planned(messages: DataFrame, wanted: Column, parts: int) -> DataFrame:
    """The messages of a plan, and those that are ``wanted`` and left out, which have a ``why``.

    Each message is there once, however often it was delivered or read, and in however many stores (``copied``: one that
    was put back from a copy has its sequences too), under the sequence and number that it came under: by the row that
    is wanted, can be sent, and is the last. Within a ``part`` they run by ``released`` (ms since
    the epoch), ``group`` and ``number``.
    ``breaks_order``: a message of its sequence that is not in the plan has a higher number.
    """
    standing = (f.desc("is_wanted"), f.desc("replayable"), f.desc("position"), f.desc("settled_at"), "state", "store")
    of_sequence = Window.partitionBy("sequence")
    of_number = Window.partitionBy("sequence", "number")
    in_sequence = of_sequence.orderBy("number", *standing)
    in_order = of_sequence.orderBy("number").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_first = f.col("number").isNull() | ~f.col("number").eqNullSafe(f.lag("number").over(in_sequence))
    once = (
        messages.withColumn("is_wanted", f.coalesce(wanted, f.lit(False)))
        .withColumn("sequence", f.coalesce("original_sequence", "sequence"))
        .withColumn("number", f.coalesce("original_number", "number"))
        .withColumn("is_first", is_first)
        .withColumn("copied", f.min("store").over(of_number) != f.max("store").over(of_number))
        .where("is_first")
        .withColumn("why", _why())
    )
    is_left = ~f.col("is_wanted") | f.col("why").isNotNull()
    group = f.xxhash64("sequence")
    received = f.unix_millis("received_at")
    return (
        once.withColumn("left", f.max(f.when(is_left, f.col("number"))).over(of_sequence))
        .where("is_wanted")
        .withColumn("released", f.max(f.when(f.col("why").isNull(), received)).over(in_order))
        .select(
            f.pmod(group, f.lit(parts)).cast("int").alias("part"),
            *("released", group.alias("group"), "number", "store", "position", "queue", "sequence", "message_id"),
            *("action", f.coalesce("body_size", f.lit(0)).alias("size"), "state", "why", "copied"),
            received.alias("received_at"),
            f.coalesce(f.col("number") < f.col("left"), f.lit(False)).alias("breaks_order"),
        )
    )


def _why() -> Column:
    """Why a message is left out, or null."""
    return f.coalesce(*(f.when(f.expr(condition), f.lit(why)) for why, condition in _WHY_NOT.items()))


def contents(lines: DataFrame, messages: DataFrame, parts: int) -> DataFrame:
    """The contents with which the messages of ``lines`` (part, line, store, position) are sent: each part is a
    partition in the order of its lines, and of several rows of a line the one comes first that can be sent."""
    return (
        lines.join(messages.select(*CONTENT), ["store", "position"])
        .repartitionById(parts, "part")
        .sortWithinPartitions("line", f.desc("replayable"))
        .select("part", "line", "envelope", "replayable", "request")
    )
