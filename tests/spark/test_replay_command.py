"""``wsrm-mq pipeline replay`` and ``reorder``, as an operator types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from bench.stores import made
from tests.support.target import Target
from wsrm_mq.cli import program
from wsrm_mq.export import Asked, export


def run(*arguments: object) -> Result:
    return CliRunner().invoke(program, ["pipeline", *map(str, arguments)], prog_name="wsrm-mq")


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four messages of each of five sequences; the target is allowed. Commands take the session that the tests have."""
    (tmp_path / "wsrm-mq.toml").write_text(f'replay_targets = ["{target.url}"]\n')
    monkeypatch.chdir(tmp_path)
    return made(tmp_path / "a.db", 20, 5)


def plan(store: Path, target: Target, *more: object) -> Result:
    words = ("--to", f"{target.url}/orders", "--out", "march", "--reason", "rebuilt", "--parts", 2)
    return run("replay", "plan", store, *words, *more)


def test_a_plan_is_made_tried_run_to_a_fault_and_run_to_its_end(store: Path, target: Target) -> None:
    done = plan(store, target, "--where", "number <= 3")
    assert done.exit_code == 0, done.output
    assert "15 messages in 5 groups" in done.output
    done = run("replay", "run", "march", "--dry-run")
    assert done.stderr.splitlines()[-1].startswith("This would deliver 15 messages to ")
    assert target.keys == []

    target.answers[4] = (500, b"")
    done = run("replay", "run", "march", "--yes")
    assert done.exit_code == 1, done.output
    assert "answered 500 Internal Server Error without a SOAP fault" in done.stdout
    assert "Go on: `wsrm-mq pipeline replay run march`" in done.stderr
    told = json.loads(run("replay", "status", "march", "--json").stdout)
    [stopped] = told["stopped"]
    assert f"{stopped['sequence']};{stopped['number']}" == target.keys[3]

    done = run("replay", "run", "march", "--yes", "--json")
    assert done.exit_code == 0, done.output
    assert {"messages": 15, "delivered": 15, "stopped": []}.items() <= json.loads(done.stdout).items()
    assert len(target.keys) == 16
    done = run("replay", "run", "march", "--yes")
    assert (done.exit_code, "ran to its end" in done.stderr) == (4, True)


def test_a_plan_that_cannot_be_made_is_told_in_a_line_and_can_be_made_after_that_and_is_never_replaced(
    store: Path, target: Target
) -> None:
    for words, code, said in (
        (("--where", "nunber > 3"), 2, "the condition 'nunber > 3' cannot be read"),
        (("--where", "number = = 3"), 2, "cannot be read: Syntax error at or near '='"),
        (("--where", "number > 30"), 3, "Nothing that can be replayed fits"),
        (("--to", "http://10.1.2.3/"), 4, "replay_targets"),
        (("--to", "orders:app"), 4, "is no address"),
        (("--reason", ""), 4, "a reason has to be given"),
    ):
        done = plan(store, target, *words)
        # A slow run tells of its progress beside it.
        assert (done.exit_code, done.stderr.count("wsrm-mq: ")) == (code, 1), done.output
        assert said in done.stderr
    assert [plan(store, target).exit_code for _ in range(2)] == [0, 4]


def test_what_is_no_plan_is_told_in_a_line(store: Path) -> None:
    for command in (("run", "march", "--yes"), ("status", "march")):
        done = run("replay", *command)
        assert (done.exit_code, done.stderr.count("\n")) == (3, 1), done.output


def test_what_arrived_is_told_apart_behind_what_was_there_before(store: Path, tmp_path: Path) -> None:
    done = run("reorder", store, "--out", "whole", "--json")
    assert done.exit_code == 0, done.output
    assert {"sequences": 5, "release": 20, "held": 0, "duplicate": 0}.items() <= json.loads(done.stdout).items()
    export(store, tmp_path / "before", Asked(encoding="parquet", tables=("sequences",)))
    again = json.loads(run("reorder", store, "--frontier", "before", "--out", "again", "--json").stdout)
    assert {"release": 0, "held": 0, "duplicate": 20}.items() <= again.items()
