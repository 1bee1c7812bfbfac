"""stomp.py, Python's client of STOMP, as it is: over TCP, TLS and WebSockets."""

from __future__ import annotations

import queue
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from stomp.exception import NotConnectedException

from tests.server.stomp.conftest import SECRET, Running, Start

stomp_py: Any = pytest.importorskip("stomp", reason="stomp.py is not installed: pip install stomp-py")
websocket: Any = pytest.importorskip("websocket", reason="comes with stomp-py")
SECONDS: Final = 20.0
KINDS: Final = ("Connection11", "Connection12", "WSStompConnection", "TLS")


class Listener(stomp_py.ConnectionListener):  # type: ignore[misc]  # it has no types
    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()
        self.errors: queue.Queue[Any] = queue.Queue()

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.put(frame)


class Live:
    """One connection, and what it was told."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.told = Listener()
        connection.set_listener("", self.told)
        connection.connect(username="python", passcode=SECRET, wait=True, headers={"client-id": "live"})

    def send(self, destination: str, body: Any, **headers: str) -> None:
        self.connection.send(destination, body, headers={**headers, "receipt": "sent"})
        assert self.told.receipts.get(timeout=SECONDS) == "sent"

    def message(self) -> Any:
        return self.told.messages.get(timeout=SECONDS)

    def acknowledge(self, frame: Any, command: str = "ack", **headers: Any) -> None:
        of = frame.headers
        ids = (of["ack"],) if "ack" in of else (of["message-id"], of["subscription"])
        getattr(self.connection, command)(*ids, **headers)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, crt = folder / "key.pem", folder / "crt.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", crt, *subject], check=True, capture_output=True)
    return key, crt


@pytest.fixture(params=KINDS)
def live(
    request: pytest.FixtureRequest, stomp_with: Start, certificate: tuple[Path, Path]
) -> Iterator[Callable[..., Live]]:
    key, crt = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(crt, key)
    server = stomp_with(tls=context)
    made: list[Any] = []

    def connect(**options: Any) -> Live:
        made.append(_connection(request.param, server, crt, options))
        return Live(made[-1])

    yield connect
    for one in made:
        if one.is_connected():
            with suppress(OSError, NotConnectedException, websocket.WebSocketConnectionClosedException):
                # The server may have closed it meanwhile.
                one.disconnect()


def _connection(kind: str, server: Running, crt: Path, options: dict[str, Any]) -> Any:
    if kind == "WSStompConnection":
        return stomp_py.WSStompConnection([("127.0.0.1", server.websocket_port)], binary_mode=True, **options)
    port = server.tls_port if kind == "TLS" else server.port
    made = getattr(stomp_py, "Connection12" if kind == "TLS" else kind)([("localhost", port)], **options)
    if kind == "TLS":
        made.set_ssl([("localhost", port)], ca_certs=str(crt))
    return made


def test_it_sends_and_receives_special_characters(live: Callable[..., Live]) -> None:
    one = live()
    one.connection.subscribe("/queue/a", id="1")
    one.send("/queue/a", "Größe 🐘", name="a:b\nc\\d Größe")
    frame = one.message()
    assert (frame.body, frame.headers["name"]) == ("Größe 🐘", "a:b\nc\\d Größe")


def test_bytes_come_as_they_were_sent(live: Callable[..., Live]) -> None:
    one = live(auto_decode=False)
    one.connection.subscribe("/queue/a", id="1")
    body = bytes(range(256))
    one.send("/queue/a", body, **{"content-type": "application/octet-stream"})
    assert one.message().body == body


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_it_acknowledges_and_refuses(live: Callable[..., Live], mode: str) -> None:
    one = live()
    for number in range(3):
        one.send("/queue/a", f"order {number}")
    one.connection.subscribe("/queue/a", id="1", ack=mode, headers={"prefetch-count": "3"})
    frames = [one.message() for _ in range(3)]
    one.acknowledge(frames[1], receipt="acknowledged")
    assert one.told.receipts.get(timeout=SECONDS) == "acknowledged"
    one.acknowledge(frames[2], "nack", **{"action": "release"})
    again = one.message()
    assert (again.body, again.headers["redelivered"]) == ("order 2", "true")
    one.connection.unsubscribe("1")
    one.connection.subscribe("/queue/a", id="2")
    left = {one.message().body for _ in range(1 if mode == "client" else 2)}
    assert left == ({"order 2"} if mode == "client" else {"order 0", "order 2"})


def test_it_commits_and_aborts(live: Callable[..., Live]) -> None:
    one = live()
    for end in ("abort", "commit"):
        name = one.connection.begin()
        one.connection.send("/queue/a", end, transaction=name)
        getattr(one.connection, end)(name)
    one.connection.subscribe("/queue/a", id="1")
    assert one.message().body == "commit"


def test_it_beats_and_reconnects(live: Callable[..., Live]) -> None:
    one = live(heartbeats=(1_000, 1_000))
    one.send("/queue/a", "again")
    one.connection.subscribe("/queue/a", id="1", ack="client")
    assert one.message().body == "again"
    one.connection.transport.disconnect_socket()
    other = live(heartbeats=(1_000, 1_000))
    other.connection.subscribe("/queue/a", id="1", ack="client")
    again = other.message()
    assert (again.body, again.headers["redelivered"]) == ("again", "true")


def test_it_is_told_an_error(live: Callable[..., Live]) -> None:
    one = live()
    one.connection.send("nowhere", "body")
    assert "`destination` is 'nowhere'" in one.told.errors.get(timeout=SECONDS).headers["message"]
