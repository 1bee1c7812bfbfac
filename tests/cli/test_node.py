"""Routes and next nodes at the command line: added, tried, shown, dropped, and told of when one is away."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_queue_findings import age, attention
from tests.support.commands import Wsrm, document
from tests.support.programs import free_port
from tests.support.queue_server import QueueServer
from wsrm_mq.node import connect


@pytest.fixture
def there() -> str:
    """Nothing listens there."""
    return f"http://127.0.0.1:{free_port()}/rm"


def put(wsrm: Wsrm, queue: str) -> None:
    Path("letter").write_text("a letter")
    assert wsrm("queue", "put", queue, "letter").exit_code == 0


def test_a_route_is_added_listed_and_dropped_and_the_ledger_knows(path: Path, wsrm: Wsrm, there: str) -> None:
    assert "would lead" in wsrm("route", "add", "north/*", there, "--dry-run").stderr
    assert document(wsrm("route", "list", "--json"))["routes"] == []
    assert wsrm("route", "add", "north/*", there, "--cost", 5, "--strip", "--actor", "ann").exit_code == 0
    assert wsrm("route", "add", "north/*", there, "--cost", 2, "--strip", "--actor", "ann").exit_code == 0
    (one,) = document(wsrm("route", "list", "--json"))["routes"]
    assert one == {"pattern": "north/*", "next_hop": there, "cost": 2, "strip": True, "away_since": None}
    put(wsrm, "north/orders")
    tried = document(wsrm("route", "drop", "north/*", "--dry-run", "--json"))
    assert (tried["dropped"], tried["rerouted"], tried["dead"]) == ([there], 0, 1)
    done = wsrm("route", "drop", "north/*", "--yes", "--reason", "closed", "--actor", "ann", "--json")
    assert document(done)["dead"] == 1
    assert document(wsrm("dead-letter", "list", "--json"))["dead_letters"][0]["reason"] == "unknown_destination"
    acts = document(wsrm("audit", "list", "--json"))["acts"]
    assert [(one["event"], one["actor"]) for one in acts if one["event"].startswith("route_")] == [
        ("route_added", "ann"),
        ("route_added", "ann"),
        ("route_dropped", "ann"),
    ]
    assert wsrm("route", "drop", "north/*", "--yes", "--reason", "again").exit_code == 3


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("add", "x", "north"), 3, "north is neither the address of a node, such as https://north/rm"),
        (("add", "x", "ftp://north/rm"), 2, "is no address of a node: write https://host:port/rm"),
        (("add", "*", "http://north/rm", "--strip"), 2, "strip leaves out what stands before the first *"),
        (("test", "x"), 3, "There is no queue x here, and no route is for it: `wsrm-mq route list`"),
    ],
)
def test_what_cannot_be_is_told_with_the_next_step(
    path: Path, wsrm: Wsrm, words: tuple[str, ...], status: int, said: str
) -> None:
    done = wsrm("route", *words)
    assert done.exit_code == status, done.output
    assert said in done.stderr


def test_a_queue_that_is_not_here_is_told_with_where_it_is(path: Path, wsrm: Wsrm, there: str) -> None:
    wsrm("route", "add", "north/*", there)
    Path("letter").write_text("a letter")
    misspelled = wsrm("queue", "put", "nroth/orders", "letter")
    assert (misspelled.exit_code, "no route of `wsrm-mq route list` is for it" in misspelled.stderr) == (3, True)
    asked = wsrm("queue", "get", "north/orders")
    assert (asked.exit_code, f"what is put there goes to {there}" in asked.stderr) == (3, True)


def test_a_node_has_a_name_that_is_given_once_and_shown(path: Path, wsrm: Wsrm) -> None:
    assert wsrm("node", "name", "east", "--dry-run").exit_code == 0
    assert document(wsrm("node", "name", "--json"))["node"] != "east"
    assert document(wsrm("node", "name", "east", "--json"))["node"] == "east"
    assert document(wsrm("node", "show", "--json"))["node"] == "east"
    assert "is no name of a node" in wsrm("node", "name", "a@b").stderr


def test_what_waits_for_a_next_node_that_nothing_sends_to_is_told(path: Path, wsrm: Wsrm, there: str) -> None:
    wsrm("route", "add", "north/*", there)
    put(wsrm, "north/orders")
    assert "next_nodes" not in attention(wsrm)
    age(path, 61_000)
    found = attention(wsrm)["next_nodes"]
    assert found["sentence"].startswith(f"1 message waits for {there} for 6")
    assert found["sentence"].endswith("and no process sends them: start `wsrm-mq queue-server`.")
    (shown,) = document(wsrm("node", "show", there, "--json"))["waiting"]
    assert (shown["target"], shown["next_hop"], shown["error"]) == ("north/orders", there, None)
    assert "next_nodes=1;0" in wsrm("check").stdout
    assert document(wsrm("source", "list", "--json"))["requests"] == [], "it is no request of an RM Source"
    wsrm("route", "drop", "north/*", "--yes", "--reason", "closed")
    assert "next_nodes" not in attention(wsrm)


def test_a_next_node_that_is_away_is_told_with_since_when_and_why(path: Path, wsrm: Wsrm, there: str) -> None:
    wsrm("route", "add", "north/*", there)
    put(wsrm, "north/orders")
    server = QueueServer(path.parent)
    try:
        end = time.monotonic() + 60
        while not document(wsrm("route", "list", "--json"))["routes"][0]["away_since"]:
            assert time.monotonic() < end
            time.sleep(0.3)
        assert "next_nodes" not in attention(wsrm)
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE hop SET away_since = away_since - 61000")
        found = attention(wsrm)["next_nodes"]
        assert found["sentence"].startswith(f"{there} is away since ")
        assert f"Connection refused. 1 message waits for {there}" in found["sentence"]
        shown = document(wsrm("node", "show", "--json"))
        assert shown["is_forwarding"]
        assert "Connection refused" in shown["next_nodes"][0]["error"]
        assert [step["command"].split()[1:3] for step in found["next_steps"]] == [["node", "show"], ["route", "test"]]
    finally:
        server.end()


class _Page(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<p>Welcome")

    def log_message(self, *_: Any) -> None:
        pass


def test_a_route_is_tried_as_a_message_would_go(path: Path, wsrm: Wsrm, there: str, tmp_path: Path) -> None:
    north = tmp_path / "north"
    north.mkdir()
    with connect(north / "wsrm.db") as node:
        node.declare("orders")
    token = wsrm("token", "add", "east", "--route", "*", "--store", north / "wsrm.db").stdout.strip()
    server = QueueServer(north)
    pages = HTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    try:
        Path("wsrm-mq.toml").write_text(f'[node.north]\nurl = "{server.url}"\ntoken_env = "TOKEN_AT_NORTH"\n')
        wsrm("route", "add", "north/*", "north", "--strip")
        lacks = wsrm("route", "test", "north/orders")
        assert (lacks.exit_code, "the environment has no TOKEN_AT_NORTH" in lacks.stderr) == (2, True)
        known = document(wsrm("route", "test", "north/orders", "--json", env={"TOKEN_AT_NORTH": token}))
        assert (known["answers"], known["why"], known["sent_as"]) == (True, None, "orders")
        stranger = wsrm("route", "test", "north/orders", env={"TOKEN_AT_NORTH": "x"})
        assert (stranger.exit_code, "it does not know this node" in stranger.stdout) == (1, True)
        wsrm("route", "add", "page", f"http://127.0.0.1:{pages.server_port}/rm")
        page = wsrm("route", "test", "page", env={"TOKEN_AT_NORTH": token})
        assert (page.exit_code, "is there a node of wsrm_mq? Its address ends in /rm" in page.stdout) == (1, True)
        wsrm("route", "add", "gone", there)
        gone = wsrm("route", "test", "gone", env={"TOKEN_AT_NORTH": token})
        assert (gone.exit_code, "Connection refused" in gone.stdout) == (1, True)
    finally:
        pages.shutdown()
        server.end()
