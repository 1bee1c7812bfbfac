"""A node over HTTP for a test: a server in a process of its own has the store. So what the tests of the node ask
through their fixtures is asked over the network."""

from __future__ import annotations

import http.client
import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("aiohttp", reason="the client needs aiohttp: pip install 'wsrm-mq[client]'")
pytest.importorskip("uvicorn", reason="the server of these tests needs uvicorn: pip install 'wsrm-mq[serve]'")

from tests.node.conftest import connect, connect_async, node, path, program, rows
from tests.servers.queues import TOKEN, grant_all
from tests.support.programs import free_port
from wsrm_mq.node.node import Node

__all__ = ["connect", "connect_async", "node", "path", "program", "rows"]

HERE = Path(__file__).parent
NODE = HERE.parent / "node"


class Server:
    """A queue server over a store, which may be killed and begun again at the same address; without a store it is a
    ``Shelf``."""

    def __init__(self, store: Path | None) -> None:
        self._options = [] if store is None else ["--store", str(store)]
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def begin(self) -> None:
        command = [sys.executable, "-m", "tests.servers.queues", "--port", str(self.port), *self._options]
        self._process = subprocess.Popen(command, cwd=HERE.parents[1])
        deadline = time.monotonic() + 20
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def end(self, how: int = signal.SIGKILL) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(how)
            process.wait()


@pytest.fixture
def server(path: Path) -> Iterator[Server]:
    """A server that runs, where a token has all rights."""
    with Node(path) as made:
        grant_all(made)
    one = Server(path)
    one.begin()
    yield one
    one.end(signal.SIGTERM)


@pytest.fixture(scope="session")
def shelf() -> Iterator[Server]:
    """One server of the stores of all tests that do not kill theirs."""
    one = Server(None)
    one.begin()
    yield one
    one.end(signal.SIGTERM)


@pytest.fixture
def where(request: pytest.FixtureRequest, path: Path) -> Iterator[str]:
    if "server" in request.fixturenames:
        yield request.getfixturevalue("server").address
        return
    shelf: Server = request.getfixturevalue("shelf")
    name = os.fsencode(path).hex()
    yield f"{shelf.address}/{name}"
    connection = http.client.HTTPConnection("127.0.0.1", shelf.port, timeout=30)
    connection.request("PURGE", f"/{name}")
    assert connection.getresponse().status == 204
    connection.close()


@pytest.fixture
def credentials() -> dict[str, str]:
    return {"token": TOKEN}


@pytest.fixture
def beginning() -> str:
    """A program that is killed is missed earlier than others are."""
    return "from wsrm_mq.client import line\nline.SESSION_SECONDS = 2.0\n"


class OverHTTP(pytest.Module):
    """The tests of the local node once more, module by module."""

    def collect(self) -> Iterator[pytest.Module]:
        for module in sorted(NODE.glob("test_*.py")):
            yield Again.from_parent(self, name=module.stem, path=module, nodeid=f"{self.nodeid}::{module.stem}")


class Again(pytest.Module):
    def _getobj(self) -> ModuleType:
        there = importlib.import_module(f"tests.node.{self.path.stem}")
        again = ModuleType(there.__name__)  # pytest reads the fixtures of a module once
        vars(again).update(vars(there))
        return again


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return OverHTTP.from_parent(parent, path=module_path) if module_path == HERE / "test_over_http.py" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of what only a node in their own process shows. Of those of the node what is no scenario is
    run with ``--over-http`` alone."""
    left_out = {one for one in items if one.nodeid.startswith("tests/client/") and one.get_closest_marker("local")}
    if not config.getoption("over_http"):
        again = (one for one in items if isinstance(one.getparent(Again), Again))
        left_out.update(one for one in again if not one.get_closest_marker("scenario"))
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [one for one in items if one not in left_out]
