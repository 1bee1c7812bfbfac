"""A plan at scale is made: Spark selects and orders its messages, and each part is written by the task that has it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.errors import PySparkException

from wsrm_mq.errors import NotAllowed, QueryError
from wsrm_mq.export.schema import TABLES
from wsrm_mq.replay import Wishes
from wsrm_mq.replay.divided import JOURNALS, PARTS, Manifest, Part, PartLine, freeze
from wsrm_mq.replay.plan import encoded
from wsrm_mq.replay.summary import Summary
from wsrm_mq.sequence.ranges import AckRange
from wsrm_mq.spark.jobs.replay import MISSING, planned
from wsrm_mq.spark.options import found_paths, local
from wsrm_mq.spark.source import read
from wsrm_mq.spark.tasks import Batches, answers, partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
        options = {"headers": ",".join(self.headers), "withSecurity": str(self.security).lower(), "copies": "true"}
        if within:
            options["keys"] = ",".join(f"{lower}-{upper}" for lower, upper in within)
        return read(spark, *self.paths, columns=columns, **options)


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
    """Remove the files of attempts that failed, or that were not the first to end."""
    for file in set(directory.iterdir()) - {directory / part.file for part in manifest.parts}:
        file.unlink()


def _deleted(spark: SparkSession, sources: Sources) -> int:
    """Count the messages that retention has deleted from the stores."""
    from pyspark.sql import functions as f

    stores = [path for path in found_paths(sources.paths) if not Path(path).is_dir()]
    if not stores:
        return 0
    sequences = read(spark, *stores, table="sequences", columns=("store", "sequence", "pruned"), copies="true")
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
    whole.refuse_missing(wishes, MISSING, "Some of it cannot be sent.")
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
