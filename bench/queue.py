"""Our queues beside a loop of plain SQL, other queues of Python's, RabbitMQ and PostgreSQL.

    python -m bench.queue [--quick] [--rounds 5] [--only NAME …] [--directory DIR]

Prints a table of rates and what had to be reached; a full run of all systems also writes it to bench/results-queue.md
and .json. Exit status 1: a bound was missed; 2: the run is void, others had too much of the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from bench.figures import Bound, Figure, as_json, as_markdown, status, table
from bench.measure import Spent, fsync_us
from bench.queue_brokers import BROKERS, absent
from bench.queue_own import BARE, OURS, filled
from bench.queue_rivals import RIVALS, Server, System
from bench.queue_workers import Together, together, wake_ups
from bench.report import machine, versions

__all__ = ["FULL", "QUICK", "SYSTEMS", "Results", "Size", "figures", "report", "run"]

T = TypeVar("T")

_HERE: Final = Path(__file__).parent
_PACKAGES: Final = ("persist-queue", "litequeue", "huey", "pika", "psycopg")

SYSTEMS: Final = (OURS, BARE, *RIVALS, *BROKERS)
BODY: Final = b"x" * 1_024


class Size(NamedTuple):
    rounds: int
    seconds: float
    """The length of one measurement."""
    waiting: float
    """The number of messages that lie there when leasing begins."""
    together_rounds: int
    together_seconds: float
    wake_ups: int
    few: int
    many: int
    """Messages that wait, where that is to make no difference."""
    most_seconds: float
    """The bound of all rounds: none is begun after that."""


FULL: Final = Size(5, 0.4, 0.8, 3, 1.0, 100, 1_000, 1_000_000, 110)
QUICK: Final = Size(1, 0.1, 0.1, 1, 0.5, 20, 1_000, 20_000, 30)


class Rate(NamedTuple):
    per_second: float
    others: float


class Results(NamedTuple):
    """Figures by system; ``rates`` by case and system."""

    rates: dict[str, dict[str, list[Rate]]]
    together: dict[str, list[Together]]
    woken: dict[str, list[float]]
    """ms."""
    waiting: dict[str, list[tuple[float, float]]]
    """Ratios, by what is done, of the cost of a message with many waiting to that with few, and what others had."""
    fsync_us: list[float]


Measure = Callable[[System, Server, Size], Rate]


def _put(batch: int, system: System, server: Server, size: Size) -> Rate:
    bodies = [BODY] * batch
    with closing(system.connect(server.fresh())) as queue:
        queue.put(bodies)
        spent, begun, done = Spent(server.pids()), time.perf_counter(), 0
        while (taken := time.perf_counter() - begun) < size.seconds:
            queue.put(bodies)
            done += batch
        return Rate(done / taken, spent.others)


def _lease(batch: tuple[int, int] | None, system: System, server: Server, size: Size) -> Rate:
    """Messages that are leased and acknowledged; ``None``: in the batch in which the system is best."""
    lease, ack = batch or system.batch
    place = server.fresh()
    with closing(system.connect(place)) as queue:
        queue.fill([BODY] * int(system.waiting * size.waiting))
    with closing(system.connect(place)) as queue:
        spent, begun, done, taken = Spent(server.pids()), time.perf_counter(), 0, 0.0
        while taken < size.seconds and (leased := queue.lease(lease, 1.0)):
            for first in range(0, len(leased), ack):
                queue.ack(leased[first : first + ack])
            done += len(leased)
            taken = time.perf_counter() - begun
        return Rate(done / taken, spent.others)


PUT_256: Final = "put, 256 a commit"
LEASE_30: Final = "lease 30, ack 10"
CASES: Final[Mapping[str, Measure]] = {
    "put, 1 a commit": partial(_put, 1),
    "put, 32 a commit": partial(_put, 32),
    PUT_256: partial(_put, 256),
    "lease 1, ack 1": partial(_lease, (1, 1)),
    LEASE_30: partial(_lease, None),
}


def run(systems: Sequence[System], size: Size, directory: Path) -> Results:
    results = Results({case: {s.name: [] for s in systems} for case in CASES}, {}, {}, {}, [])
    with ExitStack() as running:
        servers = {system.name: _started(running, system, directory) for system in systems}
        begun = time.monotonic()
        for number in range(size.rounds):
            if number and time.monotonic() - begun > size.most_seconds:
                break
            first = number % len(systems)
            for case, measure in CASES.items():
                results.fsync_us.append(fsync_us(directory))
                for system in [*systems[first:], *systems[:first]]:
                    rate = measure(system, servers[system.name], size)
                    results.rates[case][system.name].append(rate)
                    _tell(number, case, system, f"{rate.per_second:9,.0f} msg/s  others {rate.others:.0%}")
        for number in range(size.together_rounds):
            for system in systems:
                if system.shares:
                    both = together(system, servers[system.name], size.together_seconds)
                    results.together.setdefault(system.name, []).append(both)
                    _tell(number, "8 processes", system, f"{both.settled:9,.0f} msg/s  p99 {both.put_p99_ms:.0f} ms")
        for system in systems:
            if system.waits:
                results.woken[system.name] = wake_ups(system, servers[system.name], size.wake_ups)
                _tell(0, "woken", system, f"{statistics.median(results.woken[system.name]):9,.1f} ms")
    if OURS in systems:
        results.waiting.update(_with_many_waiting(size, directory))
    return results


def _started(running: ExitStack, system: System, directory: Path) -> Server:
    return running.enter_context(
        system.runs(Path(running.enter_context(tempfile.TemporaryDirectory(dir=directory, prefix="queue-"))))
    )


def _tell(number: int, case: str, system: System, told: str) -> None:
    print(f"{number + 1}: {case:18} {system.name:26} {told}", file=sys.stderr, flush=True)


def _with_many_waiting(size: Size, directory: Path) -> dict[str, list[tuple[float, float]]]:
    """The cost of putting, leasing and acknowledging of our queue with many waiting, to the same with few."""
    ratios: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(dir=directory, prefix="queue-") as made:
        places = [filled(Path(made, f"{count}.db"), count) for count in (size.few, size.many)]
        for _ in range(size.rounds):
            spent = Spent(())
            few, many = (_costs(place, times=30) for place in places)
            for done, cost in few.items():
                ratios.setdefault(done, []).append((many[done] / cost, spent.others))
    return ratios


def _costs(place: str, times: int) -> dict[str, float]:
    """Median seconds of a put of 30, a lease of 30 and an acknowledgement of 10."""
    taken: dict[str, list[float]] = {"put": [], "lease": [], "ack": []}
    with closing(OURS.connect(place)) as queue:
        for _ in range(times):
            _timed(taken["put"], lambda: queue.put([BODY] * 30))
            leased = _timed(taken["lease"], lambda: queue.lease(30, 0.0))
            for first in range(0, 30, 10):
                _timed(taken["ack"], partial(queue.ack, leased[first : first + 10]))
    return {done: statistics.median(values) for done, values in taken.items()}


def _timed(taken: list[float], call: Callable[[], T]) -> T:
    begun = time.perf_counter()
    done = call()
    taken.append(time.perf_counter() - begun)
    return done


def figures(results: Results) -> Iterator[Figure]:
    """The figures measured beside the rates, and what has to be reached."""
    rates = results.rates
    for case in (PUT_256, LEASE_30):
        yield from _to(rates[case], BARE.name, case, Bound(">=", 0.5))
    rivals = {name: of_name for name, of_name in rates[LEASE_30].items() if name in _COUNTED and of_name}
    if rivals:
        best = max(rivals, key=lambda name: statistics.median(rate.per_second for rate in rivals[name]))
        yield from _to(rates[LEASE_30], best, LEASE_30, Bound(">=", 5))
    for name in _SHOWN:
        yield from _to(rates[LEASE_30], name, LEASE_30, None)
    for name, rounds in results.together.items():
        case, ours = f"8 processes: {name}", name == OURS.name
        others = [one.others for one in rounds]
        yield Figure(case, "settled", [one.settled for one in rounds], "msg/s", None, others)
        yield Figure(case, "put", [one.put for one in rounds], "msg/s", None, others)
        slowest = Bound("<", 250) if ours else None
        yield Figure(case, "put, p99", [one.put_p99_ms for one in rounds], "ms", slowest, others)
        yield Figure(case, "put, worst", [one.put_worst_ms for one in rounds], "ms")
        none = Bound("<=", 0) if ours else None
        yield Figure(case, "calls that failed", [sum(one.failed for one in rounds)], "", none)
        yield Figure(case, "settled twice", [sum(one.repeated for one in rounds)], "", none)
    for name, taken in results.woken.items():
        ordered = sorted(taken)
        case, bound = "woken across processes", Bound("<", 20) if name == OURS.name else None
        yield Figure(case, f"{name}: median", [statistics.median(ordered)], "ms", bound)
        yield Figure(case, f"{name}: p99", [ordered[len(ordered) * 99 // 100]], "ms")
    for done, pairs in results.waiting.items():
        values, others = zip(*pairs, strict=True)
        yield Figure("many waiting to few", f"cost of a message: {done}", values, "×", Bound("<=", 1.5), others)
    yield Figure("the disk", "fsync of a page", results.fsync_us, "µs")


_COUNTED: Final = {system.name for system in RIVALS if system.counts}
_SHOWN: Final = [system.name for system in RIVALS if system.shows] + [system.name for system in BROKERS]


def _to(rates: Mapping[str, Sequence[Rate]], name: str, case: str, bound: Bound | None) -> Iterator[Figure]:
    """Our rate to that of another system, made within a round."""
    pairs = list(zip(rates.get(OURS.name, ()), rates.get(name, ()), strict=False))
    if pairs:
        ratios = [ours.per_second / theirs.per_second for ours, theirs in pairs]
        others = [max(ours.others, theirs.others) for ours, theirs in pairs]
        yield Figure(case, f"{OURS.name} to {name}", ratios, "×", bound, others)


def rates_shown(systems: Sequence[System], results: Results) -> str:
    """The rates of all systems: medians, and in parentheses the lowest and the highest round."""
    rows = []
    for system in systems:
        lease, ack = system.batch
        cells = [_cell(results.rates[case][system.name]) for case in CASES]
        cells[-1] += "" if system.batch == (30, 10) else f", {lease}/{ack}"
        rows.append((system.name, *cells, system.syncs, system.keeps))
    return table(("msg/s", *CASES, "durability", "what is not acknowledged is"), rows)


def _cell(rates: Sequence[Rate]) -> str:
    values = [rate.per_second for rate in rates]
    spread = f" ({min(values):,.0f} – {max(values):,.0f})" if len(values) > 1 else ""
    return f"{statistics.median(values):,.0f}{spread}"


_ABOUT: Final = """\
Messages of 1 KB. All sides are measured in each round, one after the other, another one first each time; a ratio is one
of a round, and the median of the rounds counts. Each measurement begins with a new or an emptied queue. Every side
leases and acknowledges in the batch in which it is best, which stands beside its rate where it is not 30 and 10;
litequeue sorts all that waits for each message that it gives, and has 1,000 waiting instead of 15,000. What
persist-queue and huey cannot put in one commit they put in as many as there are messages."""


def report(systems: Sequence[System], results: Results, seconds: float, busy: float) -> str:
    rounds = len(results.rates[LEASE_30][systems[0].name])
    return "\n\n".join(
        [
            "# Queues",
            f"{date.today():%d %B %Y}. {machine()} {rounds} alternating {'rounds' if rounds > 1 else 'round'} in"
            f" {seconds:.0f} seconds, the load average {busy:.1f} when they began, {os.getloadavg()[0]:.1f} when they"
            f" ended. {versions(_PACKAGES)}",
            _ABOUT,
            rates_shown(systems, results),
            as_markdown(figures(results)),
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="python -m bench.queue", description="Our queues beside others.")
    options.add_argument("--quick", action="store_true", help="everything once, small; nothing is written down")
    options.add_argument("--rounds", type=int, help="alternating rounds")
    options.add_argument("--only", nargs="+", default=[], help="systems whose names contain one of these")
    options.add_argument("--directory", type=Path, default=_HERE, help="where the queues are put: a real disk")
    chosen = options.parse_args(arguments)
    for name, command in absent().items():
        print(f"{name} is not installed, and left out: {command}", file=sys.stderr)
    size = QUICK if chosen.quick else FULL
    if chosen.rounds:
        size = size._replace(rounds=chosen.rounds)
    systems = [
        system
        for system in SYSTEMS
        if not any(system.name.startswith(name) for name in absent())
        and (not chosen.only or any(part in system.name for part in chosen.only))
    ]
    begun, busy = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="queues-", dir=chosen.directory) as made:
        Path(made).chmod(0o711)  # PostgreSQL may run as another user
        results = run(systems, size, Path(made))
    text = report(systems, results, time.monotonic() - begun, busy)
    print(text)
    found = list(figures(results))
    if not (chosen.quick or chosen.only or chosen.rounds):
        (_HERE / "results-queue.md").write_text(text + "\n")
        rates = {
            case: {name: [rate.per_second for rate in of] for name, of in by.items()}
            for case, by in results.rates.items()
        }
        (_HERE / "results-queue.json").write_text(as_json(found, rates=rates) + "\n")
    return status(found)


if __name__ == "__main__":
    sys.exit(main())
