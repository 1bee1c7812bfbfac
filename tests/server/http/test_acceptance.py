"""The guarantees of the server hold whatever dies, and however much is asked of it: real processes, and kill -9."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.client import HTTPException
from itertools import count
from typing import Any

import pytest

from tests.server.http.conftest import SECRETS, Answer, Http, Process, Serve, queue
from tests.server.http.test_http import refused, settled
from wsrm_mq.server.bounds import Bounds
from wsrm_mq.server.http.call import Limits

HttpOf = Callable[..., Http]
HEAD = f"Host: x\r\nAuthorization: Bearer {SECRETS['root']}\r\n"


def drained(http: Http, name: str) -> list[bytes]:
    """Take all that is in a queue."""
    found: list[bytes] = []
    while (answer := http("POST", queue(name, "/leases?max=1000"))).status == 200:
        parts = answer.parts()
        found += [body for _told, body in parts]
        http("POST", "/settlements", settled([told for told, _body in parts]))
    return found


@pytest.mark.scenario("Q-009")
def test_what_was_confirmed_is_there_after_the_server_was_killed(process: Process) -> None:
    confirmed: list[bytes] = []
    tried: list[bytes] = []
    numbers = count()

    def produce() -> None:
        while process.process.poll() is None:
            try:
                http = process.http()
                while True:
                    body = b"%d" % next(numbers)
                    tried.append(body)
                    if http("POST", queue("orders", "/messages"), body).status == 201:
                        confirmed.append(body)
            except (OSError, HTTPException):
                continue

    for round_ in range(1, 4):
        producers = [threading.Thread(target=produce) for _ in range(4)]
        for one in producers:
            one.start()
        while len(confirmed) < 40 * round_:
            time.sleep(0.01)
        process.kill()
        for one in producers:
            one.join()
        process.start()
    found = drained(process.http(), "orders")
    assert len(set(found)) == len(found)
    assert set(confirmed) <= set(found) <= set(tried)


@pytest.mark.scenario("Q-010")
def test_of_a_batch_all_is_there_or_nothing_after_the_server_was_killed(process: Process) -> None:
    process.http()("PUT", queue("orders"), {})
    for round_ in range(3):
        sending = threading.Thread(target=_send_batch, args=(process.http(), round_))
        sending.start()
        time.sleep(0.02 + 0.03 * round_)
        process.kill()
        sending.join()
        process.start()
    found = drained(process.http(), "orders")
    for round_ in range(3):
        assert sum(body.startswith(b"%d " % round_) for body in found) in (0, 1000)


def _send_batch(http: Http, round_: int) -> None:
    try:
        http.several(queue("orders", "/messages"), [({}, b"%d %d" % (round_, number)) for number in range(1000)])
    except (OSError, HTTPException):
        return


@pytest.mark.scenario("Q-028")
def test_what_is_collected_for_a_client_that_is_away_is_there_after_the_server_was_killed(process: Process) -> None:
    http = process.http()
    http("PUT", "/durable/inbox", {"topic": "db/#", "client": "w1"})
    for number in range(20):
        http("POST", "/topics/db%2Fadd/messages", b"%d" % number)
        if number in (5, 12):
            process.kill()
            process.start()
            http = process.http()
    session = http.begin("w1")
    made = session("POST", "/subscriptions", {"topic": "db/#", "name": "inbox", "max_backlog": 30}).json()
    found: list[Any] = []
    while len(found) < 20:
        found += session("POST", f"/subscriptions/{made['subscription']}/leases?max=30&wait=5").parts()
    assert [body for _told, body in found] == [b"%d" % number for number in range(20)]
    assert not any(told["failures"] for told, _body in found)


@pytest.mark.scenario("Q-071")
def test_what_a_client_had_that_fell_silent_is_ready_for_others_oldest_first_and_uncounted(http: Http) -> None:
    http("PUT", queue("orders"), {"lease": 3600})
    http.several(queue("orders", "/messages"), [({}, b"%d" % number) for number in range(5)])
    gone = http.begin("w1", timeout=1.0)
    assert len(gone("POST", queue("orders", "/leases?max=3")).parts()) == 3
    gone.close()
    there = http.begin("w2")
    assert [body for _told, body in there("POST", queue("orders", "/leases?max=5")).parts()] == [b"3", b"4"]
    found = there("POST", queue("orders", "/leases?max=5&wait=10")).parts()
    while len(found) < 3:
        found += there("POST", queue("orders", "/leases?max=5&wait=10")).parts()
    assert [(body, told["failures"], told["deliveries"]) for told, body in found] == [
        (b"%d" % n, 0, 2) for n in range(3)
    ]


@pytest.mark.scenario("Q-027")
def test_a_server_that_was_killed_gives_what_was_leased_to_the_client_that_comes_next(process: Process) -> None:
    http = process.http()
    http("PUT", queue("orders"), {"lease": 3600})
    http.several(queue("orders", "/messages"), [({}, b"%d" % number) for number in range(10)])
    session = http.begin()
    had = session("POST", queue("orders", "/leases?max=10")).parts()
    session("POST", "/settlements", settled([told for told, _body in had[:6]]))
    process.kill()
    process.start()
    refused(Http(process.port, "root", session.session)("GET", "/session"), 410, "SessionEnded")
    again = process.http()("POST", queue("orders", "/leases?max=10&wait=10")).parts()
    assert [(body, told["deliveries"], told["failures"]) for told, body in again] == [
        (b"%d" % number, 2, 0) for number in range(6, 10)
    ]


def test_strangers_who_never_send_their_bodies_keep_nobody_waiting(serve: Serve) -> None:
    served = serve(limits=Limits(running=2))
    head = b"POST /queues/a/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer no\r\nContent-Length: 99999\r\n\r\n"
    with ExitStack() as strangers:
        for _ in range(5):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            stranger.sendall(head)
        http = served.http()
        assert {http("GET", "/session").status for _ in range(20)} == {400}, "it names no session; it is not 503"


@pytest.mark.scenario("Q-012")
def test_a_transaction_that_is_cut_off_never_was(http: Http) -> None:
    http("PUT", queue("orders"), {})
    with socket.create_connection(("127.0.0.1", http.port)) as cut:
        begun = b'--x\r\nMessage: {"queue": "orders"}\r\n\r\none\r\n--x\r\nMessage: {"queue": "orders"}\r\n\r\ntwo'
        head = f"POST /transactions HTTP/1.1\r\n{HEAD}Content-Type: multipart/mixed; boundary=x\r\n"
        cut.sendall(f"{head}Content-Length: 500\r\n\r\n".encode() + begun)
        time.sleep(0.2)
    time.sleep(0.2)
    assert http("GET", queue("orders")).json()["messages"] == 0


def test_hundreds_that_wait_cost_no_thread_and_one_gets_each_message(http: Http) -> None:
    http("PUT", queue("orders"), {})
    before = threading.active_count()  # the server is in this process
    request = f"POST /queues/orders/leases?wait=20 HTTP/1.1\r\n{HEAD}Content-Length: 0\r\n\r\n".encode()
    waiting = []
    for _ in range(500):
        one = socket.create_connection(("127.0.0.1", http.port), timeout=20)
        one.sendall(request)
        waiting.append(one)
    time.sleep(1.0)
    assert threading.active_count() - before <= 8
    http.several(queue("orders", "/messages"), [({}, b"body-%03d" % number) for number in range(500)])
    found = []
    for one in waiting:
        answer = b""
        while b"body-" not in answer or len(answer.rpartition(b"body-")[2]) < 3:
            answer += one.recv(65536)
        found.append(answer.rpartition(b"body-")[2])
        one.close()
    assert sorted(found) == [b"%03d" % number for number in range(500)]


def test_an_overloaded_server_says_so_and_loses_nothing(serve: Serve) -> None:
    served = serve(limits=Limits(running=4))
    answers: list[Answer] = []

    def produce(number: int) -> None:
        http = served.http()
        for each in range(30):
            body = b"%d %d" % (number, each)
            while (answer := http("POST", queue("orders", "/messages"), body)).status == 503:
                answers.append(answer)
                time.sleep(0.01)
            assert answer.status == 201

    producers = [threading.Thread(target=produce, args=(number,)) for number in range(16)]
    for one in producers:
        one.start()
    for one in producers:
        one.join()
    assert answers
    assert {refused(one, 503, "Overloaded")["retry_after"] for one in answers} == {1.0}
    assert {one.headers["retry-after"] for one in answers} == {"1"}
    assert len(set(drained(served.http(), "orders"))) == 480


def test_a_body_that_is_too_large_is_refused_before_it_is_read(serve: Serve) -> None:
    served = serve(limits=Limits(body_bytes=1000, request_bytes=5000))
    http = served.http()
    with socket.create_connection(("127.0.0.1", http.port), timeout=10) as one:
        one.sendall(f"POST /queues/a/messages HTTP/1.1\r\n{HEAD}Content-Length: 99999999999\r\n\r\n".encode())
        assert b" 413 " in one.recv(65536)
    with socket.create_connection(("127.0.0.1", http.port), timeout=10) as one:
        one.sendall(f"POST /queues/a/messages HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(3):
            one.sendall(b"190\r\n" + b"x" * 400 + b"\r\n")
        assert b" 413 " in one.recv(65536)
    assert http("POST", queue("a", "/messages"), b"x" * 1000).status == 201
    refused(http.several(queue("a", "/messages"), [({}, b"x" * 1001)]), 413, "TooLarge")
    assert http("GET", queue("a")).json()["messages"] == 1


def test_a_small_body_that_is_refused_is_read_so_that_the_answer_comes(serve: Serve) -> None:
    served = serve(limits=Limits(body_bytes=1000))
    head = f"POST /queues/a/messages HTTP/1.1\r\n{HEAD}Content-Length: 200000\r\n\r\n".encode()
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", served.port), timeout=30) as one:
            one.sendall(head + b"x" * 100_000)
            time.sleep(0.2)
            for _ in range(10):
                one.sendall(b"x" * 10_000)
            assert b" 413 " in one.recv(65536)


def test_a_compressed_body_is_refused(http: Http) -> None:
    answer = http("POST", queue("a", "/messages"), b"\x1f\x8b" + b"x" * 100, Content_Encoding="gzip")
    assert "compressed" in refused(answer, 400, "BadRequest")["detail"]


def test_who_sends_or_reads_no_further_is_cut_off(serve: Serve) -> None:
    served = serve(limits=Limits(pause_seconds=0.3))
    http = served.http()
    http("POST", queue("a", "/messages"), b"x" * 30_000_000)
    with socket.create_connection(("127.0.0.1", http.port), timeout=10) as one:
        one.sendall(f"POST /queues/a/messages HTTP/1.1\r\n{HEAD}Content-Length: 100\r\n\r\nx".encode())
        assert b" 400 " in one.recv(65536)
    with socket.create_connection(("127.0.0.1", http.port), timeout=10) as one:
        one.sendall(f"POST /queues/a/leases HTTP/1.1\r\n{HEAD}Content-Length: 0\r\n\r\n".encode())
        one.recv(1, socket.MSG_PEEK)  # the answer has begun
        time.sleep(1.5)
        size = 0
        while piece := _piece(one):
            size += len(piece)
        assert size < 30_000_000


def _piece(one: socket.socket) -> bytes:
    try:
        return one.recv(1 << 20)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(
    ("bounds", "ask"),
    [
        (Bounds(sessions=2), ("POST", "/sessions", {})),
        (Bounds(subscriptions=2), ("POST", "/subscriptions", {"queues": ["a"]})),
    ],
    ids=["sessions", "subscriptions"],
)
def test_a_principal_that_asks_for_a_million_gets_what_is_its_bound(serve: Serve, bounds: Bounds, ask: Any) -> None:
    http = serve(bounds=bounds).http()
    http("PUT", queue("a"), {})
    session = http.begin()
    answers = [session(*ask) for _ in range(10)]
    assert [one.status for one in answers[-5:]] == [429] * 5
    refused(answers[-1], 429, "LimitReached")


def test_a_header_cannot_be_smuggled_in(http: Http, http_of: HttpOf) -> None:
    for name in ("a%0d%0aX:%201", "a%00b", "%0a"):
        answer = http("PUT", f"/queues/{name}", {})
        refused(answer, 400, "ConfigurationError")
        assert "x" not in answer.headers
    guessed = http_of("wsrm-mq-guessed")("GET", "/queues")
    refused(guessed, 401, "NotAuthenticated")
    assert b"guessed" not in guessed.body
