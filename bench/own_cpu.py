"""What the middleware itself costs: server with it minus server without it, same requests, answers of one size.

Measured on each front. The bound is for the front on which the middleware is cheapest: threads that wake each other are
most of what it costs, and how often they must is the front's doing too.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.figures import Bound, Figure
from bench.fronts import FRONTS
from bench.load import Load, load
from bench.measure import cpu_seconds, fsync_us, hand_over_us
from bench.process import ServerProcess, settled

__all__ = ["measure"]

CONNECTIONS = 8
MOST_PER_SECOND = 8_000
"""Of the server without the middleware: it can do more than the generator should."""
_NOBODY = "urn:uuid:00000000-0000-4000-8000-000000000000"


class _Side(NamedTuple):
    """One server under load."""

    load: Load
    cpu_us: float
    """Of the server's processes, per message."""
    fsync_us: float = 0.0
    commits: float = 0.0
    """Per message."""


class _Round(NamedTuple):
    reliable: _Side
    bare: _Side
    hand_over_us: float
    """Of two threads on two cores."""

    @property
    def own_us(self) -> float:
        return self.reliable.cpu_us - self.bare.cpu_us


def measure(directory: Path, rounds: int, messages: int) -> Iterator[Figure]:
    """``messages`` on each connection, in order, one sequence each; as many as a fifth of that to warm up."""
    done: dict[str, list[_Round]] = {front: [] for front in FRONTS}
    for number in range(rounds):
        for front, its_rounds in done.items():
            its_rounds.append(_round(front, directory / f"own-cpu-{front}-{number}.db", messages))
    for front, its_rounds in done.items():
        yield from _figures(f"{CONNECTIONS} connections, {front}", its_rounds)
    cheapest = min(done, key=lambda front: statistics.median(one.own_us for one in done[front]))
    own = [one.own_us for one in done[cheapest]]
    yield Figure(
        f"{CONNECTIONS} connections", f"CPU, the middleware's own, on {cheapest}", own, "µs/msg", Bound("<=", 300)
    )


def _figures(case: str, rounds: list[_Round]) -> Iterator[Figure]:
    reliable, bare = [one.reliable for one in rounds], [one.bare for one in rounds]
    yield Figure(case, "fsync", [r.fsync_us for r in reliable], "µs")
    yield Figure(case, "thread hand-over, there and back, two cores", [one.hand_over_us for one in rounds], "µs")
    yield Figure(
        case, f"rate, server and null application (at most {MOST_PER_SECOND:,})", [b.load.rate for b in bare], "msg/s"
    )
    yield Figure(case, "rate, with the middleware", [r.load.rate for r in reliable], "msg/s")
    yield Figure(case, "rate, with to without", [one.reliable.load.rate / one.bare.load.rate for one in rounds], "×")
    yield Figure(case, "latency with, median", [r.load.p50_us / 1000 for r in reliable], "ms")
    yield Figure(case, "latency with, 99 %", [r.load.p99_us / 1000 for r in reliable], "ms")
    yield Figure(case, "commits per message", [r.commits for r in reliable])
    yield Figure(case, "CPU, server and null application", [b.cpu_us for b in bare], "µs/msg")
    yield Figure(case, "CPU, with the middleware", [r.cpu_us for r in reliable], "µs/msg")
    yield Figure(case, "CPU, the middleware's own", [one.own_us for one in rounds], "µs/msg")
    shares = [100 * side.load.cpu_share for side in (*reliable, *bare)]
    yield Figure(case, "load generator, of a core", shares, "%", Bound("<", 30))


def _round(front: str, store: Path, messages: int) -> _Round:
    reliable = _reliable(front, store, messages)
    return _Round(reliable, _bare(front, round(reliable.load.answer_bytes), messages), hand_over_us(cores=2))


def _reliable(front: str, store: Path, messages: int) -> _Side:
    with ServerProcess("--front", front, "--store", str(store)) as server:
        identifiers = [server.create_sequence() for _ in range(CONNECTIONS)]
        warm_up = max(1, messages // 5)
        load(server.port, identifiers, warm_up)
        settled(store)
        commits, before = server.state()["commits"], fsync_us(store.parent)
        cpu = cpu_seconds(server.pids)
        result = load(server.port, identifiers, messages, first=warm_up + 1)
        settled(store)
        cpu = cpu_seconds(server.pids) - cpu
        state, after = server.state(), fsync_us(store.parent)
        if state["out_of_order"] or state["calls"] != CONNECTIONS * (warm_up + messages):
            raise RuntimeError(f"not delivered once and in order: {state}")
    return _Side(
        result,
        cpu / result.messages * 1e6,
        (before + after) / 2,
        (state["commits"] - commits) / result.messages,
    )


def _bare(front: str, answer_bytes: int, messages: int) -> _Side:
    with ServerProcess("--front", front, "--answer-bytes", str(answer_bytes)) as server:
        identifiers = [_NOBODY] * CONNECTIONS
        load(server.port, identifiers, max(1, messages // 5), acknowledged=False, most_per_second=MOST_PER_SECOND)
        cpu = cpu_seconds(server.pids)
        result = load(server.port, identifiers, messages, acknowledged=False, most_per_second=MOST_PER_SECOND)
        cpu = cpu_seconds(server.pids) - cpu
    return _Side(result, cpu / result.messages * 1e6)
