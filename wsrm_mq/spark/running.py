"""A plan at scale is run: Spark brings each part what its messages are sent with, and the task that has it sends them.

Spark begins tasks again that failed, and may take one for dead that is not. That a message is sent in its order, and
what was sent, is the business of the journals (``replay.journal``), so no attempt has to be the only one at its part.
"""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from wsrm_mq.errors import ConfigurationError, NotAllowed
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.replay import check_address, to_address
from wsrm_mq.replay.divided import JOURNALS, DividedPlan
from wsrm_mq.replay.journal import Journal, State, state_of
from wsrm_mq.replay.pace import Pace
from wsrm_mq.replay.parts import Content, PartRun, Tally, rehearse
from wsrm_mq.sequence.ranges import AckRange, AckRanges
from wsrm_mq.spark.jobs.replay import CONTENT, contents
from wsrm_mq.spark.options import local
from wsrm_mq.spark.planning import Sources

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

BATCH: Final = 200
"""Messages that a task has in memory at a time; they may be large."""
FEW: Final = 1_000
LOOK_SECONDS: Final = 0.5
_LOCK: Final = "run"
_LINES: Final = "part int, line long, store string, position long"
_TOLD: Final = "told binary"
_PIECE: Final = 2_000

Batches = Iterator["RecordBatch"]


class _Task(NamedTuple):
    """What every task of a run is told. ``rate``: of its part; ``allowed``: the addresses that are configured."""

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
    """Run the plan in ``directory``, or what is left of it, and answer what was done; ``dry``: what would be, and
    nothing is sent. ``sources`` are read for envelopes, by default those that it was made of; ``rate``: so many
    messages a second at most. ``on_progress`` is told how many lines of the plan are over.

    Raises ``NotAllowed`` for a plan that was changed, is over, is run already, or goes to an address that is not
    ``allowed``; ``ConfigurationError`` where Spark would begin copies of tasks that run. What was sent is in the
    journals then; the plan can be run again.
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
        over = sum(state.delivered for state in _states(plan))
        if over == manifest.messages:
            raise NotAllowed(f"The plan {manifest.id} ran to its end. Make a new plan to run it again.")
        tallies = _collected(_parts(spark, plan, sources, task), plan, on_progress)
        if dry:
            return Tally(sum(one.delivered for one in tallies), sum(one.stopped for one in tallies))
        states = _states(plan)  # a tally knows the last attempt at its part only
        return Tally(
            delivered=sum(state.delivered for state in states) - over,
            stopped=sum(record.run == task.run for state in states for record in state.stopped.values()),
            gave_up=any(one.gave_up for one in tallies),
            superseded=any(one.superseded for one in tallies),
        )


def _states(plan: DividedPlan) -> list[State]:
    return [state_of(plan.journals(part)) for part in range(len(plan.manifest.parts))]


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
    """A row for each part, of what was done: the plan is run where they are collected, once."""
    from pyspark.sql import functions as f

    earliest, latest = (f.timestamp_millis(f.lit(at)) for at in (plan.manifest.earliest, plan.manifest.latest))
    parts = len(plan.manifest.parts)
    lines = spark.range(0, parts, 1, parts).mapInArrow(_lines(task), _LINES)
    few = _few(plan)
    messages = sources.messages(spark, [*CONTENT, "received_at"], few)
    messages = messages.where(f.col("received_at").between(earliest, latest))
    if few:
        messages = messages.where(f.col("position").isin([one for run in few for one in range(run[0], run[1] + 1)]))
    return contents(lines, messages, parts).mapInArrow(_running(task), _TOLD)


def _few(plan: DividedPlan) -> tuple[AckRange, ...]:
    """The positions of a small plan: nothing else is read for it. Empty: they are too many to be named."""
    if plan.manifest.messages > FEW:
        return ()
    parts = range(len(plan.manifest.parts))
    return AckRanges.of(line.position for part in parts for _number, line in plan.lines(part)).ranges


def _collected(frame: DataFrame, plan: DividedPlan, on_progress: Callable[[int], object]) -> list[Tally]:
    """Collect in a thread, and tell meanwhile how far it has come. What interrupts this ends the tasks."""
    from pyspark import InheritableThread

    context = frame.sparkSession.sparkContext
    group = f"wsrm-mq replay {plan.manifest.id}"
    found: list[Tally] = []
    failed: list[BaseException] = []

    def collect() -> None:
        try:
            context.setJobGroup(group, group, interruptOnCancel=True)
            found.extend(msgspec.json.decode(row.told, type=Tally) for row in frame.collect())
        except BaseException as error:
            failed.append(error)

    thread = InheritableThread(target=collect, name=group, daemon=True)
    thread.start()
    seen = _Seen(plan)
    try:
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            on_progress(seen.records())
    except BaseException:
        context.cancelJobGroup(group)
        thread.join()
        raise
    if failed:
        raise failed[0]
    return found


class _Seen:
    """Counts what is written to the journals of a plan."""

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


def _lines(task: _Task) -> Callable[[Batches], Batches]:
    """Reads the lines of the parts whose numbers come: what of which store they need."""

    def look(batches: Batches) -> Batches:
        import pyarrow as pa

        names = ("part", "line", "store", "position")
        schema = pa.schema(zip(names, (pa.int32(), pa.int64(), pa.string(), pa.int64()), strict=True))
        plan = task.plan()
        for part in (part for batch in batches for part in batch.column(0).to_pylist()):
            rows = ((part, number, line.store, line.position) for number, line in plan.lines(part))
            while piece := list(islice(rows, _PIECE)):
                columns = zip(*piece, strict=True)
                yield pa.RecordBatch.from_arrays(
                    [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
                )

    return look


def _running(task: _Task) -> Callable[[Batches], Batches]:
    """Runs the part of its partition."""

    def run(batches: Batches) -> Batches:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        tally = _run(task, context.partitionId(), batches)
        yield pa.RecordBatch.from_pydict({"told": pa.array([msgspec.json.encode(tally)], pa.binary())})

    return run


def _run(task: _Task, part: int, batches: Batches) -> Tally:
    plan = task.plan()
    manifest = plan.manifest
    if not manifest.parts[part].messages:
        return Tally()
    lines, found = plan.lines(part), _contents(part, batches)
    if task.dry:
        state = state_of(plan.journals(part))
        return rehearse(lines, found, lambda line, group: state.is_over(line, group, task.run))
    call = to_address(manifest.target, lambda _partner: QueuePolicy(), task.allowed, threads=1)
    with Journal(plan.journals(part), task.run) as journal:
        replay_id = manifest.id if manifest.as_new else ""
        return PartRun(call, journal, Pace(task.rate), task.run, replay_id).over(lines, found)


def _contents(part: int, batches: Batches) -> Iterator[Content]:
    for batch in batches:
        parts, *columns = (column.to_pylist() for column in batch.columns)
        assert set(parts) <= {part}
        yield from map(Content, *columns)
