"""The reconciliation of the traffic of any number of stores: missing numbers, messages that came twice, latencies,
failures, and sequences that stand still.

A sequence is known by its store and its identifier. Where messages were pruned, or are in no table that was given, the
store's own ``ranges`` and ``expected`` still say that their numbers were received.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from wsrm_mq.store.applications import SENT, SOURCE
from wsrm_mq.versions import RM_VERSIONS
from wsrm_mq.views.situation import EXPIRING_WITHIN, SILENT_WITH_GAP, SILENT_WITHOUT

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


# messages that came more than once: to one store in two sequences, or to two stores
#
# A source that sends again in another sequence, and a request that two nodes were given, leave the same message_id
# twice; no sequence recognises it. Its Body says whether it is the same message.


def newest(rows: DataFrame, key: str, moment: str) -> DataFrame:
    """Keep the row with the latest ``moment`` for each ``key``, where several copies of a store have rows."""
    latest_first = Window.partitionBy("store", key).orderBy(F.desc_nulls_last(moment))
    return rows.withColumn("copy", F.row_number().over(latest_first)).where("copy = 1").drop("copy")


def receipts(messages: DataFrame) -> DataFrame:
    """Messages that have come with an id; replays are no receipts, nor are copies in other queues, nor is what a store
    itself sends."""
    is_receipt = "replay_of IS NULL AND COALESCE(message, position) = position"
    return messages.where(f"{is_receipt} AND message_id IS NOT NULL").where(~F.col("queue").startswith(SENT))


def came_again(messages: DataFrame) -> DataFrame:
    """The receipts of messages that came more than once. A store that was put back from a copy shares receipts with its
    original: such a receipt counts once, unless both stores went on with it."""
    sent = receipts(messages)
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


# what senders' stores say that they sent, against what these stores say that they got


FATES: Final = ("delivered", "undelivered", "waiting", "failed", "lost", "given_up")
ASTRAY: Final = ("lost", "given_up")
"""The fates of which sender and receiver do not say the same."""


def fates(asked: DataFrame, messages: DataFrame) -> DataFrame:
    """Each request of the stores of RM Sources, ``asked``, as it was stored last, with its ``fate``: ``delivered``;
    ``undelivered`` yet, or not any more, where it has come; ``waiting`` to be acknowledged; ``failed`` at its sender,
    and not delivered; ``lost``: acknowledged, and in none of the stores of ``messages``; ``given_up`` by its sender,
    and delivered all the same. ``receipts`` and ``deliveries``: how often it has come, and was delivered."""
    is_own = F.lit(False)
    for rm in RM_VERSIONS.values():
        is_own = is_own | F.coalesce(F.col("action").startswith(f"{rm.namespace}/"), F.lit(False))
    last = F.max_by(F.struct("node", "queue", "sequence", "number", "received_at", "outcome", "reason"), "position")
    requests = asked.where(F.col("queue").startswith(f"{SENT}{SOURCE}") & F.col("message_id").isNotNull() & ~is_own)
    came = (
        receipts(messages)
        .groupBy("message_id")
        .agg(F.count("*").alias("receipts"), F.count_if(F.col("outcome") == "delivered").alias("deliveries"))
    )
    joined = requests.groupBy("store", "message_id").agg(last.alias("last")).join(came, "message_id", "left")
    found = joined.select("store", "message_id", "last.*", "receipts", "deliveries").fillna(
        0, ["receipts", "deliveries"]
    )
    is_acknowledged, is_delivered = F.col("outcome") == "delivered", F.col("deliveries") > 0
    fate = (
        F.when(F.col("outcome").isNull(), "waiting")
        .when(~is_acknowledged, F.when(is_delivered, "given_up").otherwise("failed"))
        .when(F.col("receipts") == 0, "lost")
        .when(is_delivered, "delivered")
        .otherwise("undelivered")
    )
    return found.withColumn("fate", fate)


# the outcomes of messages


PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def counts(messages: DataFrame) -> DataFrame:
    """Count the ``messages`` of each queue of a store by ``state``, and among them the replays, and those that were
    delivered more than once."""
    return messages.groupBy("store", "node", "queue", F.coalesce("outcome", F.lit("unsettled")).alias("state")).agg(
        F.count("*").alias("messages"),
        F.count("replay_of").alias("replays"),
        F.count_if(F.col("deliveries") > 1).alias("redelivered"),
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


# sequences that stand still, by the verdict of `wsrm-mq sequence list`
#
# No table says which processes live. So a sequence that an instance owns is `running`, and one that is ready is `ok`,
# until its oldest message waits for longer than STALLED_AFTER.

STALLED_AFTER: Final = 600_000
"""ms; as long as a sequence may be ready, or run, before it is told."""

_QUIET: Final = "now - unix_millis(active_at)"
_LEFT: Final = "unix_millis(due_at) - now"
_LIFE: Final = "IF(due_at <=> expires_at, unix_millis(expires_at) - unix_millis(created_at), inactivity)"
_IS_STALLED: Final = f"now - unix_millis(oldest_at) > {STALLED_AFTER}"
_LACKS_NUMBERS: Final = (
    "(kind = 'rm' AND late IS NULL AND (received >= expected OR COALESCE(last_number >= expected, FALSE)))"
)
"""An operator has forced a sequence past its missing numbers where ``late`` is set."""

RULES: Final = (
    ("on_hold_since IS NOT NULL", "held"),
    ("delivery = 'blocked'", "blocked"),
    ("delivery = 'running'", "running"),
    ("delivery = 'retrying'", "blocked"),
    (f"delivery = 'ready' AND {_IS_STALLED}", "blocked"),
    ("delivery = 'ready'", "ok"),
    ("faults > 0 AND held = 0 AND discard_from IS NULL", "faulted"),
    ("state = 'ended'", "ended"),
    (f"{_LEFT} <= least({EXPIRING_WITHIN}, COALESCE({_LIFE}, 0) DIV 10)", "expiring"),
    (
        f"kind = 'rm' AND state = 'created' AND {_QUIET} >= IF(held > 0, {SILENT_WITH_GAP}, {SILENT_WITHOUT})",
        "silent",
    ),
    (f"held > 0 OR {_LACKS_NUMBERS} AND state = 'created' AND NOT ordered", "waiting"),
    (f"{_LACKS_NUMBERS} OR discarding", "incomplete"),
)
"""The rules of ``views.verdict`` that a row can decide. The first that holds gives the verdict; without one it is
``ok``. Of a sequence that lacks no number ``audit`` tells the messages that were not delivered."""

_STANDS: Final = f"verdict NOT IN ('ok', 'running', 'ended') OR verdict = 'running' AND {_IS_STALLED}"


def _verdict() -> Column:
    word = F.lit("ok")
    for rule, name in reversed(RULES):
        word = F.when(F.expr(rule), name).otherwise(word)
    return word


def standing(sequences: DataFrame, messages: DataFrame, now: datetime) -> DataFrame:
    """Sequences that an operator or their source has to see to, ``now`` being when the tables were read."""
    faulted = (
        messages.where("reason = 'answered_with_fault' AND outcome = 'delivered' AND confirmed_at IS NULL")
        .groupBy("store", "sequence")
        .agg(F.count("*").alias("faults"))
    )
    judged = (
        sequences.join(faulted, ["store", "sequence"], "left")
        .fillna(0, ["faults"])
        .withColumn("now", F.unix_millis(F.lit(now)))
        .withColumn("verdict", _verdict())
    )
    return judged.where(_STANDS).select(
        *("store", "node", "sequence", "queue", F.coalesce("partner", "principal", "peer").alias("partner")),
        *("verdict", "oldest_at", "active_at", "due_at", "expected", "cursor", "limit", "held", "ready", "faults"),
    )
