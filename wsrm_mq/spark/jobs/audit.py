"""Invariants of stores, checked in many at once: each function answers the rows that break one.

The words are those of ``store.invariants``, which asks more of one store. A violation is a row with the columns
``ROW``; ``number`` and ``position`` are NULL where it is about a sequence as a whole.

The tables of a store that is served, or was when it was exported, are not of one moment: each rule says what it asks of
the order in which they are read. ``begun`` has the stores that were read from an export, and when that began.
"""

from __future__ import annotations

from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from wsrm_mq.queue.plans import CANCELLED
from wsrm_mq.store.invariants import ACCOUNTED_FOR, HAS_MESSAGE, IN_RANGES, ONE_OUTCOME
from wsrm_mq.store.words import ANSWERED_WITH_FAULT, REPLAYED

SETTLED_ONCE: Final = "a number of a sequence is settled once"
TOLD: Final = "every outcome but a clean delivery has its row in the ledger"
IN_ORDER: Final = "what is delivered in order is settled in order"
AFTERWARDS: Final = "what is settled was received before"

ROW: Final = ("store", "node", "sequence", "invariant", "number", "position", "detail")
COLUMNS: Final = {
    "messages": (
        *("store", "node", "sequence", "number", "position", "state", "outcome", "reason"),
        *("received_at", "settled_at", "named", "late", "replay_of"),
    ),
    "sequences": ("store", "node", "sequence", "ordered", "active_at", "received", "pruned"),
    "ranges": ("store", "sequence", "lower", "upper"),
    "ledger": ("store", "key", "at", "event", "position"),
}
"""The columns that are read, by table."""
SLIP: Final = 1_000
"""ms that a clock may fall without a word, as one does that is kept by another."""
BLOCK: Final = 10_000
"""The number of places of a store that are searched at once for a step of its clock."""

_SEQUENCE: Final = ("store", "sequence")


class Tables(NamedTuple):
    messages: DataFrame
    sequences: DataFrame
    ranges: DataFrame
    ledger: DataFrame
    begun: DataFrame


def violations(tables: Tables) -> DataFrame:
    """All violations in ``tables``."""
    messages, sequences, ranges, ledger, begun = tables
    steps = clock_steps(tables)
    found = (
        settled_twice(messages),
        unaccounted(sequences, messages, begun),
        outside_ranges(messages, ranges),
        outcomes(messages),
        without_message(messages),
        untold(messages, ledger, begun),
        without_ledger(sequences, ledger, begun),
        out_of_order(neighbours(tables), steps),
        before_receipt(messages, steps),
    )
    return reduce(DataFrame.union, found)


def settled_twice(messages: DataFrame) -> DataFrame:
    """A number that two messages of a store have, or that was delivered at two times: in two stores, where one that was
    copied has served beside its original. Each settlement is a row."""
    settled = messages.where("sequence IS NOT NULL AND outcome IS NOT NULL")
    everywhere = Window.partitionBy("sequence", "number")
    delivery = F.when(F.col("outcome") == "delivered", F.struct("settled_at", "position"))
    found = settled.withColumns(
        {
            "here": F.count("*").over(Window.partitionBy("sequence", "number", "store")),
            "first": F.min(delivery).over(everywhere),
            "last": F.max(delivery).over(everywhere),
        }
    ).where("here > 1 OR (outcome = 'delivered' AND first <> last)")
    return _violations(found, SETTLED_ONCE, F.concat(F.col("outcome"), F.lit(" at "), _moment("settled_at")))


def unaccounted(sequences: DataFrame, messages: DataFrame, begun: DataFrame) -> DataFrame:
    """The numbers that a sequence has received are as many as its messages and those that were pruned.

    ``messages`` are read before ``sequences``. Of an export no sequence is judged that received something meanwhile,
    and none for what was pruned meanwhile."""
    entries = messages.groupBy(*_SEQUENCE).agg(F.count("*").alias("entries"))
    counted = (
        sequences.join(entries, [*_SEQUENCE], "left").fillna(0, ["entries"]).join(F.broadcast(begun), ["store"], "left")
    )
    found = counted.where(
        "received > entries + pruned AND (begun_at IS NULL OR active_at < begun_at)"
        " OR received < entries + pruned AND (begun_at IS NULL OR received < entries)"
    )
    counts = [F.concat(F.col(one), F.lit(f" {one}")) for one in ("received", "entries", "pruned")]
    return _violations(_of_sequence(found), ACCOUNTED_FOR, F.concat_ws(", ", *counts))


def outside_ranges(messages: DataFrame, ranges: DataFrame) -> DataFrame:
    """Messages whose number their sequence has not received, or whose sequence is not there: one that has messages is
    not deleted. ``messages`` are read before ``ranges``. A sequence that has received nothing is ``unaccounted``."""
    known = ranges.select(*_SEQUENCE).distinct()
    its = ranges.select(F.col("store").alias("its_store"), F.col("sequence").alias("its_sequence"), "lower", "upper")
    is_within = F.expr("store = its_store AND sequence = its_sequence AND number BETWEEN lower AND upper")
    outside = messages.join(known, [*_SEQUENCE], "left_semi").join(its, is_within, "left_anti")
    found = outside.union(messages.where("sequence IS NULL AND number IS NOT NULL"))
    return _violations(found, IN_RANGES, F.concat(F.lit("number "), F.col("number")))


def outcomes(messages: DataFrame) -> DataFrame:
    """Messages that are settled without a time or have a time without being settled, or that are settled and may not be
    acknowledged."""
    found = messages.where("(outcome IS NULL) <> (settled_at IS NULL) OR (outcome IS NOT NULL AND NOT named)")
    said = F.concat(F.coalesce("outcome", F.lit("no outcome")), F.when(F.col("named"), "").otherwise(", not named"))
    return _violations(found, ONE_OUTCOME, said)


def without_message(messages: DataFrame) -> DataFrame:
    """Entries whose message is not there."""
    return _violations(messages.where("received_at IS NULL"), HAS_MESSAGE, F.lit("no message"))


def untold(messages: DataFrame, ledger: DataFrame, begun: DataFrame) -> DataFrame:
    """Messages whose outcome the ledger does not tell, since it was begun: rows of a message are deleted with the
    message.

    ``ledger`` is read before ``messages``; of an export nothing is judged that was settled meanwhile. What was replayed
    instead is told by the message that replays it; what a cancelled plan took back, by the plan."""
    event = (
        F.when((F.col("outcome") == "discarded") & (F.col("reason") == CANCELLED), None)
        .when((F.col("outcome") == "discarded") & (F.col("reason") == REPLAYED), REPLAYED)
        .when(F.col("outcome").isin("dead", "discarded", "purged"), F.col("outcome"))
        .when(F.col("reason") == ANSWERED_WITH_FAULT, ANSWERED_WITH_FAULT)
    )
    since = ledger.groupBy("store").agg(F.min("at").alias("since"))
    expected = (
        messages.withColumn("event", event)
        .where("event IS NOT NULL")
        .join(F.broadcast(since), ["store"])
        .join(F.broadcast(begun), ["store"], "left")
        .where("settled_at >= since AND (begun_at IS NULL OR settled_at < begun_at)")
    )
    replays = messages.where("replay_of IS NOT NULL").select("store", F.col("replay_of").alias("position"))
    told = ledger.select("store", "position", "event").union(
        replays.select("store", "position", F.lit(REPLAYED).alias("event"))
    )
    found = expected.join(told, ["store", "position", "event"], "left_anti")
    return _violations(found, TOLD, F.concat_ws(", ", "outcome", "reason"))


def without_ledger(sequences: DataFrame, ledger: DataFrame, begun: DataFrame) -> DataFrame:
    """Stores that have sequences, and not one row that tells of them: the one of its beginning stays with a sequence.
    ``ledger`` is read before ``sequences``; of an export those count that were there when it began."""
    there = sequences.join(F.broadcast(begun), ["store"], "left").where("begun_at IS NULL OR active_at < begun_at")
    silent = there.select("store", "node").distinct().join(ledger.select("store").distinct(), ["store"], "left_anti")
    found = _of_sequence(silent.withColumn("sequence", F.lit(None).cast("string")))
    return _violations(found, TOLD, F.lit("the ledger has no row"))


def neighbours(tables: Tables) -> DataFrame:
    """Deliveries of sequences in order, each with the one before it: ``before``, its number, and ``before_at``. Two
    that were settled in the same ms prove nothing."""
    delivered = tables.messages.where("outcome = 'delivered' AND NOT late")
    upwards = Window.partitionBy(*_SEQUENCE).orderBy("number")
    before = {"before": F.lag("number").over(upwards), "before_at": F.lag("settled_at").over(upwards)}
    in_order = tables.sequences.where("ordered").select(*_SEQUENCE)
    return delivered.join(in_order, [*_SEQUENCE]).withColumns(before).where("before IS NOT NULL")


def clock_steps(tables: Tables) -> DataFrame:
    """Find the steps by which the clock of a ``store`` was set back, from ``high`` to ``low``, by the times of rows
    that were written one after the other."""
    arrivals = tables.messages.where("replay_of IS NULL").select(
        "store", F.lit("messages").alias("table"), F.col("position").alias("place"), F.col("received_at").alias("low")
    )
    written = tables.ledger.select("store", F.lit("ledger"), "key", "at")
    times = arrivals.union(written).withColumn("block", F.expr(f"place div {BLOCK}"))
    place = Window.partitionBy("store", "table", "block").orderBy("place")
    ends = times.groupBy("store", "table", "block").agg(
        F.min_by("low", "place").alias("low"), F.max_by("low", "place").alias("last")
    )
    block = Window.partitionBy("store", "table").orderBy("block")
    inside = times.withColumn("high", F.lag("low").over(place)).select("store", "high", "low")
    across = ends.withColumn("high", F.lag("last").over(block)).select("store", "high", "low")
    return inside.union(across).where("high > low")


def out_of_order(neighbours: DataFrame, clock_steps: DataFrame) -> DataFrame:
    """Deliveries that were settled before the one in front of them, where no step of the clock explains it."""
    steps = clock_steps.withColumnRenamed("store", "its_store")
    is_explained = F.expr("store = its_store AND before_at > low AND settled_at < high")
    found = neighbours.where("settled_at < before_at").join(F.broadcast(steps), is_explained, "left_anti")
    later = (F.unix_millis("before_at") - F.unix_millis("settled_at")).cast("string")
    said = F.concat(F.lit("number "), F.col("before"), F.lit(" was settled "), later, F.lit(" ms later"))
    return _violations(found, IN_ORDER, said)


def before_receipt(messages: DataFrame, clock_steps: DataFrame) -> DataFrame:
    """Messages that were settled before they came, where no step of the clock explains it."""
    steps = clock_steps.withColumnRenamed("store", "its_store")
    is_explained = F.expr("store = its_store AND received_at > low AND settled_at < high")
    early = F.unix_millis("received_at") - F.unix_millis("settled_at")
    found = messages.where(early > SLIP).join(F.broadcast(steps), is_explained, "left_anti")
    return _violations(found, AFTERWARDS, F.concat(F.lit("settled "), early.cast("string"), F.lit(" ms before")))


def accounts(messages: DataFrame) -> DataFrame:
    """Count the messages of each store by ``state``."""
    return messages.groupBy("store", "node", "state").agg(F.count("*").alias("messages"))


def _violations(rows: DataFrame, invariant: str, detail: Column) -> DataFrame:
    return rows.withColumns({"invariant": F.lit(invariant), "detail": detail}).select(*ROW)


def _of_sequence(rows: DataFrame) -> DataFrame:
    nothing = F.lit(None).cast("long")
    return rows.withColumns({"number": nothing, "position": nothing})


def _moment(name: str) -> Column:
    return F.coalesce(F.date_format(name, "yyyy-MM-dd HH:mm:ss.SSS"), F.lit("no time"))
