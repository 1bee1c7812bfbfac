"""`partner list|show|check`: who is who, and what an endpoint speaks."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Wsrm, document
from tests.support.orders_server import OrdersServer
from wsrm_mq.cli.output import Exit
from wsrm_mq.config.settings import PARTNER_OPTIONS

CONFIGURATION = """
window = 7
[partner.acme]
principal = "acme"
path = "/soap"
max_held = 5
retry = [1, 2]
contact = "+49 30 1234"
[partner."old metro"]
address = "10.1.0.0/16"
"""


@pytest.fixture
def configured(somewhere: Path) -> None:
    (somewhere / "wsrm-mq.toml").write_text(CONFIGURATION)


# list and show


def test_list_has_the_partners_in_the_order_of_the_file(wsrm: Wsrm, configured: None) -> None:
    assert wsrm("partner", "list").stdout.splitlines() == [
        "partner\tprincipal\tpath\taddress\town options\tdescription\tcontact",
        "acme\tacme\t/soap\t\t2\t\t+49 30 1234",
        "old metro\t\t\t10.1.0.0/16\t0\t\t",
    ]
    told = document(wsrm("partner", "list", "--json"))["partners"]
    assert [one["name"] for one in told] == ["acme", "old metro"]
    marks = {"principal": None, "path": None, "address": "10.1.0.0/16"}
    assert told[1] == {"name": "old metro", **marks, "options": 0, "description": None, "contact": None}


def test_list_without_partners_says_how_to_make_one(wsrm: Wsrm, somewhere: Path) -> None:
    result = wsrm("partner", "list")
    assert (result.stdout, result.exit_code) == ("", Exit.OK)
    assert "[partner.NAME]" in result.stderr


def test_show_has_every_option_and_whose_it_is(wsrm: Wsrm, configured: None) -> None:
    lines = wsrm("partner", "show", "acme").stdout.splitlines()
    assert lines[0] == "option\tvalue\torigin"
    assert [line.split("\t")[0] for line in lines[1:]] == list(PARTNER_OPTIONS)
    for line in ("max_held\t5\tpartner", "window\t7\tgeneral", "retry\t[1.0, 2.0]\tpartner", 'stack\t"none"\tgeneral'):
        assert line in lines
    told = document(wsrm("partner", "show", "acme", "--json"))["options"]
    assert told["max_held"] == {"value": 5, "own": True}
    assert told["ordered"] == {"value": True, "own": False}


def test_show_of_an_unknown_partner_names_the_known_ones(wsrm: Wsrm, configured: None) -> None:
    result = wsrm("partner", "show", "acne")
    assert result.exit_code == Exit.NOT_FOUND
    assert "acme, old metro" in result.stderr


# check


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrdersServer]:
    server = OrdersServer(tmp_path_factory.mktemp("orders"))
    server.start()
    yield server
    server.stop()


Answer = Callable[[socket.socket], None]


@contextmanager
def endpoint(answer: Answer) -> Iterator[str]:
    """Something that listens, takes a request and does with it what ``answer`` does."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                client, _address = listener.accept()
            except OSError:
                return
            open_.append(client)
            threading.Thread(target=attempt, args=(client,), daemon=True).start()

    def attempt(client: socket.socket) -> None:
        try:
            client.recv(65_536)
            answer(client)
        except OSError:
            pass

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/service"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for client in open_:
        client.close()


def http(status: str, *fields: str, body: bytes = b"") -> Answer:
    def answer(client: socket.socket) -> None:
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *fields]
        client.sendall("\r\n".join([*head, "", ""]).encode() + body)
        client.close()

    return answer


def silent(_client: socket.socket) -> None:
    """Answers nothing and stays."""


def dripping(client: socket.socket) -> None:
    """Answers for ever, a byte at a time: each is in time."""
    client.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        client.sendall(b"x")
        time.sleep(0.05)


def endless(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/xml\r\n\r\n")
    while True:
        client.sendall(b"x" * 65_536)


def broken_off(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
    client.close()


def test_check_tells_every_combination_that_an_endpoint_speaks_and_leaves_nothing_open(
    wsrm: Wsrm, somewhere: Path, orders: OrdersServer
) -> None:
    result = wsrm("partner", "check", orders.url, "--json")
    assert result.exit_code == Exit.OK
    told = document(result)
    assert [(one["rm"], one["soap"], one["addressing"]) for one in told["combinations"]] == [
        ("1.1", "1.2", "1.0"),
        ("1.1", "1.1", "1.0"),
        ("1.0", "1.2", "1.0"),
        ("1.0", "1.1", "1.0"),
        ("1.0", "1.2", "2004/08"),
        ("1.0", "1.1", "2004/08"),
    ]
    assert all(one["created"] and one["ended"] and one["expires"] == "PT60S" for one in told["combinations"])
    assert {one["behavior"] for one in told["combinations"] if one["rm"] == "1.1"} == {"NoDiscard"}
    assert told["wsdl"]["is_wsdl"]
    assert told["wsdl"]["soap"] == ["1.1"]
    assert told["problem"] is None
    lines = wsrm("partner", "check", orders.url).stdout.splitlines()
    assert lines[0] == "WSDL  SOAP 1.1; reliable messaging: RM 1.1, RM 1.0"
    assert lines[2].startswith("1.1\t1.2\t1.0\tyes\tyes\tPT60S\tNoDiscard")
    db = sqlite3.connect(orders.store)
    assert db.execute("SELECT DISTINCT state, ended FROM sequences").fetchall() == [("ended", "terminated")]
    db.close()


def test_check_for_the_first_that_works_leaves_one_ended_sequence(
    wsrm: Wsrm, somewhere: Path, orders: OrdersServer
) -> None:
    assert "up to six terminated sequences" in " ".join(wsrm("partner", "check", "--help").stdout.split())
    with closing(sqlite3.connect(orders.store)) as db:
        count = "SELECT count(*), coalesce(sum(ended = 'terminated'), 0) FROM lane"
        before = db.execute(count).fetchone()
        (one,) = document(wsrm("partner", "check", orders.url, "--first", "--json"))["combinations"]
        assert (one["rm"], one["soap"], one["created"], one["ended"]) == ("1.1", "1.2", True, True)
        assert db.execute(count).fetchone() == (before[0] + 1, before[1] + 1)


def test_check_of_a_service_that_refuses_tells_its_fault_without_its_control_characters(
    wsrm: Wsrm, somewhere: Path
) -> None:
    fault = (
        b'<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body><s:Fault><s:Code><s:Value>s:Sender'
        b'</s:Value></s:Code><s:Reason><s:Text xml:lang="en">not \xe2\x80\xaehere</s:Text></s:Reason></s:Fault>'
        b"</s:Body></s:Envelope>"
    )
    with endpoint(http("400 Bad Request", "Content-Type: application/soap+xml", body=fault)) as url:
        result = wsrm("partner", "check", url)
    assert result.exit_code == Exit.FAILED
    assert "Sender: not \\u202ehere" in result.stdout
    assert "opens no sequence in any version" in result.stderr


def test_check_follows_no_redirect(wsrm: Wsrm, somewhere: Path, orders: OrdersServer) -> None:
    with endpoint(http("307 Temporary Redirect", f"Location: {orders.url}")) as url:
        told = wsrm("partner", "check", url)
    assert told.exit_code == Exit.FAILED
    assert f"HTTP 307: redirects to {orders.url}; name that address" in told.stdout


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (silent, "no whole answer within 1 s"),
        (dripping, "no whole answer within 1 s"),
        (endless, "answers with more than"),
        (broken_off, "broke off, 996 bytes before its end"),
        (http("200 OK", "Content-Type: text/html", body=b"<html>hello"), "opens no sequence"),
        (http("200 OK", body=b""), "opens no sequence"),
        (lambda client: client.sendall(b"SSH-2.0-something\r\n") or client.close(), "SSH-2.0-something"),
    ],
    ids=["silent", "dripping", "endless", "broken off", "a web page", "empty", "not HTTP"],
)
def test_check_ends_whatever_the_other_side_does(wsrm: Wsrm, somewhere: Path, answer: Answer, said: str) -> None:
    begun = time.monotonic()
    with endpoint(answer) as url:
        result = wsrm("partner", "check", url, "--timeout", "1")
    assert time.monotonic() - begun < 10
    assert result.exit_code == Exit.FAILED
    assert said in result.stderr


def test_check_of_an_address_that_does_not_answer_says_so(wsrm: Wsrm, somewhere: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    result = wsrm("partner", "check", f"http://127.0.0.1:{port}/", "--json")
    assert result.exit_code == Exit.FAILED
    assert "Check the address" in result.stderr
    told: dict[str, Any] = json.loads(result.stdout)
    assert (told["wsdl"], told["combinations"]) == (None, [])
    assert "refused" in told["problem"]


@pytest.mark.parametrize("url", ["orders", "ftp://host/", "http:///path", "http://host:99999/", "http://host:port/"])
def test_check_of_what_is_no_address_is_wrong_usage(wsrm: Wsrm, somewhere: Path, url: str) -> None:
    result = wsrm("partner", "check", url)
    assert result.exit_code == Exit.USAGE
    assert "is no address of an endpoint" in result.stderr
