"""``wsrm-mq demo``: see it work, on a bad line and across a kill -9."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import click

from wsrm_mq.cli.output import SCHEMA_VERSION, Exit, Stopped
from wsrm_mq.errors import NotAllowed, store_flag


@click.command("demo")
@click.option("--messages", type=click.IntRange(1, 5_000), default=200, show_default=True, help="How many to send.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed, other losses.")
@click.option("--json", "is_json", is_flag=True, help="End with one line of JSON; all else goes to standard error.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Leave both databases there: service.db of the service, store.db of wsrm_mq.",
)
def demo(messages: int, seed: int, is_json: bool, keep: Path | None) -> None:
    """See it work: a Spyne service, a partner, a bad line.

    A partner sends messages in one sequence over several connections; some get lost, some come twice, none in order.
    Half-way the service's process is killed with -9 and started again. At the end the service's own database tells
    whether every message had its effect once and in order. The exit status is 1 if not.

    \b
    Example: wsrm-mq demo
    """
    from wsrm_mq.demo import run

    missing = [name for name in ("spyne", "uvicorn") if find_spec(name) is None]
    if missing:
        raise Stopped(f"the demo needs {' and '.join(missing)}: pip install 'wsrm-mq[demo]'.", Exit.USAGE)
    from rich.console import Console

    console = Console(stderr=is_json)
    is_live = console.is_terminal and not is_json
    with (
        _directory(keep) as directory,
        run.LiveScreen(console, messages) if is_live else run.PlainScreen(console) as shown,
    ):
        result = run.run(messages, seed, directory, shown)
    console.print(run.summary(result))
    if keep is not None:
        console.print(f"See for yourself: wsrm-mq sequence list{store_flag(keep / 'store.db')}", soft_wrap=True)
    if is_json:
        click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **asdict(result)}))
    if not result.is_good:
        raise Stopped(result.problem or "messages were lost, done twice, or out of order.", Exit.FAILED)


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    """Where the databases are made: in ``keep``, which must have none, or for this run only."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="wsrm-mq-demo-") as directory:
            yield Path(directory)
        return
    for name in ("service.db", "store.db"):
        if (keep / name).exists():
            raise NotAllowed(f"{keep / name} is there already; name a directory without one.")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()
