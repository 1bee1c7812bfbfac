"""A store is exported while it is written, pruned and vacuumed, and by a process that is killed."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.stores import made
from tests.support.filled import Filled
from wsrm_mq import WSRMMiddleware
from wsrm_mq.cli import program
from wsrm_mq.export import TABLES, Asked, export, load
from wsrm_mq.export.pieces import Exposure, Origin, Reading, before, opened, pieces
from wsrm_mq.testing import RMSender, WSGIWire

OLD = 4_000
"""Messages that retention may delete."""
NEW = 400


def service(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    start_response("202 Accepted", [])
    return []


def positions(directory: Path) -> list[int]:
    found = [directory / one.file for one in load(directory).segments if one.table == "messages"]
    return [json.loads(line)["position"] for one in found for line in gzip.open(one)]


def test_an_export_and_a_service_at_full_speed_do_not_disturb_each_other(tmp_path: Path) -> None:
    store = made(tmp_path / "wsrm.db", OLD, sequences=10, body_bytes=400)
    middleware = WSRMMiddleware(service, store=str(store))
    sender = RMSender(lambda: WSGIWire(middleware, "/orders"))
    prune = ("store", "prune", "--store", str(store), "--older-than", "P1D", "--yes", "--reason", "test")
    failed: list[BaseException] = []

    def alongside(work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    busy = [
        alongside(lambda: sender.send_all(range(1, NEW + 1), connections=4)),
        alongside(lambda: program(prune, standalone_mode=False)),
    ]
    rounds = 0
    while any(one.is_alive() for one in busy) or rounds < 2:
        rounds += 1
        export(store, tmp_path / f"out{rounds}", Asked(tables=("messages", "sequences"), segment_rows=500))
    for one in busy:
        one.join()
    middleware.close()
    assert not failed
    with closing(sqlite3.connect(store)) as db:
        kept = [position for (position,) in db.execute("SELECT position FROM messages ORDER BY position")]
    assert len(kept) == NEW  # what is old was pruned meanwhile
    for number in range(1, rounds + 1):
        found, manifest = positions(tmp_path / f"out{number}"), load(tmp_path / f"out{number}")
        upper = manifest.tables["messages"].upper
        assert upper is not None
        assert found == sorted(set(found))
        assert set(found) >= {position for position in kept if position <= upper}
        assert found[-1] <= upper


@pytest.mark.parametrize("name", ["messages", "replies"])
def test_the_log_is_taken_into_the_file_between_two_pieces_of_large_bodies(tmp_path: Path, name: str) -> None:
    """Else it would grow as long as a partition, an export or an archive is read."""
    store = made(tmp_path / "wsrm.db", 6, sequences=1, body_bytes=5 * 1024 * 1024)
    with closing(sqlite3.connect(store, isolation_level=None)) as db:
        columns = "entry, status, headers, stored_at, body"
        db.execute(f"INSERT INTO reply ({columns}) SELECT id, '200 OK', '[]', 1, body FROM message")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        table = TABLES[name]
        reading = Reading(table, table.columns, Exposure(), Origin("s", "n"))
        with opened(store) as reader:
            sizes, blocked, found = [], [], pieces(reader, reading, before(table, 1), 6)
            for piece in found:
                sizes.append(len(piece))
                db.execute("UPDATE entry SET deliveries = deliveries + 1")
                blocked.append(db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
    assert (sizes, blocked) == ([2, 2, 2], [0, 0, 0])


def test_a_vacuum_between_two_pieces_changes_nothing(filled: Filled, tmp_path: Path) -> None:
    def vacuum(_segment: object, _upper: int) -> None:
        with closing(sqlite3.connect(filled.path, isolation_level=None)) as db:
            db.execute("VACUUM")

    export(filled.path, tmp_path / "out", Asked(tables=("messages",), segment_rows=1), on_progress=vacuum)
    assert positions(tmp_path / "out") == [1, 2, 3, 4, 5]


def test_a_store_that_may_not_be_written_is_exported_with_what_its_log_has(
    filled: Filled, tmp_path: Path, mount: Callable[..., Path]
) -> None:
    point = mount("-t", "tmpfs", "-o", "size=16m", "tmpfs")
    for suffix in ("", "-wal"):
        shutil.copy(f"{filled.path}{suffix}", point)
    subprocess.run(["mount", "-o", "remount,ro", point], check=True)
    export(point / filled.path.name, tmp_path / "out", Asked(tables=("messages",)))
    assert positions(tmp_path / "out") == [1, 2, 3, 4, 5]


def test_an_export_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    store = made(tmp_path / "wsrm.db", 3_000, sequences=10, body_bytes=400)
    command = [sys.executable, "-m", "wsrm_mq", "message", "export", "out", "--store", str(store)]
    command += ["--segment-rows", "500", "--bodies"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"000003" in line:
                os.kill(process.pid, signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    first = tmp_path / "out" / "messages" / "000001.ndjson.gz"
    written = first.stat().st_mtime_ns
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert positions(tmp_path / "out") == list(range(1, 3_001))
    assert first.stat().st_mtime_ns == written
