"""What the middleware itself costs: server with it minus server without it, same requests, answers of one size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.figures import Bound, Figure
from bench.load import Load, load
from bench.measure import cpu_seconds, fsync_us
from bench.process import ServerProcess, settled

__all__ = ["measure"]

CONNECTIONS = 8
_NOBODY = "urn:uuid:00000000-0000-4000-8000-000000000000"


class _Round(NamedTuple):
    load: Load
    cpu_us: float
    """Of the server process, per message."""
    fsync_us: float = 0.0
    commits: float = 0.0
    """Per message."""


def measure(directory: Path, rounds: int, messages: int) -> Iterator[Figure]:
    """``messages`` on each connection, in order, one sequence each; as many as a fifth of that to warm up."""
    reliable, bare = [], []
    for number in range(rounds):
        reliable.append(_reliable(directory / f"own-cpu-{number}.db", messages))
        bare.append(_bare(round(reliable[-1].load.answer_bytes), messages))
    case = f"{CONNECTIONS} connections"
    yield Figure(case, "fsync", [r.fsync_us for r in reliable], "µs")
    yield Figure(case, "rate, server and null application", [r.load.rate for r in bare], "msg/s")
    yield Figure(case, "rate, with the middleware", [r.load.rate for r in reliable], "msg/s")
    yield Figure(case, "rate, with to without", [r.load.rate / b.load.rate for r, b in _pairs(reliable, bare)], "×")
    yield Figure(case, "latency with, median", [r.load.p50_us / 1000 for r in reliable], "ms")
    yield Figure(case, "latency with, 99 %", [r.load.p99_us / 1000 for r in reliable], "ms")
    yield Figure(case, "commits per message", [r.commits for r in reliable])
    yield Figure(case, "CPU, server and null application", [r.cpu_us for r in bare], "µs/msg")
    yield Figure(case, "CPU, with the middleware", [r.cpu_us for r in reliable], "µs/msg")
    own = [r.cpu_us - b.cpu_us for r, b in _pairs(reliable, bare)]
    yield Figure(case, "CPU, the middleware's own", own, "µs/msg", Bound("<=", 300))
    shares = [100 * r.load.cpu_share for r in (*reliable, *bare)]
    yield Figure(case, "load generator, of a core", shares, "%", Bound("<", 30))


def _pairs(reliable: list[_Round], bare: list[_Round]) -> Iterator[tuple[_Round, _Round]]:
    return zip(reliable, bare, strict=True)


def _reliable(store: Path, messages: int) -> _Round:
    with ServerProcess("--store", str(store)) as server:
        identifiers = [server.create_sequence() for _ in range(CONNECTIONS)]
        warm_up = max(1, messages // 5)
        load(server.port, identifiers, warm_up)
        settled(store)
        commits, before = server.state()["commits"], fsync_us(store.parent)
        cpu = cpu_seconds(server.pid)
        result = load(server.port, identifiers, messages, first=warm_up + 1)
        settled(store)
        cpu = cpu_seconds(server.pid) - cpu
        state, after = server.state(), fsync_us(store.parent)
        if state["out_of_order"] or state["calls"] != CONNECTIONS * (warm_up + messages):
            raise RuntimeError(f"not delivered once and in order: {state}")
    return _Round(
        result,
        cpu / result.messages * 1e6,
        (before + after) / 2,
        (state["commits"] - commits) / result.messages,
    )


def _bare(answer_bytes: int, messages: int) -> _Round:
    with ServerProcess("--answer-bytes", str(answer_bytes)) as server:
        identifiers = [_NOBODY] * CONNECTIONS
        load(server.port, identifiers, max(1, messages // 5), acknowledged=False)
        cpu = cpu_seconds(server.pid)
        result = load(server.port, identifiers, messages, acknowledged=False)
        cpu = cpu_seconds(server.pid) - cpu
    return _Round(result, cpu / result.messages * 1e6)
