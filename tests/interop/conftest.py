"""Peers and servers for the interop tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.orders_server import OrdersServer
from tests.support.raw import Dialect, Wire
from wsrm_mq.versions import RMVersion, SOAPVersion

from .gsoap_client import GsoapClient, Variant, build, missing

StartServer = Callable[..., OrdersServer]


@pytest.fixture
def orders_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Start servers with options of the test's own; they end with the test."""
    servers: list[OrdersServer] = []

    def start(**options: Any) -> OrdersServer:
        servers.append(OrdersServer(tmp_path_factory.mktemp("orders"), **options))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrdersServer]:
    """A server with nothing set, for the tests of a module that leave it alive."""
    server = OrdersServer(tmp_path_factory.mktemp("orders"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def path() -> str:
    """Where this test finds the service, and no other test."""
    return f"/orders/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def orders(shared_server: OrdersServer, path: str) -> OrdersServer:
    """The shared server, as this test alone sees it."""
    return shared_server.at(path)


@pytest.fixture
def gsoap(request: pytest.FixtureRequest, rm: RMVersion, variant: Variant) -> Callable[[OrdersServer], GsoapClient]:
    """A gSOAP RM Source of the parameter ``variant`` for a server."""
    assert variant.rm is rm
    if reason := missing():
        pytest.skip(reason)
    root = Path(request.config.rootpath, "build", "gsoap")
    binary = build(variant, root)
    return lambda server: GsoapClient(binary, server.url, variant.addressing)


@pytest.fixture(params=list(SOAPVersion), ids=["soap1.1", "soap1.2"])
def dialect(request: pytest.FixtureRequest, rm: RMVersion, path: str) -> Dialect:
    """Envelopes in the parameter ``rm`` and each SOAP version."""
    return Dialect(rm, request.param, path=path)


@pytest.fixture
def plain(path: str) -> Dialect:
    """Envelopes in one combination of versions, for what does not depend on them."""
    return Dialect(path=path)


@pytest.fixture
def wire(orders: OrdersServer) -> Iterator[Wire]:
    """A connection to the shared server."""
    with Wire(orders.port) as wire:
        yield wire
