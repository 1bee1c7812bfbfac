"""The run of a plan over many stores: Spark reads the contents of each part, and the task of the part sends them.

Spark begins failed tasks again, and may take a living task for dead. The journals (``replay.divided``) keep the order
and know the messages that were sent, so several attempts at one part do no harm.
"""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from wsrm_mq.errors import ConfigurationError, NotAllowed
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.replay import check_address, to_address
from wsrm_mq.replay.divided import JOURNALS, DividedPlan, Journal, Rehearsal, state_of
from wsrm_mq.replay.parts import Content, Tally, run_part
from wsrm_mq.replay.targets import Pace
from wsrm_mq.sequence.ranges import AckRange, AckRanges
from wsrm_mq.spark.jobs.replay import CONTENT, contents
from wsrm_mq.spark.options import local
from wsrm_mq.spark.replay_plan import Sources
from wsrm_mq.spark.tasks import Batches, answers, partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    from pyspark.sql import functions as f

    earliest, latest = (f.timestamp_millis(f.lit(at)) for at in (plan.manifest.earliest, plan.manifest.latest))
    parts = len(plan.manifest.parts)
    lines = spark.range(0, parts, 1, parts).mapInArrow(partial(_lines, task), _LINES)
    few = _few(plan)
    messages = sources.messages(spark, [*CONTENT, "received_at"], few)
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
    import pyarrow as pa

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
