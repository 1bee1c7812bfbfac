"""Servers of several processes, each for one test, and sources that reach every worker of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import NGINX, Command, Fleet, Nginx
from tests.support.raw import Dialect, Wire

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


class Wires:
    """A connection to each worker: a server with threads keeps a connection where it was accepted."""

    def __init__(self, port: int, workers: int) -> None:
        self._all: list[Wire] = []
        self.by_worker: dict[int, Wire] = {}
        dialect = Dialect()
        while len(self.by_worker) < workers:
            assert len(self._all) < 50 * workers, f"only {sorted(self.by_worker)} take connections"
            wire = Wire(port)
            self._all.append(wire)
            answer = wire.ask(dialect.request(dialect.ack_requested("urn:none")))
            self.by_worker.setdefault(int(answer.fields["x-worker"]), wire)

    def close(self) -> None:
        for wire in self._all:
            wire.close()


@pytest.fixture
def reach() -> Iterator[Callable[[Fleet, int], dict[int, Wire]]]:
    """``reach(fleet, 4)``: a connection to each of its four workers, by process id."""
    opened: list[Wires] = []

    def connect(fleet: Fleet, workers: int) -> dict[int, Wire]:
        opened.append(Wires(fleet.port, workers))
        return opened[-1].by_worker

    yield connect
    for wires in opened:
        wires.close()
