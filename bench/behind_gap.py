"""A million messages held behind one gap: what they weigh, and what happens when the gap closes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.figures import Bound, Figure
from bench.load import in_order, load
from bench.measure import Spent, fsync_us, resident_bytes
from bench.messages import message
from bench.process import ServerProcess, settled

__all__ = ["measure"]

_WARM_UP = 500


class _Round(NamedTuple):
    fsync_us: float
    bytes_per_held: float
    answer_ms: float
    first_ms: float
    first_held_ms: float
    rate: float
    others: float
    """Of the machine, meanwhile."""


def measure(directory: Path, rounds: int, held: int) -> Iterator[Figure]:
    done = []
    for _ in range(rounds):
        store = directory / "gap.db"
        done.append(_round(store, held))
        for file in directory.glob("gap.db*"):
            if file.is_file():
                file.unlink()
    case, others = f"{held:,} held", [r.others for r in done]
    yield Figure(case, "fsync", [r.fsync_us for r in done], "µs")
    yield Figure(case, "memory per held message", [r.bytes_per_held for r in done], "B", Bound("<", 1_024))
    yield Figure(case, "number 1: sent to answered", [r.answer_ms for r in done], "ms")
    yield Figure(case, "number 1: sent to its delivery", [r.first_ms for r in done], "ms")
    first_held, rates = [r.first_held_ms for r in done], [r.rate for r in done]
    yield Figure(case, "number 1: sent to delivery of number 2", first_held, "ms", Bound("<", 100), others)
    yield Figure(case, "replay until the last is settled", rates, "msg/s", Bound(">=", 5_000), others)


def _round(store: Path, held: int) -> _Round:
    with ServerProcess("--store", str(store)) as server:
        load(server.port, in_order([server.create_sequence()], _WARM_UP))
        settled(store)
        identifier, empty = server.create_sequence(), resident_bytes(server.pids[0])
        server.post(message(identifier, 2))
        server.hold(identifier, held + 1)
        full = resident_bytes(server.pids[0])
        before, spent = fsync_us(store.parent), Spent(server.pids)
        sent = time.monotonic_ns()
        server.post(message(identifier, 1))
        answered = time.monotonic_ns()
        state = _drained(server, _WARM_UP + held + 1, store)
        finished, others = time.monotonic_ns(), spent.others
        _check(store, identifier, held + 1, state)
        after = fsync_us(store.parent)
    first, first_held = state["first_calls"][identifier]
    return _Round(
        (before + after) / 2,
        (full - empty) / held,
        (answered - sent) / 1e6,
        (first - sent) / 1e6,
        (first_held - sent) / 1e6,
        held / (finished - first_held) * 1e9,
        others,
    )


def _drained(server: ServerProcess, calls: int, store: Path) -> dict[str, Any]:
    state = server.wait_for_calls(calls)
    settled(store)
    return state


def _check(store: Path, identifier: str, messages: int, state: dict[str, Any]) -> None:
    """Every message delivered, each once, in order."""
    db = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        (delivered,) = db.execute(
            "SELECT count(*) FROM entry e JOIN lane s ON s.id = e.lane"
            " WHERE s.identifier = ? AND e.outcome = 'delivered' AND e.deliveries = 1",
            (identifier,),
        ).fetchone()
    finally:
        db.close()
    if delivered != messages or state["out_of_order"] or state["calls"] != _WARM_UP + messages:
        raise RuntimeError(f"not delivered once and in order: {delivered} of {messages}, {state}")
