"""The bounds of `serve`'s server, with short times, in a thread of the test."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.support.bounded_server import GET, SHORT, Run, application
from wsrm_mq.serving import uvicorn_server
from wsrm_mq.testing import HTTPWire

LONG = 10.0


def closed_within(wire: HTTPWire, seconds: float) -> bool:
    wire.socket.settimeout(seconds)
    try:
        return wire.socket.recv(1000) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def sent_until_refused(wire: HTTPWire, piece: bytes, pause: float) -> int:
    """The bytes that could be sent in ``LONG`` seconds."""
    sent, end = 0, time.monotonic() + LONG
    try:
        while time.monotonic() < end:
            wire.send(piece)
            sent += len(piece)
            time.sleep(pause)
    except OSError:
        pass
    return sent


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"POST / HTTP/1.1\r\nHost: here\r\n",
        b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\nhalf",
        b"\r\n\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "empty lines"],
)
def test_a_request_that_does_not_come_is_not_waited_for(run: Run, beginning: bytes) -> None:
    with HTTPWire(run().port) as wire:
        wire.send(beginning)
        assert closed_within(wire, LONG)


def test_a_head_that_comes_byte_by_byte_has_to_be_there_in_time(run: Run) -> None:
    with HTTPWire(run().port) as wire:
        begun = time.monotonic()
        wire.send(b"POST / HTTP/1.1\r\nX-Slow: ")
        sent_until_refused(wire, b"x", SHORT / 10)
        assert time.monotonic() - begun < LONG


def test_a_body_may_take_its_time_as_long_as_it_comes(run: Run) -> None:
    with HTTPWire(run().port) as wire:
        wire.send(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\n")
        for _ in range(10):
            time.sleep(SHORT / 5)
            wire.send(b"x")
        assert wire.read().body == b"x" * 10


def test_a_connection_is_kept_between_requests(run: Run) -> None:
    with HTTPWire(run().port) as wire:
        for _ in range(3):
            assert wire.ask(GET).status == 200
            time.sleep(SHORT * 1.5)


@pytest.mark.parametrize("line", [b"X-Much: " + b"y" * 1000 + b"\r\n", b"\r\n" * 500], ids=["headers", "empty lines"])
def test_a_head_without_end_is_not_read_to_its_end(run: Run, line: bytes) -> None:
    with HTTPWire(run(request_seconds=LONG * 2).port) as wire:
        wire.send(b"POST / HTTP/1.1\r\nHost: here\r\n" if line.startswith(b"X") else b"")
        sent = sent_until_refused(wire, line, 0.001)
        assert sent < 4 * uvicorn_server.HEAD_BYTES


def test_many_short_requests_at_once_are_no_long_head(run: Run) -> None:
    count = 4 * uvicorn_server.HEAD_BYTES // len(GET)
    with HTTPWire(run().port) as wire:
        sender = threading.Thread(target=wire.send, args=(GET * count,))
        sender.start()
        for _ in range(count):
            assert wire.read().status == 200
        sender.join()


def test_the_server_names_itself_and_logs_no_request(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    with HTTPWire(run().port) as wire:
        assert wire.ask(GET).fields["server"] == "wsrm-mq"
    assert "GET" not in "".join(capfd.readouterr())


# the end


def test_what_runs_is_answered_and_what_only_begins_is_not(run: Run) -> None:
    runs, may_end = threading.Event(), threading.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        import asyncio

        if scope["type"] == "http" and scope["path"] == "/slow":
            runs.set()
            while not may_end.is_set():
                await asyncio.sleep(0.01)
        await application(scope, receive, send)

    server = run(slow)
    with HTTPWire(server.port) as busy, HTTPWire(server.port) as idle, HTTPWire(server.port) as half:
        assert idle.ask(GET).status == 200
        half.send(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf")
        busy.send(GET.replace(b"/ ", b"/slow "))
        assert runs.wait(10)
        server.server.should_exit = True
        assert closed_within(idle, LONG)
        assert closed_within(half, LONG)
        assert server.steps == ["serves", "ends"]
        with pytest.raises(ConnectionRefusedError):
            HTTPWire(server.port)
        may_end.set()
        assert busy.read().status == 200
    server.stop()
    assert server.server.has_finished


def test_what_does_not_end_in_time_is_cut_off_and_told(run: Run) -> None:
    async def endless(scope: Any, receive: Any, send: Any) -> None:
        import asyncio

        if scope["type"] == "http":
            await asyncio.sleep(60)
        await application(scope, receive, send)

    server = run(endless, drain_seconds=0.3)
    with HTTPWire(server.port) as wire:
        wire.send(GET)
        time.sleep(0.3)
        server.stop()
    assert not server.server.has_finished
