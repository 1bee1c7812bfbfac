"""The choice of routes: the cheapest that is up, and what waits goes where it is to go now."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.routes.net import Answer, Net, One, until
from wsrm_mq import connect
from wsrm_mq.errors import ConfigurationError, UnknownQueue
from wsrm_mq.queue import rerouting, retention
from wsrm_mq.queue.routing import drop_route, node_name, settle_name
from wsrm_mq.routes import hops
from wsrm_mq.store.transaction import Transaction


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
        assert ("a", "d") not in net.carried
    # b takes what it is sent, and its answers are lost: then it is away
    net.fate = lambda sender, receiver, _number: "answer lost" if (sender, receiver) == ("a", "b") else "through"
    if not has_sent:
        b.stop()
    bodies = [str(number).encode() for number in range(0 if not has_sent else 1, 20)]
    a.node.put_many("orders", bodies)
    assert until(lambda: len(c.bodies("orders")) >= 20)
    assert until(lambda: a.waiting() == 0)
    assert ("a", "d") in net.carried
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
    assert net.carried[-1] != ("a", "d")


def test_a_node_is_not_named_after_the_program_that_adds_its_first_route(tmp_path: Path) -> None:
    with connect(tmp_path / "a.db", "billing") as program:
        program.route("*", "http://north/rm")
        with program.reader() as db:
            name, host = node_name(db).name, socket.gethostname().partition(".")[0]
    assert re.fullmatch(rf"{re.escape(host)}-[0-9a-f]{{4}}", name)


def test_a_node_keeps_the_name_that_was_configured_first_and_another_one_is_refused(tmp_path: Path) -> None:
    with connect(tmp_path / "a.db") as program:
        program.call(partial(settle_name, configured="east"))
        program.call(settle_name)
        with pytest.raises(ConfigurationError, match="node_name is 'west', and the store is that of the node 'east'"):
            program.call(partial(settle_name, configured="west"))


def is_away(one: One, other: One) -> bool:
    return bool(one.rows("SELECT 1 FROM hop WHERE address = ? AND away_since IS NOT NULL", other.url))


def test_a_next_node_that_is_away_for_another_reason_by_now_says_that_one(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for it is tried before it is asked again."""
    monkeypatch.setattr(hops, "LADDER", (600.0,))
    a, b = net.add("a"), net.add("b")
    a.node.route("orders", b.url)
    b.stop()
    a.node.put("orders", b"1")
    assert until(lambda: is_away(a, b))
    assert a.rows("SELECT last_error FROM hop") == [("connection refused",)]
    b.start()
    b.answer = lambda _headers, _body: Answer(401, [("content-type", "text/plain")], b"")  # type: ignore[method-assign]
    assert until(
        lambda: a.rows("SELECT last_error FROM hop")[0][0].startswith("answered 401: it does not know this node")
    )


def test_in_a_ring_nothing_goes_back_to_a_node_that_has_had_it_while_the_link_ahead_is_away(net: Net) -> None:
    a, b, c = ring = [net.add(name) for name in "abc"]
    c.node.declare("orders")
    for one, ahead, behind in ((a, b, c), (b, c, a)):
        one.node.route("orders", ahead.url, cost=1)
        one.node.route("orders", behind.url, cost=5)
    assert until(lambda: all(len(one.rows("SELECT 1 FROM hop WHERE node IS NOT NULL")) == 2 for one in (a, b)))
    net.fate = lambda sender, receiver, _number: "request lost" if (sender, receiver) == ("b", "c") else "through"
    a.node.put("orders", b"1")  # waits for the link that is not known to be away, and then for one that is
    assert until(lambda: b.waiting() == 1)
    assert until(lambda: is_away(b, c))
    a.node.put("orders", b"2")
    b.node.put("orders", b"round")  # goes by a, to which c is the only node that has not had it
    assert until(lambda: c.bodies("orders") == [b"round"] and b.waiting() == 2)
    assert a.rows("SELECT count(*) FROM message WHERE action = 'urn:wsrm-mq:route:put'") == [(1,)]
    net.fate = lambda *_: "through"
    assert until(lambda: c.bodies("orders") == [b"round", b"1", b"2"])
    assert until(lambda: not any(one.waiting() for one in ring))
    assert [one.dead() for one in ring] == [[], [], []]


def test_where_all_routes_lead_back_what_cannot_arrive_is_a_loop_and_waits_for_none(net: Net) -> None:
    a, b = net.add("a"), net.add("b")
    for one, other in ((a, b), (b, a)):
        one.node.route("*", other.url)
    assert until(lambda: all(one.rows("SELECT 1 FROM hop WHERE node IS NOT NULL") for one in (a, b)))
    a.node.put("orders", b"1")
    assert until(a.dead)
    assert [reason for reason, _why in a.dead()] == ["loop"]


def test_a_route_that_leads_back_to_its_own_node_is_told_and_what_waits_goes_by_another_one(net: Net) -> None:
    a, c = net.add("a"), net.add("c")
    c.node.declare("orders")
    a.node.route("orders", a.url)
    a.node.put("orders", b"1")
    assert until(lambda: is_away(a, a))
    ((why,),) = a.rows("SELECT last_error FROM hop WHERE address = ?", a.url)
    assert why.startswith("answers as a, which is this node: the route leads back here, or two nodes have one name")
    assert "`wsrm-mq route drop`" in why
    a.node.route("orders", c.url, cost=5)
    assert until(lambda: c.bodies("orders") == [b"1"])
    assert (a.dead(), a.waiting()) == ([], 0)


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


def test_what_waits_goes_in_parts_when_its_route_is_dropped_and_the_next_time_finishes_what_was_interrupted(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerouting, "MOST", 3)
    a, b, c = (net.add(name) for name in "abc")
    c.node.declare("orders")
    b.stop()
    a.node.route("*", b.url)
    a.routing.close()  # the process that sends is killed
    for number in range(10):
        a.node.put("orders", str(number).encode())
    a.node.put("lost", b"10")
    a.node.route("orders", c.url, cost=9)
    assert a.node.call(lambda tx: drop_route(tx, "*")) == [b.url]
    assert a.node.call(rerouting.reroute_waiting) == (3, 0)
    assert (a.node.unroute("*"), a.waiting()) == (0, 10), "all of it waits for c"
    a.stop()
    a.start()
    assert until(lambda: c.bodies("orders") == [str(number).encode() for number in range(10)])
    assert [reason for reason, _error in a.dead()] == ["unknown_destination"]


@pytest.mark.parametrize("change", ["away", "cheaper", "dropped"])
def test_what_is_put_passes_nothing_that_waits_for_the_same_queue_and_has_not_moved_yet(
    net: Net, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    moves, move = threading.Event(), hops.Hops._move
    monkeypatch.setattr(hops.Hops, "_move", lambda self, address: moves.is_set() and move(self, address))
    monkeypatch.setattr(rerouting, "MOST", 3)
    a, b, c = (net.add(name) for name in "abc")
    for queue in ("orders", "other"):
        c.node.declare(queue)
    a.node.route("*", b.url, cost=2)
    b.stop()
    for number in range(8):
        a.node.put("orders", str(number).encode())
    if change == "cheaper":
        a.node.route("*", c.url, cost=1)
    else:
        a.node.route("*", c.url, cost=3)
    if change == "away":
        assert until(lambda: is_away(a, b))
    elif change == "dropped":
        a.node.call(lambda tx: drop_route(tx, "*", b.url))
        assert a.node.call(rerouting.reroute_waiting) == (3, 0)
    a.node.put("orders", b"8")
    a.node.put("other", b"9")
    assert until(lambda: c.bodies("other") == [b"9"]), "it waits for nothing of another queue"
    assert b"8" not in c.bodies("orders")
    moves.set()
    assert until(lambda: len(c.bodies("orders")) == 9 and a.waiting() == 0)
    assert c.bodies("orders") == [str(number).encode() for number in range(9)]
    assert until(lambda: not a.rows("SELECT 1 FROM moving"))


@pytest.mark.parametrize("then", ["on", "back", "dropped"])
def test_routes_that_change_again_while_what_waits_has_moved_in_part_change_no_order(
    net: Net, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    monkeypatch.setattr(rerouting, "MOST", 3)
    a, b, c, d = (net.add(name) for name in "abcd")
    last = b if then == "back" else d
    last.node.declare("orders")
    a.node.route("*", b.url, cost=3)
    b.stop()
    a.routing.close()  # nothing moves but by this test
    for number in range(8):
        a.node.put("orders", str(number).encode())
    a.node.route("*", c.url, cost=2)
    assert a.node.call(rerouting.reroute_waiting) == (3, 0)
    a.node.put("orders", b"8")
    if then == "dropped":
        a.node.call(lambda tx: drop_route(tx, "*", c.url))
    a.node.route("*", last.url, cost=1)
    a.node.put("orders", b"9")
    while any(a.node.call(rerouting.reroute_waiting)):
        a.node.put("orders", str(len(a.rows("SELECT 1 FROM message"))).encode())
    if last is b:
        b.start()
    a.stop()
    a.start()
    assert until(lambda: a.waiting() == 0 and not a.rows("SELECT 1 FROM moving"))
    numbers = [int(body) for body in last.bodies("orders")]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 10
    assert (a.dead(), c.waiting(), c.dead()) == ([], 0, [])


def test_what_was_deleted_with_its_queue_does_not_come_back_by_another_way(net: Net) -> None:
    a, b, c = (net.add(name) for name in "abc")
    c.node.declare("orders")
    b.node.route("*", c.url)
    a.node.route("orders", c.url, cost=5)
    a.node.put("orders", b"0")
    assert until(lambda: c.bodies("orders") == [b"0"] and a.waiting() == 0)
    net.fate = lambda sender, receiver, _number: "answer lost" if (sender, receiver) == ("a", "c") else "through"
    a.node.put("orders", b"1")
    assert until(lambda: c.bodies("orders") == [b"0", b"1"])
    c.node.delete("orders")
    c.node.declare("orders")
    with c.node.reader() as db:
        (deleted,) = db.execute("SELECT id FROM queue WHERE name LIKE 'orders#%' AND kind = 'app'").fetchone()

    def forget(tx: Transaction) -> None:
        for table in ("ledger", "entry"):
            tx.execute(f"DELETE FROM {table} WHERE queue = ?", (deleted,))

    c.node.call(forget)
    with c.node.reader() as db:
        assert deleted not in retention.unused_queues(db, c.clock() + 1).queues
    a.node.route("orders", b.url)
    a.node.put("orders", b"2")
    assert until(lambda: b"2" in c.bodies("orders"))
    assert c.bodies("orders") == [b"2"]
    assert len(c.rows("SELECT 1 FROM ledger WHERE event = 'repeated'")) == 1
    net.fate = lambda *_: "through"


def test_what_has_another_way_goes_in_parts_from_a_node_that_may_have_had_some_of_it(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerouting, "MOST", 3)
    a, b, c = (net.add(name) for name in "abc")
    c.node.declare("orders")
    b.node.route("*", c.url)
    a.node.route("orders", b.url)
    a.node.put("orders", b"0")
    assert until(lambda: c.bodies("orders") == [b"0"] and a.waiting() == 0)
    net.fate = lambda sender, receiver, _number: "answer lost" if (sender, receiver) == ("a", "b") else "through"
    for number in range(1, 12):
        a.node.put("orders", str(number).encode())
    a.node.route("orders", c.url, cost=9)
    assert until(lambda: len(c.bodies("orders")) >= 12 and a.waiting() == 0)
    net.fate = lambda *_: "through"
    assert until(lambda: not b.waiting())
    assert sorted(c.bodies("orders"), key=int) == [str(number).encode() for number in range(12)]
    assert a.dead() == []


def test_what_keeps_its_route_keeps_its_order_while_the_rest_goes_in_parts(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerouting, "MOST", 3)
    a, b, c = (net.add(name) for name in "abc")
    a.node.route("*", b.url)
    for one in (b, c):
        one.node.declare("x")
        one.node.declare("y")
    b.stop()
    for number in range(6):
        a.node.put("y" if number else "x", str(number).encode())
    a.node.put_many("x", [b"6", b"7"])
    a.node.route("x", c.url, cost=0)  # exactly as many as go at once
    assert until(lambda: c.bodies("x") == [b"0", b"6", b"7"])
    b.start()
    assert until(lambda: b.bodies("y") == [str(number).encode() for number in range(1, 6)])
    a.node.put_many("y", [b"8", b"9", b"10"])
    assert until(lambda: len(b.bodies("y")) == 8 and a.waiting() == 0)


def test_a_sequence_that_is_left_by_as_many_as_go_at_once_is_over(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rerouting, "MOST", 3)
    a, b, c = (net.add(name) for name in "abc")
    c.node.declare("orders")
    b.stop()
    a.node.route("orders", b.url)
    a.node.put_many("orders", [b"1", b"2", b"3"])
    a.node.route("orders", c.url, cost=9)
    assert a.node.unroute("orders", b.url) == 1
    assert until(lambda: c.bodies("orders") == [b"1", b"2", b"3"])
    assert a.rows("SELECT count(*) FROM outbound_sequence WHERE peer = ? AND state = 'creating'", b.url) == [(0,)]


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
        ({"next_hop": "http://[north/rm"}, "is no address of a node"),
        ({"next_hop": "http://north:99999/rm"}, "is no address of a node"),
        ({"next_hop": "http://north/\0"}, "is no address of a node"),
        ({"next_hop": "http://north/rm", "cost": -1}, "the cheapest is taken"),
        ({"next_hop": "http://north/rm", "pattern": "*", "strip": True}, "nothing does"),
    ],
)
def test_a_route_that_cannot_be_is_refused_with_what_to_write(net: Net, options: dict[str, object], said: str) -> None:
    a = net.add("a")
    with pytest.raises(ConfigurationError, match=said):
        a.node.route(**{"pattern": "north/*", **options})  # type: ignore[arg-type]


def test_a_route_that_is_corrected_corrects_the_name_of_what_waits(net: Net) -> None:
    a, b = net.add("a"), net.add("b")
    for queue in ("orders", "north/orders"):
        b.node.declare(queue)
    a.node.route("north/*", b.url, strip=True)
    b.stop()
    a.node.put_many("north/orders", [b"1", b"2"])
    a.node.route("north/*", b.url)
    a.node.put("north/orders", b"3")
    b.start()
    assert until(lambda: b.bodies("north/orders") == [b"1", b"2", b"3"] and a.waiting() == 0)
    assert b.bodies("orders") == []


def test_a_next_node_that_answers_questions_and_no_messages_is_left_alone_ever_longer(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hops, "LADDER", (0.1, 0.2, 0.3, 0.4))
    a, b = net.add("a"), net.add("b")
    b.node.declare("orders")
    a.node.route("orders", b.url)
    answer, stands_between = b.answer, [True]

    def answers(headers: Mapping[str, str], body: bytes) -> Answer:
        if b"urn:wsrm-mq:route:put" in body and stands_between:
            return Answer(504, [("content-type", "text/html")], b"<html>Gateway Time-out</html>")
        return answer(headers, body)

    b.answer = answers  # type: ignore[method-assign]
    a.node.put("orders", b"1")
    assert until(lambda: (a.rows("SELECT max(attempts) FROM hop")[0][0] or 0) >= 4)
    stands_between.clear()
    assert until(lambda: b.bodies("orders") == [b"1"])
    assert until(lambda: a.rows("SELECT attempts FROM hop WHERE away_since IS NULL") == [(0,)])
