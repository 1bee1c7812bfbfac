"""Work that a task of Spark does with a partition, and its answer."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame

R = TypeVar("R")
Batches = Iterator["RecordBatch"]


def answers(frame: DataFrame, task: Callable[[Batches], R]) -> list[R]:
    """Run ``task`` on each partition of ``frame``, where its tasks run, and collect the answers."""

    def run(batches: Batches) -> Batches:
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({"answer": pa.array([pickle.dumps(task(batches))], pa.binary())})

    return [pickle.loads(row.answer) for row in frame.mapInArrow(run, "answer binary").collect()]


def partition() -> tuple[int, int]:
    """The number of the partition that this task has, and that of the attempt at it, which no other has."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.taskAttemptId()
