"""kill -9 with a long run undelivered, and how soon the next process delivers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Bound, Figure
from bench.measure import fsync_us
from bench.messages import message
from bench.process import ServerProcess

__all__ = ["measure"]


def measure(directory: Path, rounds: int, held: int) -> Iterator[Figure]:
    """Each round starts a server on a copy of the same store, as the kill left it."""
    killed, copy = directory / "killed", directory / "restarted"
    killed.mkdir()
    identifier = _leave_undelivered(killed / "store.db", held)
    seconds, fsyncs = [], []
    for _ in range(rounds):
        shutil.copytree(killed, copy, ignore=shutil.ignore_patterns("*.sock"))
        fsyncs.append(fsync_us(directory))
        with ServerProcess("--store", str(copy / "store.db")) as server:
            state = server.wait_for_calls(1)
            seconds.append((state["first_calls"][identifier][0] - server.begun) / 1e9)
        shutil.rmtree(copy)
    shutil.rmtree(killed)
    case = f"restart, {held:,} undelivered"
    yield Figure(case, "fsync", fsyncs, "µs")
    yield Figure(case, "before the process exists to its first delivery", seconds, "s", Bound("<", 2))


def _leave_undelivered(store: Path, held: int) -> str:
    """Hold, fill the gap, and kill the server while its application runs number 1."""
    with ServerProcess("--store", str(store), "--stop-at", "1") as server:
        identifier = server.create_sequence()
        server.post(message(identifier, 2))
        server.hold(identifier, held + 1)
        server.post(message(identifier, 1))
        server.wait_for_calls(1)
    return identifier
