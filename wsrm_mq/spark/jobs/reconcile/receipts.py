"""Messages that came more than once: to one store in two sequences, or to two stores.

A source that sends again in another sequence, and a request that two nodes were given, leave the same ``message_id``
twice; no sequence recognises it. Whether it is the same message its Body says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def newest(rows: DataFrame, key: str, moment: str) -> DataFrame:
    """Of rows that several copies of a store have, keep the one of each ``key`` whose ``moment`` is the latest."""
    latest_first = Window.partitionBy("store", key).orderBy(F.desc_nulls_last(moment))
    return rows.withColumn("copy", F.row_number().over(latest_first)).where("copy = 1").drop("copy")


def came_again(messages: DataFrame) -> DataFrame:
    """The receipts of messages that came more than once; replays are no receipts. A store that was put back from a copy
    shares receipts with its original: such a receipt counts once, unless both stores went on with it."""
    sent = messages.where("replay_of IS NULL AND message_id IS NOT NULL")
    ids = sent.groupBy("message_id").count().where("count > 1").select("message_id")
    moments = ("position", "received_at", "settled_at")
    first = Window.partitionBy("message_id", "sequence", "number", *moments).orderBy("store")
    times = F.count("*").over(Window.partitionBy("message_id"))
    return (
        sent.join(ids, "message_id", "left_semi")
        .select("message_id", "store", "node", "queue", "sequence", "number", *moments, "outcome")
        .withColumn("copy", F.row_number().over(first))
        .where("copy = 1")
        .withColumn("times", times)
        .where("times > 1")
        .drop("copy", "times")
    )


def twice(again: DataFrame, digests: DataFrame) -> DataFrame:
    """The receipts of ``came_again`` with their counts: ``times`` in all, ``stores`` that have them, ``deliveries``
    among them. ``body`` is ``same``; ``another`` where two are known to differ; else ``unknown``, since a Body that was
    pruned or not read may be any. ``digests`` have ``store``, ``position``, ``body_digest``."""
    of_message = Window.partitionBy("message_id")
    bodies = F.size(F.collect_set("body_digest").over(of_message))
    known, times = F.count("body_digest").over(of_message), F.count("*").over(of_message)
    body = F.when(bodies > 1, "another").when(known == times, "same").otherwise("unknown")
    return again.join(digests, ["store", "position"], "left").select(
        *again.columns,
        times.alias("times"),
        F.size(F.collect_set("store").over(of_message)).alias("stores"),
        F.count_if(F.col("outcome") == "delivered").over(of_message).alias("deliveries"),
        body.alias("body"),
    )
