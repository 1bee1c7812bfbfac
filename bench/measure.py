"""What the system says of a process and of a disk. Linux only."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["Stolen", "cpu_seconds", "fsync_us", "hand_over_us", "resident_bytes"]

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = 4_096


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of all threads these processes have or had."""
    return sum(map(_cpu_seconds, pids))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


class Stolen:
    """What the host of a virtual machine gave to others since this was made. CPU times that are taken while it gives
    much are too large: whoever shares the core slows it down."""

    def __init__(self) -> None:
        self._stolen, self._all = _machine_times()

    @property
    def share(self) -> float:
        """Of the time of all cores, 0 to 1."""
        stolen, everything = _machine_times()
        return (stolen - self._stolen) / max(1, everything - self._all)


def _machine_times() -> tuple[int, int]:
    """Stolen, and all there was, in ticks since the machine was started."""
    with open("/proc/stat") as file:
        times = [int(field) for field in file.readline().split()[1:9]]
    return times[7], sum(times)


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


def hand_over_us(cores: int, times: int = 3_000) -> float:
    """CPU of two threads that wake each other in turn, on one core or one on each of two, in µs for once there and
    back: what the machine asks for each message that a server's thread, the writer and the dispatcher pass on."""
    mine = os.sched_getaffinity(0)
    here, elsewhere = sorted(mine)[0], sorted(mine)[:cores][-1]
    there, back = threading.Lock(), threading.Lock()
    there.acquire()
    back.acquire()

    def answer() -> None:
        os.sched_setaffinity(0, {elsewhere})
        for _ in range(times):
            there.acquire()
            back.release()

    other = threading.Thread(target=answer)
    other.start()
    os.sched_setaffinity(0, {here})
    begun = time.process_time_ns()
    try:
        for _ in range(times):
            there.release()
            back.acquire()
    finally:
        os.sched_setaffinity(0, mine)
    taken = time.process_time_ns() - begun
    other.join()
    return taken / times / 1_000
