"""``wsrm-mq pipeline``: what is asked of many stores at once, with Spark."""

from __future__ import annotations

from typing import Final

import click

from wsrm_mq.cli import Lazy

JOBS: Final = {
    "archive": ("wsrm_mq.cli.pipeline.jobs", "Write what stores have settled as Parquet, for good."),
    "reconcile": ("wsrm_mq.cli.pipeline.jobs", "Find what is missing, came twice, failed or stands still."),
    "audit": ("wsrm_mq.cli.pipeline.jobs", "Find what was lost, repeated or done out of order."),
    "reorder": ("wsrm_mq.cli.pipeline.jobs", "Tell what arrived apart: released, held, duplicate."),
    "replay": ("wsrm_mq.cli.pipeline.replay", "Deliver what was archived to an address, in order."),
}
"""Name -> module with a command of that name, and its line of help."""


@click.group(cls=Lazy, found=JOBS)
def pipeline() -> None:
    """Run a job of Spark over any number of stores and exports: on this machine, or under spark-submit.

    \b
    Exit status: 0 nothing was found, 1 something was, 2 wrong usage, or PySpark or
    Java is missing, 3 a directory has no export, 5 a store, a file or Spark
    failed.
    """
