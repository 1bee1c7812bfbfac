"""``/rm``: what other nodes hand over is in the intake before it is acknowledged, and only known nodes may."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.server.http.conftest import Process, Served, give_tokens
from wsrm_mq.errors import Pending
from wsrm_mq.server import queue_application, tokens
from wsrm_mq.server.access import Access
from wsrm_mq.server.http.intake import PUT
from wsrm_mq.server.rights import Grant
from wsrm_mq.server.routes import may_route
from wsrm_mq.source.source import RMSource
from wsrm_mq.store.applications import INTAKE
from wsrm_mq.store.store import Store
from wsrm_mq.versions import WSA_2005

NORTH = "wsrm-mq-secret-of-north"
SOAP = "http://www.w3.org/2003/05/soap-envelope"


def envelope(text: str) -> bytes:
    return f'<e:Envelope xmlns:e="{SOAP}"><e:Header/><e:Body><p>{text}</p></e:Body></e:Envelope>'.encode()


def grant(path: Path, name: str, *grants: Grant, **shown: str) -> None:
    store = Store(path)
    store.open()
    store.call(partial(tokens.add, name=name, grants=grants, **shown))  # type: ignore[arg-type]
    store.close()


def taken(path: Path) -> list[tuple[str, str, bytes]]:
    """What has come: by whom it was handed over, how, and its bytes. None of it has a place here."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(
            "SELECT m.principal, m.action, m.body FROM entry AS e JOIN queue AS q ON q.id = e.queue "
            "JOIN message AS m ON m.id = e.message WHERE q.name IN (?, ?) ORDER BY e.id",
            (INTAKE, f"{INTAKE}#dead"),
        ).fetchall()


def traces(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT (SELECT count(*) FROM message) + (SELECT count(*) FROM lane)").fetchone()[0])


@pytest.fixture
def north(path: Path) -> None:
    give_tokens(path)
    grant(path, "north", Grant("route", "orders*"), secret=NORTH)


@pytest.fixture
def served(path: Path, north: None) -> Iterator[Served]:
    access = partial(Access, trusted_proxies=["127.0.0.1"], name_header="X-Client-Name")
    one = Served(queue_application(path, access=access))
    yield one
    one.stop()


def source(tmp_path: Path, **headers: str) -> RMSource:
    return RMSource(tmp_path / "source.db", headers={name.replace("_", "-"): value for name, value in headers.items()})


def test_what_a_node_hands_over_is_stored_under_its_name_before_it_is_acknowledged(
    served: Served, path: Path, tmp_path: Path
) -> None:
    with source(tmp_path, Authorization=f"Bearer {NORTH}") as node:
        to = f"http://127.0.0.1:{served.port}/rm"
        for text in ("first", "second"):
            node.send(envelope(text), to=to, action=PUT, acknowledged_within=10)
            assert taken(path)[-1][:2] == ("north", PUT)
        first, second = [body for _who, _how, body in taken(path)]
        assert (b"<p>first</p>" in first, b"<p>second</p>" in second) == (True, True)


def test_a_node_is_known_by_the_name_that_a_trusted_proxy_reports(served: Served, path: Path, tmp_path: Path) -> None:
    grant(path, "south", Grant("route", "*"), certificate="CN=south")
    with source(tmp_path, X_Client_Name="CN=south") as node:
        node.send(envelope("first"), to=f"http://127.0.0.1:{served.port}/rm", action=PUT, acknowledged_within=10)
    assert [who for who, _how, _body in taken(path)] == ["south"]


@pytest.mark.parametrize(
    ("shown", "status", "said"),
    [
        ({}, 401, b"Credentials are required"),
        ({"Authorization": "Bearer wrong"}, 401, b"The token is not known here"),
        ({"Authorization": "Bearer wsrm-mq-secret-of-anna"}, 403, b"it has not the right `route`"),
        ({"X-Client-Name": "CN=stranger"}, 401, b"No token is for the client CN=stranger"),
    ],
)
def test_who_is_no_node_here_is_turned_away_before_anything_is_stored(
    path: Path, tmp_path: Path, shown: dict[str, str], status: int, said: bytes
) -> None:
    """``anna`` may do all else with her queues."""
    give_tokens(path)
    store = Store(path)
    store.open()
    rights = [Grant(right, "anna*") for right in ("put", "consume", "peek", "admin")]  # type: ignore[arg-type]
    store.call(lambda tx: tokens.revoke(tx, "anna"))
    store.call(partial(tokens.add, name="anna", grants=rights, secret="wsrm-mq-secret-of-anna"))
    store.close()
    served = Served(
        queue_application(path, access=partial(Access, trusted_proxies=["127.0.0.1"], name_header="X-Client-Name"))
    )
    try:
        connection = HTTPConnection("127.0.0.1", served.port, timeout=10)
        connection.request("POST", "/rm", envelope("x"), {**shown, "Content-Type": "application/soap+xml"})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert (answer.status, said in body) == (status, True)
        with source(tmp_path, **shown) as node, pytest.raises(Pending):
            node.send(envelope("first"), to=f"http://127.0.0.1:{served.port}/rm", action=PUT, acknowledged_within=0.3)
        assert traces(path) == 0
    finally:
        served.stop()


def test_a_sequence_is_its_nodes_and_no_other_one_adds_to_it(served: Served, path: Path, tmp_path: Path) -> None:
    grant(path, "south", Grant("route", "*"), secret="wsrm-mq-secret-of-south")
    to = f"http://127.0.0.1:{served.port}/rm"
    with source(tmp_path, Authorization=f"Bearer {NORTH}") as node:
        node.send(envelope("first"), to=to, action=PUT, acknowledged_within=10)
        with closing(sqlite3.connect(path)) as db:
            (identifier,) = db.execute("SELECT identifier FROM lane").fetchone()
    forged = f"""<e:Envelope xmlns:e="{SOAP}" xmlns:r="http://docs.oasis-open.org/ws-rx/wsrm/200702"
        xmlns:a="{WSA_2005.namespace}"><e:Header><a:Action>{PUT}</a:Action><a:To>{to}</a:To>
        <a:MessageID>urn:uuid:1</a:MessageID><r:Sequence e:mustUnderstand="1"><r:Identifier>{identifier}</r:Identifier>
        <r:MessageNumber>2</r:MessageNumber></r:Sequence></e:Header><e:Body/></e:Envelope>""".encode()
    connection = HTTPConnection("127.0.0.1", served.port, timeout=10)
    headers = {"Authorization": "Bearer wsrm-mq-secret-of-south", "Content-Type": "application/soap+xml"}
    connection.request("POST", "/rm", forged, headers)
    assert b"UnknownSequence" in connection.getresponse().read()
    connection.close()
    assert len(taken(path)) == 1


def test_an_acknowledged_message_is_there_after_a_kill(path: Path, tmp_path: Path, north: None) -> None:
    process = Process(path)
    try:
        with source(tmp_path, Authorization=f"Bearer {NORTH}") as node:
            to = f"http://127.0.0.1:{process.port}/rm"
            node.send(envelope("first"), to=to, action=PUT, acknowledged_within=10)
            process.kill()
            waiting = node.send(envelope("second"), to=to, action=PUT)
            assert len(taken(path)) == 1
            process.start()
            node.wait(waiting, 30)
        assert [b"first" in body for _who, _how, body in taken(path)] == [True, False]
    finally:
        process.kill()


@pytest.mark.parametrize("name", ["route/in", "route/other"])
def test_no_program_takes_or_puts_what_is_in_the_intake(served: Served, tmp_path: Path, name: str) -> None:
    with source(tmp_path, Authorization=f"Bearer {NORTH}") as node:
        node.send(envelope("first"), to=f"http://127.0.0.1:{served.port}/rm", action=PUT, acknowledged_within=10)
    http = served.http("root")
    place = f"/queues/{name.replace('/', '%2F')}"
    assert http("POST", f"{place}/leases?wait=0").status in (400, 404, 409)
    assert http("POST", f"{place}/messages", b"forged").status in (400, 404, 409)
    http.close()


def test_what_is_no_message_is_answered_with_what_is_taken_there(served: Served) -> None:
    connection = HTTPConnection("127.0.0.1", served.port, timeout=10)
    connection.request("GET", "/rm", headers={"Authorization": f"Bearer {NORTH}"})
    answer = connection.getresponse()
    assert (answer.status, b"Nodes post messages here" in answer.read()) == (404, True)
    connection.request("POST", "/rm", b"{}", {"Authorization": f"Bearer {NORTH}", "Content-Type": "application/json"})
    answer = connection.getresponse()
    assert (answer.status, b"Send SOAP here" in answer.read()) == (415, True)
    connection.close()


def test_the_right_to_route_is_looked_up_when_a_message_is_placed(served: Served, path: Path) -> None:
    def asked(*targets: str) -> list[bool]:
        return served.node.call(lambda tx: [may_route(tx, "north", target) for target in targets])

    assert asked("orders", "orders/new", "bills") == [True, True, False]
    served.node.call(lambda tx: tokens.revoke(tx, "north"))
    assert asked("orders") == [False]
