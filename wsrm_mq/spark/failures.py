"""Errors of Spark, each as an error of this package in one line, without the stacks of Java and Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from wsrm_mq import errors
from wsrm_mq.errors import ExportError, SparkFailed, StoreError, WSRMError

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
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

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
