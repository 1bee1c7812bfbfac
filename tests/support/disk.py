"""A small file system, and the file that fills it."""

from __future__ import annotations

import os
from pathlib import Path

MIB = 1024 * 1024


class Disk:
    def __init__(self, point: Path) -> None:
        self.point = point
        self._filler = point / "filler"

    def fill(self, but: int = 0) -> None:
        """Leave no byte ``but`` so many."""
        with self._filler.open("ab", buffering=0) as file:
            while self.free > but:
                file.write(bytes(min(self.free - but, MIB)))

    def make_room(self) -> None:
        self._filler.unlink()

    @property
    def free(self) -> int:
        there = os.statvfs(self.point)
        return there.f_bavail * there.f_frsize
