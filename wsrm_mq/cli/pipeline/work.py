"""What every job of ``wsrm-mq pipeline`` has: what it reads, where its results go, its progress, its end.

A job is a command with the decorator ``job``. It is called with its ``Work``, after its own options, and answers a
``Result``::

    @click.command()
    @job
    @click.option("--since", help="Only what came since then.")
    def example(work: Work, since: str | None) -> Result:
        messages = work.table("messages", "sequence", "number", "state")
        found = work.save("lost", lost(messages, since))
        return Result({"lost": found.count()}, is_clean=found.isEmpty())

Its directory has a Parquet table for each ``save``, and ``summary.json``, which is written last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from wsrm_mq.cli.exits import Exit
from wsrm_mq.cli.output import SCHEMA_VERSION, fields, write
from wsrm_mq.cli.place import json_option
from wsrm_mq.cli.progress import tasks_shown
from wsrm_mq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wsrm_mq.export import Manifest

SUMMARY: Final = "summary.json"
LOG: Final = "spark.log"


class Result(NamedTuple):
    """``summary``: names and values, as JSON has them. Where it ``is_clean`` the exit status is 0, else 1."""

    summary: Mapping[str, Any]
    is_clean: bool


class Work(NamedTuple):
    spark: SparkSession
    paths: tuple[str, ...]
    """Stores, exports and archives, as they were named."""
    out: Path
    options: Mapping[str, Any]
    """Of the format ``wsrm``: ``node``, ``copies``."""
    is_json: bool
    """Standard output has the summary, and nothing else."""

    def table(self, name: str, *columns: str) -> DataFrame:
        """A table of all that was named; of its columns these, or all but the content of messages."""
        from wsrm_mq.spark import read

        return read(self.spark, *self.paths, table=name, columns=columns or None, **self.options)

    def exports(self) -> dict[str, Manifest]:
        """What the exports among the paths say of themselves."""
        from wsrm_mq.export import load
        from wsrm_mq.spark.options import parse

        found = parse({"paths": json.dumps(self.paths)}).paths
        return {path: load(Path(path)) for path in found if Path(path).is_dir()}

    def save(self, name: str, frame: DataFrame) -> DataFrame:
        """Write a table of results, and answer it as it was written: it is not computed again."""
        place = f"file://{self.out / name}"  # Spark takes an address as it stands, without escapes
        frame.write.mode("overwrite").parquet(place)
        return self.spark.read.schema(frame.schema).parquet(place)


def _setting(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    wrong = [one for one in given if not one.startswith("spark.") or "=" not in one]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not of the form spark.NAME=VALUE.")
    return dict(one.split("=", 1) for one in given)


SETTINGS: Final = click.option(
    *("--conf", "settings"),
    metavar="NAME=VALUE",
    multiple=True,
    callback=_setting,
    help="A setting of Spark, such as spark.driver.memory=8g.",
)
_OPTIONS: Final = (
    click.argument("paths", metavar="PATH...", nargs=-1, required=True),
    click.option(
        *("--out", "out"),
        type=click.Path(path_type=Path, file_okay=False),
        required=True,
        help="The directory of the results: a new one, or one of an earlier run.",
    ),
    json_option,
    click.option("--node", metavar="NAME", help="What the stores' node is called. Default: each one's machine."),
    click.option("--copies", is_flag=True, help="Read a store and its copies, which are refused together."),
    SETTINGS,
)


def job(command: Callable[..., Result]) -> Callable[..., Any]:
    """Give a command PATH... and the options of every job; see above."""

    @wraps(command)
    @click.pass_context
    def run(
        context: click.Context,
        /,
        paths: tuple[str, ...],
        out: Path,
        is_json: bool,
        node: str | None,
        copies: bool,
        settings: Mapping[str, str],
        **own: Any,
    ) -> None:
        name = context.info_name or command.__name__
        options = {"copies": copies, **({"node": node} if node is not None else {})}
        check_sources(paths, options)
        head = {"schema_version": SCHEMA_VERSION, "job": name, "out": str(out)}
        out = directory(out)
        with _writable(out):
            _begin(out, name)
            _write(out, {**head, "state": "running"})
        with in_session(name, out, settings, is_json) as spark:
            result = command(Work(spark, paths, out, options, is_json), **own)
        done = {**head, "state": "done", **result.summary}
        _write(out, done)
        if is_json:
            write(json.dumps(done))
        else:
            fields((key, value) for key, value in done.items() if key not in ("schema_version", "state"))
        if not result.is_clean:
            context.exit(Exit.FAILED)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


@contextmanager
def in_session(name: str, out: Path, settings: Mapping[str, str], is_quiet: bool) -> Iterator[SparkSession]:
    """A session with its progress told, whose errors are ours; what the JVM says, and PySpark logs of them, is in a
    file in ``out``."""
    from wsrm_mq.serving.logs import silence
    from wsrm_mq.spark.session import plain_errors, session

    with (
        silence(),
        plain_errors(out / LOG),
        session(f"wsrm-mq {name}", out / LOG, settings) as spark,
        tasks_shown(spark, is_quiet),
    ):
        yield spark


def check_sources(paths: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Tells at once what cannot be read: Spark takes ten seconds to begin."""
    try:
        from wsrm_mq.spark.options import parse
        from wsrm_mq.spark.reader import Reader
    except ImportError:
        raise ConfigurationError("PySpark is not installed: pip install 'wsrm-mq[spark]'.") from None
    given = {key: str(value).lower() if isinstance(value, bool) else value for key, value in options.items()}
    Reader(parse({"paths": json.dumps(paths), **given})).partitions()


def directory(out: Path, *, for_tables: bool = True) -> Path:
    """``--out``, absolute. Raises ``ConfigurationError`` for one that is not of this machine, or, ``for_tables``, that
    Spark would not find again."""
    from wsrm_mq.spark.options import local
    from wsrm_mq.spark.reader import PATTERN

    place = local(str(out))
    if for_tables and (found := PATTERN.search(place)):
        raise ConfigurationError(f"{out}: Spark takes {found[0]} for a pattern. Name another directory with --out.")
    return Path(place)


@contextmanager
def _writable(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{out}: cannot be written: {error.strerror}. Name another directory with --out."
        ) from error


def _begin(out: Path, name: str) -> None:
    """Raises ``ConfigurationError`` for a directory with anything that is not of this job."""
    out.mkdir(parents=True, exist_ok=True)
    earlier = out / SUMMARY
    is_own = earlier.exists() and json.loads(earlier.read_text(encoding="utf-8")).get("job") == name
    if not is_own and any(out.iterdir()):
        raise ConfigurationError(f"{out}: has files that are not of an earlier {name}. Name a new directory.")


def _write(out: Path, document: Mapping[str, Any]) -> None:
    beside = out / f".{SUMMARY}"
    beside.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    beside.replace(out / SUMMARY)
