"""Peers and servers for the interop tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source
from wsrm_mq.versions import WSRM_1_0, WSRM_1_1, RMVersion, SOAPVersion

from . import java_client
from .gsoap_client import GsoapClient, Variant, build, missing
from .java_client import Call, JavaClient
from .reliable import Reliable

StartClient = Callable[[], JavaClient]
StartServer = Callable[..., OrdersServer]

both_versions: Final = pytest.mark.parametrize("rm", [WSRM_1_1, WSRM_1_0], ids=["rm1.1", "rm1.0"])
"""Run a test that takes the fixture ``dialect`` in both RM versions, and in 1.1 alone."""
in_1_1: Final = pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm1.1"])


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


@pytest.fixture(
    params=[
        pytest.param(SOAPVersion.SOAP_1_1, id="soap1.1", marks=pytest.mark.long),
        pytest.param(SOAPVersion.SOAP_1_2, id="soap1.2"),
    ]
)
def dialect(request: pytest.FixtureRequest, rm: RMVersion, path: str) -> Orders:
    """Envelopes in the parameter ``rm`` and each SOAP version."""
    return Orders(rm, request.param, path=path)


@pytest.fixture
def plain(path: str) -> Orders:
    """Envelopes in one combination of versions, for what does not depend on them."""
    return Orders(path=path)


@pytest.fixture
def source(orders: OrdersServer, dialect: Orders) -> Iterator[Source]:
    """A connection to the shared server."""
    with Source(orders, dialect) as source:
        yield source


def texts(first: int, last: int) -> list[str]:
    """What clients in Java say with the calls of these numbers."""
    return [f"order {n}" for n in range(first, last + 1)]


def all_acknowledged(client: JavaClient) -> bool:
    """Whether nothing of a client stays unacknowledged."""
    return within(60, client.unacknowledged, lambda count: count == 0) == 0


def assert_read(calls: list[Call], replies: list[str]) -> None:
    """Each caller has its own reply, or could not read it, which is seldom."""
    read = [call.result == reply for call, reply in zip(calls, replies, strict=True) if call.result != "unread"]
    assert all(read)
    assert len(read) > len(replies) / 2


@pytest.fixture(scope="session")
def java(request: pytest.FixtureRequest) -> Path:
    """The clients in Java, built."""
    if reason := java_client.missing():
        pytest.skip(reason)
    return java_client.build(Path(request.config.rootpath, "build", "peers"))


@pytest.fixture
def reliable(tmp_path: Path) -> Iterator[Reliable]:
    """The orders service behind ``wsrm-mq serve``."""
    with Reliable(tmp_path) as service:
        yield service


@pytest.fixture
def cxf(java: Path, tmp_path: Path) -> Iterator[StartClient]:
    """Start CXF clients; those that are still there end with the test."""
    clients: list[JavaClient] = []

    def start() -> JavaClient:
        clients.append(JavaClient(java, "cxf", tmp_path / "cxf.log"))
        return clients[-1]

    yield start
    for client in clients:
        client.kill()


@pytest.fixture(scope="session")
def shared_cxf(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    """A CXF client for the tests that leave it alive."""
    client = JavaClient(java, "cxf", tmp_path_factory.mktemp("cxf") / "cxf.log")
    yield client
    client.kill()


@pytest.fixture(scope="session")
def metro(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    """A Metro client for all tests."""
    # Java's HTTP client, left to itself, repeats a POST whose connection broke.
    where = tmp_path_factory.mktemp("metro") / "metro.log"
    client = JavaClient(java, "metro", where, "-Dsun.net.http.retryPost=false")
    yield client
    client.kill()
