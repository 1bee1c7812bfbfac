"""Sequences that stand still, by the verdict of ``wsrm-mq sequence list``.

No table says which processes live. So a sequence that an instance owns is ``running``, and one that is ready is ``ok``,
until its oldest message waits for longer than ``STALLED_AFTER``.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from wsrm_mq.views.situation import EXPIRING_WITHIN, SILENT_WITH_GAP, SILENT_WITHOUT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STALLED_AFTER: Final = 600_000
"""ms; as long as a sequence may be ready, or run, before it is told."""

_QUIET: Final = "now - unix_millis(active_at)"
_LEFT: Final = "unix_millis(due_at) - now"
_LIFE: Final = "IF(due_at <=> expires_at, unix_millis(expires_at) - unix_millis(created_at), inactivity)"
_IS_STALLED: Final = f"now - unix_millis(oldest_at) > {STALLED_AFTER}"
_LACKS_NUMBERS: Final = (
    "(kind = 'rm' AND late IS NULL AND (received >= expected OR COALESCE(last_number >= expected, FALSE)))"
)
"""Where ``late`` is set, an operator has forced it past those."""

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
``ok``. Of a sequence that lacks no number ``audit`` tells what came and was not delivered."""

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
