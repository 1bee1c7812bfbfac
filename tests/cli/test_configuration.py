"""`config show|check|init`: what holds and where it comes from; `partner list|show|check`."""

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
from wsrm_mq.config import Settings, load
from wsrm_mq.config.settings import OPTIONS, PARTNER_OPTIONS


def test_show_names_the_origin_of_every_value(wsrm: Wsrm, somewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (somewhere / "wsrm-mq.toml").write_text('port = 1\nthreads = 2\n[partner.acme]\npath = "/a"\nwindow = 5\n')
    monkeypatch.setenv("WSRM_MQ_PORT", "3")
    told = document(wsrm("config", "show", "--json"))
    assert told["file"] == "wsrm-mq.toml"
    assert list(told["options"]) == list(OPTIONS)
    assert told["options"]["port"] == {"value": 3, "origin": "env"}
    assert told["options"]["threads"] == {"value": 2, "origin": "file"}
    assert told["options"]["host"] == {"value": "127.0.0.1", "origin": "default"}
    assert told["partners"] == {"acme": {"path": "/a", "window": 5}}
    lines = wsrm("config", "show").stdout.splitlines()
    assert "port\t3\tenv" in lines
    assert 'window\t"none"\tdefault' in lines
    assert "partner.acme.window\t5\tfile" in lines


def test_show_as_a_file_is_a_file_that_means_the_same(
    wsrm: Wsrm, somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WSRM_MQ_RETRY", "1,PT2M")
    shown = wsrm("config", "show", "--toml").stdout
    assert "\nretry = [1.0, 120.0]  # env\n" in shown
    (somewhere / "other.toml").write_text(shown)
    assert load(Path("other.toml"), {}) == load(None, {"WSRM_MQ_RETRY": "1,PT2M"})


def test_check_says_what_it_looked_at(wsrm: Wsrm, somewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wsrm("config", "check").stderr.startswith("There is no configuration file")
    (somewhere / "other.toml").write_text("port = 1")
    assert wsrm("config", "check", "--config", "other.toml").stderr == "other.toml: good.\n"
    monkeypatch.setenv("WSRM_MQ_CONFIG", "other.toml")
    assert wsrm("config", "check").stderr == "other.toml: good.\n"
    monkeypatch.setenv("WSRM_MQ_CONFIG", "gone.toml")
    result = wsrm("config", "check")
    assert result.exit_code == 2
    assert "gone.toml: there is no such file" in result.stderr


def test_check_reads_the_wsdls_that_one_way_names(wsrm: Wsrm, somewhere: Path) -> None:
    (somewhere / "some.wsdl").write_text('<definitions xmlns="http://schemas.xmlsoap.org/wsdl/"/>')
    (somewhere / "none.WSDL").write_text("<page/>")
    named = {
        '["urn:put", "some.wsdl"]': None,
        '"auto"': None,
        '["nosuch.wsdl"]': "one_way: nosuch.wsdl cannot be read as a WSDL: No such file or directory.",
        '["urn:put", "none.WSDL"]': "one_way: none.WSDL cannot be read as a WSDL: not a WSDL 1.1 document.",
    }
    for one_way, problem in named.items():
        (somewhere / "wsrm-mq.toml").write_text(f"one_way = {one_way}")
        result = wsrm("config", "check")
        said = f"wsrm-mq: {problem}" if problem else "wsrm-mq.toml: good."
        assert (result.exit_code, result.stderr) == (2 if problem else 0, f"{said}\n")


def test_check_tells_a_program_what_is_wrong(wsrm: Wsrm, somewhere: Path) -> None:
    told = document(wsrm("config", "check", "--json"))
    assert (told["file"], told["problem"], told["problems"]) == (None, None, [])
    (somewhere / "wsrm-mq.toml").write_text("port = 'high'")
    result = wsrm("config", "check", "--json")
    assert result.exit_code == 2
    told = json.loads(result.stdout)
    assert told["file"] == "wsrm-mq.toml"
    assert told["problem"].startswith("wsrm-mq.toml: port: 'high' is not allowed")
    assert result.stderr == f"wsrm-mq: {told['problem']}\n"


def test_check_shows_all_mistakes_at_once_also_those_in_wsdls(
    wsrm: Wsrm, somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (somewhere / "wsrm-mq.toml").write_text(
        "max_hold = 5\none_way = ['gone.wsdl', 'lost.wsdl']\n"
        "[partner.acme]\nprincipal = 'acme'\none_way = ['away.wsdl']\nordred = false\n"
    )
    monkeypatch.setenv("WSRM_MQ_PORT", "x")
    result = wsrm("config", "check")
    assert result.exit_code == 2
    said = result.stderr.removeprefix("wsrm-mq: ").splitlines()
    assert [line.strip().partition(": ")[2].partition(": ")[0] for line in said[:3]] == [
        "max_hold",
        "partner.acme.ordred",
        "WSRM_MQ_PORT",
    ]
    why = "cannot be read as a WSDL: No such file or directory."
    assert said[3:] == [
        f"  one_way: gone.wsdl {why}",
        f"  one_way: lost.wsdl {why}",
        f"  partner.acme.one_way: away.wsdl {why}",
    ]
    told = json.loads(wsrm("config", "check", "--json").stdout)
    assert told["problems"] == [line.strip() for line in said]
    assert told["problem"] == told["problems"][0]


def test_check_lists_the_headers_that_are_stored(wsrm: Wsrm, somewhere: Path) -> None:
    (somewhere / "wsrm-mq.toml").write_text("keep_headers = ['X-Tenant']")
    told = document(wsrm("config", "check", "--json"))["kept_headers"]
    assert {"SOAPAction", "User-Agent", "X-Tenant"} <= set(told)
    assert "X-API-Key" not in told
    assert f"{', '.join(told)}." in wsrm("config", "check").stdout.replace("\n", " ")


def test_init_writes_a_file_that_changes_nothing(wsrm: Wsrm, somewhere: Path) -> None:
    assert wsrm("config", "init").stderr == "Wrote wsrm-mq.toml.\n"
    assert load(somewhere / "wsrm-mq.toml", {}) == Settings()
    assert wsrm("config", "init", "-").stdout == (somewhere / "wsrm-mq.toml").read_text()


def test_init_tells_a_program_which_file_it_wrote(wsrm: Wsrm, somewhere: Path) -> None:
    assert document(wsrm("config", "init", "a.toml", "--json")) == {"path": "a.toml"}
    assert (somewhere / "a.toml").exists()
    assert wsrm("config", "init", "-", "--json").exit_code == 2


def test_init_leaves_a_file_that_is_there(wsrm: Wsrm, somewhere: Path) -> None:
    (somewhere / "wsrm-mq.toml").write_text("port = 1")
    result = wsrm("config", "init")
    assert result.exit_code == 4
    assert (somewhere / "wsrm-mq.toml").read_text() == "port = 1"


def test_init_into_nowhere_fails_in_words(wsrm: Wsrm) -> None:
    result = wsrm("config", "init", "nowhere/wsrm-mq.toml")
    assert result.exit_code == 1
    assert result.stderr == "wsrm-mq: nowhere/wsrm-mq.toml cannot be written: No such file or directory.\n"


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
