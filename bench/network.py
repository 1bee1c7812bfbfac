"""The queue server over the network: beside a node that has the store itself, the least that could wait, and RabbitMQ.

    python -m bench.network [--quick] [--rounds 5] [--only PART …] [--directory DIR]

Prints a table and what had to be reached; a full run also writes it to bench/results-network.md and .json. Exit status
1: a bound was missed; 2: the run is void, others had too much of the machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import wsrm_mq
from bench.figures import Bound, Figure, as_json, as_markdown, status
from bench.measure import Spent, fsync_us
from bench.network_idle import Idle, over_http, over_stomp
from bench.network_rabbit import CASES, CLIENT_CORE, SERVER_CORE, Case, absent, emptied, fill, on_core
from bench.network_servers import QUEUE, TOKENS, bare_server, made, queue_server
from bench.queue_brokers import Rabbit, rabbit
from bench.report import machine, versions
from wsrm_mq.client.node import RemoteNode
from wsrm_mq.node import Node

__all__ = ["FULL", "PARTS", "QUICK", "Size", "run"]

_HERE: Final = Path(__file__).parent
_PACKAGES: Final = ("uvicorn", "uvloop", "httptools", "starlette", "aiohttp", "websockets")
BODY: Final = b"x" * 1_024
LEASE: Final = 30
ACK: Final = 10
IN_FLIGHT: Final = 1_000
"""Puts that nothing has confirmed yet, at most."""


class Size(NamedTuple):
    rounds: int
    seconds: float
    """The length of one measurement."""
    waiting: int
    """The number of messages that lie there when leasing begins."""
    consumers: int
    idle_rounds: int
    wake_ups: int
    broker_seconds: float
    """The length of a measurement beside RabbitMQ, whose load tool has to get warm."""


FULL: Final = Size(5, 1.0, 20_000, 2_000, 3, 100, 5.0)
QUICK: Final = Size(1, 0.2, 2_000, 100, 1, 10, 1.0)


class Rate(NamedTuple):
    per_second: float
    others: float


AnyNode = Node | RemoteNode
Side = Callable[[AnyNode, float], int]
"""It does something for so many seconds, and answers with how many messages."""


def called(node: AnyNode, seconds: float) -> int:
    """Messages that are leased and acknowledged by one call after the other."""
    until, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < until and (leased := node.receive(QUEUE, LEASE)):
        for first in range(0, len(leased), ACK):
            node.ack(leased[first : first + ACK])
        done += len(leased)
    return done


def consumed(node: AnyNode, seconds: float) -> int:
    """The same by a subscription, which asks for messages and acknowledges them while its consumer goes on."""
    until, done = time.perf_counter() + seconds, 0
    with node.subscribe(QUEUE, max_backlog=LEASE, ack_batch=ACK) as subscription:
        while time.perf_counter() < until and subscription.next(1.0) is not None:
            done += 1
    return done


def put_and_wait(node: AnyNode, seconds: float) -> int:
    until, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        node.put(QUEUE, BODY)
        done += 1
    return done


def put_without_waiting(node: AnyNode, seconds: float) -> int:
    """Puts, all of which are confirmed in the end."""
    until, done = time.perf_counter() + seconds, 0
    under_way = deque[Future[int]]()
    while time.perf_counter() < until:
        under_way.append(node.put(QUEUE, BODY, wait=False))
        done += 1
        if len(under_way) >= IN_FLIGHT:
            under_way.popleft().result()
    for one in under_way:
        one.result()
    return done


# all of it


def _leasing(size: Size, directory: Path) -> Iterator[Figure]:
    for how, side in (("one call after the other", called), ("a subscription", consumed)):
        local: list[Rate] = []
        remote: list[Rate] = []
        for number in range(size.rounds):
            sides = [(local, _local), (remote, _remote)]
            for rates, measure in sides if number % 2 else reversed(sides):
                rates.append(measure(side, size, size.waiting, directory))
        case = f"lease {LEASE}, ack {ACK}: {how}"
        yield _figure(case, "local", local)
        yield _figure(case, "remote", remote)
        yield _ratio(case, "remote to local", remote, local, Bound(">=", 0.4))


def _putting(size: Size, directory: Path) -> Iterator[Figure]:
    waited: list[Rate] = []
    not_waited: list[Rate] = []
    for number in range(size.rounds):
        sides = [(waited, put_and_wait), (not_waited, put_without_waiting)]
        for rates, side in sides if number % 2 else reversed(sides):
            rates.append(_remote(side, size, 0, directory))
    yield _figure("put", "and wait", waited)
    yield _figure("put", "without waiting", not_waited)
    yield _ratio("put", "without waiting to put and wait", not_waited, waited, Bound(">=", 5))


def _local(side: Side, size: Size, waiting: int, directory: Path) -> Rate:
    with _store(waiting, directory) as store, wsrm_mq.connect(store) as node:
        return _measured(side, node, size.seconds, ())


def _remote(side: Side, size: Size, waiting: int, directory: Path) -> Rate:
    with (
        _store(waiting, directory) as store,
        queue_server(store) as served,
        closing(wsrm_mq.connect(served.url, token=TOKENS[0])) as node,
    ):
        return _measured(side, node, size.seconds, (served.pid,))


@contextmanager
def _store(waiting: int, directory: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="network-", dir=directory) as place:
        yield made(Path(place, "store.db"), [BODY] * waiting)


def _measured(side: Side, node: AnyNode, seconds: float, pids: Sequence[int]) -> Rate:
    spent, begun = Spent(pids), time.perf_counter()
    done = side(node, seconds)
    return Rate(done / (time.perf_counter() - begun), spent.others)


def _idle(size: Size, directory: Path) -> Iterator[Figure]:
    bare: list[Idle] = []
    ours: list[Idle] = []
    stomp: list[Idle] = []
    for number in range(size.idle_rounds):
        sides = [(ours, over_http), (stomp, over_stomp)]
        with bare_server() as served:
            bare.append(over_http(served, size.consumers, size.wake_ups))
        for found, wait in sides if number % 2 else reversed(sides):
            with _store(0, directory) as store, queue_server(store) as served:
                found.append(wait(served, size.consumers, size.wake_ups))
    named = {"a bare application": bare, "ours, HTTP": ours, "ours, STOMP": stomp}
    most, others = Bound("<=", 1.5), [one.others for one in ours]

    def added(one: Idle) -> int:
        return one.waiting - one.rest

    case = f"{size.consumers:,} consumers wait"
    for name, found in named.items():
        yield Figure(case, f"{name}: memory of its process", [one.waiting / 1e6 for one in found], "MB")
    ratios = [mine.waiting / its.waiting for mine, its in zip(ours, bare, strict=True)]
    yield Figure(case, "ours, HTTP, to a bare application: memory", ratios, "×", most, others)
    for name, found in named.items():
        yield Figure(case, f"{name}: a consumer", [added(one) / size.consumers / 1e3 for one in found], "KB")
    ratios = [added(mine) / added(its) for mine, its in zip(ours, bare, strict=True)]
    yield Figure(case, "ours, HTTP, to a bare application: a consumer", ratios, "×", most, others)
    for name, found in named.items():
        taken = sorted(ms for one in found for ms in one.woken_ms)
        median = [taken[len(taken) // 2]]
        bound = Bound("<", 20) if found is ours else None
        yield Figure(case, f"{name}: woken, median", median, "ms", bound, others if found is ours else ())
        yield Figure(case, f"{name}: woken, p99", [taken[len(taken) * 99 // 100]], "ms")


def _beside_rabbitmq(size: Size, directory: Path) -> Iterator[Figure]:
    why = absent()
    if why is not None:
        print(f"RabbitMQ is left out: {why}", file=sys.stderr)
        return
    with (
        on_core(CLIENT_CORE),
        tempfile.TemporaryDirectory(prefix="network-", dir=directory) as place,
        rabbit(Path(place), core=SERVER_CORE) as broker,
    ):
        for case in CASES:
            ours: list[Rate] = []
            its: list[Rate] = []
            for number in range(size.rounds):
                sides: list[tuple[list[Rate], Callable[[Case, Size, Path], Rate]]] = [
                    (ours, _ours_alone),
                    (its, partial(_broker, broker)),
                ]
                for rates, measure in sides if number % 2 else reversed(sides):
                    rates.append(measure(case, size, directory))
            named = f"a core each: {case.name}"
            yield _figure(named, "ours", ours)
            yield _figure(named, f"RabbitMQ, {case.api}", its)
            yield _ratio(named, f"ours to RabbitMQ's {case.api}", ours, its, Bound(">=", case.least))


def _ours_alone(case: Case, size: Size, directory: Path) -> Rate:
    waiting = size.waiting if case.is_taking else 0
    with _store(waiting, directory) as store, queue_server(store, core=SERVER_CORE) as served:
        spent = Spent([served.pid])
        return Rate(case.ours(served, size.broker_seconds), spent.others)


def _broker(broker: Rabbit, case: Case, size: Size, _directory: Path) -> Rate:
    emptied(broker)
    waiting = 3 * size.waiting  # its load tool takes a while to get warm
    if case.is_taking:
        fill(broker, waiting)
    spent = Spent([broker.pid])
    return Rate(case.its(broker, size.broker_seconds, waiting), spent.others)


def _figure(case: str, name: str, rates: Sequence[Rate]) -> Figure:
    return Figure(case, name, [rate.per_second for rate in rates], "msg/s")


def _ratio(case: str, name: str, rates: Sequence[Rate], to: Sequence[Rate], bound: Bound) -> Figure:
    """Of two rates that were measured in one round."""
    pairs = list(zip(rates, to, strict=True))
    ratios = [one.per_second / other.per_second for one, other in pairs]
    return Figure(case, name, ratios, "×", bound, [max(one.others, other.others) for one, other in pairs])


PARTS: Final[dict[str, Callable[[Size, Path], Iterator[Figure]]]] = {
    "lease": _leasing,
    "put": _putting,
    "idle": _idle,
    "rabbitmq": _beside_rabbitmq,
}


def run(parts: Sequence[str], size: Size, directory: Path) -> Iterator[Figure]:
    for part in parts:
        yield Figure("the disk", f"fsync of a page, before {part}", [fsync_us(directory)], "µs")
        for figure in PARTS[part](size, directory):
            print(*figure.cells, sep="  ", file=sys.stderr, flush=True)
            yield figure


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="python -m bench.network", description="The queue server over the network.")
    options.add_argument("--quick", action="store_true", help="everything once, small; nothing is written down")
    options.add_argument("--rounds", type=int, help="alternating rounds")
    options.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="parts")
    options.add_argument("--directory", type=Path, default=_HERE, help="where the stores are put: a real disk")
    chosen = options.parse_args(arguments)
    size = QUICK if chosen.quick else FULL
    if chosen.rounds:
        size = size._replace(rounds=chosen.rounds, idle_rounds=chosen.rounds)
    begun, busy = time.monotonic(), os.getloadavg()[0]
    found = list(run(chosen.only, size, chosen.directory))
    text = (
        f"# The queue server over the network\n\n{date.today():%d %B %Y}. {machine()} {size.rounds} alternating rounds,"
        f" {size.idle_rounds} of the consumers that wait, in {time.monotonic() - begun:.0f} seconds, the load average"
        f" {busy:.1f} when they began. Messages of 1 KB over HTTP on loopback, every commit synced."
        f" {versions(_PACKAGES)}\n\n{as_markdown(found)}"
    )
    print(text)
    if not chosen.quick and chosen.only == [*PARTS] and not chosen.rounds:
        (_HERE / "results-network.md").write_text(text + "\n")
        (_HERE / "results-network.json").write_text(as_json(found) + "\n")
    return status(found)


if __name__ == "__main__":
    sys.exit(main())
