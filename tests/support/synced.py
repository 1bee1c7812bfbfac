"""What of each file was made to be on disk: what a power cut leaves of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Synced:
    """``synced[path]``: so many bytes of the file that stands there now, wherever it stood then; 0: nothing."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[int, int], int] = {}

    def __getitem__(self, path: Path) -> int:
        there = path.stat()
        return self._sizes.get((there.st_dev, there.st_ino), 0)

    def note(self, handle: int) -> None:
        there = os.fstat(handle)
        self._sizes[there.st_dev, there.st_ino] = there.st_size


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    """Every ``fsync`` is done, and noted."""
    made, fsync = Synced(), os.fsync

    def noted(handle: int) -> None:
        fsync(handle)
        made.note(handle)

    monkeypatch.setattr(os, "fsync", noted)
    return made
