"""A plan of many messages: made, shown, and run into an application that does nothing; against the second loop's own
rate, in the same minutes on the same machine. With ``--kill`` it is killed half-way instead, and goes on.

    python -m bench.replay [--messages 100000] [--sequences 50] [--lines 1000000] [--directory DIR] [--kill]

Prints a table. Exit status 1: a bound was missed.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from bench.commands import wsrm
from bench.figures import Bound, Figure, as_markdown, status
from bench.filling import deliver, fill, fill_delivered
from bench.replay_killed import measure_killed

SHARE: Final = 0.4
"""Of the second loop's own rate."""
MOST_BYTES: Final = 200e6


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.replay", description=__doc__)
    options.add_argument("--messages", type=int, default=100_000)
    options.add_argument("--sequences", type=int, default=50)
    options.add_argument("--lines", type=int, default=1_000_000, help="of a plan that is made and shown, not run")
    options.add_argument("--directory", type=Path, default=Path(__file__).parent, help="a real disk")
    options.add_argument("--kill", action="store_true", help="what runs it, or delivers it, is killed with -9 half-way")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.directory) as directory:
        measured = measure_killed if chosen.kill else measure
        figures = [*measured(Path(directory), chosen.messages, chosen.sequences)]
        if chosen.lines and not chosen.kill:
            figures += measure_plan(Path(directory), chosen.lines, chosen.sequences)
    print(as_markdown(figures))
    return status(figures)


def measure(directory: Path, messages: int, sequences: int) -> Iterable[Figure]:
    store = directory / "store.db"
    fill(store, messages, sequences)
    deliver(store, messages)
    own = _rate(store, "replay_of IS NULL")
    plan = directory / "plan.json"
    made = wsrm(
        "replay", "plan", "queue:/orders", "-o", plan, "--to", "bench.filling:null", "--reason", "bench", store=store
    )
    ran = wsrm("replay", "run", plan, "--yes", "--json", store=store)
    again = _rate(store, "replay_of IS NOT NULL")
    case = f"{messages:,} messages of {sequences} sequences"
    yield Figure(case, "the second loop's own rate", [own], "msg/s")
    yield Figure(case, "a plan is made", [messages / made.seconds], "msg/s")
    yield Figure(case, "it is run", [again], "msg/s")
    yield Figure(case, "share of the second loop's own rate", [again / own], "", Bound(">=", SHARE))
    yield Figure(case, "memory of the run", [ran.peak / 1e6], "MB", Bound("<", MOST_BYTES / 1e6))


def measure_plan(directory: Path, lines: int, sequences: int) -> Iterable[Figure]:
    store, plan = directory / "large.db", directory / "large.json"
    fill_delivered(store, lines, sequences)
    made = wsrm("replay", "plan", "queue:/orders", "-o", plan, "--reason", "bench", store=store)
    shown = wsrm("replay", "show", plan, "--after", lines - 10)
    case = f"a plan of {lines:,} messages"
    yield Figure(case, "it is made in", [made.seconds], "s")
    yield Figure(case, "memory for that", [made.peak / 1e6], "MB", Bound("<", MOST_BYTES / 1e6))
    yield Figure(case, "its end is shown in", [shown.seconds], "s")
    yield Figure(case, "memory for that", [shown.peak / 1e6], "MB", Bound("<", MOST_BYTES / 1e6))
    yield Figure(case, "its file", [plan.stat().st_size / 1e6], "MB")


def _rate(store: Path, which: str) -> float:
    """From the first settlement to the last."""
    with closing(sqlite3.connect(store)) as db:
        count, first, last = db.execute(
            f"SELECT count(*), min(settled_at), max(settled_at) FROM entry WHERE outcome = 'delivered' AND {which}"
        ).fetchone()
    return count / (last - first) * 1000  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
