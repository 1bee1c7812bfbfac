"""A replay of many messages is killed with -9 half-way and goes on: the application, which does nothing but write down
its calls, is called with every message, in order in each sequence; twice at most with what was ahead of the last
settlement that was committed, and told of it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.commands import Command, wsrm
from bench.figures import Bound, Figure
from bench.filling import deliver, fill
from wsrm_mq.queue.ownership import RUN_AHEAD
from wsrm_mq.store.applications import served
from wsrm_mq.store.sqlite.connection import connect_reader

__all__ = ["measure_killed", "noting"]

MOST_BYTES: Final = 200e6
_CALLS: Final = "BENCH_REPLAY_CALLS"
"""Variable of the environment with the file that calls are written to."""
_APPLICATION: Final = "bench.replay_killed:noting"
_POLL_SECONDS: Final = 0.01
_MOST_RUNS: Final = 5


class _Case(NamedTuple):
    name: str
    target: str
    kills_server: bool


_CASES: Final = (
    _Case("to an application, its run killed", _APPLICATION, False),
    _Case("to the service, the run killed", "app", False),
    _Case("to the service, the service killed", "app", True),
)


class _Called(NamedTuple):
    """What the application saw."""

    messages: int
    twice: int
    """Messages that came a second time, told as such."""
    wrong: int
    """Calls that were out of order, a third, or a second without a word."""


@cache
def _file() -> int:
    return os.open(os.environ[_CALLS], os.O_CREAT | os.O_APPEND | os.O_WRONLY)


def noting(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """The application. Its lines are of one length."""
    number, is_again = environ["wsrm.message_number"], environ["wsrm.redelivery"]
    os.write(_file(), f"{environ['wsrm.sequence_id']} {number:09} {is_again:d}\n".encode())
    start_response("202 Accepted", [("Content-Length", "0")])
    return []


def measure_killed(directory: Path, messages: int, sequences: int) -> Iterable[Figure]:
    """The same messages in each case, for new ones: what a case calls twice is its own."""
    store = directory / "store.db"
    fill(store, messages, sequences)
    deliver(store, messages)
    for index, case in enumerate(_CASES):
        calls = directory / f"calls{index}"
        peak = _run(case, store, directory / f"plan{index}.json", calls, messages)
        called = read(calls)
        name = f"{messages:,} messages {case.name}"
        yield Figure(name, "messages called", [called.messages], "", Bound(">=", messages))
        yield Figure(name, "called twice, and told so", [called.twice], "", Bound("<=", sequences * (RUN_AHEAD + 1)))
        yield Figure(name, "called otherwise", [called.wrong], "", Bound("<=", 0))
        yield Figure(name, "memory of the run or the service", [peak / 1e6], "MB", Bound("<", MOST_BYTES / 1e6))


def read(calls: Path) -> _Called:
    """In a sequence, each call has the next number, or goes back to one that came before."""
    counts: Counter[tuple[str, int]] = Counter()
    last: dict[str, int] = {}
    wrong = 0
    with calls.open() as lines:
        for identifier, digits, is_marked in map(str.split, lines):
            number = int(digits)
            before = counts[identifier, number]
            leaves_a_gap = number > last.get(identifier, 0) + 1
            wrong += leaves_a_gap or before > 1 or (before == 1 and is_marked == "0")
            counts[identifier, number] += 1
            last[identifier] = number
    return _Called(len(counts), sum(count == 2 for count in counts.values()), wrong)


class _House:
    """The processes of a case, on one store."""

    def __init__(self, store: Path, calls: Path) -> None:
        self._store, self._calls = store, calls
        self._all: list[Command] = []

    def __enter__(self) -> _House:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._all:
            one.kill()

    def start(self, *arguments: object) -> Command:
        started = Command(*arguments, store=self._store, **{_CALLS: str(self._calls)})
        self._all.append(started)
        return started

    def serve(self) -> Command:
        started = self.start("serve", _APPLICATION, "--port", 0, "--log-level", "error")
        self.wait(lambda: started.has_ended or _is_served(self._store))
        return started

    def wait(self, until: Callable[[], bool]) -> None:
        """And look how much memory they have."""
        while not until():
            for one in self._all:
                one.look()
            time.sleep(_POLL_SECONDS)

    def ended(self, command: Command) -> int:
        """Its exit status, when it has one."""
        self.wait(lambda: command.has_ended)
        return command.wait()

    @property
    def peak(self) -> float:
        """The most bytes that one of them had."""
        return max(one.peak for one in self._all)


def _run(case: _Case, store: Path, plan: Path, calls: Path, messages: int) -> float:
    """Answers the most bytes that one of its processes had."""
    asked = ("queue:/orders", "-o", plan, "--to", case.target, "--as-new", "--reason", "bench")
    wsrm("replay", "plan", *asked, store=store)
    run = ("replay", "run", plan, "--yes", "--json")
    with _House(store, calls) as house:
        server = house.serve() if case.target == "app" else None
        running = house.start(*run)
        house.wait(lambda: running.has_ended or _lines(calls) > messages // 2)
        if case.kills_server and server is not None:
            server.kill()
            house.serve()
        else:
            running.kill()
        for _ in range(_MOST_RUNS):  # as an operator runs it again
            if house.ended(running) == 0:
                return house.peak
            running = house.start(*run)
    raise SystemExit(f"{' '.join(running.words)}: not at its end after {_MOST_RUNS} runs")


def _lines(calls: Path) -> int:
    if not calls.exists():
        return 0
    with calls.open("rb") as file:
        return calls.stat().st_size // max(1, len(file.readline()))


def _is_served(store: Path) -> bool:
    with closing(connect_reader(store)) as db:
        return any(not one.is_run for one in served(db))
