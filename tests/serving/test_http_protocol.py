"""What clients send `serve` by default: offers of HTTP/2, sockets half closed, requests ahead of the answers."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from tests.support.bounded_server import GET, SHORT, Run, application, showing
from tests.support.orders import chunked
from wsrm_mq.testing import HTTPAnswer, HTTPWire

OFFER = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
)
BODY = b"<order>" + b"0123456789" * 50 + b"</order>"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: here\r\n\r\n"


def post(body: bytes, *fields: str, path: str = "/orders", framing: str | None = None) -> tuple[bytes, bytes]:
    """Head and body of a request."""
    framing = framing or f"Content-Length: {len(body)}"
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: here", *fields, framing, "", ""]).encode(), body


def shown(answer: HTTPAnswer) -> dict[str, Any]:
    assert answer.status == 200
    found: dict[str, Any] = json.loads(answer.body)
    return found


def is_closed(wire: HTTPWire) -> bool:
    try:
        return wire.socket.recv(1) == b""
    except ConnectionResetError:
        return True


def pieces(request: tuple[bytes, bytes], way: str) -> list[bytes]:
    head, body = request
    match way:
        case "one segment":
            return [head + body]
        case "body apart":
            return [head, body]
        case "split head":
            return [head[:70], head[70:] + body[:3], body[3:]]
    return [bytes((byte,)) for byte in head + body]


def send(wire: HTTPWire, parts: list[bytes]) -> None:
    for part in parts:
        wire.send(part)
        if len(part) > 1:
            time.sleep(0.02)  # a segment of its own


each_way = pytest.mark.parametrize("way", ["one segment", "body apart", "split head", "byte by byte"])


@each_way
@pytest.mark.parametrize("body", [BODY, SMUGGLED], ids=["an order", "a request"])
def test_an_offer_of_http_2_is_declined_and_the_request_answered(run: Run, way: str, body: bytes) -> None:
    with HTTPWire(run(showing).port) as wire:
        for _ in range(2):  # the connection is kept
            send(wire, pieces(post(body, *OFFER), way))
            found = shown(wire.read())
            assert (found["asked"], found["body"]) == ("POST /orders", body.decode())
        wire.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            wire.socket.recv(1)  # nothing was answered that was not asked


@each_way
def test_a_chunked_request_with_an_offer_is_read_to_its_end(run: Run, way: str) -> None:
    with HTTPWire(run(showing).port) as wire:
        head, _ = post(b"", *OFFER, framing="Transfer-Encoding: chunked")
        send(wire, pieces((head, chunked(SMUGGLED, [5, 9])), way))
        found = shown(wire.read())
        assert (found["asked"], found["body"]) == ("POST /orders", SMUGGLED.decode())
        assert shown(wire.ask(GET))["asked"] == "GET /"


def test_requests_behind_and_before_one_with_an_offer_are_answered_in_turn(run: Run) -> None:
    with HTTPWire(run(showing).port) as wire:
        plain, offering = post(BODY, path="/slow"), post(SMUGGLED, *OFFER)
        wire.send(b"".join((*plain, *offering, *offering, *plain)))
        answers = [shown(wire.read()) for _ in range(4)]
        assert [one["asked"] for one in answers] == ["POST /slow", "POST /orders", "POST /orders", "POST /slow"]
        assert [one["body"] for one in answers] == [BODY.decode(), SMUGGLED.decode(), SMUGGLED.decode(), BODY.decode()]


def test_an_offer_beside_expect_is_told_to_continue(run: Run) -> None:
    with HTTPWire(run(showing).port) as wire:
        head, body = post(SMUGGLED, *OFFER, "Expect: 100-continue")
        wire.send(head)
        assert wire.read().status == 100
        wire.send(body)
        assert shown(wire.read())["body"] == SMUGGLED.decode()


def test_the_service_sees_every_field_but_the_offer(run: Run) -> None:
    with HTTPWire(run(showing).port) as wire:
        send(wire, [b"".join(post(BODY, "X-Empty:", *OFFER, "X-Last:  a  b"))])
        fields = shown(wire.read())["fields"]
    expected = {"host": "here", "x-empty": "", "connection": OFFER[0][12:], "x-last": "a  b"}
    assert fields == expected | {"content-length": str(len(BODY))}


@pytest.mark.parametrize(
    "fields", [("Connection: upgrade", "Upgrade: websocket"), ("Connection: close, Upgrade", "Upgrade: TLS/1.0")]
)
def test_any_other_offer_is_declined_too(run: Run, fields: tuple[str, ...]) -> None:
    with HTTPWire(run(showing).port) as wire:
        send(wire, list(post(BODY, *fields)))
        assert shown(wire.read())["body"] == BODY.decode()
        if "close" in fields[0]:
            assert is_closed(wire)


@pytest.mark.parametrize("host", ["here:80", "/"])
def test_no_tunnel_begins_here(run: Run, host: str) -> None:
    with HTTPWire(run(showing).port) as wire:
        wire.send(f"CONNECT {host} HTTP/1.1\r\nHost: here\r\n\r\n".encode() + SMUGGLED)
        assert wire.read().status == 400
        assert is_closed(wire)


# a client that closes its side


@pytest.mark.parametrize("path", ["/slow", "/"])
def test_a_client_that_closes_its_side_has_its_answer(run: Run, path: str) -> None:
    with HTTPWire(run(showing).port) as wire:
        wire.send(b"".join(post(BODY, path=path)))
        wire.socket.shutdown(socket.SHUT_WR)
        assert shown(wire.read())["body"] == BODY.decode()
        assert is_closed(wire)


def test_so_has_one_that_sent_several_requests_first(run: Run) -> None:
    with HTTPWire(run(showing).port) as wire:
        wire.send(b"".join(post(b"1", path="/slow") + post(b"2") + post(b"3")))
        wire.socket.shutdown(socket.SHUT_WR)
        assert [shown(wire.read())["body"] for _ in range(3)] == ["1", "2", "3"]
        assert is_closed(wire)


def test_one_that_breaks_off_in_a_body_has_the_answers_before_it(run: Run) -> None:
    with HTTPWire(run(showing).port) as wire:
        wire.send(b"".join(post(b"1", path="/slow") + post(b"2")) + post(BODY)[0] + b"half")
        wire.socket.shutdown(socket.SHUT_WR)
        assert [shown(wire.read())["body"] for _ in range(2)] == ["1", "2"]
        assert is_closed(wire)


@pytest.mark.parametrize(
    "sent", [b"", b"POST /ord", post(BODY)[0] + b"half", GET], ids=["nothing", "head", "body", "all"]
)
def test_a_connection_that_asks_nothing_more_is_closed_with_it(run: Run, sent: bytes) -> None:
    with HTTPWire(run(showing, request_seconds=60).port) as wire:
        wire.send(sent)
        if sent == GET:
            wire.read()
        wire.socket.shutdown(socket.SHUT_WR)
        wire.socket.settimeout(5)
        assert is_closed(wire)


# requests ahead of the answers


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_client_that_hangs_up_is_no_error_of_ours(run: Run, caplog: pytest.LogCaptureFixture, ahead: int) -> None:
    server = run(showing)
    for _ in range(5):
        with HTTPWire(server.port) as wire:
            wire.send(
                b"".join(post(BODY, path="/slow") * ahead) + post(b"x" * 200_000, path="/slow")[0] + b"x" * 100_000
            )
            time.sleep(0.05)
            wire.reset()
    time.sleep(SHORT * 2)
    with HTTPWire(server.port) as wire:
        assert shown(wire.ask(GET))
    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []


def test_what_is_no_request_takes_no_answer_from_one_before_it(run: Run) -> None:
    with HTTPWire(run(showing).port) as wire:
        wire.send(b"".join(post(BODY, path="/slow")) + b"no request\r\n\r\n" * 3)
        assert shown(wire.read())["body"] == BODY.decode()
        assert is_closed(wire)


def test_a_body_that_goes_wrong_is_refused_and_the_end(run: Run) -> None:
    with HTTPWire(run(showing).port) as wire:
        head, _ = post(b"", framing="Transfer-Encoding: chunked")
        wire.send(head + b"3\r\nabcdef\r\n")
        assert wire.read().status == 400
        assert is_closed(wire)


# what clients and attackers write


def test_http_1_0_is_answered_and_closed(run: Run) -> None:
    with HTTPWire(run(showing).port) as wire:
        wire.send(b"POST /old HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc")
        assert shown(wire.read()) == {"asked": "POST /old", "fields": {"content-length": "3"}, "body": "abc"}
        assert is_closed(wire)


@pytest.mark.parametrize("target", ["http://here/orders", "/orders", "/%6frders"])
def test_a_target_may_name_the_host(run: Run, target: str) -> None:
    with HTTPWire(run(showing).port) as wire:
        assert shown(wire.ask(GET.replace(b" / ", f" {target} ".encode())))["asked"] == "GET /orders"


@pytest.mark.parametrize(
    "fields",
    [
        ("Content-Length: 3", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 3"),
        ("Content-Length: 3", "Content-Length: 4"),
        ("Content-Length: +3",),
        ("Content-Length : 3",),
        ("Content-Length: 99999999999999999999999",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",),
        ("X-Folded: a\r\n b",),
    ],
    ids=lambda fields: " ".join(fields)[:40],
)
@pytest.mark.parametrize("offer", [(), OFFER], ids=["plain", "offer"])
def test_a_body_whose_end_is_doubtful_is_refused(run: Run, fields: tuple[str, ...], offer: tuple[str, ...]) -> None:
    with HTTPWire(run(showing).port) as wire:
        wire.send("\r\n".join(["POST / HTTP/1.1", "Host: here", *offer, *fields, "", "0\r\n\r\n"]).encode() + SMUGGLED)
        assert wire.read().status == 400
        assert is_closed(wire)


def test_a_get_with_a_body_has_it_read(run: Run) -> None:
    with HTTPWire(run(showing).port) as wire:
        wire.send(b"GET / HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\nabc" + GET)
        assert shown(wire.read())["body"] == "abc"
        assert shown(wire.read())["body"] == ""


def test_a_refused_request_is_not_told_to_continue(run: Run) -> None:
    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await application(scope, receive, send)
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    with HTTPWire(run(refusing).port) as wire:
        wire.send(post(BODY, "Expect: 100-continue")[0])
        assert wire.read().status == 413
