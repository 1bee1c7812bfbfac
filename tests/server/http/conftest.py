"""A queue server on loopback, in a thread or a process of its own, and requests to it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
import uvicorn

from wsrm_mq.node import Node
from wsrm_mq.parts import Part, Reader, boundary_of, content_type, written
from wsrm_mq.server import queue_application, tokens
from wsrm_mq.server.bounds import Bounds
from wsrm_mq.server.http.application import QueueApplication
from wsrm_mq.server.http.call import Limits
from wsrm_mq.server.rights import RIGHTS, Grant
from wsrm_mq.store.store import Store

SECRETS = {"anna": "wsrm-mq-secret-of-anna", "boris": "wsrm-mq-secret-of-boris", "root": "wsrm-mq-secret-of-root"}


def give_tokens(path: Path) -> None:
    """Everything may who is root; the others use queues and topics that begin with their names."""
    store = Store(path)
    store.open()
    for name, secret in SECRETS.items():
        patterns = ["*", "topic:#"] if name == "root" else [f"{name}*", f"topic:{name}/#"]
        grants = [Grant(right, pattern) for right in RIGHTS for pattern in patterns]
        store.call(partial(tokens.add, name=name, grants=grants, secret=secret))
    store.close()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def message(self) -> dict[str, Any]:
        """The header of one message, read."""
        found: dict[str, Any] = json.loads(self.headers["message"])
        return found

    def parts(self) -> list[tuple[dict[str, Any], bytes]]:
        boundary = boundary_of(self.headers["content-type"])
        assert boundary is not None
        reader = Reader(boundary, 2**30, 10_000)
        found: list[Part] = reader.feed(self.body)
        assert reader.has_ended
        return [(json.loads(part.headers["message"]), part.body) for part in found]


class Http:
    """Requests of one principal, over one connection."""

    def __init__(self, port: int, who: str | None = "root", session: str | None = None) -> None:
        self.port = port
        self.who = who
        self.session = session
        self.connection = HTTPConnection("127.0.0.1", port, timeout=30)

    def __call__(self, method: str, path: str, body: Any = None, message: Any = None, **headers: str) -> Answer:
        """``body``: bytes as they are, else JSON."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.who is not None:
            sent["Authorization"] = f"Bearer {SECRETS.get(self.who, self.who)}"
        if self.session is not None:
            sent["Session"] = self.session
        if message is not None:
            sent["Message"] = json.dumps(message)
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        self.connection.request(method, path, raw, sent)
        answer = self.connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, found, answer.read())

    def several(self, path: str, parts: list[tuple[dict[str, Any], bytes]], **headers: str) -> Answer:
        """Send messages together; each with what its header says, or with headers where these are written out."""
        heads = [
            head if {"Message", "Settlement"} & set(head) else {"Message": json.dumps(head)} for head, _body in parts
        ]
        raw = b"".join(written("frontier", [(head, body) for head, (_head, body) in zip(heads, parts, strict=True)]))
        return self("POST", path, raw, Content_Type=content_type("frontier"), **headers)

    def begin(self, client: str | None = None, timeout: float = 30.0) -> Http:
        """The same with a session of its own."""
        begun = self("POST", "/sessions", {"client": client, "timeout": timeout})
        assert begun.status == 201, begun
        return Http(self.port, self.who, begun.json()["session"])

    def close(self) -> None:
        self.connection.close()


def queue(name: str, rest: str = "") -> str:
    return f"/queues/{quote(name, safe='')}{rest}"


class Served:
    """An application that a thread serves."""

    def __init__(self, application: QueueApplication) -> None:
        self.application = application
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(uvicorn.Config(application, log_config=None, access_log=False, ws="none"))
        self._server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve([self._socket])))
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            threading.Event().wait(0.01)

    @property
    def node(self) -> Node:
        return self.application.server.node

    def http(self, who: str | None = "root") -> Http:
        return Http(self.port, who)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()


Serve = Callable[..., Served]


@pytest.fixture
def serve(path: Path) -> Iterator[Serve]:
    """Serve the store, within bounds."""
    give_tokens(path)
    begun: list[Served] = []

    def run(bounds: Bounds = Bounds(), limits: Limits = Limits()) -> Served:  # noqa: B008 - they are frozen
        begun.append(Served(queue_application(path, bounds=bounds, limits=limits)))
        return begun[-1]

    yield run
    for one in begun:
        one.stop()


@pytest.fixture
def http_of(serve: Serve) -> Callable[..., Http]:
    served = serve()
    return served.http


@pytest.fixture
def http(serve: Serve) -> Http:
    """Requests of a principal that may everything."""
    return serve().http()


class Process:
    """A queue server that is a process of its own, and may be killed."""

    def __init__(self, path: Path, port: int = 0) -> None:
        self.path = path
        self.port = port
        self.start()

    def start(self) -> None:
        root = Path(__file__).parents[3]
        command = [sys.executable, "-m", "tests.server.http_server", str(self.path), str(self.port)]
        self.process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True, env={**os.environ})
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def http(self, who: str = "root") -> Http:
        return Http(self.port, who)


@pytest.fixture
def process(path: Path) -> Iterator[Process]:
    give_tokens(path)
    one = Process(path)
    yield one
    one.kill()
