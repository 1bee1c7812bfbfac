"""``queue-server`` and ``serve --queues``: the queues of a store for programs on other machines."""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import wsrm_mq
from tests.support.commands import Wsrm, document
from tests.support.queue_server import PEM, Started, asked
from tests.support.serve_command import SOURCE, Serve, eventually
from wsrm_mq.node import connect
from wsrm_mq.source.source import RMSource
from wsrm_mq.testing import Reply


@pytest.fixture
def token(wsrm: Wsrm, path: Path) -> str:
    """The secret of a principal that may do all with the queue ``orders``."""
    rights = [word for right in ("put", "consume", "peek", "admin") for word in (f"--{right}", "orders")]
    return wsrm("token", "add", "shop", *rights).stdout.strip()


def test_a_message_is_put_and_taken_over_http_by_who_has_a_token(serve_queues: Started, token: str) -> None:
    server = serve_queues()
    assert server.url.startswith("http://127.0.0.1:")
    status, _headers, body = asked(server.url, "POST", "/queues/orders/messages", token, b"two seats")
    assert (status, json.loads(body)["position"]) == (201, 1)
    status, headers, body = asked(server.url, "POST", "/queues/orders/leases?wait=5", token)
    assert (status, body) == (200, b"two seats")
    lease = json.loads(headers["message"])
    done = {"settlements": [{"position": lease["position"], "lease": lease["lease"], "action": "ack"}]}
    status, _headers, body = asked(
        *(server.url, "POST", "/settlements", token, json.dumps(done).encode()), Content_Type="application/json"
    )
    assert (status, json.loads(body)) == (200, {"settlements": ["settled"]})
    status, said = server.end()
    assert (status, "stopping" in said) == (0, True)


def test_a_token_that_is_revoked_while_it_serves_is_refused(serve_queues: Started, token: str, wsrm: Wsrm) -> None:
    server = serve_queues()
    assert asked(server.url, "GET", "/queues", token)[0] == 200
    assert wsrm("token", "revoke", "shop").exit_code == 0
    assert eventually(lambda: asked(server.url, "GET", "/queues", token)[0] == 401)


def test_with_a_certificate_it_speaks_tls(serve_queues: Started, token: str) -> None:
    server = serve_queues("--tls-certificate", str(PEM))
    assert server.url.startswith("https://")
    assert asked(server.url, "POST", "/queues/orders/messages", token, b"two seats")[0] == 201
    status, said = server.end()
    assert (status, "Traceback" in said) == (0, False)


def refused(somewhere: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "wsrm_mq", "queue-server", "--port", "0", *arguments]
    done = subprocess.run(command, cwd=somewhere, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_where_other_machines_reach_it_it_does_not_start_without_a_token_and_tls(
    somewhere: Path, wsrm: Wsrm, path: Path
) -> None:
    status, said = refused(somewhere, "--host", "0.0.0.0")
    assert (status, "no token lets anybody" in said, "read on the way" in said) == (2, True, True)
    wsrm("token", "add", "shop", "--put", "*")
    status, said = refused(somewhere, "--host", "0.0.0.0")
    assert (status, "no token" in said, "behind_proxy = true" in said) == (2, False, True)


def test_where_other_machines_reach_it_it_starts_behind_a_proxy_by_a_word(serve_queues: Started, token: str) -> None:
    server = serve_queues("--host", "0.0.0.0", "--behind-proxy")
    port = urlsplit(server.url).port
    assert asked(f"http://127.0.0.1:{port}", "GET", "/queues", token)[0] == 200


def test_a_certificate_that_cannot_be_used_is_told(somewhere: Path, path: Path) -> None:
    (somewhere / "none.pem").write_text("nothing")
    for file in ("none.pem", "missing.pem"):
        status, said = refused(somewhere, "--tls-certificate", file)
        assert (status, f"cannot use the certificate in {file}" in said, "Traceback" in said) == (1, True, False)


@pytest.mark.timeout(120)
def test_beside_a_wrapped_service_a_consumer_takes_what_its_partner_sent(
    serve: Serve, wsrm: Wsrm, somewhere: Path, path: Path
) -> None:
    (somewhere / "wsrm-mq.toml").write_text('mode = "pull"\nqueue = "orders"\n')
    token = wsrm("token", "add", "packer", "--consume", "orders").stdout.strip()
    served = serve("shop:app", "--port", "0", "--queues")
    identifier = served.create()
    message = SOURCE.message(identifier, 1, reply_to="none")
    assert Reply.parse(served.post(message).read()).ack.ranges == ((1, 1),)
    status, headers, body = asked(served.url, "POST", "/queues/queues/orders/leases?wait=20", token)
    assert (status, body) == (200, message)
    assert json.loads(headers["message"])["number"] == 1
    assert asked(served.url, "GET", "/queues/queues", None)[0] == 401
    status, _said = served.end(signal.SIGTERM)
    assert status == 0


@pytest.mark.timeout(120)
@pytest.mark.scenario("Q-107")
def test_a_full_queue_refuses_a_partner_over_its_socket_until_a_consumer_over_http_has_made_room(
    serve: Serve, token: str, somewhere: Path
) -> None:
    pytest.importorskip("aiohttp", reason="the client needs aiohttp: pip install 'wsrm-mq[client]'")
    (somewhere / "wsrm-mq.toml").write_text('mode = "pull"\nqueue = "orders"\n')
    served = serve("shop:app", "--port", "0", "--queues")
    with wsrm_mq.connect(f"{served.url}/queues", token=token) as node:
        node.declare("orders", max_messages=10)
        identifier = served.create()
        for number in range(1, 11):
            assert served.post(SOURCE.message(identifier, number, reply_to="none")).status == 200
        last = SOURCE.message(identifier, 11, reply_to="none")
        before = rows(somewhere)
        refused = served.post(last)
        assert (refused.status, b"max_messages" in refused.read()) == (503, True)
        assert int(refused.headers["Retry-After"]) > 0
        asked_again = Reply.parse(served.post(SOURCE.ack_requested(identifier)).read())
        assert asked_again.ack.ranges == ((1, 10),)
        assert rows(somewhere) == before, "no trace"
        assert node.receive("orders")[0].ack() == "settled"
        assert Reply.parse(served.post(last).read()).ack.ranges == ((1, 11),)
        assert [one.number for one in node.peek("orders")] == [*range(2, 12)]


def rows(somewhere: Path) -> list[Any]:
    """How many messages and entries the store has, and the last of each."""
    with closing(sqlite3.connect(somewhere / "wsrm.db")) as db:
        return [db.execute(f"SELECT count(*), max(id) FROM {table}").fetchone() for table in ("message", "entry")]


def test_an_application_that_is_wrapped_already_has_the_queues_of_its_own_store(
    serve: Serve, wsrm: Wsrm, somewhere: Path
) -> None:
    (somewhere / "wrapped.py").write_text(
        "from shop import app as plain\nfrom wsrm_mq.wsgi import WSRMMiddleware\n"
        "app = WSRMMiddleware(plain, store='own.db')\n"
    )
    assert wsrm("store", "init", "--store", "own.db").exit_code == 0
    token = wsrm("token", "add", "shop", "--peek", "*", "--store", "own.db").stdout.strip()
    served = serve("wrapped:app", "--port", "0", "--queues")
    assert asked(served.url, "GET", "/queues/queues", token)[0] == 200


def leased_in_time(url: str, token: str, seconds: int) -> Future[int]:
    """Have a thread wait for a message of ``orders``; answers the status that it will get."""
    done: Future[int] = Future()

    def wait() -> None:
        done.set_result(asked(url, "POST", f"/queues/orders/leases?wait={seconds}", token)[0])

    threading.Thread(target=wait, daemon=True).start()
    return done


def test_a_wait_is_answered_at_once_when_the_server_is_told_to_stop(serve_queues: Started, token: str) -> None:
    server = serve_queues()
    answered = leased_in_time(server.url, token, 60)
    time.sleep(1.0)
    begun = time.monotonic()
    status, said = server.end()
    assert (status, answered.result(), "cut off" in said) == (0, 204, False)
    assert time.monotonic() - begun < 20


def test_who_has_no_token_yet_is_told_how_to_make_one(serve_queues: Started, wsrm: Wsrm, path: Path) -> None:
    server = serve_queues()
    status, headers, body = asked(server.url, "GET", "/queues")
    assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="wsrm-mq"')
    assert json.loads(body)["code"] == "NotAuthenticated"
    assert "`wsrm-mq token add`" in server.end()[1]
    assert document(wsrm("token", "list", "--json"))["tokens"] == []


def test_a_token_that_is_revoked_while_its_consumer_waits_gets_nothing_more(
    serve_queues: Started, token: str, wsrm: Wsrm, path: Path
) -> None:
    server = serve_queues()
    asked(server.url, "PUT", "/queues/orders", token, b"{}", Content_Type="application/json")
    answered = leased_in_time(server.url, token, 15)
    time.sleep(0.5)
    assert wsrm("token", "revoke", "shop").exit_code == 0
    time.sleep(1.0)
    with connect(path) as node:
        node.put("orders", b"two seats")
        assert answered.result() == 204
        (message,) = node.receive("orders", wait=5)
        assert (message.body, message.failures) == (b"two seats", 0)


def test_stomp_is_spoken_beside_http_with_the_same_tokens_and_messages(serve_queues: Started, token: str) -> None:
    server = serve_queues("--stomp-port", "0", "--stomp-websocket-port", "0")
    assert asked(server.url, "POST", "/queues/orders/messages", token, b"two seats")[0] == 201
    status, said = server.end()
    (port,) = re.findall(r"STOMP on stomp://127\.0\.0\.1:(\d+)", said)
    assert (status, "STOMP on ws://127.0.0.1:" in said) == (0, True)
    server = serve_queues("--stomp-port", port)
    with socket.create_connection(("127.0.0.1", int(port)), timeout=20) as client:
        client.sendall(f"CONNECT\naccept-version:1.2\nhost:x\npasscode:{token}\n\n\0".encode())
        client.sendall(b"SUBSCRIBE\nid:1\ndestination:/queue/orders\nack:client\n\n\0")
        got = b""
        while b"two seats\0" not in got:
            piece = client.recv(4096)
            assert piece, got
            got += piece
    assert got.startswith(b"CONNECTED\n")
    assert server.end()[0] == 0


def test_a_port_of_stomp_that_is_taken_is_told_and_nothing_is_served(somewhere: Path, path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, said = refused(somewhere, "--stomp-port", str(taken.getsockname()[1]))
    assert (status, "cannot listen on 127.0.0.1" in said) == (1, True)


def test_serve_without_queues_says_that_it_opens_no_port_of_stomp(
    serve: Serve, somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WSRM_MQ_STOMP_PORT", "0")
    served = serve("shop:app", "--port", "0")
    assert asked(served.url, "GET", "/queues/queues")[0] != 401
    status, said = served.end(signal.SIGTERM)
    assert (status, "no port of STOMP is opened" in said) == (0, True)


@pytest.mark.timeout(120)
def test_beside_a_wrapped_service_other_nodes_hand_messages_over_and_the_service_is_not_called(
    serve: Serve, wsrm: Wsrm, somewhere: Path, path: Path
) -> None:
    """Also not by its next start, which finds them in the intake."""
    token = wsrm("token", "add", "north", "--route", "orders*").stdout.strip()
    request = b'<e:Envelope xmlns:e="http://www.w3.org/2003/05/soap-envelope"><e:Header/><e:Body/></e:Envelope>'
    with RMSource(somewhere / "north.db", headers={"Authorization": f"Bearer {token}"}) as node:
        for _start in range(2):
            served = serve("shop:app", "--port", "0", "--queues")
            node.send(request, to=f"{served.url}/queues/rm", action="urn:wsrm-mq:route:put", acknowledged_within=30)
            assert served.end(signal.SIGTERM)[0] == 0
            assert served.calls() == []
