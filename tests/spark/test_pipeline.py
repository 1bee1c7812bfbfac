"""``wsrm-mq pipeline``: what every job has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from tests.support.filled import Filled
from wsrm_mq.cli import program
from wsrm_mq.export import Asked, export


def run(*arguments: object) -> Result:
    return CliRunner().invoke(program, ["pipeline", *map(str, arguments)], prog_name="wsrm-mq")


@pytest.fixture
def out(spark: SparkSession, tmp_path: Path) -> Path:
    """The directory of a job; jobs take the session that the tests have."""
    return tmp_path / "out"


def test_the_last_line_is_the_summary_and_so_is_its_file(filled: Filled, out: Path) -> None:
    done = run("reorder", filled.path, "--out", out, "--json")
    assert done.exit_code == 1, done.output
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary == json.loads((out / "summary.json").read_text())
    assert {"job": "reorder", "state": "done", "out": str(out), "release": 4, "held": 1}.items() <= summary.items()


def test_a_directory_is_used_again_by_the_same_job_only(filled: Filled, out: Path) -> None:
    assert [run("reorder", filled.path, "--out", out).exit_code for _ in range(2)] == [1, 1]
    (out / "summary.json").write_text(json.dumps({"job": "other"}))
    done = run("reorder", filled.path, "--out", out)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "has files that are not of an earlier reorder. Name a new directory." in done.stderr


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (lambda path: None, 5, "there is no such store or export. Name files that this machine has."),
        (lambda path: path.write_text("text"), 5, "file is not a database."),
        (lambda path: path.touch(), 5, "is empty. Make it a store with `wsrm-mq store init"),
        (lambda path: path.mkdir(), 3, "has no export and no archive."),
    ],
    ids=["nothing", "no store", "an empty file", "an empty directory"],
)
def test_what_cannot_be_read_is_told_in_a_line(tmp_path: Path, out: Path, make: Any, code: int, said: str) -> None:
    path = tmp_path / "wsrm.db"
    make(path)
    done = run("audit", path, "--out", out)
    assert (done.exit_code, done.stderr.count("\n")) == (code, 1), done.output
    assert said in done.stderr
    assert not out.exists()


def test_results_that_cannot_be_written_are_refused_before_spark_begins(filled: Filled, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("audit", filled.path, "--out", tmp_path / "file" / "out")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert "cannot be written: Not a directory. Name another directory with --out." in done.stderr


@pytest.mark.parametrize("name", ["reorder 2026-11-23T23:00", "a%20b, #1", "{address}"])
def test_all_results_are_where_out_says_whatever_its_name(filled: Filled, out: Path, name: str) -> None:
    place = out / name
    done = run("reorder", filled.path, "--out", f"file:{place}" if name == "{address}" else place)
    if name == "{address}":
        assert (done.exit_code, "Spark takes { for a pattern. Name another" in done.stderr) == (2, True), done.output
        return
    assert done.exit_code == 1, done.output
    assert {one.name for one in place.iterdir()} >= {"arrivals", "frontier", "summary.json"}
    assert list(out.iterdir()) == [place]


@pytest.mark.parametrize("job", ["audit", "archive", "replay plan"])
def test_an_out_that_is_elsewhere_is_refused_and_nothing_is_made(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    (tmp_path / "wsrm-mq.toml").write_text('replay_targets = ["http://127.0.0.1:1"]')
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    own = ["--to", "http://127.0.0.1:1", "--reason", "why"] if job == "replay plan" else []
    done = run(*job.split(), filled.path, "--out", "s3a://bucket/out", *own)
    assert (done.exit_code, "addresses with s3a: are not supported yet" in done.stderr) == (2, True), done.output
    assert set(tmp_path.iterdir()) == before


def test_damage_that_an_executor_meets_is_told_in_a_line(filled: Filled, tmp_path: Path, out: Path) -> None:
    made = export(filled.path, tmp_path / "april", Asked(encoding="parquet"))
    segment = next(one for one in made.segments if one.table == "messages")
    (tmp_path / "april" / segment.file).write_bytes(bytes(segment.bytes))
    done = run("reorder", tmp_path / "april", "--out", out)
    # A slow run tells of its progress beside it.
    assert (done.exit_code, done.stderr.count("wsrm-mq: ")) == (5, 1), done.output
    assert "Copy it again, or export again." in done.stderr
    assert json.loads((out / "summary.json").read_text())["state"] == "running"


@pytest.mark.parametrize("given", ["driver.memory=8g", "spark.driver.memory"])
def test_a_setting_of_spark_that_is_none_is_refused(filled: Filled, out: Path, given: str) -> None:
    done = run("audit", filled.path, "--out", out, "--conf", given)
    assert done.exit_code == 2
    assert "is not of the form spark.NAME=VALUE" in done.stderr


def alone(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, without the session of the tests."""
    command = [sys.executable, "-m", "wsrm_mq", "pipeline", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environ})


def test_a_session_of_this_machine_is_begun_and_is_silent(filled: Filled, out: Path) -> None:
    done = alone("audit", filled.path, "--out", out, "--json", "--conf", "spark.driver.memory=1g")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["messages"] == 5
    assert (out / "spark.log").exists()


PAGE = Path(__file__).parents[2] / "docs" / "howto" / "spark.md"


def test_spark_submit_takes_it_as_the_page_says(filled: Filled, out: Path) -> None:
    found = re.search(r"^spark-submit .*?--out /shared/audit$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    small = "--conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=1"
    command = found[0].replace("spark://master:7077", f"'local[1]' {small}").replace("audit", "reorder", 1)
    command = command.replace("/stores/*.db", str(filled.path)).replace("/shared/audit", str(out))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, env=environ)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["state"] == "done", done.stderr[-2000:]
    assert done.returncode == (1 if summary["held"] else 0)


@pytest.mark.parametrize(
    ("version", "said"),
    [(None, "there is none in JAVA_HOME"), ("1.8.0_292", "java is 8."), ("11.0.2", "java is 11.")],
)
def test_without_a_java_that_is_new_enough_the_command_says_so(
    filled: Filled, out: Path, tmp_path: Path, version: str | None, said: str
) -> None:
    (tmp_path / "bin").mkdir()
    if version is not None:
        java = tmp_path / "bin" / "java"
        java.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}" 2019-01-15' >&2\n""")
        java.chmod(0o755)
    done = alone("audit", filled.path, "--out", out, JAVA_HOME=str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "Spark needs Java 17 or newer" in done.stderr
    assert said in done.stderr
