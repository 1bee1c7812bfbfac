"""What each of the three finds in stores with one mistake each, and what none can: the table of the page."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests.spark.planted import PLANTS, planted
from wsrm_mq.cli import program
from wsrm_mq.export.pieces import opened
from wsrm_mq.store.invariants import all_findings

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "spark.md"
HEAD = "| Planted | `audit` | `reconcile` | `store verify` | |\n|---|---|---|---|---|\n"
TABLES = ("gaps", "disorder", "repeated", "lacking", "twice", "faults", "dead", "standing")
"""Of a reconciliation, those in which something is to be looked at."""


def by_store(table: Path) -> Counter[str]:
    rows = pyarrow.parquet.read_table(table).to_pylist()
    return Counter(row["store"] for row in rows)


@pytest.mark.timeout(400)
def test_the_page_says_what_each_finds_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "stores").mkdir()
    found = planted(tmp_path / "stores")
    paths = [str(path) for its in found.values() for path in its]
    for job, *options in (("audit",), ("reconcile", "--at", "2026-01-01T00:01")):
        done = CliRunner().invoke(program, ["pipeline", job, *paths, "--out", str(tmp_path / job), *options])
        assert done.exit_code == 1, done.output
    audited = by_store(tmp_path / "audit" / "violations")
    reconciled = {name: by_store(tmp_path / "reconcile" / name) for name in TABLES}
    lines, unsaid = [], list[str]()
    for name, its in found.items():
        stores = [path.stem for path in its]
        tables = [f"`{one}`" for one, rows in reconciled.items() if any(rows[s] > rows["00"] for s in stores)]
        audit, verify = sum(audited[store] for store in stores), sum(map(broken, its))
        cells = ("finds it" if audit else "", ", ".join(tables), "finds it" if verify else "")
        lines.append(f"| {' | '.join((name, *(cell or '–' for cell in cells), PLANTS[name].remark))} |\n")
        unsaid += [name] if any(cells) == bool(PLANTS[name].remark) else []
    table = HEAD + "".join(lines)
    assert not unsaid, f"what nobody finds has a remark, and nothing else:\n{table}"
    assert table in PAGE.read_text(), f"docs/howto/spark.md has to have this table:\n{table}"


def broken(path: Path) -> int:
    with opened(path) as db:
        return sum(1 for _ in all_findings(db))
