"""``wsrm-mq pipeline reorder``: what arrived, told apart."""

from __future__ import annotations

import click

from wsrm_mq.cli.pipeline.work import Result, Work, job


@click.command()
@job
@click.option("--frontier", metavar="PATH", multiple=True, help="Where the sequences stood before; may be repeated.")
def reorder(work: Work, frontier: tuple[str, ...]) -> Result:
    """Tell apart what arrived: what is released, what is held behind a gap, what is a duplicate.

    FRONTIER is a store or an export as it was before that: what is below the limit of a sequence there was released.
    A sequence that is in none begins at 1. Exit status 1: something is held.

    \b
    Example: wsrm-mq pipeline reorder today.db --frontier yesterday --out reorder
    """
    from wsrm_mq.spark import read
    from wsrm_mq.spark.jobs.reorder import FRONTIER, frontier_of, frontiers
    from wsrm_mq.spark.jobs.reorder import reorder as reordered

    arrivals = work.table("messages", "store", "node", "queue", "sequence", "number", "position", "received_at")
    if frontier:
        begun = frontier_of(read(work.spark, *frontier, table="sequences", columns=("store", "sequence", "limit")))
    else:
        begun = work.spark.createDataFrame([], FRONTIER)
    found = work.save("arrivals", reordered(arrivals.where("sequence IS NOT NULL"), begun))
    stands = work.save("frontier", frontiers(found))
    counts = {row.verdict: row["count"] for row in found.groupBy("verdict").count().collect()}
    told = {verdict: counts.get(verdict, 0) for verdict in ("release", "held", "duplicate")}
    return Result({"sequences": stands.count(), **told}, is_clean=not told["held"])
