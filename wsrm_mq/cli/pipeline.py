"""The jobs of ``wsrm-mq pipeline``, and what each has: sources, a directory for its results, its progress, its end.

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
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from wsrm_mq.cli.acts import Care, named
from wsrm_mq.cli.archive import SHOWN, tell_store
from wsrm_mq.cli.output import SCHEMA_VERSION, Column, Exit, fields, key, say, table, write
from wsrm_mq.cli.place import json_option, together
from wsrm_mq.cli.progress import tasks_shown
from wsrm_mq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark import sql

    from wsrm_mq.export import manifest
    from wsrm_mq.spark.jobs import audit as rules

SUMMARY: Final = "summary.json"
LOG: Final = "spark.log"


@click.group()
def pipeline() -> None:
    """Run a job of Spark over any number of stores and exports: on this machine, or under spark-submit.

    \b
    Exit status: 0 nothing was found, 1 something was, 2 wrong usage, or PySpark or
    Java is missing, 3 a directory has no export, 5 a store, a file or Spark
    failed.
    """


class Result(NamedTuple):
    """``summary``: names and values, as JSON has them. Where it ``is_clean`` the exit status is 0, else 1."""

    summary: Mapping[str, Any]
    is_clean: bool


class Work(NamedTuple):
    spark: sql.SparkSession
    paths: tuple[str, ...]
    """Stores, exports and archives, as they were named."""
    out: Path
    options: Mapping[str, Any]
    """Options of the format ``wsrm``: ``node``, ``copies``."""
    is_json: bool
    """Standard output has the summary, and nothing else."""

    def table(self, name: str, *columns: str) -> sql.DataFrame:
        """A table of all that was named; of its columns these, or all but the content of messages."""
        from wsrm_mq import spark

        return spark.read(self.spark, *self.paths, table=name, columns=columns or None, **self.options)

    def exports(self) -> dict[str, manifest.Manifest]:
        """The manifests of the exports among the paths, by path."""
        from wsrm_mq.export import manifest
        from wsrm_mq.spark import reader

        found = reader.parse({"paths": json.dumps(self.paths)}).paths
        return {path: manifest.load(Path(path)) for path in found if Path(path).is_dir()}

    def save(self, name: str, frame: sql.DataFrame) -> sql.DataFrame:
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
_OPTIONS: Final = together(
    click.argument("paths", metavar="PATH...", nargs=-1, required=True),
    click.option(
        *("--out", "out"),
        type=click.Path(path_type=Path, file_okay=False),
        required=True,
        help="The directory of the results: a new one, or one of an earlier run.",
    ),
    json_option,
    click.option("--node", metavar="NAME", help="What the stores' node is called. Default: its name, or machine."),
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
        try:
            _begin(out, name)
            _write(out, {**head, "state": "running"})
        except OSError as error:
            why = f"cannot be written: {error.strerror}. Name another directory with --out."
            raise ConfigurationError(f"{out}: {why}") from error
        with in_session(name, out, settings, is_json) as spark:
            result = command(Work(spark, paths, out, options, is_json), **own)
        done = {**head, "state": "done", **result.summary}
        _write(out, done)
        if is_json:
            write(json.dumps(done))
        else:
            fields((key, value) for key, value in done.items() if key not in ("schema_version", "state"))
        if not result.is_clean:
            raise click.exceptions.Exit(Exit.FAILED)

    return _OPTIONS(run)


@contextmanager
def in_session(name: str, out: Path, settings: Mapping[str, str], is_quiet: bool) -> Iterator[sql.SparkSession]:
    """A session with its progress told, whose errors are ours; what the JVM says, and PySpark logs of them, is in a
    file in ``out``."""
    from wsrm_mq.serving import logs
    from wsrm_mq.spark import session

    with (
        logs.silence(),
        session.plain_errors(out / LOG),
        session.session(f"wsrm-mq {name}", out / LOG, settings) as spark,
        tasks_shown(spark, is_quiet),
    ):
        yield spark


def check_sources(paths: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Tells at once what cannot be read: Spark takes ten seconds to begin."""
    try:
        from wsrm_mq.spark.reader import Reader, parse
    except ImportError:
        raise ConfigurationError("PySpark is not installed: pip install 'wsrm-mq[spark]'.") from None
    given = {key: str(value).lower() if isinstance(value, bool) else value for key, value in options.items()}
    Reader(parse({"paths": json.dumps(paths), **given})).partitions()


def directory(out: Path, *, for_tables: bool = True) -> Path:
    """``--out``, absolute. Raises ``ConfigurationError`` for one that is not of this machine, or, ``for_tables``, that
    Spark would not find again."""
    from wsrm_mq.spark import reader

    place = reader.local(str(out))
    if for_tables and (found := reader.PATTERN.search(place)):
        raise ConfigurationError(f"{out}: Spark takes {found[0]} for a pattern. Name another directory with --out.")
    return Path(place)


def _begin(out: Path, name: str) -> None:
    """Make the directory of a job's results. Raises ``ConfigurationError`` where it has files that no earlier run of
    the same job has left there."""
    out.mkdir(parents=True, exist_ok=True)
    earlier = out / SUMMARY
    is_own = earlier.exists() and json.loads(earlier.read_text(encoding="utf-8")).get("job") == name
    if not is_own and any(out.iterdir()):
        raise ConfigurationError(f"{out}: has files that are not of an earlier {name}. Name a new directory.")


def _write(out: Path, document: Mapping[str, Any]) -> None:
    beside = out / f".{SUMMARY}"
    beside.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    beside.replace(out / SUMMARY)


@pipeline.command(short_help="Write what stores have settled as Parquet, for good.")
@job
@click.option("--header", "headers", metavar="NAME", multiple=True, help="Keep this request header too.")
@click.option("--with-security", "security", is_flag=True, help="Leave wsse:Security in the envelopes.")
@click.option("--no-confirm", is_flag=True, help="Leave it to `wsrm-mq archive confirm` to tell the stores.")
@named
def archive(work: Work, headers: tuple[str, ...], security: bool, no_confirm: bool, care: Care) -> Result:
    """Write what stores have settled as Parquet: each store has an archive of its own below --out.

    A later run adds what was settled since. What is written is compared with its store. Then the store is told, where
    it can be written, so that retention may delete it.

    \b
    Example: wsrm-mq pipeline archive /stores/a.db /stores/b.db --out /archive
    """
    from wsrm_mq.export import pieces
    from wsrm_mq.spark import archiving, reader
    from wsrm_mq.store import identity

    who = care.actor
    stores = [Path(one) for one in reader.found_paths(work.paths)]
    if folders := [one for one in stores if one.is_dir()]:
        raise ConfigurationError(f"{folders[0]}: is no store. Name the stores that are to be archived.")
    exposure, node = pieces.Exposure(headers, security=security), work.options.get("node")
    places: list[str] = []
    archived = differences = confirmed = 0
    for store in stores:
        with pieces.opened(store) as db:
            place = work.out / identity.identify(db).id
        made = archiving.archive_of(work.spark, store, place, exposure, who, node=node)
        for one in made.wrong[:SHOWN]:
            say(f"{store}: {one.table} {one.what}: {one.kind}")
        if not made.known.number:  # it has nothing that is settled
            continue
        places.append(str(place))
        archived += made.rows.get("messages", 0)
        differences += len(made.wrong)
        confirmed += not (made.wrong or no_confirm) and tell_store(store, place, who)
    summary = {"stores": len(stores), "archived": archived, "differences": differences, "confirmed": confirmed}
    return Result({**summary, "archives": places}, is_clean=not differences)


# ``wsrm-mq pipeline audit``: what must be true of every store, asked of many at once.


@pipeline.command(short_help="Find what was lost, repeated or done out of order.")
@job
def audit(work: Work) -> Result:
    """Find what was lost, repeated or done out of order.

    The stores may be served meanwhile: what is found is looked for a second time, and only what is found twice is a
    violation. Exports have to be whole, made without a query.

    \b
    Example: wsrm-mq pipeline audit /stores/a.db /stores/b.db --out audit
    """
    from wsrm_mq.spark.jobs import audit as rules

    if work.options["copies"]:
        raise ConfigurationError("An audit reads each store once: leave out --copies, and name one of the files.")
    begun = _begun(work)
    tables = _look(work, begun)
    found = rules.violations(tables).persist()
    seen = found.count()
    if seen:
        found = found.intersect(rules.violations(_look(work, begun)))
    saved = work.save("violations", found)
    accounts = work.save("accounts", rules.accounts(tables.messages))
    counted = accounts.collect()
    by_invariant = {row["invariant"]: row["count"] for row in saved.groupBy("invariant").count().collect()}
    violations, ties = sum(by_invariant.values()), rules.neighbours(tables).where("settled_at = before_at").count()
    if not work.is_json:
        _tell(saved, violations, ties)
    return Result(
        {
            "stores": len({row.store for row in counted}),
            "messages": sum(row.messages for row in counted),
            "delivered": sum(row.messages for row in counted if row.state == "delivered"),
            "violations": violations,
            "by_invariant": by_invariant,
            "in_motion": seen - violations,
            "ties": ties,
            "clock_steps": rules.clock_steps(tables).count(),
        },
        is_clean=not violations,
    )


def _look(work: Work, begun: sql.DataFrame) -> rules.Tables:
    """The tables, as the rules want them read: first the ledger, then the messages, then the rest."""
    from wsrm_mq.spark.jobs import audit as rules

    ledger, messages = (work.table(name, *rules.COLUMNS[name]).persist() for name in ("ledger", "messages"))
    ledger.count()
    messages.count()
    sequences, ranges = (work.table(name, *rules.COLUMNS[name]).persist() for name in ("sequences", "ranges"))
    return rules.Tables(messages, sequences, ranges, ledger, begun)


def _begun(work: Work) -> sql.DataFrame:
    """Which stores are read from an export, and when that was begun."""
    exports = work.exports()
    for path, manifest in exports.items():
        if manifest.archive is not None:
            raise ConfigurationError(f"{path}: is an archive, which has only what is settled. Audit the store itself.")
        if manifest.query:
            raise ConfigurationError(f"{path}: has only what fits {manifest.query!r}. Export without a query.")
    rows = [(one.store, datetime.fromtimestamp(one.begun_at / 1000, UTC)) for one in exports.values()]
    return work.spark.createDataFrame(rows, "store string, begun_at timestamp")


def _tell(violations: sql.DataFrame, count: int, ties: int) -> None:
    some = violations.orderBy("invariant", "store", "sequence", "number").limit(SHOWN).collect()
    if some:
        columns = (key("store", rank=2), Column("sequence", 8, keeps_end=True), "number")
        table((*columns, Column("invariant", of=lambda one: f"{one.invariant}: {one.detail}")), some)
    if count > len(some):
        say(f"{count - len(some)} more are in the table.")
    if ties:
        say(f"{ties} deliveries were settled in the ms of the one before them: their times do not prove their order.")


# ``wsrm-mq pipeline reconcile``: what became of the traffic of any number of stores.

REPORT: Final = "report.html"
UNITS: Final = (("minute", 6 * 3_600), ("hour", 21 * 86_400))
"""Latencies are told by this unit where all of it came within so many seconds, else by ``day``."""
FEW: Final = 500
"""The most Bodies that a store is asked for by their positions."""

_DIGESTS: Final = ("store", "position", "body_digest")
_MESSAGES: Final = (
    *("store", "node", "queue", "sequence", "number", "position", "message_id", "outcome", "reason", "received_at"),
    *("settled_at", "origin", "replay_of", "confirmed_at", "message", "deliveries"),
)

_REQUESTS: Final = (
    *("store", "node", "queue", "sequence", "number", "position", "message_id", "action", "outcome", "reason"),
    "received_at",
)


def _moment(_context: click.Context, _parameter: click.Parameter, given: str | None) -> datetime:
    """Read a time: in UTC, unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(given) if given is not None else datetime.now(UTC)
    except ValueError:
        raise click.BadParameter(f"{given!r} is no moment such as 2026-03-01T06:00.") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@pipeline.command(short_help="Find what is missing, came twice, failed or stands still.")
@job
@click.option("--at", metavar="MOMENT", callback=_moment, help="When the stores were read (ISO 8601). Default: now.")
@click.option(
    "--no-bodies", is_flag=True, help="Leave Bodies unread: of what came twice it is not told if they differ."
)
@click.option(
    "--sent",
    metavar="PATH",
    multiple=True,
    help="The store of an RM Source, which sent to these: what became of its requests. Repeatable.",
)
def reconcile(work: Work, at: datetime, no_bodies: bool, sent: tuple[str, ...]) -> Result:
    """Find what is missing, came twice, failed or stands still, in one store and between many.

    \b
    Example: wsrm-mq pipeline reconcile /stores/a.db /stores/b.db --out reconciled
    """
    from wsrm_mq.spark import report as reports

    if sent:
        check_sources(sent, work.options)
    found, unit = _found(work, at, no_bodies, sent)
    said = reports.summary(found, at)
    report = work.out / REPORT
    report.write_bytes(reports.page(reports.read(found, said, unit)))
    return Result({**said, "report": str(report)}, is_clean=not said["findings"])


def _found(work: Work, at: datetime, no_bodies: bool, sent: tuple[str, ...]) -> tuple[dict[str, sql.DataFrame], str]:
    """The tables of results by name, and the unit of time in which latencies are told."""
    from pyspark import sql

    from wsrm_mq.spark.jobs import reconcile as reconciling

    messages, sequences = work.table("messages", *_MESSAGES), work.table("sequences")
    # Read once, for many questions: a store is slower than what is kept of it here.
    messages, sequences = messages.persist(), sequences.persist()
    if work.options["copies"]:
        messages = reconciling.newest(messages, "position", "settled_at")
        sequences = reconciling.newest(sequences, "key", "active_at")
    [(seconds,)] = messages.selectExpr("unix_seconds(max(received_at)) - unix_seconds(min(received_at))").collect()
    unit = next((unit for unit, most in UNITS if (seconds or 0) <= most), "day")
    runs, again = reconciling.runs(messages).persist(), reconciling.came_again(messages).persist()
    received = work.save("ranges", reconciling.received(runs, work.table("ranges"), sequences))
    results = {
        "counts": reconciling.counts(messages),
        "gaps": reconciling.gaps(received, sequences),
        "disorder": reconciling.disorder(runs, sequences),
        "repeated": reconciling.repeated(messages, runs),
        "lacking": reconciling.lacking(received, sequences),
        "twice": reconciling.twice(again, _digests(work, again, no_bodies)),
        "latency": reconciling.latency(messages, unit),
        "faults": reconciling.faults(messages, work.table("ledger", "store", "position", "event", "fault")),
        "dead": reconciling.dead(messages),
        "standing": reconciling.standing(sequences, messages, at),
    }
    if sent:
        fates = reconciling.fates(work._replace(paths=sent).table("messages", *_REQUESTS), messages).persist()
        results["sent"] = fates.groupBy("store", "node", "queue", "fate").agg(
            sql.functions.count("*").alias("requests")
        )
        results["astray"] = fates.where(sql.functions.col("fate").isin(*reconciling.ASTRAY))
    saved = {name: work.save(name, frame) for name, frame in results.items()}
    return {**saved, "ranges": received, "sequences": sequences.where("kind = 'rm'")}, unit


def _digests(work: Work, again: sql.DataFrame, no_bodies: bool) -> sql.DataFrame:
    """The digests of the Bodies of messages that came ``again``, as far as they are there."""
    from wsrm_mq.spark import reader

    paths = () if no_bodies else reader.parse({"paths": json.dumps(work.paths)}).paths
    with_bodies = tuple(path for path in paths if _has_digests(Path(path)))
    positions = [row.position for row in again.select("position").distinct().limit(FEW + 1).collect()]
    if not with_bodies or not positions:
        return again.selectExpr("store", "position", "CAST(NULL AS STRING) AS body_digest").limit(0)
    digests = work._replace(paths=with_bodies).table("messages", *_DIGESTS)
    return digests.where(digests.position.isin(positions)) if len(positions) <= FEW else digests


def _has_digests(path: Path) -> bool:
    """A store has a Body as long as retention leaves it; an export has digests where it was made with bodies."""
    from wsrm_mq.export import manifest

    return not path.is_dir() or "body_digest" in manifest.load(path).tables["messages"].columns


# ``wsrm-mq pipeline reorder``: what arrived, told apart.


@pipeline.command(short_help="Tell what arrived apart: released, held, duplicate.")
@job
@click.option("--frontier", metavar="PATH", multiple=True, help="Where the sequences stood before; may be repeated.")
def reorder(work: Work, frontier: tuple[str, ...]) -> Result:
    """Tell apart what arrived: what is released, what is held behind a gap, what is a duplicate.

    FRONTIER is a store or an export as it was before that: what is below the limit of a sequence there was released.
    A sequence that is in none begins at 1. Exit status 1: something is held.

    \b
    Example: wsrm-mq pipeline reorder today.db --frontier yesterday --out reorder
    """
    from wsrm_mq import spark
    from wsrm_mq.spark.jobs import reorder as reordering

    arrivals = work.table("messages", "store", "node", "queue", "sequence", "number", "position", "received_at")
    if frontier:
        begun = spark.read(work.spark, *frontier, table="sequences", columns=("store", "sequence", "limit"))
        begun = begun.withColumnRenamed("limit", "next")
    else:
        begun = work.spark.createDataFrame([], reordering.FRONTIER)
    found = work.save("arrivals", reordering.reorder(arrivals.where("sequence IS NOT NULL"), begun))
    stands = work.save("frontier", reordering.frontiers(found))
    counts = {row.verdict: row["count"] for row in found.groupBy("verdict").count().collect()}
    told = {verdict: counts.get(verdict, 0) for verdict in ("release", "held", "duplicate")}
    return Result({"sequences": stands.count(), **told}, is_clean=not told["held"])
