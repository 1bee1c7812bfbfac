"""Strangers, and principals that want more than is theirs, attack a queue server that runs as a process."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Wsrm, document
from tests.support.queue_server import QueueServer, Started, asked
from tests.support.serve_command import eventually
from wsrm_mq.node import connect
from wsrm_mq.server.http.application import ALL
from wsrm_mq.server.http.operation import Operation
from wsrm_mq.server.logins import MOST
from wsrm_mq.server.tokens import PREFIX, new_secret
from wsrm_mq.store.sqlite import schema

RIGHTS = ("put", "consume", "peek", "admin")
JSON = {"Content_Type": "application/json"}
TAKEN: dict[str, Any] = {
    "settle_by_filter": {"action": "ack", "filter": "priority > 0"},
    "acknowledge": {"position": 1},
    "subscribe": {"queues": ["QUEUE"]},
    "bind": {"pattern": "a/b", "queue": "QUEUE"},
}
"""Bodies of operations that need one, by their functions."""
QUERIES = {"unbind": "?pattern=a/b&queue=QUEUE", "lease_of_several": "?queue=QUEUE"}


@pytest.fixture
def store(somewhere: Path) -> Path:
    path = somewhere / "wsrm.db"
    schema.ensure(path)
    return path


@pytest.fixture
def grant(wsrm: Wsrm, store: Path) -> Callable[[str, str], str]:
    """Make a token with every right to queues of a pattern; answers its secret."""

    def granted(name: str, pattern: str) -> str:
        made = wsrm("token", "add", name, *(word for right in RIGHTS for word in (f"--{right}", pattern)))
        return str(made.stdout.strip())

    return granted


def names_queue(operation: Operation) -> bool:
    return "{queue}" in operation.path or operation.does.__name__ in (*TAKEN, *QUERIES)


def called(server: QueueServer, operation: Operation, queue: str, token: str, **headers: str) -> tuple[int, bytes]:
    """Call an operation about ``queue``; status and body, in which the queue's name stands as QUEUE."""
    name = operation.does.__name__
    path = operation.path.replace("{queue}", queue).replace("{position}", "1") + QUERIES.get(name, "")
    body = json.dumps(TAKEN.get(name, {})).encode() if operation.takes not in ("message", "either") else b"x"
    sent = {} if body == b"x" else JSON
    status, _headers, said = asked(
        server.url,
        operation.method,
        path.replace("QUEUE", queue),
        token,
        body.replace(b"QUEUE", queue.encode()) if operation.method != "GET" else b"",
        **sent,
        **headers,
    )
    return status, said.replace(queue.encode(), b"QUEUE")


@pytest.mark.timeout(120)
def test_another_principals_queue_is_to_every_operation_as_one_that_does_not_exist(
    serve_queues: Started, grant: Callable[[str, str], str], store: Path
) -> None:
    mine, others = grant("mine", "mine*"), grant("others", "bills*")
    with connect(store) as node:
        node.declare("bills", journal=True)
        node.put("bills", b"secret", message_id="m1")
    server = serve_queues()
    session = json.loads(asked(server.url, "POST", "/sessions", mine, b"{}", **JSON)[2])["session"]
    about = [one for one in ALL if names_queue(one)]
    assert len(about) > 15
    for operation in about:
        there, missing = (called(server, operation, queue, mine, Session=session) for queue in ("bills", "nothing"))
        assert there == missing, operation.path
        assert there[0] == 404, (operation.path, there)
        assert json.loads(there[1])["code"] == "UnknownQueue"
    for path in ("/queues", "/clients"):
        status, _headers, said = asked(server.url, "GET", path, mine)
        assert (status, b"bills" in said) == (200, False)
    asked(server.url, "POST", "/sessions", others, b"{}", **JSON)
    told = json.loads(asked(server.url, "GET", "/sessions", mine)[2])["sessions"]
    assert {one["principal"] for one in told} == {"mine"}
    assert b"bills" in asked(server.url, "GET", "/queues", others)[2]
    assert b"secret" in asked(server.url, "GET", "/queues/bills/messages/1", others)[2]


def test_a_lease_and_a_session_are_of_the_principal_that_has_them(
    serve_queues: Started, grant: Callable[[str, str], str], store: Path
) -> None:
    mine, others = grant("mine", "mine"), grant("others", "*")
    server = serve_queues()
    session = json.loads(asked(server.url, "POST", "/sessions", mine, b"{}", **JSON)[2])["session"]
    assert asked(server.url, "POST", "/queues/mine/messages", mine, b"x")[0] == 201
    leased = json.loads(asked(server.url, "POST", "/queues/mine/leases", mine, Session=session)[1]["message"])
    settle = {"settlements": [{"position": leased["position"], "lease": leased["lease"], "action": "ack"}]}
    stolen = asked(server.url, "POST", "/settlements", others, json.dumps(settle).encode(), **JSON)
    assert json.loads(stolen[2]) == {"settlements": ["lost"]}
    in_it = asked(server.url, "POST", "/settlements", others, json.dumps(settle).encode(), Session=session, **JSON)
    assert (in_it[0], json.loads(in_it[2])["code"]) == (410, "SessionEnded")
    own = asked(server.url, "POST", "/settlements", mine, json.dumps(settle).encode(), Session=session, **JSON)
    assert json.loads(own[2]) == {"settlements": ["settled"]}


def test_who_had_messages_redriven_or_given_up_and_a_queue_deleted_is_on_record(
    serve_queues: Started, grant: Callable[[str, str], str], store: Path, wsrm: Wsrm
) -> None:
    ops = grant("ops", "orders")
    with connect(store) as node:
        node.put_many("orders", range(3))
        for message in node.receive("orders", 3):
            message.reject("no good")
        positions = [one.position for one in node.dead("orders").peek()]
    server = serve_queues()
    for act, about in (("redrive", 0), ("discard", 1)):
        body = json.dumps({"positions": [positions[about]]}).encode()
        assert asked(server.url, "POST", f"/dead/orders/{act}", ops, body, **JSON)[0] == 200
    assert asked(server.url, "POST", f"/dead/orders/messages/{positions[2]}", ops, b"as edited")[0] == 200
    for path in ("/queues/orders/messages", "/queues/orders"):
        assert asked(server.url, "DELETE", path, ops)[0] == 200
    found = document(wsrm("audit", "list", "--json", "--actor", "ops"))["acts"]
    assert [(one["event"], one["position"]) for one in found] == [
        ("redriven", positions[0]),
        ("discarded", positions[1]),
        ("redriven", positions[2]),
        ("queue_purged", None),
        ("queue_deleted", None),
    ]


def test_who_declared_bound_and_unbound_a_queue_and_had_a_topic_retained_is_on_record_once(
    serve_queues: Started, store: Path, wsrm: Wsrm
) -> None:
    rights = [f"--{right}={pattern}" for right in ("put", "consume", "admin") for pattern in ("*", "topic:#")]
    ops = str(wsrm("token", "add", "ops", *rights).stdout.strip())
    server = serve_queues()

    def ask(method: str, path: str, content: bytes = b"") -> int:
        return asked(server.url, method, path, ops, content, **JSON)[0]

    binding = b'{"pattern": "orders/#", "queue": "audit", "filter": "priority > 3"}'
    for _ in range(2):
        assert ask("PUT", "/queues/audit", b'{"ttl": 60}') == 200
        assert ask("PUT", "/bindings", binding) == 204
    assert ask("PUT", "/topics/orders%2F%23", b'{"retain": 60}') == 204
    assert ask("PUT", "/topics/orders%2F%23", b'{"retain": 0}') == 204
    for _ in range(2):
        assert ask("DELETE", "/bindings?pattern=orders/%23&queue=audit") == 200
    assert ask("PUT", "/queues/audit", b'{"actor": "another"}') == 400
    assert ask("POST", "/queues/new/messages", b"1") == 201
    found = document(wsrm("audit", "list", "--json", "--actor", "ops"))["acts"]
    assert [(one["event"], one["reason"]) for one in found] == [
        ("queue_declared", '{"ttl": 60}'),
        ("bound", "orders/#, priority > 3"),
        ("queue_declared", "orders/# for 60 seconds"),
        ("queue_deleted", "orders/# for 0 seconds"),
        ("unbound", "orders/#"),
        ("queue_declared", "{}"),
    ]


def test_a_flood_of_log_ins_is_answered_429_leaves_no_row_and_three_lines_and_shuts_no_other_client_out(
    serve_queues: Started, grant: Callable[[str, str], str], store: Path
) -> None:
    token = grant("mine", "mine")
    server = serve_queues("--log-level", "debug")
    size = rows(store)
    answers = [asked(server.url, "GET", "/queues", new_secret()) for _ in range(5 * MOST)]
    assert [status for status, _headers, _body in answers] == [401] * MOST + [429] * (4 * MOST)
    assert 0 < int(answers[-1][1]["retry-after"]) <= 60
    assert asked(server.url, "GET", "/queues", token)[0] == 200
    assert rows(store) == size
    counted = "SELECT name, label, value FROM counter WHERE name = 'event' AND label LIKE 'login.%' ORDER BY label"
    expected = [("event", "login.failed", 1), ("event", "login.flooded", 1)]
    assert eventually(lambda: read(store, counted) == expected)
    said = server.end()[1]
    assert (said.count("login.failed"), said.count("login.flooded")) == (1, 1)


def read(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(statement).fetchall()


def rows(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as db:
        tables = ("queue", "ledger", "message", "entry", "client", "subscription", "token", "refusal")
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}


@pytest.mark.timeout(120)
def test_a_token_is_in_no_log_trace_ledger_error_or_file(
    serve_queues: Started, grant: Callable[[str, str], str], store: Path, wsrm: Wsrm, somewhere: Path
) -> None:
    """All that a client may send, right and wrong, to a server that logs all it can."""
    right, revoked, wrong = grant("mine", "mine"), grant("gone", "*"), new_secret()
    assert wsrm("token", "revoke", "gone").exit_code == 0
    secrets = [right, revoked, wrong]
    server = serve_queues("--log-level", "debug", "--log-format", "json")
    answers: list[bytes] = []
    for token in secrets:
        for operation in ALL:
            status, said = called(server, operation, "mine", token)
            answers.append(said)
            assert status < 500, (operation.path, said)
        for scheme in ("Basic", "Digest", "bearer", ""):
            answers.append(asked(server.url, "GET", "/queues", Authorization=f"{scheme} {token}")[2])
        for broken in (b"{", b"\xff", b"--x\r\n\r\n", b"[1]"):
            kind = "multipart/mixed; boundary=x" if broken[:1] == b"-" else "application/json"
            for path in ("/settlements", "/messages", "/transactions", "/sessions"):
                answers.append(asked(server.url, "POST", path, token, broken, Content_Type=kind)[2])
        assert asked(server.url, "GET", "/queues", token, X_Client_Name=token)[0] in (200, 401, 429)
    told = [
        wsrm(*command).output
        for command in (("token", "list", "--json"), ("audit", "list", "--json"), ("status",), ("doctor",))
    ]
    status, log = server.end()
    assert (status, "login.failed" in log) == (0, True)
    for secret in secrets:
        assert all(secret.encode() not in answer for answer in answers)
        assert all(secret not in text for text in (*told, log))
        for file in somewhere.rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes(), file
    assert not re.search(f"{PREFIX}[A-Za-z0-9_-]{{20}}", log)


def test_a_name_of_a_tls_client_from_who_is_no_trusted_proxy_is_nothing(
    serve_queues: Started, wsrm: Wsrm, store: Path, somewhere: Path
) -> None:
    wsrm("token", "add", "ops", "--admin", "*", "--certificate", "CN=ops")
    toml = 'trusted_proxies = ["{}"]\nclient_name_header = "X-Client-Name"\n'
    for proxy, expected in (("192.0.2.1", 401), ("127.0.0.1", 200)):
        (somewhere / "wsrm-mq.toml").write_text(toml.format(proxy))
        server = serve_queues()
        assert asked(server.url, "GET", "/queues", X_Client_Name="CN=ops")[0] == expected
        assert server.end()[0] == 0
    assert document(wsrm("token", "list", "--json"))["tokens"][0]["used_at"] is not None
