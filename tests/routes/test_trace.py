"""The way of a message over nodes is shown at any of them, as far as the others tell."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from tests.routes.conftest import Founded
from tests.routes.enterprise import Place, secret, variable
from tests.routes.net import Net
from tests.routes.net import until as until_
from tests.support.commands import Wsrm, document
from tests.support.queue_server import asked
from wsrm_mq.node import Node
from wsrm_mq.queue import tracing
from wsrm_mq.queue.hopping import Origin

SITES = dict.fromkeys(("shop", "hub", "north"), "one")
QUEUES = {"shop": {}, "hub": {}, "north": {"orders": "site", "private": "node"}}
ROUTES = (
    ("shop", "north/*", "hub", False),
    ("hub", "north/*", "north", True),
    ("shop", "loop/*", "hub", False),
    ("hub", "loop/*", "shop", False),
)
Trace = Callable[..., dict[str, Any]]
until = partial(until_, seconds=120)
"""Three processes and a command each time: a machine that is busy takes its time."""


def routed(places: dict[str, Place]) -> dict[str, Place]:
    for at, pattern, to, strip in ROUTES:
        with Node(places[at].store) as node:
            node.route(pattern, f"{places[to].url}/rm", strip=strip)
    return places


@pytest.fixture
def trace(wsrm: Wsrm) -> Trace:
    def run(at: Place, which: object) -> dict[str, Any]:
        return document(wsrm("message", "trace", which, "--json", "--store", at.store, "--config", at.config))

    return run


def way(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(one[name] for name in ("hop", "node", "queue", "state", "reason")) for one in document["stops"]]


@pytest.mark.timeout(240)
def test_the_whole_way_of_a_message_is_shown_by_its_position_its_id_and_its_origin_at_any_node(
    found: Founded, trace: Trace, wsrm: Wsrm
) -> None:
    places = routed(found(SITES, QUEUES, rights=["route *", "peek *"]))
    with Node(places["shop"].store) as shop:
        arrives = shop.put("north/orders", b"1", message_id="o-1")
        unknown = shop.put("north/none", b"2")
        turns = shop.put("loop/orders", b"3")
        here = shop.put("mine", b"4") if shop.declare("mine") else 0
    whole = [
        (0, "shop", "north/orders", "delivered", None),
        (1, "hub", "north/orders", "delivered", None),
        (2, "north", "orders", "ready", None),
    ]
    assert until(lambda: way(trace(places["shop"], arrives)) == whole), trace(places["shop"], arrives)
    seen = trace(places["shop"], "o-1")
    assert way(seen) == whole
    assert [one["next_hop"] for one in seen["stops"]] == [f"{places['hub'].url}/rm", f"{places['north'].url}/rm", None]
    assert seen["away"] == seen["nothing"] == []
    assert seen["origin"].startswith("shop/")
    assert seen["origin"].endswith(f"/{arrives}")
    for other in ("hub", "north"):
        assert way(trace(places[other], seen["origin"])) == whole
    assert way(trace(places["north"], "o-1")) == whole
    near = places["shop"].directory / "near.toml"
    near.write_text(f'[node.hub]\nurl = "{places["hub"].url}"\ntoken_env = "{variable("hub", "shop")}"')
    said = wsrm("message", "trace", arrives, "--store", places["shop"].store, "--config", near).stderr
    assert f"The node at {places['north'].url}/rm has taken it, and no section [node.NAME] here has its address" in said
    assert f"ask there yourself: `wsrm-mq message trace {seen['origin']}`" in said

    followed = "SELECT hop, target, state FROM messages WHERE trace = ?"
    with closing(sqlite3.connect(":memory:")) as db:
        for name in SITES:
            db.execute(f"ATTACH '{places[name].store}' AS {name}")
        together = " UNION ALL ".join(followed.replace("messages", f"{name}.messages") for name in SITES)
        rows = db.execute(together, [seen["origin"]] * 3).fetchall()
    assert rows == [(0, "north/orders", "delivered"), (1, "north/orders", "delivered"), (2, "orders", "ready")]

    dead = (2, "north", "none", "dead", "unknown_destination")
    assert until(lambda: way(trace(places["shop"], unknown))[-1] == dead), trace(places["shop"], unknown)
    loop = [
        (0, "shop", "loop/orders", "delivered", None),
        (1, "hub", "loop/orders", "delivered", None),
        (2, "shop", "loop/orders", "dead", "loop"),
    ]
    assert until(lambda: way(trace(places["hub"], trace(places["shop"], turns)["origin"])) == loop)
    assert "shop hub" in trace(places["shop"], turns)["stops"][-1]["error"]

    own = trace(places["shop"], here)
    assert own["origin"] is None
    assert way(own) == [(None, "shop", "mine", "ready", None)]


@pytest.mark.timeout(240)
def test_what_waits_for_a_node_that_is_away_is_shown_with_why_and_that_node_is_named(
    found: Founded, trace: Trace, wsrm: Wsrm
) -> None:
    places = routed(found(SITES, QUEUES, "shop", "hub", rights=["route *", "peek *"]))
    with Node(places["shop"].store) as shop:
        position = shop.put("north/orders", b"1")

    def waits() -> bool:
        seen = trace(places["shop"], position)
        return [one[:2] for one in way(seen)] == [(0, "shop"), (1, "hub")] and seen["stops"][-1]["error"] is not None

    assert until(waits), trace(places["shop"], position)
    seen = trace(places["shop"], position)
    last = seen["stops"][-1]
    assert last["state"] in ("ready", "held", "leased")
    assert last["next_hop"] == f"{places['north'].url}/rm"
    (away,) = seen["away"]
    assert away["node"] == "north"
    assert "cannot be reached" in away["why"]
    at = ("--store", places["shop"].store, "--config", places["shop"].config)
    shown = wsrm("message", "trace", position, *at)
    assert f"ask there yourself: `wsrm-mq message trace {seen['origin']}`" in shown.stderr
    assert f"hub: {last['error'][:20]}" in shown.stderr


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("rights", "queue"),
    [(["route *"], "orders"), (["route *", "peek x/*"], "orders"), (["route *", "peek *"], "private")],
)
def test_a_message_that_a_token_may_not_peek_is_told_as_one_that_there_is_not(
    found: Founded, trace: Trace, wsrm: Wsrm, rights: list[str], queue: str
) -> None:
    places = routed(found(SITES, QUEUES, rights=rights))
    with Node(places["shop"].store) as shop:
        position = shop.put(f"north/{queue}", b"1")
    with Node(places["north"].store) as north:
        assert until(lambda: len(north.peek(queue)) == 1)
    seen = trace(places["shop"], position)
    may_peek_the_way = "peek *" in rights
    assert [one[1] for one in way(seen)] == (["shop", "hub"] if may_peek_the_way else ["shop"])
    assert seen["nothing"] == (["north"] if may_peek_the_way else ["hub", "north"])
    at = ("--store", places["shop"].store, "--config", places["shop"].config)
    assert "has taken it, and does not tell this one" in wsrm("message", "trace", position, *at).stderr
    ask = partial(asked, places["north"].url, "GET", token=secret("north", "shop"))
    answers = [ask(f"/traces/{of.replace('/', '%2F')}") for of in (seen["origin"], "shop/0123456789abcdef/9")]
    assert [(status, json.loads(body)) for status, _headers, body in answers] == [(200, {"stops": []})] * 2
    status, _headers, body = ask("/traces/12")
    assert (status, json.loads(body)["code"]) == (400, "BadRequest")
    assert "NODE/INCARNATION/POSITION" in json.loads(body)["detail"]


def test_what_is_not_known_is_told_with_what_to_do(tmp_path: Any, wsrm: Wsrm) -> None:
    store = tmp_path / "wsrm.db"
    with Node(store, "alone") as node:
        node.declare("a", dedupe_window=0)
        node.put("a", b"1", message_id="twice")
        node.put("a", b"2", message_id="twice")
    for which, status, said in (
        ("nothing", 3, "NODE/INCARNATION/POSITION"),
        (99, 3, "There is no message at position 99: retention has deleted it, or it never came."),
        ("gone/0123456789abcdef/7", 3, "retention has deleted it, or this token may not peek it."),
        ("twice", 4, "twice is the id of several messages: name one by its position: 1, 2."),
    ):
        done = wsrm("message", "trace", which, "--store", store)
        assert said in done.stderr, done.stderr
        assert done.exit_code == status, done.stderr


def stops(net: Net, at: str, origin: Origin) -> list[tuple[str, str]]:
    with net.nodes[at].node.reader() as db:
        return [(one.lies_in, one.state) for one in tracing.stops(db, origin)]


def test_what_waits_for_room_is_where_it_has_come_and_what_retention_has_deleted_is_known_to_have_come(
    net: Net,
) -> None:
    a, c = net.add("a"), net.add("c")
    c.node.declare("orders", max_messages=1, overflow="block")
    a.node.route("orders", c.url)
    positions = [a.node.put("orders", b"1"), a.node.put("orders", b"2")]
    ((incarnation,),) = a.rows("SELECT DISTINCT incarnation FROM routed")
    first, second = (Origin("a", incarnation, position) for position in positions)
    assert until(lambda: [one for one, _ in stops(net, "c", second)] == ["route/in"])
    assert until(lambda: stops(net, "c", first) == [("orders", "ready")])
    assert stops(net, "c", first._replace(node="b")) == []
    with c.node.reader() as db:
        assert tracing.stops(db, second, unplaced=False) == [], "it is looked for only where it may be shown"
    c.node.receive("orders")[0].ack()
    assert until(lambda: stops(net, "c", second) == [("orders", "ready")])
    assert stops(net, "c", first) == [("orders", "delivered")]

    def delete(tx: Any) -> None:
        """Delete the first as retention does."""
        ((message,),) = tx.execute("SELECT message FROM routed WHERE position = ?", (positions[0],)).fetchall()
        for table, column in (("entry", "message"), ("header", "message"), ("routed", "message"), ("message", "id")):
            tx.execute(f"DELETE FROM {table} WHERE {column} = ?", (message,))

    c.node.call(delete)
    assert stops(net, "c", first) == [("orders", "deleted")]


def test_what_has_no_place_is_found_where_it_has_died_and_only_by_its_own_origin(net: Net) -> None:
    a, b, c = (net.add(name) for name in "abc")
    for one in (a, b):
        one.node.route("*", c.url)
        one.node.put("nowhere", one.name.encode())
    assert until(lambda: len(c.dead()) == 2)
    for one in (a, b):
        ((incarnation, position),) = one.rows("SELECT incarnation, position FROM routed")
        assert stops(net, "c", Origin(one.name, incarnation, position)) == [("route/in#dead", "dead")]
    assert stops(net, "c", Origin("a", "0123456789abcdef", position)) == []
