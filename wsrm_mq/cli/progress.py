"""How far something has come, shown on a terminal or told line by line."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from wsrm_mq.cli.output import say
from wsrm_mq.events.inert import inert

if TYPE_CHECKING:
    from wsrm_mq.replay import run

EVERY_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 1.0

Update = Callable[[int, int, str], None]
"""Is told how much is done, of how much, and what else there is to say."""


@contextmanager
def shown(is_quiet: bool) -> Iterator[Update]:
    """Give a function that shows on standard error how far something has come."""
    if is_quiet:
        yield lambda _done, _total, _said: None
    elif sys.stderr.isatty():
        with _bar() as update:
            yield update
    else:
        yield _lines()


@contextmanager
def tasks_shown(spark: Any, is_quiet: bool) -> Iterator[None]:
    """Tells the tasks that a session of Spark is at, on standard error."""
    tracker, is_over = spark.sparkContext.statusTracker(), threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_SECONDS):
            stages = [one for one in map(tracker.getStageInfo, tracker.getActiveStageIds()) if one is not None]
            if stages:
                done = sum(one.numCompletedTasks for one in stages)
                update(
                    done, sum(one.numTasks for one in stages), f"tasks of stage {max(one.stageId for one in stages)}"
                )

    with shown(is_quiet) as update:
        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield
        finally:
            is_over.set()
            looking.join()


@contextmanager
def _bar() -> Iterator[Update]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, said: bar.update(task, total=total, completed=done, description=escape(said[:40]))


def _lines() -> Update:
    told_at = time.monotonic()

    def update(done: int, total: int, said: str) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= EVERY_SECONDS:
            told_at = time.monotonic()
            say(f"{done} of {total} {said}".rstrip())

    return update


def trouble(progress: run.Progress) -> str:
    """The trouble of a run in a few words; empty where it has none."""
    counts = [
        f"{count} {word}"
        for count, word in ((len(progress.blocked), "blocked"), (progress.retrying, "retrying"))
        if count
    ]
    said = inert((progress.error or "").splitlines()[0]) if progress.error else ""
    return f"{', '.join(counts)}: {said}" if counts else ""
