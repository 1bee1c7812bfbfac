"""Servers for tests that need a policy, a second process or a process to kill.

A plug-in of pytest (``tests/conftest.py`` names it). The fixture ``speak`` that ``at`` rests on is the test folder's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.servers.fronts import FRONTS

from . import orders_server
from .orders import Orders
from .orders_server import OrdersServer
from .source import Source

HOLD_WAIT: Final = 3.0

POLICIES: Final[dict[str, dict[str, Any]]] = {
    "gap": {"behavior": "DiscardFollowingFirstGap"},
    "whole": {"behavior": "DiscardEntireSequence"},
    "bury": {"on_incomplete": "dead_letter"},
    "at_most_once": {"assurance": "at_most_once"},
    "at_least_once": {"assurance": "at_least_once"},
    "any_order": {"ordered": False},
    "robust": {"acknowledge": "delivered"},
    "small": {"max_held": 100},
    "idle": {"inactivity": 1.5},
    "poison_block": {"on_poison": "block", "retry": [0.05]},
    "poison_dead": {"on_poison": "dead_letter", "retry": [0.05]},
    "poison_end": {"on_poison": "terminate", "retry": [0.05]},
    "slow_retry": {"retry": [3600.0]},
    "needs_rm": {"require_rm": True},
    "plain": {},
}
"""Each at the path of its name. The retry ladder of the others is 0.1, 0.2 and 0.4 seconds."""

Start = Callable[..., OrdersServer]
At = Callable[..., Source]


each_front: Final = pytest.mark.parametrize("front", FRONTS, indirect=True, scope="session")
"""Run a test behind each server, whatever ``--front`` says; one that takes ``at`` or ``front``."""


@pytest.fixture(scope="session")
def front(request: pytest.FixtureRequest) -> str:
    """Behind which server the orders service runs."""
    return str(getattr(request, "param", orders_server.front))


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory, front: str) -> Iterator[OrdersServer]:
    """One server with a path for each of ``POLICIES``, shared by all tests that leave it alive."""
    with having_policies(tmp_path_factory.mktemp("policies"), front) as server:
        yield server


@contextmanager
def having_policies(directory: Path, front: str, **more: dict[str, Any]) -> Iterator[OrdersServer]:
    """A server with a path for each of ``POLICIES``; ``more`` options for some of them."""
    partners = {name: {"path": f"/{name}", **options, **more.get(name, {})} for name, options in POLICIES.items()}
    server = OrdersServer(directory, front, partners=partners, retry=[0.1, 0.2, 0.4], hold_wait=HOLD_WAIT, threads=16)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def at(policies: OrdersServer, speak: Orders) -> Iterator[At]:
    """Connections to that server: ``at("/gap")``, or to another."""
    sources: list[Source] = []

    def connect(path: str = "/orders", server: OrdersServer = policies, **options: Any) -> Source:
        sources.append(Source(server, speak, path, **options))
        return sources[-1]

    yield connect
    for source in sources:
        source.wire.close()


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start servers of the test's own; two with the same ``directory`` share store and service."""
    servers: list[OrdersServer] = []

    def start(directory: Path | None = None, **options: Any) -> OrdersServer:
        server = OrdersServer(directory or tmp_path_factory.mktemp("server"), **options)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.kill()
