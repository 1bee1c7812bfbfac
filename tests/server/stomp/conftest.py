"""A server of STOMP for a test, and the bytes that a client exchanges with it."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

import wsrm_mq
from wsrm_mq.errors import NotAllowed
from wsrm_mq.node import Node
from wsrm_mq.server import tokens
from wsrm_mq.server.access import Access
from wsrm_mq.server.bounds import Bounds
from wsrm_mq.server.rights import check_grant
from wsrm_mq.server.sessions import Sessions
from wsrm_mq.server.stomp.client import Terms
from wsrm_mq.server.stomp.protocol import VERSIONS, Frame, Version, encode
from wsrm_mq.server.stomp.server import StompServer
from wsrm_mq.store.invariants import all_findings

SECONDS: Final = 60.0
SECRET: Final = "wsrm-mq-secret-of-everything"
EVERYTHING: Final = [(right, pattern) for right in ("put", "consume") for pattern in ("*", "topic:#")]
UNESCAPES: Final = {"\\c": ":", "\\n": "\n", "\\r": "\r", "\\\\": "\\"}


def unescaped(text: str) -> str:
    found, at = "", 0
    while at < len(text):
        step = 2 if text[at] == "\\" else 1
        found += UNESCAPES.get(text[at : at + step], text[at : at + step])
        at += step
    return found


class Peer:
    """One connection, by its bytes."""

    def __init__(self, port: int, version: Version, *, tls: ssl.SSLContext | None = None) -> None:
        self.version = version
        raw = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self.socket = raw if tls is None else tls.wrap_socket(raw, server_hostname="localhost")
        self._read = b""
        self.beats = 0
        self._aside: list[Frame] = []
        """Messages that came before what was waited for."""

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, command: str, body: bytes = b"", /, **headers: object) -> None:
        """Send a frame; ``_`` in the name of a header is a hyphen."""
        named = {name.rstrip("_").replace("_", "-"): str(value) for name, value in headers.items()}
        self.send(encode(Frame(command, named, body), self.version))

    def connect(self, secret: str = SECRET, **headers: object) -> Frame:
        self.say("CONNECT", **{"accept_version": self.version, "host": "/", "passcode": secret, **headers})
        return self.frame("CONNECTED")

    def asked(self, command: str, body: bytes = b"", /, **headers: object) -> Frame:
        """Send a frame with a receipt, and read that."""
        self.say(command, body, receipt="asked", **headers)
        receipt = self.frame("RECEIPT")
        assert receipt.headers["receipt-id"] == "asked"
        return receipt

    def frame(self, command: str | None = None, until: float = float("inf")) -> Frame:
        """The next frame, which is of this command, or the next one that is no MESSAGE. Raises ``TimeoutError``."""
        if self._aside and command in (None, "MESSAGE"):
            return self._aside.pop(0)
        while True:
            if time.monotonic() > until:
                raise TimeoutError
            stripped = self._read.lstrip(b"\n")
            self.beats += len(self._read) - len(stripped)
            self._read = stripped
            found = self._cut()
            if found is not None and found.command == "MESSAGE" and command not in (None, "MESSAGE"):
                self._aside.append(found)
                continue
            if found is not None:
                assert command in (None, found.command), found
                return found
            data = self.socket.recv(65_536)
            if not data:
                raise EOFError(self._read)
            self._read += data

    def _cut(self) -> Frame | None:
        head, blank, rest = self._read.partition(b"\n\n")
        if not blank:
            return None
        command, *lines = head.decode().split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            read = str if command == "CONNECTED" else unescaped
            headers.setdefault(read(name), read(value))
        length = int(headers["content-length"]) if "content-length" in headers else rest.find(b"\0")
        if length < 0 or len(rest) <= length:
            return None
        assert rest[length] == 0
        self._read = rest[length + 1 :]
        return Frame(command, headers, rest[:length])

    def is_silent(self, seconds: float = 0.3) -> bool:
        """Whether no frame comes within these seconds."""
        self.socket.settimeout(seconds / 10)
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                with suppress(TimeoutError):
                    raise AssertionError(self.frame(until=deadline))
        finally:
            self.socket.settimeout(SECONDS)
        return True

    def is_closed(self) -> bool:
        """Whether the server closes, and says nothing more."""
        try:
            raise AssertionError(self.frame("nothing more"))
        except (EOFError, ConnectionError):
            return True

    def error(self) -> Frame:
        """The ERROR that ends the connection."""
        found = self.frame("ERROR")
        assert self.is_closed()
        return found


class Running:
    """A server on a loop in a thread of its own."""

    def __init__(self, path: Path, *, tls: ssl.SSLContext | None = None, terms: Terms | None = None, **bounds: int):
        self.node: Node = wsrm_mq.connect(path, "server")
        self.terms = terms or Terms()
        self._bounds = Bounds(**bounds)
        self._tls = tls
        self.port = self.tls_port = self.websocket_port = 0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), daemon=True)
        with suppress(NotAllowed):  # another server on this store has granted it
            self.grant("everything", SECRET, *EVERYTHING)
        self._thread.start()
        assert self._started.wait(SECONDS)

    def grant(self, name: str, secret: str, *grants: tuple[str, str]) -> None:
        checked = [check_grant(right, pattern) for right, pattern in grants]
        self.node.store.call(lambda tx: tokens.add(tx, name, checked, secret=secret))

    def revoke(self, name: str) -> None:
        self.node.store.call(lambda tx: tokens.revoke(tx, name))

    async def _serve(self) -> None:
        self.sessions = Sessions(self.node, self._bounds)
        access = Access(self.node.store, self.node.telling)
        self.server = StompServer(self.sessions, access, self.terms)
        self.port = await self.server.listen("127.0.0.1", 0)
        self.websocket_port = await self.server.listen_websocket("127.0.0.1", 0)
        if self._tls is not None:
            self.tls_port = await self.server.listen("127.0.0.1", 0, self._tls)
        watch = asyncio.create_task(self.sessions.watch())
        self._started.set()
        await self._stop.wait()
        watch.cancel()
        await self.server.close()
        await self.sessions.close()

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Another process holds the write lock of the store."""
        with closing(sqlite3.connect(self.node.store.path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield
            db.execute("ROLLBACK")

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(SECONDS)
            self._loop.close()
        if self.node.store.is_open:
            with self.node.store.reader() as db:
                assert list(all_findings(db)) == []
            self.node.close()


Start = Callable[..., Running]
Connect = Callable[..., Peer]


@pytest.fixture
def stomp_with(tmp_path: Path) -> Iterator[Start]:
    """Start a server; behind the test its store has no fault."""
    running: list[Running] = []

    def one(**options: Any) -> Running:
        running.append(Running(tmp_path / "store.db", **options))
        return running[-1]

    yield one
    for server in running:
        server.close()


@pytest.fixture
def stomp(stomp_with: Start) -> Running:
    return stomp_with()


@pytest.fixture(params=[pytest.param(one, marks=() if one == "1.2" else pytest.mark.again) for one in VERSIONS])
def version(request: pytest.FixtureRequest) -> Version:
    found: Version = request.param
    return found


@pytest.fixture
def peer(stomp: Running, version: Version) -> Iterator[Callable[[], Peer]]:
    """Make a connection that is not connected yet, of each version."""
    peers: list[Peer] = []

    def make() -> Peer:
        peers.append(Peer(stomp.port, version))
        return peers[-1]

    yield make
    for one in peers:
        one.socket.close()


@pytest.fixture
def connected(peer: Callable[[], Peer]) -> Connect:
    """Make a connection that is connected."""

    def make(secret: str = SECRET, **headers: object) -> Peer:
        one = peer()
        one.connect(secret, **headers)
        return one

    return make


def acknowledge(peer: Peer, message: Frame, command: str = "ACK", **headers: object) -> None:
    """Send an ACK or NACK of a message, as the version has it."""
    peer.say(command, **ack_of(peer, message), **headers)


def ack_of(peer: Peer, message: Frame) -> dict[str, str]:
    if peer.version == "1.1":
        return {"message_id": message.headers["message-id"], "subscription": message.headers["subscription"]}
    return {"id": message.headers["ack"]}
