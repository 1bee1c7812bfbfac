"""A replay at scale against the replay tool, to one endpoint that costs next to nothing: `make bench-spark-replay`.

Both run a plan of the same store. A rate is from the first message that arrives to the last, so neither what begins a
run nor Spark's own start is in it. Rounds alternate; the median of the ratios counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from bench.figures import Bound, Figure, as_markdown, status
from bench.spark import session
from bench.stores import made
from bench.taking import Endpoint, Taken, endpoint
from wsrm_mq.replay import Wishes
from wsrm_mq.spark.replay import Sources, make_plan, run_plan

MESSAGES: Final = 20_000
SEQUENCES: Final = 50
ROUNDS: Final = 3
SHARE: Final = 0.5
"""Of the replay tool's own rate, on one partition."""
GAIN: Final = 1.2
"""Two partitions against one."""
ENOUGH_CORES: Final = 4
"""For two partitions, Spark itself and the endpoint. With fewer the gain is a figure, and has to be kept by a target
that makes them wait."""
SLOW_SECONDS: Final = 0.005
SLOW_MESSAGES: Final = 2_000
CEILING: Final = 2.0
"""The endpoint takes so much more than the quickest side sends, or it is that which was measured."""


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.spark_replay", description=__doc__)
    options.add_argument("--messages", type=int, default=MESSAGES)
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--directory", type=Path, default=Path(__file__).parent, help="a real disk")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.directory) as where:
        spark = session(where)
        figures = [*measure(spark, Path(where), chosen.messages, chosen.rounds)]
        figures += measure_slow(spark, Path(where), chosen.rounds)
        spark.stop()
    print(as_markdown(figures))
    return status(figures)


def measure(spark: Any, where: Path, messages: int, rounds: int) -> Iterable[Figure]:
    store = made(where / "store.db", messages, SEQUENCES)
    with endpoint() as target:
        ways: dict[str, Callable[[int], Taken]] = {
            "the replay tool": lambda number: by_tool(where / f"{number}.json", store, target),
            "Spark, one partition": lambda number: by_spark(spark, where / f"{number}.1", store, target, 1),
            "Spark, two partitions": lambda number: by_spark(spark, where / f"{number}.2", store, target, 2),
        }
        taken = alternating(ways, rounds)
        ceiling = own_rate(target)
    rates = {name: [one.rate for one in found] for name, found in taken.items()}
    tool, one, two = rates.values()
    most = max(map(statistics.median, rates.values()))
    enough = len(os.sched_getaffinity(0)) >= ENOUGH_CORES
    case = f"{messages:,} messages of {SEQUENCES} sequences to an address"
    for name, values in rates.items():
        yield Figure(case, name, values, "msg/s")
    yield Figure(case, "one partition: share of the tool's rate", _ratios(one, tool), "", Bound(">=", SHARE))
    yield Figure(case, "two partitions against one", _ratios(two, one), "", Bound(">=", GAIN) if enough else None)
    yield Figure(case, "out of order, or twice", _wrong(taken), "", Bound("<=", 0))
    yield Figure(case, "the endpoint's own rate, against the quickest", [ceiling / most], "", Bound(">=", CEILING))


def measure_slow(spark: Any, where: Path, rounds: int) -> Iterable[Figure]:
    store = made(where / "slow.db", SLOW_MESSAGES, SEQUENCES)
    with endpoint(SLOW_SECONDS) as target:
        ways: dict[str, Callable[[int], Taken]] = {
            "Spark, one partition": lambda number: by_spark(spark, where / f"slow{number}.1", store, target, 1),
            "Spark, two partitions": lambda number: by_spark(spark, where / f"slow{number}.2", store, target, 2),
        }
        taken = alternating(ways, rounds)
    one, two = ([found.rate for found in each] for each in taken.values())
    case = f"{SLOW_MESSAGES:,} messages to an address that takes {1_000 * SLOW_SECONDS:g} ms"
    yield Figure(case, "Spark, one partition", one, "msg/s")
    yield Figure(case, "two partitions against one", _ratios(two, one), "", Bound(">=", GAIN))
    yield Figure(case, "out of order, or twice", _wrong(taken), "", Bound("<=", 0))


def alternating(ways: dict[str, Callable[[int], Taken]], rounds: int) -> dict[str, list[Taken]]:
    taken: dict[str, list[Taken]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, way in ways.items():
            taken[name].append(way(number))
    return taken


def _ratios(some: list[float], others: list[float]) -> list[float]:
    return [one / other for one, other in zip(some, others, strict=True)]


def _wrong(taken: dict[str, list[Taken]]) -> list[float]:
    return [sum(one.duplicates + one.violations for found in taken.values() for one in found)]


def by_tool(file: Path, store: Path, target: Endpoint) -> Taken:
    """On a copy: a run writes to its store."""
    copy = file.with_suffix(".db")
    shutil.copy(store, copy)
    config = file.with_suffix(".toml")
    config.write_text(f'replay_targets = ["{target.url}"]\n', encoding="utf-8")
    where = ("--store", copy, "--config", config)
    words = ("queue:/orders", "-o", file, "--to", target.url, "--reason", "bench")
    _wsrm("replay", "plan", *words, *where)
    target.taken()
    _wsrm("replay", "run", file, "--yes", "--json", *where)
    return target.taken()


def _wsrm(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "wsrm_mq", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def by_spark(spark: Any, plan: Path, store: Path, target: Endpoint, parts: int) -> Taken:
    wishes = Wishes("true", target.url)
    make_plan(spark, Sources((str(store),)), wishes, plan, parts=parts, now=time.time_ns() // 1_000_000)
    target.taken()
    run_plan(spark, plan, [target.url])
    return target.taken()


def own_rate(target: Endpoint) -> float:
    """What the endpoint takes of a sender that does nothing but send, one message after the other."""
    head = b"POST / HTTP/1.1\r\nHost: x\r\nWsrm-Mq-Key: s;1\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", target.port)) as connection:
        for _ in range(MESSAGES):
            connection.sendall(head + b"x" * 1_000)
            connection.recv(1_000)
    return target.taken().rate


if __name__ == "__main__":
    sys.exit(main())
