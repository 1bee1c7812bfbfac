"""Express messages on their way to other nodes: none recoverable waits for them, and what is lost is counted."""

from __future__ import annotations

from tests.routes.net import Net, until


def test_express_messages_go_in_a_sequence_of_their_own_and_make_no_queue_here(net: Net) -> None:
    a, b, c = (net.add(name) for name in "abc")
    c.node.declare("orders")
    a.node.route("orders", b.url)
    b.node.route("orders", c.url)
    for number in range(6):
        a.node.put("orders", b"%d" % number, durability="express" if number % 2 else "recoverable")
    assert until(lambda: len(c.bodies("orders")) == 6)
    assert [body for body in c.bodies("orders") if int(body) % 2] == [b"1", b"3", b"5"]
    assert [body for body in c.bodies("orders") if not int(body) % 2] == [b"0", b"2", b"4"]
    for one in (a, b):
        assert one.rows("SELECT count(*) FROM outbound_sequence WHERE answers IS NULL") == [(2,)]
        assert one.rows("SELECT count(*) FROM queue WHERE name = 'orders'") == [(0,)]


def test_after_a_crash_what_was_express_is_counted_as_lost_and_nothing_recoverable_waits_for_it(net: Net) -> None:
    a, b = net.add("a"), net.add("b")
    b.node.declare("orders")
    a.node.route("orders", b.url)
    a.node.put("orders", b"there", durability="express")
    assert until(lambda: b.bodies("orders") == [b"there"])
    net.fate = lambda *_: "request lost"
    for number in range(3):
        a.node.put("orders", b"express", durability="express")
        a.node.put("orders", b"%d" % number)
    a.stop()  # no process has the store any more: whatever the end was, it is a new run
    a.start()
    net.fate = lambda *_: "through"
    a.routing._sending.reaching.try_now()
    assert until(lambda: len(b.bodies("orders")) == 4)
    assert b.bodies("orders") == [b"there", b"0", b"1", b"2"]
    ((reason,),) = a.rows("SELECT reason FROM ledger WHERE event = 'express_lost'")
    assert reason.startswith("3 for the node at http://b/rm")
    assert until(lambda: [why for why, _error in a.dead()] == ["express_lost"] * 3)
    a.node.put("orders", b"anew", durability="express")
    assert until(lambda: b.bodies("orders")[-1] == b"anew")


def test_express_messages_go_by_another_route_and_are_express_there(net: Net) -> None:
    a, c = net.add("a"), net.add("c")
    c.node.declare("orders")
    a.node.route("orders", "http://gone/rm")
    net.nodes["gone"] = type("Gone", (), {"is_up": False, "findings": list, "stop": lambda _self: None})()  # type: ignore[assignment]
    a.node.put("orders", b"1", durability="express")
    a.node.route("orders", c.url, cost=9)
    a.node.unroute("orders", "http://gone/rm")
    assert until(lambda: c.bodies("orders") == [b"1"])
    assert a.rows("SELECT count(*) FROM queue WHERE name GLOB 'hop/http://c/rm#*'") == [(1,)]
