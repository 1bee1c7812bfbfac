"""What the bench has in C is compiled when it is first needed, below ``build/bench``."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

__all__ = ["NoCompiler", "built", "gcc", "run_tool"]

_ROOT: Final = Path(__file__).parent.parent / "build" / "bench"


class NoCompiler(Exception):
    """A tool that is needed is not installed; the message says which and how to get it."""


def built(name: str, sources: Iterable[Path], build: Callable[[Path], None]) -> Path:
    """``build(target)`` unless the file ``name`` is newer than its ``sources``."""
    target = _ROOT / name
    if target.exists() and target.stat().st_mtime >= max(source.stat().st_mtime for source in sources):
        return target
    _ROOT.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"{name}.{os.getpid()}")
    build(fresh)
    fresh.replace(target)
    return target


def gcc(*arguments: str | Path) -> None:
    run_tool(os.environ.get("CC", "gcc"), "-O2", "-Wall", *arguments)


def run_tool(tool: str, *arguments: str | Path, cwd: Path | None = None) -> None:
    if shutil.which(tool) is None:
        raise NoCompiler(f"{tool} is not installed: apt-get install gcc libc6-dev gsoap libgsoap-dev")
    done = subprocess.run([tool, *arguments], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{tool}: {done.stdout}{done.stderr}")
