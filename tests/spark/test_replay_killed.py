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
TRIES = 6


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


def kill_one(below: int, wanted: str, *, last: bool = False) -> None:
    """Kill a process of the run: the first of these, or the last, which is below the others."""
    found = [pid for pid, told in descendants(below) if wanted in told]
    assert found, wanted
    os.kill(found[-1 if last else 0], signal.SIGKILL)


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
    attempts = (killed_run(spark, store, tmp_path / f"try{number}") for number in range(TRIES))
    assert any(made_in_all >= PARTS + 2 for made_in_all in attempts), "once both were killed while they ran a part"


def killed_run(spark: SparkSession, store: Path, where: Path) -> int:
    """Replay a store and kill a worker and an executor meanwhile: whatever they did just then, everything arrives, and
    in order. Answers how many attempts the parts took: one that is killed while it runs no part costs none."""
    (where / "spark").mkdir(parents=True)
    with serving(Target()) as target:
        wishes = Wishes("true", target.url)
        make_plan(spark, Sources((str(store),)), wishes, where / "plan", parts=PARTS, now=1_800_000_000_000)
        words = [sys.executable, "-m", "tests.spark.cluster", where / "plan", target.url, where / "spark"]
        run = subprocess.Popen(list(map(str, words)), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            arrived(target, 200, run)
            kill_one(run.pid, "pyspark.daemon", last=True)
            arrived(target, 600, run)
            kill_one(run.pid, "CoarseGrainedExecutorBackend")
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
    found = DividedPlan(where / "plan")
    attempts = sum(len(list(found.journals(part).glob("*.ndjson"))) for part in range(PARTS))
    assert len(target.keys) - MESSAGES <= attempts - PARTS
    assert found.standing().is_done
    return attempts
