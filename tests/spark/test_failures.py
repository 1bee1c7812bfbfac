"""What Spark says at length is one line of ours; these are texts of Spark 4.3, shortened in the stacks only."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from wsrm_mq.errors import ExportError, SparkFailed, StoreUnavailable, WSRMError
from wsrm_mq.spark.session import plain_errors

PLANNED = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent call last):
  File "/lib/wsrm_mq/spark/reader.py", line 104, in _found
    raise StoreUnavailable(f"{path}: there is no such store or export.", "Name files that this machine has.")
wsrm_mq.errors.StoreUnavailable: /nowhere.db: there is no such store or export. Name files that this machine has.
 SQLSTATE: 38000"""
READ = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/lib/wsrm_mq/export/arrow.py", line 96, in read_errors
    raise ExportError(f"{file}: cannot be read: {why}. Copy it again, or export again.") from error
wsrm_mq.errors.ExportError: /april/1.parquet: cannot be read: it breaks off. Copy it again, or export again."""
WRITTEN = """An error occurred while calling o101.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 1.0 failed 4 times, most recent \
failure: Lost task 1.3 in stage 1.0 (TID 13) (executor driver): java.io.IOException: No space left on device
	at org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:774)
	at org.apache.spark.executor.Executor$TaskRunner.$anonfun$run$4(Executor.scala:903)"""
COLUMN = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nix` cannot be resolved. SQLSTATE: 42703;
'Project ['nix]
+- Range (0, 3, step=1, splits=Some(2))
"""


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            PLANNED,
            StoreUnavailable,
            "/nowhere.db: there is no such store or export. Name files that this machine has.",
        ),
        (READ, ExportError, "/april/1.parquet: cannot be read: it breaks off. Copy it again, or export again."),
        (
            WRITTEN,
            SparkFailed,
            "Spark: No space left on device. Make room, or have Spark work elsewhere: --conf spark.local.dir=DIR. "
            "All that it said is in spark.log.",
        ),
        (COLUMN, SparkFailed, "Spark: A column with name `nix` cannot be resolved. All that it said is in spark.log."),
        (
            "An error occurred while calling o21.sc",
            SparkFailed,
            "Spark: An error occurred while calling o21.sc. All that it said is in spark.log.",
        ),
    ],
)
def test_what_spark_says_is_one_line_that_says_what_to_do(text: str, kind: type[WSRMError], said: str) -> None:
    with pytest.raises(kind) as raised, plain_errors(Path("spark.log")):
        raise Py4JError(text)
    assert str(raised.value) == said
