"""Connections by the thousand: who keeps one, who makes room, who is told that there is none."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from tests.support.bounded_server import GET, Run, Running, showing
from tests.support.orders_server import within
from wsrm_mq.serving import admission, uvicorn_server
from wsrm_mq.serving.admission import files_for
from wsrm_mq.testing import HTTPWire

MOST = 5
SLOW = GET.replace(b" / ", b" /slow ")
HEAD = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n"


@pytest.fixture
def many() -> Any:
    with ExitStack() as stack:

        def connect(server: Running, count: int, sends: bytes = b"") -> list[HTTPWire]:
            wires = [stack.enter_context(HTTPWire(server.port)) for _ in range(count)]
            for wire in wires:
                wire.send(sends)
            return wires

        yield connect


def is_closed(wire: HTTPWire, seconds: float = 0.3) -> bool:
    """Whatever it is told before."""
    wire.socket.settimeout(seconds)
    try:
        while wire.socket.recv(4096):
            pass
        return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_idle_connections_shut_out_no_client(run: Run, many: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_server, "_ON_ITS_WAY_SECONDS", 0.3)
    server = run(connections=MOST, request_seconds=60)
    silent: list[Any] = []
    for count in (1, 2):
        silent += many(server, 1)
        assert within(5, lambda: len(server.server.server_state.connections), lambda found: found == count)  # noqa: B023
        time.sleep(0.05)
    kept = many(server, MOST - 2)
    for wire in kept:
        assert wire.ask(GET).status == 200
        time.sleep(0.05)
    for gone in [*silent, *kept[:2]]:  # in the order in which they were used last
        (fresh,) = many(server, 1)
        assert fresh.ask(GET).status == 200
        assert is_closed(gone, 10)
    assert kept[-1].ask(GET).status == 200


def test_one_that_is_answered_keeps_its_connection_and_the_newcomer_is_told_to_come_again(run: Run, many: Any) -> None:
    server = run(showing, connections=MOST, request_seconds=60)
    busy = many(server, MOST, SLOW)
    time.sleep(0.1)
    (fresh,) = many(server, 1)
    answer = fresh.ask(HEAD + b"\r\n" + b"x" * 1000)
    assert (answer.status, answer.fields["connection"]) == (503, "close")
    assert int(answer.fields["retry-after"]) > 0
    fresh.socket.settimeout(5)
    assert is_closed(fresh, 5)
    assert [wire.read().status for wire in busy] == [200] * MOST
    (fresh,) = many(server, 1)
    assert fresh.ask(GET).status == 200


@pytest.mark.parametrize("size", [200, 300_000], ids=["small", "more than a socket buffers"])
def test_all_that_come_at_once_are_served_or_told_to_come_again_and_none_is_cut_off(
    run: Run, many: Any, size: int
) -> None:
    """They connect, and send a moment later: then some have made room for others already."""
    server = run(connections=50, request_seconds=60)
    wires = many(server, 55)
    time.sleep(0.2)
    request = HEAD.replace(b"1000", b"%d" % size) + b"\r\n" + b"x" * size
    answers = [wire.ask(request) for wire in wires]
    assert Counter(answer.status for answer in answers) == {200: 50, 503: len(wires) - 50}
    assert all("retry-after" in answer.fields for answer in answers if answer.status == 503)


def test_a_large_request_that_is_answered_before_it_is_here_and_asks_for_the_end_has_its_answer(run: Run) -> None:
    async def at_once(scope: Any, _receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("no lifespan")
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    server = run(at_once)
    body = b"x" * 3_000_000
    with HTTPWire(server.port) as wire:
        wire.send(HEAD.replace(b"1000", b"%d" % len(body)) + b"Connection: close\r\n\r\n")
        time.sleep(0.1)
        assert wire.ask(body).status == 413


def test_one_that_is_turned_away_need_not_send_its_body(run: Run, many: Any) -> None:
    server = run(showing, connections=1, request_seconds=60)
    (busy,) = many(server, 1, SLOW)
    time.sleep(0.1)
    (fresh,) = many(server, 1)
    assert fresh.ask(HEAD + b"Expect: 100-continue\r\n\r\n").status == 503
    assert busy.read().status == 200


def test_a_flood_of_newcomers_is_cut_off_before_it_takes_all_files(run: Run, many: Any) -> None:
    server = run(showing, connections=MOST, request_seconds=60)
    many(server, MOST, SLOW)
    time.sleep(0.1)
    flood = many(server, 20)
    assert within(5, lambda: len(server.server.server_state.connections), lambda count: count <= MOST + 2)
    assert sum(map(is_closed, flood)) >= 18


@pytest.mark.parametrize("sends", [HEAD, HEAD + b"\r\nhalf"], ids=["half a head", "half a body"])
def test_slow_senders_shut_out_no_client_for_long(run: Run, many: Any, sends: bytes) -> None:
    """They go on sending, so that they are never late."""
    server = run(showing, connections=MOST, head_seconds=0.5)
    slow = many(server, MOST, sends)
    time.sleep(0.1)
    end = threading.Event()

    def trickle() -> None:
        while not end.wait(0.1):
            for wire in slow:
                with suppress(OSError):
                    wire.send(b"X-More: x\r\n" if sends == HEAD else b"x")

    sender = threading.Thread(target=trickle)
    sender.start()
    try:
        (fresh,) = many(server, 1)
        assert fresh.ask(GET).status == 503
        time.sleep(0.7)
        (fresh,) = many(server, 1)
        assert fresh.ask(GET).status == 200
    finally:
        end.set()
        sender.join()


def test_a_client_that_does_not_read_its_answer_does_not_keep_its_connection(run: Run) -> None:
    async def long(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("no lifespan")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100):
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
        await send({"type": "http.response.body"})

    server = run(long)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(GET)
        assert within(5, lambda: len(server.server.server_state.connections), bool)
        assert not within(10, lambda: len(server.server.server_state.connections), lambda count: not count)


def test_crowding_is_told_once_a_minute(run: Run, many: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_TELL_SECONDS", 1.0)
    server = run(showing, connections=2, request_seconds=60)
    many(server, 4)
    assert within(5, lambda: server.told, bool) == [("serve.crowded", {"connections": 2, "closed": 2, "refused": 0})]
    many(server, 1)
    many(server, 3, SLOW)
    time.sleep(0.3)
    assert len(server.told) == 1
    told = within(5, lambda: server.told, lambda told: len(told) == 2)[1][1]
    assert told["closed"] + told["refused"] == 4


# files


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "answer", "limit"),
    [
        (1024, 4096, 500, 500, 1024),
        (1024, 4096, 1000, 1000, 1356),
        (1024, 1024, 1000, 698, 1024),
        (100, 100, 1000, 45, 100),
        (1024, resource.RLIM_INFINITY, 5000, 5000, 5756),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 5000, 5000, resource.RLIM_INFINITY),
    ],
)
def test_the_process_may_open_as_many_files_as_its_connections_need(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, connections: int, answer: int, limit: int
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    assert files_for(connections) == (answer, limit)
    assert limits[-1] == (limit, hard)
