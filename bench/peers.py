"""Servers of other stacks beside ours: reliable one-way messages on Apache CXF, with its store and without, and gSOAP.

    python -m bench.peers [--rounds 9] [--seconds 5] [--warm 60] [--connections 1 8] [--directory DIR]

Ours is `wsrm-mq serve` around an application, and around one that its author has wrapped, as the README does. Each
round measures all of them, one after the other, in another order each time. Exit status 1: a bound was missed; 2: the
run is void.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final

from bench import cxf
from bench.figures import Bound, Figure, as_markdown, interval, status
from bench.load import RunIsVoid
from bench.parts.in_order import case_of, gsoap_shown
from bench.process import THIS_TREE
from bench.report import machine, versions
from bench.sides import Amount, Side, gsoap_side, reliable

__all__ = ["DURABLE", "OURS", "compared", "figures", "intervals"]

Measure = Callable[[int, Amount], Side]
"""One server under one load: ``measure(connections, amount)``."""

OURS: Final = {"wsrm-mq serve": "serve", "wsrm-mq serve, wrapped": "serve-wrapped"}
DURABLE: Final = "CXF, store"
_LEAST: Final = {8: Bound(">=", 4)}
"""What ours has to be of CXF with its store, by connections."""
_GSOAP_MESSAGES: Final = 20_000
"""At most, in one process of gSOAP's queue: it keeps 160 KB of each."""
_WARM_CONNECTIONS: Final = 8


def compared(servers: Mapping[str, Measure], connections: int, amount: Amount, rounds: int) -> dict[str, list[Side]]:
    """What each server did in each round; the one that begins is another each time."""
    done: dict[str, list[Side]] = {name: [] for name in servers}
    names = list(servers)
    for index in range(rounds):
        first = index % len(names)
        for name in names[first:] + names[:first]:
            side = servers[name](connections, amount)
            done[name].append(side)
            told = f"{side.load.rate:7,.0f} msg/s  {side.cpu_us:6,.0f} us  others {side.others:.0%}"
            print(f"{case_of(connections):14} {name:24} {told}", file=sys.stderr, flush=True)
    return done


def figures(connections: int, done: dict[str, list[Side]]) -> Iterator[Figure]:
    case = case_of(connections)
    for name, sides in done.items():
        others = [side.others for side in sides]
        yield Figure(case, f"{name}: rate", [side.load.rate for side in sides], "msg/s", others=others)
        yield Figure(case, f"{name}: CPU", [side.cpu_us for side in sides], "µs/msg", others=others)
        yield Figure(case, f"{name}: the generator", [100 * side.load.cpu_share for side in sides], "% of a core")
    for name in OURS:
        yield Figure(case, f"{name}: commits", [side.commits for side in done[name]], "/msg")
    disk = [side.fsync_us for name in OURS for side in done[name]]
    yield Figure(case, "fsync of a page", disk, "µs")
    warm = [side.load.rate for side in done[DURABLE]]
    half = len(warm) // 2
    if half:
        drift = statistics.median(warm[-half:]) / statistics.median(warm[:half])
        yield Figure(case, f"{DURABLE}: later rounds to earlier", [drift], "×")
    for name in OURS:
        pairs = list(zip(done[name], done[DURABLE], strict=True))
        ratios = [ours.load.rate / theirs.load.rate for ours, theirs in pairs]
        others = [max(ours.others, theirs.others) for ours, theirs in pairs]
        yield Figure(case, f"{name} to {DURABLE}", ratios, "×", _LEAST.get(connections), others)


def intervals(found: Iterable[Figure]) -> Iterator[str]:
    """What the ratios of the rounds say of their median."""
    for figure in found:
        between = interval(figure.values) if figure.bound else None
        if between is not None:
            low, high = between
            rounds = len(figure.values)
            yield f"{figure.case}, {figure.name}: 95 % between {low:.2f} and {high:.2f} × ({rounds} rounds)."


def _ours(front: str, directory: Path, connections: int, amount: Amount) -> Side:
    with reliable(front, directory / "peers.db") as server:
        server.warm_up(amount)
        return server.side(connections, amount)


def _gsoap(connections: int, amount: Amount) -> Side:
    return gsoap_side("queue", connections, amount._replace(messages=_GSOAP_MESSAGES))


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.peers", description="Other stacks beside ours.")
    options.add_argument("--rounds", type=int, default=9, help="from 6 on an interval is told")
    options.add_argument("--seconds", type=float, default=5.0, help="of load, for each server in each round")
    options.add_argument("--warm", type=float, default=60.0, help="seconds of load on CXF before the first round")
    options.add_argument("--connections", type=int, nargs="+", default=[1, 8])
    options.add_argument("--directory", type=Path, default=THIS_TREE, help="where the stores are put: a real disk")
    chosen = options.parse_args()
    found: list[Figure] = []
    with ExitStack() as started:
        where = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="stores-", dir=chosen.directory)))
        theirs = {
            DURABLE: started.enter_context(cxf.running(where, stores=True)),
            "CXF, memory": started.enter_context(cxf.running(where, stores=False)),
        }
        for server in theirs.values():
            server.side(_WARM_CONNECTIONS, Amount(chosen.warm))
        servers: dict[str, Measure] = {name: partial(_ours, front, where) for name, front in OURS.items()}
        servers |= {name: server.side for name, server in theirs.items()}
        servers[gsoap_shown("queue")] = _gsoap
        for connections in chosen.connections:
            found += figures(connections, compared(servers, connections, Amount(chosen.seconds), chosen.rounds))
    print(machine(), f"{versions()[:-1]}, {cxf.versions()}.", date.today().isoformat(), end="\n\n")
    print(as_markdown(found))
    print("", *intervals(found), sep="\n")
    return status(found)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RunIsVoid as reason:
        print(f"VOID: {reason}", file=sys.stderr)
        sys.exit(2)
