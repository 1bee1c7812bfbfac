"""``wsrm-mq pipeline reconcile``: stores of three nodes, the summary, and the report as a browser has it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from lxml import html
from pyspark.sql import SparkSession

from tests.spark.nodes import EVIL, FOUND, three_nodes
from tests.support.filled import Filled
from wsrm_mq.cli import program
from wsrm_mq.export import Asked, export

pytestmark = pytest.mark.timeout(300)
"""A job is sixty questions to Spark, each a second where the machine is busy."""

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def run(*arguments: object) -> tuple[int, dict[str, Any]]:
    command = ["pipeline", "reconcile", *map(str, arguments), "--json"]
    done = CliRunner().invoke(program, command, prog_name="wsrm-mq")
    return done.exit_code, json.loads(done.stdout.splitlines()[-1]) if done.exit_code in (0, 1) else {
        "said": done.stderr
    }


class Done(NamedTuple):
    out: Path
    code: int
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Of three stores."""
    where = tmp_path_factory.mktemp("reconcile")
    nodes = three_nodes(where)
    at = datetime.fromtimestamp(nodes.at / 1_000, UTC).isoformat()
    return Done(where / "out", *run(nodes.north, nodes.south, nodes.restored, "--out", where / "out", "--at", at))


def test_the_summary_counts_what_went_wrong(done: Done) -> None:
    assert done.code == 1
    assert {name: done.summary[name] for name in FOUND} == FOUND
    assert list(done.summary)[4:8] == ["at", "stores", "messages", "delivered"]


def test_tables_and_report_lie_beside_the_summary(done: Done, spark: SparkSession) -> None:
    assert spark.read.parquet(str(done.out / "lacking")).select("lower", "upper", "missing").collect() == [(6, 7, 2)]
    assert done.summary == json.loads((done.out / "summary.json").read_text())
    assert done.summary["report"] == str(done.out / "report.html")


def test_numbers_of_the_report_are_those_of_the_summary(done: Done) -> None:
    page = html.fromstring((done.out / "report.html").read_bytes())
    told = {one.get("data-number"): float(one.text.replace(",", "")) for one in page.iterfind(".//*[@data-number]")}
    assert len(told) >= 20
    assert told == {name: done.summary[name] for name in told}


def test_what_a_peer_wrote_is_text(done: Done) -> None:
    page = html.fromstring((done.out / "report.html").read_bytes())
    assert not page.findall(".//script")
    assert EVIL.replace("\x1b", "\\x1b") in {cell.text for cell in page.iterfind(".//td")}
    assert len(page.findall(".//svg")) >= 4, "latency, partners, strips"


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
def test_a_browser_shows_the_report_without_an_error(done: Done, tmp_path: Path) -> None:
    assert BROWSER is not None
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom")
    page = (done.out / "report.html").as_uri()
    command = [BROWSER, *options, f"--user-data-dir={tmp_path}", page]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert not re.findall(r".*:CONSOLE.*", shown.stderr), "nothing was refused or failed"
    numbers = dict(re.findall(r'data-number="(\w+)">([\d,.]+)<', shown.stdout))
    assert float(numbers["missing"]) == done.summary["missing"]
    assert "<script" not in shown.stdout


@pytest.mark.parametrize("bodies", [True, False])
def test_an_export_tells_bodies_apart_where_it_was_made_with_them(
    spark: SparkSession, filled: Filled, tmp_path: Path, bodies: bool
) -> None:
    export(filled.path, tmp_path / "export", Asked(encoding="parquet", bodies=bodies))
    code, summary = run(tmp_path / "export", "--out", tmp_path / "out", "--at", "2026-01-01T00:01")
    assert (code, summary["missing"], summary["twice"]) == (1, 2, 1)
    assert (summary["twice_another"], summary["twice_unknown"]) == (int(bodies), int(not bodies))


def test_a_moment_that_is_none_is_told(tmp_path: Path) -> None:
    code, told = run(tmp_path, "--out", tmp_path / "out", "--at", "yesterday")
    assert (code, "'yesterday' is no moment such as 2026-03-01T06:00." in told["said"]) == (2, True)
