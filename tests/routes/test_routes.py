"""The choice of routes: the cheapest that is up, and what waits goes where it is to go now."""

from __future__ import annotations

import pytest

from tests.routes.net import Net, until
from wsrm_mq.errors import ConfigurationError, UnknownQueue
from wsrm_mq.routes import hops


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hops, "AWAY_SECONDS", 0.3)
    monkeypatch.setattr(hops, "LADDER", (0.3,))
    monkeypatch.setattr(hops, "LOOK_SECONDS", 0.1)


@pytest.mark.scenario("Q-096")
@pytest.mark.parametrize("has_sent", [False, True])
def test_the_cheaper_route_is_taken_and_the_other_while_its_next_node_is_away_without_a_repeat(
    net: Net, has_sent: bool
) -> None:
    a, b, d, c = (net.add(name) for name in "abdc")
    c.node.declare("orders")
    a.node.route("orders", b.url, cost=1)
    a.node.route("orders", d.url, cost=5)
    b.node.route("orders", c.url)
    d.node.route("orders", c.url)
    if has_sent:
        a.node.put("orders", b"0")
        assert until(lambda: c.bodies("orders") == [b"0"] and a.waiting() == 0)
        assert ("a", "d") not in net.posts
    # b takes what it is sent, and its answers are lost: then it is away
    net.fate = lambda sender, receiver, _number: "answer lost" if (sender, receiver) == ("a", "b") else "through"
    if not has_sent:
        b.stop()
    bodies = [str(number).encode() for number in range(0 if not has_sent else 1, 20)]
    a.node.put_many("orders", bodies)
    assert until(lambda: len(c.bodies("orders")) >= 20)
    assert until(lambda: a.waiting() == 0)
    assert ("a", "d") in net.posts
    if not has_sent:
        b.start()
    net.fate = lambda *_: "through"
    assert until(lambda: not a.rows("SELECT 1 FROM hop WHERE away_since IS NOT NULL"))
    a.node.put("orders", b"last")
    assert until(lambda: b"last" in c.bodies("orders"))
    assert sorted(c.bodies("orders"), key=lambda body: (len(body), body)) == [
        *(str(n).encode() for n in range(20)),
        b"last",
    ]
    assert net.posts[-1] != ("a", "d")


def test_what_waits_when_its_route_is_dropped_goes_by_another_or_is_a_dead_letter(net: Net) -> None:
    a, c = net.add("a"), net.add("c")
    c.node.declare("x/orders")
    a.node.route("x/*", "http://nobody/rm")
    net.nodes["nobody"] = type("Gone", (), {"is_up": False, "findings": list, "stop": lambda _self: None})()  # type: ignore[assignment]
    a.node.put("x/orders", b"1")
    a.node.put("x/other", b"2")
    a.node.route("x/orders", c.url, cost=9)
    assert a.node.unroute("x/*") == 1
    assert until(lambda: c.bodies("x/orders") == [b"1"])
    assert [reason for reason, _error in a.dead()] == ["unknown_destination"]
    c.node.declare("x/other")
    a.node.route("x/other", c.url)
    assert a.node.dead("send/hop/http://nobody/rm").redrive() == 1
    assert until(lambda: c.bodies("x/other") == [b"2"])


def test_with_routes_no_put_makes_a_queue_and_a_queue_that_is_here_goes_before_a_route(net: Net) -> None:
    a, b = net.add("a"), net.add("b")
    a.node.put("mine", b"before there are routes")
    a.node.route("*", b.url)
    a.node.put("mine", b"2")
    assert len(a.bodies("mine")) == 2
    a.node.unroute("*")
    a.node.route("north/*", b.url)
    with pytest.raises(UnknownQueue, match="no route is for it"):
        a.node.put("nroth/orders", b"3")
    for asks in (
        lambda: a.node.put("north/orders", b"4", report_to="reports"),
        lambda: a.node.bind("topic", "north/orders"),
        lambda: a.node.receive("north/orders"),
    ):
        with pytest.raises(UnknownQueue):
            asks()
    assert a.node.keys() == ["mine"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"next_hop": "north"}, "is no address of a node"),
        ({"next_hop": "http://north/rm", "cost": -1}, "the cheapest is taken"),
        ({"next_hop": "http://north/rm", "pattern": "*", "strip": True}, "nothing does"),
    ],
)
def test_a_route_that_cannot_be_is_refused_with_what_to_write(net: Net, options: dict[str, object], said: str) -> None:
    a = net.add("a")
    with pytest.raises(ConfigurationError, match=said):
        a.node.route(**{"pattern": "north/*", **options})  # type: ignore[arg-type]
