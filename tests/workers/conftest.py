"""Servers of several processes, each for one test, and sources that reach every worker of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import NGINX, Command, Fleet, Nginx
from tests.support.orders import OrderSender

Launch = Callable[..., Fleet]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """``launch(command, work=…, instances=…, **options)``: a running fleet, ended with the test."""
    fleets: list[Fleet] = []

    def begin(command: Command, *, instances: int = 0, **options: Any) -> Fleet:
        directory = tmp_path / f"fleet{len(fleets)}"
        directory.mkdir()
        fleets.append(Fleet(directory, command, **options))
        fleets[-1].start(instances)
        return fleets[-1]

    yield begin
    for fleet in fleets:
        fleet.__exit__()


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Callable[[Fleet], Nginx]]:
    """nginx before a fleet."""
    if NGINX is None:
        pytest.skip("needs nginx (Debian: apt-get install nginx-light)")
    started: list[Nginx] = []

    def begin(fleet: Fleet) -> Nginx:
        started.append(Nginx(tmp_path, fleet.port))
        started[-1].start()
        return started[-1]

    yield begin
    for nginx in started:
        nginx.__exit__()


@pytest.fixture
def reach() -> Iterator[Callable[[Fleet, int], dict[int, OrderSender]]]:
    """``reach(fleet, 4)``: senders of one sequence, each connected to another of its four workers, by process id. A
    server with threads keeps a connection where it was accepted."""
    opened: list[OrderSender] = []

    def connect(fleet: Fleet, workers: int) -> dict[int, OrderSender]:
        first = OrderSender(fleet)
        by_worker: dict[int, OrderSender] = {}
        for _ in range(50 * workers):
            opened.append(first.another())
            by_worker.setdefault(int(opened[-1].ask().fields["x-worker"]), opened[-1])
            if len(by_worker) == workers:
                return by_worker
        raise AssertionError(f"only {sorted(by_worker)} take connections")

    yield connect
    for sender in opened:
        sender.disconnect()
