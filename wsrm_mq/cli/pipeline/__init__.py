"""``wsrm-mq pipeline``: what is asked of many stores at once, with Spark."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

JOBS: Final = {
    "archive": ("jobs", "Write what stores have settled as Parquet, for good."),
    "reconcile": ("jobs", "Find what is missing, came twice, failed or stands still."),
    "audit": ("jobs", "Find what was lost, repeated or done out of order."),
    "reorder": ("jobs", "Tell what arrived apart: released, held, duplicate."),
    "replay": ("replay", "Deliver what was archived to an address, in order."),
}
"""Name -> module with a command of that name, and its line of help."""


class Jobs(click.Group):
    """Imports a job when it is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in JOBS:
            return None
        command: click.Command = getattr(import_module(f"{__name__}.{JOBS[name][0]}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_module, text) in JOBS.items()])


@click.group(cls=Jobs)
def pipeline() -> None:
    """Run a job of Spark over any number of stores and exports: on this machine, or under spark-submit.

    \b
    Exit status: 0 nothing was found, 1 something was, 2 wrong usage, or PySpark or
    Java is missing, 3 a directory has no export, 5 a store, a file or Spark
    failed.
    """
