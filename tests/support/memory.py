"""Directories in memory for servers that no test kills: what such a server syncs holds nothing, and takes its time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

__all__ = ["in_memory"]

MEMORY: Final = Path("/dev/shm")
ENOUGH: Final = 2 * 2**30
"""Bytes free in it; a container may have few."""


@contextmanager
def in_memory(name: str, disk: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in memory if there is room for one, else on the disk; what it held is on the disk at the end."""
    kept = disk.mktemp(name)
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ENOUGH:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=MEMORY) as quick:
        yield Path(quick)
        shutil.copytree(quick, kept, dirs_exist_ok=True, ignore=_special)


def _special(directory: str, names: list[str]) -> list[str]:
    """What is neither a file nor a directory: that by which processes wake each other."""
    return [name for name in names if not ((path := Path(directory, name)).is_file() or path.is_dir())]
