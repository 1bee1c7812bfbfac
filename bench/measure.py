"""What the system says of a process and of a disk. Linux only."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Final

__all__ = ["cpu_seconds", "fsync_us", "resident_bytes"]

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = 4_096


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads a process has or had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


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
