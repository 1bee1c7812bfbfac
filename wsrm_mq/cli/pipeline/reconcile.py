"""``wsrm-mq pipeline reconcile``: what became of the traffic of any number of stores."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from wsrm_mq.cli.pipeline.work import Result, Work, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPORT: Final = "report.html"
UNITS: Final = (("minute", 6 * 3_600), ("hour", 21 * 86_400))
"""Latencies are told by this unit where all of it came within so many seconds, else by ``day``."""
FEW: Final = 500
"""So many Bodies a store is asked for by their positions."""

_DIGESTS: Final = ("store", "position", "body_digest")
_MESSAGES: Final = (
    *("store", "node", "queue", "sequence", "number", "position", "message_id", "outcome", "reason", "received_at"),
    *("settled_at", "origin", "replay_of", "confirmed_at", "message", "deliveries"),
)


def _moment(_context: click.Context, _parameter: click.Parameter, given: str | None) -> datetime:
    """In UTC, unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(given) if given is not None else datetime.now(UTC)
    except ValueError:
        raise click.BadParameter(f"{given!r} is no moment such as 2026-03-01T06:00.") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@click.command()
@job
@click.option("--at", metavar="MOMENT", callback=_moment, help="When the stores were read (ISO 8601). Default: now.")
@click.option(
    "--no-bodies", is_flag=True, help="Leave Bodies unread: of what came twice it is not told if they differ."
)
def reconcile(work: Work, at: datetime, no_bodies: bool) -> Result:
    """Find what is missing, came twice, failed or stands still, in one store and between many.

    \b
    Example: wsrm-mq pipeline reconcile /stores/a.db /stores/b.db --out reconciled
    """
    from wsrm_mq.spark.report.contents import read, summary
    from wsrm_mq.spark.report.page import page

    found, unit = _found(work, at, no_bodies)
    said = summary(found, at)
    report = work.out / REPORT
    report.write_bytes(page(read(found, said, unit)))
    return Result({**said, "report": str(report)}, is_clean=not said["findings"])


def _found(work: Work, at: datetime, no_bodies: bool) -> tuple[dict[str, DataFrame], str]:
    """The tables of results by name, and the unit of time in which latencies are told."""
    from wsrm_mq.spark.jobs import reconcile as jobs

    messages, sequences = work.table("messages", *_MESSAGES), work.table("sequences")
    # Read once, for many questions: a store is slower than what is kept of it here.
    messages, sequences = messages.persist(), sequences.persist()
    if work.options["copies"]:
        messages = jobs.newest(messages, "position", "settled_at")
        sequences = jobs.newest(sequences, "key", "active_at")
    [(seconds,)] = messages.selectExpr("unix_seconds(max(received_at)) - unix_seconds(min(received_at))").collect()
    unit = next((unit for unit, most in UNITS if (seconds or 0) <= most), "day")
    runs, again = jobs.runs(messages).persist(), jobs.came_again(messages).persist()
    received = work.save("ranges", jobs.received(runs, work.table("ranges"), sequences))
    results = {
        "counts": jobs.counts(messages),
        "gaps": jobs.gaps(received, sequences),
        "disorder": jobs.disorder(runs, sequences),
        "repeated": jobs.repeated(messages, runs),
        "lacking": jobs.lacking(received, sequences),
        "twice": jobs.twice(again, _digests(work, again, no_bodies)),
        "latency": jobs.latency(messages, unit),
        "faults": jobs.faults(messages, work.table("ledger", "store", "position", "event", "fault")),
        "dead": jobs.dead(messages),
        "standing": jobs.standing(sequences, messages, at),
    }
    saved = {name: work.save(name, frame) for name, frame in results.items()}
    return {**saved, "ranges": received, "sequences": sequences.where("kind = 'rm'")}, unit


def _digests(work: Work, again: DataFrame, no_bodies: bool) -> DataFrame:
    """Of the Bodies of messages that came ``again``, as far as they are there."""
    from wsrm_mq.spark.options import parse

    paths = () if no_bodies else parse({"paths": json.dumps(work.paths)}).paths
    with_bodies = tuple(path for path in paths if _has_digests(Path(path)))
    positions = [row.position for row in again.select("position").distinct().limit(FEW + 1).collect()]
    if not with_bodies or not positions:
        return again.selectExpr("store", "position", "CAST(NULL AS STRING) AS body_digest").limit(0)
    digests = work._replace(paths=with_bodies).table("messages", *_DIGESTS)
    return digests.where(digests.position.isin(positions)) if len(positions) <= FEW else digests


def _has_digests(path: Path) -> bool:
    """A store has a Body as long as retention leaves it; an export has digests where it was made with bodies."""
    from wsrm_mq.export.manifest import load

    return not path.is_dir() or "body_digest" in load(path).tables["messages"].columns
