"""A store is read through Spark while other processes write it at full speed, prune it and vacuum it."""

from __future__ import annotations

import multiprocessing
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.stores import made
from wsrm_mq import WSRMMiddleware
from wsrm_mq.cli import program
from wsrm_mq.spark import read
from wsrm_mq.testing import RMSender, WSGIWire

OLD = 2_000
"""Messages that retention may delete."""
NEW = 400
VACUUMS = 5


def _service(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    start_response("202 Accepted", [])
    return []


def _write(store: str) -> None:
    middleware = WSRMMiddleware(_service, store=store)
    RMSender(lambda: WSGIWire(middleware, "/orders")).send_all(range(1, NEW + 1), connections=4)
    middleware.close()


def _prune(store: str) -> None:
    arguments = ("store", "prune", "--store", store, "--older-than", "P1D", "--yes", "--reason", "test")
    program(arguments, standalone_mode=False)


def _vacuum(store: str) -> None:
    """As an operator's sqlite3 does; `wsrm-mq store vacuum` waits until the service has stopped."""
    for _ in range(VACUUMS):
        with closing(sqlite3.connect(store, timeout=30, isolation_level=None)) as db:
            db.execute("VACUUM")


def _positions(store: Path) -> set[int]:
    with closing(sqlite3.connect(store)) as db:
        return {position for (position,) in db.execute("SELECT position FROM messages")}


def test_what_spark_reads_is_whole_and_disturbs_no_process_that_writes(spark: SparkSession, tmp_path: Path) -> None:
    store = made(tmp_path / "wsrm.db", OLD, sequences=10, body_bytes=400)
    spawning = multiprocessing.get_context("spawn")
    busy = [spawning.Process(target=work, args=(str(store),)) for work in (_write, _prune, _vacuum)]
    for one in busy:
        one.start()
    rounds = 0
    while rounds < 2 or any(one.is_alive() for one in busy):
        rounds += 1
        before = _positions(store)
        frame = read(spark, str(store), columns=("position", "number", "state", "envelope"), numPartitions=3)
        found = [row.position for row in frame.where("length(envelope) > 0").select("position").collect()]
        after = _positions(store)
        assert len(found) == len(set(found))
        assert before & after <= set(found) <= before | after | set(range(OLD + 1, max(after) + 1))
    for one in busy:
        one.join()
    assert [one.exitcode for one in busy] == [0, 0, 0]
    assert len(_positions(store)) == NEW
