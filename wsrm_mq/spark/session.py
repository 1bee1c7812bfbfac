"""The session of Spark for a job: an active one, the one of spark-submit, or a new one on this machine.

Only the last kind is ended with the job. Its JVM writes to a file. Errors of Spark are raised as errors of this
package, in one line, without the stacks of Java and Python.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from wsrm_mq import errors
from wsrm_mq.errors import ConfigurationError, ExportError, SparkFailed, StoreError, WSRMError

ANYWHERE: Final = {"spark.sql.session.timeZone": "UTC", "spark.sql.python.filterPushdown.enabled": "true"}
"""Settings that every session needs; they can be set while it runs."""
BEGUN: Final = {**ANYWHERE, "spark.speculation": "false"}
"""Settings of a new session. A copy of a running task would deliver messages a second time."""
_LOGGING: Final = Path(__file__).with_name("log4j2.properties").as_uri()
LOCAL: Final = {
    "spark.master": "local[*,4]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={_LOGGING}"',
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of a new session on this machine; a task that fails is tried four times in all."""
JAVA: Final = 17
"""The oldest version that Spark runs on."""


@contextmanager
def session(name: str, log: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Open a session for the job ``name``. ``settings`` are settings of Spark, and override those above. ``log`` is the
    file for the output of a JVM that is begun here. Raises ``ConfigurationError`` where Java is missing."""
    active = SparkSession.getActiveSession()
    if active is not None:
        for key, value in {**ANYWHERE, **settings}.items():
            active.conf.set(key, value)
        yield active
        return
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    begun = _submitted(name, settings) if is_submitted else _local(name, log, settings)
    try:
        yield begun
    finally:
        begun.stop()


def _submitted(name: str, settings: Mapping[str, str]) -> SparkSession:
    return SparkSession.builder.appName(name).config(map={**BEGUN, **settings}).getOrCreate()


def _local(name: str, log: Path, settings: Mapping[str, str]) -> SparkSession:
    _check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf(loadDefaults=False).setAppName(name).setAll([*{**BEGUN, **LOCAL, **settings}.items()])
    with log.open("ab") as told:
        gateway = launch_gateway(conf, {"stdout": told, "stderr": told})
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    needed = f"Spark needs Java {JAVA} or newer (Debian: openjdk-17-jre-headless)"
    if java is None:
        raise ConfigurationError(f"{needed}; there is none {f'in JAVA_HOME, {home}' if home else 'on the path'}.")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    if version is None or int(version[1]) < JAVA:
        raise ConfigurationError(f"{needed}; {java} is {version[1] if version else 'no Java that tells its version'}.")


# errors


_OURS: Final = re.compile(r"^(?:\S+: )?wsrm_mq\.errors\.(\w+): (.*)$", re.M)
_CAUSE: Final = re.compile(r"(?:[a-z]\w*\.)+\w*(?:Exception|Error): (?!Job aborted|Task failed)(.+)")
_DAMAGED: Final = re.compile(r"FAILED_READ_FILE\S* .*? file:/*(/\S+?)\.(?:\s|$)")
"""The message of Spark's own reader for a damaged segment."""
_STEPS: Final = (
    ("No space left", "Make room, or have Spark work elsewhere: --conf spark.local.dir=DIR."),
    ("heap space|OutOfMemory|GC overhead", "Give it more memory: --conf spark.driver.memory=4g."),
    ("Answer from Java side|sending or receiving|Connection refused", "Was it killed, for want of memory?"),
)
"""The pattern of a message, with the next step for it."""


@contextmanager
def plain_errors(log: Path | None) -> Iterator[None]:
    """Raise an error of this package as an executor or the planner has raised it, and any other error of Spark as
    ``SparkFailed``, which names ``log``."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise _plain(str(error), log) from error


def _plain(text: str, log: Path | None) -> WSRMError:
    ours = _OURS.search(text)
    if ours is not None:
        kind = getattr(errors, ours[1], SparkFailed)
        return kind(ours[2], "") if issubclass(kind, StoreError) else kind(ours[2])
    damaged = _DAMAGED.search(text)
    if damaged is not None:
        return ExportError(f"{unquote(damaged[1])}: cannot be read as Parquet. Copy it again, or export again.")
    causes: list[str] = _CAUSE.findall(text)
    first = next((line for line in text.splitlines() if line.strip()), "it ended by itself")
    said = re.sub(r"^\[[A-Z_.0-9]+\] | SQLSTATE: \w+.*$", "", causes[-1] if causes else first).strip().rstrip(".:")
    step = next((step for pattern, step in _STEPS if re.search(pattern, text)), None)
    where = f" All that it said is in {log}." if log is not None else ""
    return SparkFailed(f"Spark: {said}.{f' {step}' if step else ''}{where}")


# Work that a task of Spark does with a partition, and its answer.

R = TypeVar("R")
Batches = Iterator[pa.RecordBatch]


def answers(frame: DataFrame, task: Callable[[Batches], R]) -> list[R]:
    """Run ``task`` on each partition of ``frame``, where its tasks run, and collect the answers."""

    def run(batches: Batches) -> Batches:
        yield pa.RecordBatch.from_pydict({"answer": pa.array([pickle.dumps(task(batches))], pa.binary())})

    return [pickle.loads(row.answer) for row in frame.mapInArrow(run, "answer binary").collect()]


def partition() -> tuple[int, int]:
    """The number of the partition that this task has, and that of the attempt at it, which no other has."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.taskAttemptId()
