"""What the system says of a process and of a disk. Linux only."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["Spent", "fsync_us", "resident_bytes"]

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = 4_096


def _cpu_seconds(pid: int) -> float:
    """User and system time of all threads that the process has or had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


class Spent:
    """CPU since this was made: of the processes ``pids``, and of what has nothing to do with the measurement."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = tuple(pids)
        self._cpu = sum(map(_cpu_seconds, self._pids))
        self._own = sum(os.times()[:4])
        self._machine = _machine_seconds()

    @property
    def cpu(self) -> float:
        """Seconds."""
        return sum(map(_cpu_seconds, self._pids)) - self._cpu

    @property
    def others(self) -> float:
        """The share of all cores, 0 to 1, that others had: the guests of the same host, and programs beside this one,
        its children and ``pids``. Where that is much, rates are too low and CPU times too large."""
        busy, everything = (now - before for now, before in zip(_machine_seconds(), self._machine, strict=True))
        ours = self.cpu + sum(os.times()[:4]) - self._own
        # Sums of fractions may come out a hair above the whole.
        return min(1.0, max(0.0, busy - ours) / max(everything, 1 / _TICKS))


def _machine_seconds() -> tuple[float, float]:
    """Of all cores since the machine was started: when they were not idle, stolen time too, and all there was."""
    with open("/proc/stat") as file:
        times = [int(field) / _TICKS for field in file.readline().split()[1:9]]
    idle = times[3] + times[4]
    return sum(times) - idle, sum(times)


def fsync_us(directory: Path, times: int = 40) -> float:
    """Median of appending a page to a file in ``directory`` and ``fdatasync``, in µs: what the disk asks for a
    commit at this moment."""
    path = directory / "fsync"
    handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    page = b"x" * _PAGE
    taken = []
    try:
        for _ in range(times):
            begun = time.perf_counter_ns()
            os.write(handle, page)
            os.fdatasync(handle)
            taken.append((time.perf_counter_ns() - begun) / 1_000)
    finally:
        os.close(handle)
        path.unlink()
    return statistics.median(taken)
