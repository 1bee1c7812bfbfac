"""Servers and sources for the protocol tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.endpoint import Endpoint, listening
from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer
from tests.support.source import Source
from wsrm_mq.cli import program
from wsrm_mq.versions import AddressingVersion, RMVersion, SOAPVersion

Servers = Callable[..., OrdersServer]
Operate = Callable[..., Result]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, front: str) -> Iterator[Servers]:
    """Servers by options of the middleware, each shared by the tests of a module, which leave it alive."""
    running: dict[str, OrdersServer] = {}

    with ExitStack() as ends:

        def having(**options: Any) -> OrdersServer:
            key = json.dumps(options, sort_keys=True)
            if key not in running:
                running[key] = OrdersServer(tmp_path_factory.mktemp("server"), front, **options)
                running[key].start()
                ends.callback(running[key].kill)  # an end in good order is shown elsewhere, and takes its time
            return running[key]

        yield having


@pytest.fixture
def server(servers: Servers) -> OrdersServer:
    """The shared server with nothing set."""
    return servers()


@pytest.fixture
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrdersServer]:
    """A server that the test may kill."""
    server = OrdersServer(tmp_path_factory.mktemp("mortal"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def speak(rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion) -> Orders:
    """Envelopes in the combination that the test is run in."""
    return Orders(rm, soap, addressing)


@pytest.fixture
def source(server: OrdersServer, speak: Orders) -> Iterator[Source]:
    """A connection to the shared server."""
    with Source(server, speak) as source:
        yield source


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Where a source has what is said to it sent."""
    with listening() as endpoint:
        yield endpoint


@pytest.fixture
def operate(server: OrdersServer) -> Operate:
    """Have an operator act on a sequence of the shared server, as ``wsrm-mq sequence`` takes it."""

    def run(*arguments: object, status: int = 0) -> Result:
        command = ["sequence", *map(str, arguments), "--store", str(server.store), "--yes", "--reason", "it is 3 am"]
        done = CliRunner().invoke(program, command, prog_name="wsrm-mq")
        assert done.exit_code == status, done.output
        return done

    return run
