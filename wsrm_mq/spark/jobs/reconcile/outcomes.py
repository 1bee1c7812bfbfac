"""The outcomes of messages: latency, faults of the service, and dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def counts(messages: DataFrame) -> DataFrame:
    """Count the ``messages`` of each queue of a store by ``state``, and the replays among them."""
    return messages.groupBy("store", "node", "queue", F.coalesce("outcome", F.lit("unsettled")).alias("state")).agg(
        F.count("*").alias("messages"), F.count("replay_of").alias("replays")
    )


def latency(messages: DataFrame, unit: str) -> DataFrame:
    """The time in ms from the receipt of a message to the end of its delivery, for first deliveries that are no
    replays: by queue and by the ``unit`` of time (``minute``, ``hour``, ``day``) of receipt. In the rows for all time
    ``at`` is NULL, and in the one for all queues ``queue`` is too. A percentile lies between its two neighbours, as far
    as its rank does.

    Equal times are counted before they are sorted: there are few of them, however many messages there are.
    """
    ms = F.unix_millis("settled_at") - F.unix_millis("received_at")
    counted = (
        messages.where("outcome = 'delivered' AND replay_of IS NULL")
        .groupBy("queue", F.date_trunc(unit, "received_at").alias("at"), ms.alias("ms"))
        .agg(F.count("*").alias("messages"))
    )
    found = counted.groupingSets([["queue", "at"], ["queue"], []], "queue", "at").agg(
        F.sum("messages").alias("messages"),
        F.percentile("ms", list(PERCENTILES.values()), F.col("messages")).alias("percentiles"),
        F.max("ms").alias("longest"),
    )
    each = [F.round(F.col("percentiles")[place], 3).alias(name) for place, name in enumerate(PERCENTILES)]
    return found.select("queue", "at", "messages", *each, "longest")


def faults(messages: DataFrame, ledger: DataFrame) -> DataFrame:
    """One-way messages that the service took and answered with a fault, which their source does not read; ``fault`` is
    its code."""
    codes = (
        ledger.where("event = 'answered_with_fault'").groupBy("store", "position").agg(F.max("fault").alias("fault"))
    )
    return _alarms(
        messages.where("reason = 'answered_with_fault'").join(codes, ["store", "position"], "left"),
        *("store", "node", "queue", "outcome", "fault"),
    )


def dead(messages: DataFrame) -> DataFrame:
    """Dead letters by the queue that they come from, and why they are dead."""
    letters = messages.where("outcome = 'dead'").withColumn("queue", F.coalesce("origin", "queue"))
    return _alarms(letters, "store", "node", "queue", "reason")


def _alarms(messages: DataFrame, *by: str) -> DataFrame:
    """Count all of them, and those that no operator has confirmed."""
    return messages.groupBy(*by).agg(
        F.count("*").alias("messages"),
        F.count_if(F.col("confirmed_at").isNull()).alias("unconfirmed"),
        F.min("settled_at").alias("first_at"),
        F.max("settled_at").alias("last_at"),
    )
