"""`make pipeline`, small: what a reader of examples/pipeline sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ROOT


@pytest.mark.timeout(900)
def test_three_nodes_one_of_them_killed_come_through_every_job(tmp_path: Path) -> None:
    script, out = ROOT / "examples" / "pipeline" / "run.py", tmp_path / "out"
    command = [sys.executable, script, out, "--messages", "60", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["stores"], summary["gaps"], summary["violations"]) == (3, 1, 0)
    assert summary["messages"] == 3 * 60 - 1
    # Of the sequence with the gap only what lies before it; all that was delivered is archived, and replayed once.
    assert summary["delivered"] == summary["effects"] == summary["replayed"] == 180 - 16
    assert summary["archived"] == summary["delivered"]
    assert summary["duplicates"] > 0
    assert Path(summary["report"]).read_text().startswith("<!DOCTYPE html>")
