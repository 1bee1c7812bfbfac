"""Queue servers that are nodes: what one has a route for arrives at the other, over real sockets and kills."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import wsrm_mq
from tests.server.http.conftest import Process
from tests.support.orders_server import within
from wsrm_mq.node import Node
from wsrm_mq.server import tokens
from wsrm_mq.server.rights import Grant

SECRET = "wsrm-mq-secret-of-east"


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def east(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("HOPS", json.dumps({f"http://127.0.0.1:{port}/rm": [SECRET]}))
    with wsrm_mq.connect(tmp_path / "east.db", "east") as node:
        node.route("north/*", f"http://127.0.0.1:{port}/rm", strip=True)
        yield node


@pytest.fixture
def north(tmp_path: Path) -> Iterator[Node]:
    """``east`` may hand over what is for ``orders`` there."""
    with wsrm_mq.connect(tmp_path / "north.db", "north") as node:
        node.declare("orders")
        node.call(partial(tokens.add, name="east", grants=[Grant("route", "orders")], secret=SECRET))
        yield node


@pytest.fixture
def serve(tmp_path: Path, port: int) -> Iterator[Callable[[str], Process]]:
    begun: list[Process] = []

    def start(name: str) -> Process:
        begun.append(Process(tmp_path / f"{name}.db", port if name == "north" else 0))
        return begun[-1]

    yield start
    for one in begun:
        one.kill()


def bodies(node: Node) -> list[bytes]:
    return [one.body for one in node.peek("orders", limit=1000)]


@pytest.mark.scenario("Q-089")
@pytest.mark.timeout(120)
def test_all_arrive_once_and_in_order_although_either_server_is_killed_on_the_way(
    east: Node, north: Node, serve: Callable[[str], Process]
) -> None:
    sent = [str(number).encode() for number in range(100)]
    there, here = serve("north"), serve("east")
    for number, body in enumerate(sent):
        east.put("north/orders", body)
        if number == 50:
            assert within(60, lambda: bodies(north), bool)
            there.kill()
            here.kill()
            here.start()
    there.start()
    assert within(60, lambda: bodies(north), lambda found: len(found) >= len(sent)) == sent


@pytest.mark.timeout(120)
def test_what_a_node_has_no_right_to_is_a_dead_letter_there_and_what_follows_goes_on(
    east: Node, north: Node, serve: Callable[[str], Process]
) -> None:
    north.declare("bills")
    serve("north")
    serve("east")
    east.put("north/bills", b"0")
    east.put("north/orders", b"1")
    assert within(60, lambda: bodies(north), bool) == [b"1"]
    (letter,) = north.peek("route/in#dead")
    assert (letter.reason, north.peek("bills")) == ("not_allowed", [])


@pytest.mark.timeout(120)
def test_a_node_whose_token_was_revoked_is_turned_away_and_what_waits_goes_on_with_another(
    east: Node, north: Node, serve: Callable[[str], Process]
) -> None:
    north.call(lambda tx: tokens.revoke(tx, "east"))
    serve("north")
    serve("east")
    east.put("north/orders", b"1")
    assert "it does not know this node" in str(within(60, lambda: away(east), bool))
    north.call(partial(tokens.add, name="east", grants=[Grant("route", "*")], secret=SECRET))
    assert within(60, lambda: bodies(north), bool) == [b"1"]


def away(node: Node) -> str | None:
    with node.reader() as db:
        row = db.execute("SELECT last_error FROM hop WHERE away_since IS NOT NULL").fetchone()
    return None if row is None else str(row[0])
