"""A plan at scale is made: Spark selects and orders its messages, and each part is written by the task that has it."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from pyspark.errors import PySparkException

from wsrm_mq.errors import NotAllowed, NotFound, QueryError
from wsrm_mq.export.schema import TABLES
from wsrm_mq.replay import Wishes
from wsrm_mq.replay.divided import JOURNALS, PARTS, Manifest, Part, PartLine, encoded_line, freeze
from wsrm_mq.replay.plan import BREAKS_ORDER, COPIED, DUPLICATE, FORMAT, OLD, LeftOut
from wsrm_mq.replay.wording import warnings
from wsrm_mq.sequence.ranges import AckRange
from wsrm_mq.spark.jobs.replay import MISSING, planned
from wsrm_mq.spark.options import found_paths, local
from wsrm_mq.spark.source import read

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

_WRONG: Final = re.compile(r"\[[A-Z_.0-9]+\]\s+(.+?)\s*SQLSTATE: (?:22|42)")
"""What Spark says of a condition that cannot be read, or that has values of another type than it takes."""

Batches = Iterator["RecordBatch"]
Keys = tuple[AckRange, ...]


class Sources(NamedTuple):
    """What is read: ``paths`` of stores, exports and archives, and what of their requests and envelopes is given."""

    paths: tuple[str, ...]
    headers: tuple[str, ...] = ()
    security: bool = False

    def messages(self, spark: SparkSession, columns: Sequence[str], within: Keys = ()) -> DataFrame:
        """Rows of one message may be there more than once: an archive has what its store has. ``within``: what has none
        of these positions is left unread."""
        options = {"headers": ",".join(self.headers), "withSecurity": str(self.security).lower(), "copies": "true"}
        if within:
            options["keys"] = ",".join(f"{lower}-{upper}" for lower, upper in within)
        return read(spark, *self.paths, columns=columns, **options)


class _Written(msgspec.Struct):
    """What a task tells of its part; times in ms since the epoch."""

    part: int
    file: str
    messages: int = 0
    sha256: str = ""
    bytes: int = 0
    groups: int = 0
    earliest: int | None = None
    latest: int | None = None
    counts: dict[str, int] = {}
    left_out: list[LeftOut] = []
    stores: set[str] = set()


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
        old = now - wishes.marks_kept if wishes.marks_kept is not None else None
        with _query_errors(wishes.query):
            rows = frame.mapInArrow(_writer(output / PARTS, old), "told binary").collect()
        written = sorted((msgspec.json.decode(row.told, type=_Written) for row in rows), key=lambda one: one.part)
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
    """The rows of ``planned``, a part in each partition, in the order in which they run."""
    from pyspark.sql import functions as f

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
    """Remove what attempts have left that failed, or were not the first to end."""
    for file in set(directory.iterdir()) - {directory / part.file for part in manifest.parts}:
        file.unlink()


def _deleted(spark: SparkSession, sources: Sources) -> int:
    """How many messages retention has deleted from the stores."""
    from pyspark.sql import functions as f

    stores = [path for path in found_paths(sources.paths) if not Path(path).is_dir()]
    if not stores:
        return 0
    sequences = read(spark, *stores, table="sequences", columns=("store", "sequence", "pruned"), copies="true")
    each = sequences.groupBy("store", "sequence").agg(f.max("pruned").alias("pruned"))
    return each.agg(f.coalesce(f.sum("pruned"), f.lit(0))).collect()[0][0]  # type: ignore[no-any-return]


def _manifest(written: list[_Written], wishes: Wishes, sources: Sources, now: int, deleted: int) -> Manifest:
    counts = sum((Counter(one.counts) for one in written), Counter[str]())
    left_out = _together(one for part in written for one in part.left_out)
    told = "".join(f" Left out: {one.messages} {one.why} (such as {one.example})." for one in left_out)
    if any(one.why in MISSING for one in left_out) and not wishes.skip_missing:
        raise NotAllowed(f"Some of it cannot be sent.{told} With --skip-missing the plan is made without them.")
    messages = sum(one.messages for one in written)
    if not messages:
        raise NotFound(f"Nothing that can be replayed fits {wishes.query!r}.{told}")
    earliest = min(one.earliest for one in written if one.earliest is not None)
    said = warnings(wishes.target, wishes.as_new, counts, now - earliest, wishes.marks_kept, is_copied=True)
    if deleted:
        said += (f"Deleted by retention from these stores: {deleted}. The plan has what a named archive has of them.",)
    return Manifest(
        wsrm_mq_plan=FORMAT,
        id=secrets.token_hex(6),
        made_at=now,
        actor=wishes.actor,
        reason=wishes.reason,
        query=wishes.query,
        target=wishes.target,
        as_new=wishes.as_new,
        skip_missing=wishes.skip_missing,
        messages=messages,
        groups=sum(one.groups for one in written),
        bytes=sum(one.bytes for one in written),
        counts=dict(counts),
        left_out=left_out,
        warnings=said,
        stores=tuple(sorted(set().union(*(one.stores for one in written)))),
        sources=sources.paths,
        headers=sources.headers,
        security=sources.security,
        earliest=earliest,
        latest=max(one.latest for one in written if one.latest is not None),
        parts=tuple(Part(file=one.file, messages=one.messages, sha256=one.sha256) for one in written),
    )


def _together(each: Iterable[LeftOut]) -> tuple[LeftOut, ...]:
    """One for each reason."""
    by_why: dict[str, LeftOut] = {}
    for one in each:
        known = by_why.get(one.why)
        by_why[one.why] = LeftOut(one.why, known.messages + one.messages, known.example) if known else one
    return tuple(by_why[why] for why in sorted(by_why))


# what a task does


def _writer(directory: Path, old: int | None) -> Callable[[Batches], Batches]:
    """Writes the part of its partition; messages received before ``old`` are marked."""

    def write(batches: Batches) -> Batches:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part = context.partitionId()
        told = _Written(part=part, file=f"{part:05}-{context.taskAttemptId()}.ndjson")
        _write(directory / told.file, (row for batch in batches for row in batch.to_pylist()), told, old)
        yield pa.RecordBatch.from_pydict({"told": pa.array([msgspec.json.encode(told)], pa.binary())})

    return write


def _write(path: Path, rows: Iterable[dict[str, Any]], told: _Written, old: int | None) -> None:
    digest, counts = hashlib.sha256(), Counter[str]()
    left_out: list[LeftOut] = []
    groups: set[int] = set()
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with open(handle, "wb") as file:
        for row in rows:
            assert row["part"] == told.part
            if row["why"] is not None:
                left_out = list(_together([*left_out, _left_out(row)]))
                continue
            line = _line(row, old)
            text = encoded_line(line) + b"\n"
            file.write(text)
            digest.update(text)
            counts.update((line.state, *line.flags))
            groups.add(line.group)
            told.stores.add(line.store)
            told.bytes += line.size
            told.messages += 1
            told.earliest = min(told.earliest or row["received_at"], row["received_at"])
            told.latest = max(told.latest or 0, row["received_at"])
        file.flush()
        os.fsync(handle)
    told.sha256, told.counts, told.left_out, told.groups = digest.hexdigest(), dict(counts), left_out, len(groups)


def _left_out(row: dict[str, Any]) -> LeftOut:
    return LeftOut(row["why"], 1, f"position {row['position']} of {row['store']}")


def _line(row: dict[str, Any], old: int | None) -> PartLine:
    flags = {
        DUPLICATE: row["state"] == "delivered",
        BREAKS_ORDER: row["breaks_order"],
        COPIED: row["copied"],
        OLD: old is not None and row["received_at"] < old,
    }
    taken: Final = {name: row[name] for name in _TAKEN}
    return PartLine(**taken, flags=tuple(flag for flag, is_set in flags.items() if is_set))


_TAKEN: Final = (
    *("group", "position", "queue", "sequence", "number", "message_id", "action", "size", "state", "store"),
)
