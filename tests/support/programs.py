"""Modules of the tests as programs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def started(module: str, arguments: Sequence[str], log: Path) -> subprocess.Popen[str]:
    """A module as a program, which tells on its standard output where it listens. ``log``: the file that its standard
    error is appended to."""
    command = [sys.executable, "-m", module, *arguments]
    with log.open("a") as file:
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=file, text=True)


def ended(process: subprocess.Popen[str], timeout: float) -> int:
    """Wait for the end of a program; answers its status."""
    status = process.wait(timeout)
    assert process.stdout is not None
    process.stdout.close()
    return status
