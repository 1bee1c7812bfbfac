"""A worker of Python and an executor die during a replay: the target gets every message, each sequence in its order,
and twice only what was on its way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.stores import made
from tests.support.target import Target, serving
from wsrm_mq.replay import Wishes
from wsrm_mq.replay.divided import DividedPlan
from wsrm_mq.spark.replay import Sources, make_plan

ROOT = Path(__file__).parents[2]
MESSAGES = 3_000
SEQUENCES = 30
SECONDS = 500.0
PARTS = 2


def descendants(pid: int) -> list[tuple[int, str]]:
    """The processes below this one, with their commands; parents before children."""
    parents: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(fields[1])].append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        waiting += parents[waiting[0]]
        found.append(waiting.pop(0))
    return [(one, command(one)) for one in found[1:]]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def posting(run: int, port: int) -> int:
    """The worker of Python that has a connection to this port of the target: it runs a part just now."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        sockets = {f"socket:[{fields[9]}]" for fields in lines if fields[2].endswith(f":{port:04X}")}
        for pid, _command in descendants(run):
            with suppress(OSError):
                if any(os.readlink(opened) in sockets for opened in Path(f"/proc/{pid}/fd").iterdir()):
                    return pid
        time.sleep(0.01)
    raise AssertionError("no worker is connected to the target")


def executor_of(pid: int) -> int:
    """The JVM above a worker of Python."""
    while "CoarseGrainedExecutorBackend" not in command(pid):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def arrived(target: Target, count: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + SECONDS
    while len(target.requests) < count:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.timeout(1800)  # a cluster begins slowly where others work too
def test_a_replay_loses_and_disorders_nothing_when_a_worker_and_an_executor_die(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = made(tmp_path / "a.db", MESSAGES, SEQUENCES)
    (tmp_path / "spark").mkdir()
    with serving(Target()) as target:
        wishes = Wishes("true", target.url)
        make_plan(spark, Sources((str(store),)), wishes, tmp_path / "plan", parts=PARTS, now=1_800_000_000_000)
        words = [sys.executable, "-m", "tests.spark.cluster", tmp_path / "plan", target.url, tmp_path / "spark"]
        run = subprocess.Popen(list(map(str, words)), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            arrived(target, 200, run)
            os.kill(posting(run.pid, target.port), signal.SIGKILL)
            arrived(target, 600, run)
            os.kill(executor_of(posting(run.pid, target.port)), signal.SIGKILL)
            told, _ = run.communicate(timeout=SECONDS)
        finally:
            for pid in [pid for pid, _command in descendants(run.pid)] + [run.pid] if run.poll() is None else []:
                os.kill(pid, signal.SIGKILL)
    assert run.returncode == 0
    assert json.loads(told.splitlines()[-1]).items() >= {"delivered": MESSAGES, "stopped": 0}.items()

    firsts: dict[str, list[int]] = defaultdict(list)
    for key in dict.fromkeys(target.keys):
        sequence, _, number = key.rpartition(";")
        firsts[sequence].append(int(number))
    assert len(firsts) == SEQUENCES
    assert set(map(tuple, firsts.values())) == {tuple(range(1, MESSAGES // SEQUENCES + 1))}
    found = DividedPlan(tmp_path / "plan")
    attempts = sum(len(list(found.journals(part).glob("*.ndjson"))) for part in range(PARTS))
    assert len(target.keys) - MESSAGES <= attempts - PARTS
    assert attempts >= PARTS + 2, "both were killed while they ran a part"
    assert found.standing().is_done
