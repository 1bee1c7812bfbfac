"""What CI runs says how long each stage took, and fails with the first that fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "run"
MAKE = '#!/bin/sh\n[ "$1" != "$BROKEN" ] || exit 3\n'
"""Does nothing, or fails."""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script in a place of its own, without what it installs and with another ``make``."""
    make = tmp_path / "bin" / "make"
    make.parent.mkdir()
    make.write_text(MAKE)
    make.chmod(0o755)
    script = tmp_path / ".ci" / "run"
    script.parent.mkdir()
    script.write_text(SCRIPT.read_text().replace("stage packages packages\n", ""))
    return script


@pytest.mark.parametrize(
    ("broken", "status", "told"),
    [("", 0, ["setup", "lint", "demo", "all of it"]), ("lint", 3, ["setup", "lint: FAILED", "all of it"])],
)
def test_each_stage_is_told_with_its_time_and_the_first_that_fails_is_the_last(
    script: Path, broken: str, status: int, told: list[str]
) -> None:
    path = f"{script.parents[1] / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "BROKEN": broken}
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    _headings, table = done.stdout.split("seconds  stage\n")
    stages = [line.strip().partition("  ")[2] for line in table.splitlines()]
    assert [stage for stage in stages if stage in told] == told
    assert all(line.strip()[0].isdigit() for line in table.splitlines())
    assert "types" in stages or broken
