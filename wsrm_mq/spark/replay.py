"""A plan over many stores: the messages in the order in which they run, the contents with which they are sent, its
writing and its run."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from wsrm_mq.errors import ConfigurationError, NotAllowed, QueryError
from wsrm_mq.export.schema import TABLES
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.replay import Wishes, check_address, to_address
from wsrm_mq.replay.divided import (
    JOURNALS,
    PARTS,
    Content,
    DividedPlan,
    Journal,
    Manifest,
    Part,
    PartLine,
    Rehearsal,
    Tally,
    freeze,
    run_part,
    state_of,
)
from wsrm_mq.replay.plan import encoded
from wsrm_mq.replay.planning import Summary
from wsrm_mq.replay.run import Pace
from wsrm_mq.sequence.ranges import AckRange, AckRanges
from wsrm_mq.spark.reader import found_paths, local
from wsrm_mq.spark.session import Batches, answers, partition
from wsrm_mq.spark.source import read

# The messages of a plan in the order in which they run, and the contents with which they are sent.

_CONTENT: Final = ("store", "position", "envelope", "replayable", "request")
"""Columns that a message is sent with."""

_WHY_NOT: Final = {
    "not settled: `wsrm-mq replay` on its node takes it out of its queue": "state IN ('held', 'ready', 'leased')",
    "discarded: `wsrm-mq replay` on its node delivers it": "state IN ('discarded', 'purged')",
    "of a sequence that is forgotten": "sequence IS NULL OR number IS NULL",
    "without a body: `retain` has passed": "NOT has_body",
    "not replayable: its wsse:Security was taken out (--with-security keeps it)": "NOT replayable",
}
"""Why a message is left out, and of which that is true."""
_MISSING: Final = tuple(_WHY_NOT)[-2:]
"""Reasons for which a message cannot be sent although it should."""


def planned(messages: DataFrame, wanted: Column, parts: int) -> DataFrame:
    """The messages of a plan, and those that are ``wanted`` and left out, which have a ``why``.

    Each message is there once, however often it was delivered or read, and in however many stores (``copied``: one that
    was put back from a copy has its sequences too), under the sequence and number that it came under: by the row that
    is wanted, can be sent, and is the last. Within a ``part`` they run by ``released`` (ms since
    the epoch), ``group`` and ``number``.
    ``breaks_order``: a message of its sequence that is not in the plan has a higher number.
    """
    standing = (f.desc("is_wanted"), f.desc("replayable"), f.desc("position"), f.desc("settled_at"), "state", "store")
    of_sequence = Window.partitionBy("sequence")
    of_number = Window.partitionBy("sequence", "number")
    in_sequence = of_sequence.orderBy("number", *standing)
    in_order = of_sequence.orderBy("number").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_first = f.col("number").isNull() | ~f.col("number").eqNullSafe(f.lag("number").over(in_sequence))
    once = (
        messages.withColumn("is_wanted", f.coalesce(wanted, f.lit(False)))
        .withColumn("sequence", f.coalesce("original_sequence", "sequence"))
        .withColumn("number", f.coalesce("original_number", "number"))
        .withColumn("is_first", is_first)
        .withColumn("copied", f.min("store").over(of_number) != f.max("store").over(of_number))
        .where("is_first")
        .withColumn("why", _why())
    )
    is_left = ~f.col("is_wanted") | f.col("why").isNotNull()
    group = f.xxhash64("sequence")
    received = f.unix_millis("received_at")
    return (
        once.withColumn("left", f.max(f.when(is_left, f.col("number"))).over(of_sequence))
        .where("is_wanted")
        .withColumn("released", f.max(f.when(f.col("why").isNull(), received)).over(in_order))
        .select(
            f.pmod(group, f.lit(parts)).cast("int").alias("part"),
            *("released", group.alias("group"), "number", "store", "position", "queue", "sequence", "message_id"),
            *("action", f.coalesce("body_size", f.lit(0)).alias("size"), "state", "why", "copied"),
            received.alias("received_at"),
            f.coalesce(f.col("number") < f.col("left"), f.lit(False)).alias("breaks_order"),
        )
    )


def _why() -> Column:
    """Why a message is left out, or null."""
    return f.coalesce(*(f.when(f.expr(condition), f.lit(why)) for why, condition in _WHY_NOT.items()))


def contents(lines: DataFrame, messages: DataFrame, parts: int) -> DataFrame:
    """The contents with which the messages of ``lines`` (part, line, store, position) are sent: each part is a
    partition in the order of its lines, and of several rows of a line the one comes first that can be sent."""
    return (
        lines.join(messages.select(*_CONTENT), ["store", "position"])
        .repartitionById(parts, "part")
        .sortWithinPartitions("line", f.desc("replayable"))
        .select("part", "line", "envelope", "replayable", "request")
    )


# A plan at scale is made: Spark selects and orders its messages, and each part is written by the task that has it.

_WRONG: Final = re.compile(r"\[[A-Z_.0-9]+\]\s+(.+?)\s*SQLSTATE: (?:22|42)")
"""The message of Spark for a condition that cannot be read, or that has values of another type than it takes."""

Keys = tuple[AckRange, ...]


class Sources(NamedTuple):
    """The sources of a plan: ``paths`` of stores, exports and archives, the request headers that are read, and whether
    envelopes keep their ``wsse:Security``."""

    paths: tuple[str, ...]
    headers: tuple[str, ...] = ()
    security: bool = False

    def messages(self, spark: SparkSession, columns: Sequence[str], within: Keys = ()) -> DataFrame:
        """Read rows of messages. A message may have several: an archive has messages of its store. With ``within`` only
        these positions are read."""
        keys = [f"{lower}-{upper}" for lower, upper in within] or None
        return read(
            spark,
            *self.paths,
            columns=columns,
            keys=keys,
            headers=self.headers,
            withSecurity=self.security,
            copies=True,
        )


@dataclass
class _Written(Summary):
    """A part, as the task tells of it that has written it."""

    part: int = 0
    file: str = ""
    sha256: str = ""
    stores: set[str] = field(default_factory=set)


def make_plan(spark: SparkSession, sources: Sources, wishes: Wishes, output: Path, *, parts: int, now: int) -> Manifest:
    """Freeze the messages of ``sources`` that fulfil ``wishes.query``, a condition of SQL on the columns of
    ``messages``, as the plan ``output``, a directory. ``now``: ms since the epoch.

    Raises ``QueryError``; ``NotFound`` where nothing fits; ``NotAllowed`` where messages could not be sent, or the
    directory cannot be made.
    """
    output = output.absolute()
    sources = sources._replace(paths=tuple(map(local, sources.paths)))
    frame = _frame(spark, sources, wishes.query, parts)
    refuse_existing(output)
    try:
        for directory in (output, output / PARTS, output / JOURNALS):
            directory.mkdir(mode=0o700, parents=True, exist_ok=directory == output)
    except OSError as error:
        raise NotAllowed(f"{output}: cannot be made: {error.strerror}. No plan was made.") from error
    try:
        with _query_errors(wishes.query):
            written = answers(frame, partial(_write, output / PARTS, wishes, now))
        written.sort(key=lambda one: one.part)
        manifest = _manifest(written, wishes, sources, now, _deleted(spark, sources))
        _sweep(output / PARTS, manifest)
        freeze(output, manifest)
    except BaseException:
        shutil.rmtree(output / PARTS, ignore_errors=True)
        shutil.rmtree(output / JOURNALS, ignore_errors=True)
        with suppress(OSError):  # there is more in it
            output.rmdir()
        raise
    return manifest


def refuse_existing(output: Path) -> None:
    """Raises ``NotAllowed`` where there is a plan."""
    if (output / PARTS).exists():
        raise NotAllowed(f"{output} has a plan already; name another directory with --out.")


def _frame(spark: SparkSession, sources: Sources, query: str, parts: int) -> DataFrame:
    """The rows of ``planned``: each part is a partition, in the order in which it runs."""

    given = [column.name for column in TABLES["messages"].given]
    with _query_errors(query):
        wanted = f.expr(f"({query}\n)")  # else it could end with the name of a column, or with a comment
        frame = planned(sources.messages(spark, [*given, "replayable"]), wanted, parts)
    return frame.repartitionById(parts, "part").sortWithinPartitions("released", "group", "number")


@contextmanager
def _query_errors(query: str) -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        if said := _WRONG.search(str(error)):
            raise QueryError(f"the condition {query!r} cannot be read: {said[1]}") from error
        raise


def _sweep(directory: Path, manifest: Manifest) -> None:
    """Remove the files of attempts that failed, or that were not the first to end."""
    for file in set(directory.iterdir()) - {directory / part.file for part in manifest.parts}:
        file.unlink()


def _deleted(spark: SparkSession, sources: Sources) -> int:
    """Count the messages that retention has deleted from the stores."""

    stores = [path for path in found_paths(sources.paths) if not Path(path).is_dir()]
    if not stores:
        return 0
    sequences = read(spark, *stores, table="sequences", columns=("store", "sequence", "pruned"), copies=True)
    each = sequences.groupBy("store", "sequence").agg(f.max("pruned").alias("pruned"))
    return each.agg(f.coalesce(f.sum("pruned"), f.lit(0))).collect()[0][0]  # type: ignore[no-any-return]


def _manifest(written: list[_Written], wishes: Wishes, sources: Sources, now: int, deleted: int) -> Manifest:
    whole = Summary(
        messages=sum(one.messages for one in written),
        bytes=sum(one.bytes for one in written),
        groups=sum(one.groups for one in written),
        earliest=min((one.earliest for one in written if one.earliest is not None), default=None),
        latest=max((one.latest for one in written if one.latest is not None), default=None),
        counts=sum((one.counts for one in written), Counter()),
    )
    for one in sorted((each for part in written for each in part.left_out.values()), key=lambda one: one.why):
        whole.leave_out(one.why, one.example, one.messages)
    whole.refuse_missing(wishes, _MISSING, "Some of it cannot be sent.")
    about = whole.about(wishes, now, is_copied=True)
    assert whole.earliest is not None
    assert whole.latest is not None
    if deleted:
        told = f"Deleted by retention from these stores: {deleted}. The plan has what a named archive has of them."
        about["warnings"] += (told,)
    return Manifest(
        **about,
        stores=tuple(sorted(set().union(*(one.stores for one in written)))),
        sources=sources.paths,
        headers=sources.headers,
        security=sources.security,
        earliest=whole.earliest,
        latest=whole.latest,
        parts=tuple(Part(file=one.file, messages=one.messages, sha256=one.sha256) for one in written),
    )


def _write(directory: Path, wishes: Wishes, now: int, batches: Batches) -> _Written:
    """Write the part of a partition, where its task runs."""
    part, attempt = partition()
    written = _Written(part=part, file=f"{part:05}-{attempt}.ndjson")
    digest, groups = hashlib.sha256(), set[int]()
    handle = os.open(directory / written.file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with open(handle, "wb") as file:
        for row in (row for batch in batches for row in batch.to_pylist()):
            assert row["part"] == part
            if row["why"] is not None:
                written.leave_out(row["why"], f"position {row['position']} of {row['store']}")
                continue
            flags = wishes.flags(
                row["state"], row["received_at"], now, breaks_order=row["breaks_order"], copied=row["copied"]
            )
            line = PartLine(**{name: row[name] for name in _TAKEN}, flags=tuple(flags))
            text = encoded(line)
            file.write(text)
            digest.update(text)
            groups.add(line.group)
            written.stores.add(line.store)
            written.add(line, row["received_at"])
        file.flush()
        os.fsync(handle)
    written.sha256, written.groups = digest.hexdigest(), len(groups)
    return written


_TAKEN: Final = (
    *("group", "position", "queue", "sequence", "number", "message_id", "action", "size", "state", "store"),
)
"""The columns of a line."""


# The run of a plan over many stores: Spark reads the contents of each part, and the task of the part sends them.
#
# Spark begins failed tasks again, and may take a living task for dead. The journals (``replay.divided``) keep the
# order and know the messages that were sent, so several attempts at one part do no harm.

BATCH: Final = 200
"""Messages that a task has in memory at a time; they may be large."""
FEW: Final = 1_000
LOOK_SECONDS: Final = 0.5
_LOCK: Final = "run"
_LINES: Final = "part int, line long, store string, position long"
_PIECE: Final = 2_000


class _Task(NamedTuple):
    """The work of a task. ``rate`` is that of its part; ``allowed`` are the configured addresses."""

    directory: str
    digest: str
    run: str
    allowed: tuple[str, ...]
    rate: float | None
    dry: bool

    def plan(self) -> DividedPlan:
        plan = DividedPlan(Path(self.directory))
        if plan.digest != self.digest:
            raise NotAllowed(f"{self.directory}: is another plan on this executor.")
        return plan


def run_plan(
    spark: SparkSession,
    directory: Path,
    allowed: Sequence[str],
    *,
    sources: Sources | None = None,
    rate: float | None = None,
    dry: bool = False,
    on_progress: Callable[[int], object] = lambda _records: None,
) -> Tally:
    """Run the plan in ``directory``, or the rest of it, and answer the count of this run. With ``dry`` nothing is sent,
    and the count is the one that a run would have. ``sources`` are read for envelopes, by default those of the plan.
    ``rate`` is the largest number of messages a second. ``on_progress`` is called with the number of lines that are
    over.

    Raises ``NotAllowed`` for a plan that was changed, is over, is being run, or goes to an address that is not
    ``allowed``; ``ConfigurationError`` where Spark would begin copies of running tasks. The journals know the messages
    that were sent until then; the plan can be run again.
    """
    plan = DividedPlan(directory.absolute())
    manifest = plan.manifest
    check_address(manifest.target, allowed)
    if spark.conf.get("spark.speculation", "false") == "true":
        raise ConfigurationError("begin Spark with spark.speculation=false: a copy of a task would send in its place.")
    used = sum(part.messages > 0 for part in manifest.parts)
    task = _Task(
        str(plan.directory),
        plan.digest,
        secrets.token_hex(4),
        tuple(allowed),
        None if rate is None else rate / used,
        dry,
    )
    sources = sources or Sources(manifest.sources, manifest.headers, manifest.security)
    sources = sources._replace(paths=tuple(map(local, sources.paths)))
    with _alone(plan), _small_batches(spark):
        over = sum(state.delivered for state in plan.states())
        if over == manifest.messages:
            raise NotAllowed(f"The plan {manifest.id} ran to its end. Make a new plan to run it again.")
        tallies = _collected(_parts(spark, plan, sources, task), task, plan, on_progress)
        if dry:
            return Tally(sum(one.delivered for one in tallies), sum(one.stopped for one in tallies))
        states = plan.states()  # a tally knows the last attempt at its part only
        return Tally(
            delivered=sum(state.delivered for state in states) - over,
            stopped=sum(record.run == task.run for state in states for record in state.stopped.values()),
            gave_up=any(one.gave_up for one in tallies),
            superseded=any(one.superseded for one in tallies),
        )


@contextmanager
def _alone(plan: DividedPlan) -> Iterator[None]:
    """Raises ``NotAllowed`` where another process runs the plan."""
    try:
        file = (plan.directory / JOURNALS / _LOCK).open("ab")
    except OSError as error:
        raise NotAllowed(f"{plan.directory}: cannot be written to: {error.strerror}. A run needs that.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotAllowed(f"The plan {plan.manifest.id} is being run by another process.") from None
        yield


@contextmanager
def _small_batches(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name) or ""
    spark.conf.set(name, str(BATCH))
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _parts(spark: SparkSession, plan: DividedPlan, sources: Sources, task: _Task) -> DataFrame:
    """The contents of the parts, a part in each partition."""

    earliest, latest = (f.timestamp_millis(f.lit(at)) for at in (plan.manifest.earliest, plan.manifest.latest))
    parts = len(plan.manifest.parts)
    lines = spark.range(0, parts, 1, parts).mapInArrow(partial(_lines, task), _LINES)
    few = _few(plan)
    messages = sources.messages(spark, [*_CONTENT, "received_at"], few)
    messages = messages.where(f.col("received_at").between(earliest, latest))
    if few:
        messages = messages.where(f.col("position").isin([one for run in few for one in range(run[0], run[1] + 1)]))
    return contents(lines, messages, parts)


def _few(plan: DividedPlan) -> tuple[AckRange, ...]:
    """The positions of a small plan: nothing else is read for it. Empty: they are too many to be named."""
    if plan.manifest.messages > FEW:
        return ()
    parts = range(len(plan.manifest.parts))
    return AckRanges.of(line.position for part in parts for _number, line in plan.lines(part)).ranges


def _collected(frame: DataFrame, task: _Task, plan: DividedPlan, on_progress: Callable[[int], object]) -> list[Tally]:
    """Run the parts, and report the progress meanwhile. An interruption ends the tasks."""
    context = frame.sparkSession.sparkContext
    group = f"wsrm-mq replay {plan.manifest.id}"

    def collect() -> list[Tally]:
        context.setJobGroup(group, group, interruptOnCancel=True)
        return answers(frame, partial(_run, task))

    seen = _Seen(plan)
    with ThreadPoolExecutor(1) as thread:
        collecting = thread.submit(collect)
        try:
            while not wait((collecting,), LOOK_SECONDS).done:
                on_progress(seen.records())
        except BaseException:
            context.cancelJobGroup(group)
            raise
    return collecting.result()


class _Seen:
    """Counts the records in the journals of a plan."""

    def __init__(self, plan: DividedPlan) -> None:
        self._directory = plan.directory / JOURNALS
        self._records = 0
        self._read: dict[Path, int] = {}

    def records(self) -> int:
        for path in self._directory.glob("*/*.ndjson"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                content = file.read()
            self._records += content.count(b"\n")
            self._read[path] = self._read.get(path, 0) + len(content)
        return self._records


# what a task does


def _lines(task: _Task, batches: Batches) -> Batches:
    """Read the lines of the parts whose numbers come: the store and the position of each."""
    names = ("part", "line", "store", "position")
    schema = pa.schema(zip(names, (pa.int32(), pa.int64(), pa.string(), pa.int64()), strict=True))
    plan = task.plan()
    for part in (part for batch in batches for part in batch.column(0).to_pylist()):
        rows = (
            dict(zip(names, (part, number, line.store, line.position), strict=True))
            for number, line in plan.lines(part)
        )
        while piece := list(islice(rows, _PIECE)):
            yield pa.RecordBatch.from_pylist(piece, schema)


def _run(task: _Task, batches: Batches) -> Tally:
    """Run the part of a partition."""
    part, _attempt = partition()
    plan = task.plan()
    manifest = plan.manifest
    if not manifest.parts[part].messages:
        return Tally()
    lines, found = plan.lines(part), _contents(part, batches)
    if task.dry:
        return run_part(Rehearsal(state_of(plan.journals(part)), task.run), lines, found)
    call = to_address(manifest.target, lambda _partner: QueuePolicy(), task.allowed, threads=1)
    with Journal(plan.journals(part), task.run) as journal:
        replay_id = manifest.id if manifest.as_new else ""
        return run_part(journal, lines, found, call, pace=Pace(task.rate), replay_id=replay_id)


def _contents(part: int, batches: Batches) -> Iterator[Content]:
    for batch in batches:
        parts, *columns = (column.to_pylist() for column in batch.columns)
        assert set(parts) <= {part}
        yield from map(Content, *columns)
