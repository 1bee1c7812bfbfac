"""Messages that go from node to node: stored by each before the one before forgets them, and dead letters where it
fails."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from tests.routes.net import Answer, Net, One, until
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.hopping import NODE_HEADER
from wsrm_mq.routes import placing
from wsrm_mq.routes.block import carried
from wsrm_mq.testing import ManualClock

REFUSAL = (
    b'<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" '
    b'xmlns:rm="http://docs.oasis-open.org/ws-rx/wsrm/200702"><s:Body><s:Fault><s:Code><s:Value>s:Receiver</s:Value>'
    b"<s:Subcode><s:Value>rm:CreateSequenceRefused</s:Value></s:Subcode></s:Code>"
    b'<s:Reason><s:Text xml:lang="en">Too many.</s:Text></s:Reason></s:Fault></s:Body></s:Envelope>'
)


def line(net: Net, names: str, queue: str = "orders") -> list[One]:
    """Nodes in a row, each with a route to the next; the last has the queue."""
    nodes = [net.add(name) for name in names]
    for one, other in pairwise(nodes):
        one.node.route("*", other.url)
    nodes[-1].node.declare(queue)
    return nodes


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def test_what_is_put_for_a_queue_elsewhere_is_there_once_and_as_it_was_put(net: Net) -> None:
    a, b = net.add("a"), net.add("b")
    b.node.declare("north/orders")
    a.node.route("north/*", b.url)
    body = bytes(range(256))
    a.node.put("north/orders", body, type="Order", message_id="o-1", properties={"region": 'é&<"'}, priority=7)
    assert until(lambda: b.bodies("north/orders"))
    (one,) = b.node.peek("north/orders")
    assert (one.body, one.type, one.message_id, one.priority) == (body, "Order", "o-1", 7)
    assert one.properties == {"region": 'é&<"'}
    assert until(lambda: a.waiting() == 0)


def test_a_route_that_strips_leaves_out_what_stands_before_the_star(net: Net) -> None:
    a, b = net.add("a"), net.add("b")
    b.node.declare("orders")
    a.node.route("north/*", b.url, strip=True)
    a.node.put("north/orders", b"1")
    assert until(lambda: b.bodies("orders") == [b"1"])


@pytest.mark.scenario("Q-088")
def test_what_waits_while_the_next_node_is_down_arrives_once_and_in_order_when_it_is_back(net: Net) -> None:
    a, b, c = line(net, "abc")
    b.stop()
    for body in numbered(30):
        a.node.put("orders", body)
    assert a.waiting() == 30
    b.start()
    assert until(lambda: len(c.bodies("orders")) == 30)
    assert c.bodies("orders") == numbered(30)


@pytest.mark.scenario("Q-090")
def test_what_the_next_node_has_needs_the_one_before_no_longer(net: Net) -> None:
    a, b, c = line(net, "abc")
    c.stop()
    for body in numbered(10):
        a.node.put("orders", body)
    assert until(lambda: a.waiting() == 0 and b.waiting() == 10)
    a.stop()
    c.start()
    assert until(lambda: c.bodies("orders") == numbered(10))


@pytest.mark.scenario("Q-091")
@pytest.mark.invariant("I13")
def test_what_is_sent_again_for_a_lost_answer_is_there_once(net: Net) -> None:
    a, _b, c = line(net, "abc")
    lost: set[int] = set()

    def fate(sender: str, receiver: str, number: int) -> str:
        """Every other answer of b is lost, and nothing that has not come there is forgotten here."""
        if (sender, receiver) == ("a", "b") and number % 2:
            lost.add(number)
            return "answer lost"
        return "through"

    net.fate = fate
    for body in numbered(20):
        a.node.put("orders", body)
    assert until(lambda: len(c.bodies("orders")) >= 20 and a.waiting() == 0)
    assert lost
    assert c.bodies("orders") == numbered(20)


@pytest.mark.scenario("Q-092")
@pytest.mark.invariant("I14")
def test_more_nodes_than_a_message_may_have_are_a_dead_letter_at_the_first_one_too_many(net: Net) -> None:
    a, b, c, d = line(net, "abcd")
    a.node.put("orders", b"1", max_hops=2)
    a.node.put("orders", b"2", max_hops=4)
    assert until(lambda: c.dead() and d.bodies("orders") == [b"2"])
    ((reason, why),) = c.dead()
    assert (reason, why) == ("hop_count_exceeded", "2 nodes have had it: a b.")
    assert [a.dead(), b.dead(), d.dead()] == [[], [], []]


@pytest.mark.scenario("Q-093")
def test_routes_that_lead_to_each_other_end_as_a_dead_letter_where_the_message_was_before(net: Net) -> None:
    a, b = net.add("a"), net.add("b")
    a.node.route("*", b.url)
    b.node.route("*", a.url)
    a.node.put("orders", b"1")
    assert until(a.dead)
    ((reason, why),) = a.dead()
    assert (reason, why) == ("loop", "It was here before, by a b: routes of these nodes lead to each other.")
    time.sleep(0.3)
    assert (len(a.dead()), b.dead(), a.waiting(), b.waiting()) == (1, [], 0, 0)


@pytest.mark.scenario("Q-094")
def test_a_queue_that_the_last_node_has_not_is_a_dead_letter_there_which_finds_its_place_when_it_is_redriven(
    net: Net,
) -> None:
    a, b = line(net, "ab")
    a.node.put("nowhere", b"nowhere")
    assert until(b.dead)
    ((reason, why),) = b.dead()
    assert (reason, why) == ("unknown_destination", "There is no queue nowhere at b, and no route is for it.")
    assert b.rows("SELECT name FROM queue WHERE name = 'nowhere'") == [], "none is made"
    b.node.declare("nowhere")
    assert b.node.dead("route/in").redrive() == 1
    assert until(lambda: b.bodies("nowhere") == [b"nowhere"])


def test_deadlines_are_of_the_time_that_is_left_though_clocks_are_an_hour_apart(net: Net) -> None:
    now = round(time.time() * 1000)
    early, late = ManualClock(now - 3_600_000), ManualClock(now + 3_600_000)
    a, b = net.add("a", clock=early), net.add("b", clock=late)
    b.node.declare("orders")
    a.node.route("*", b.url)
    a.node.put("orders", b"1", ttl=50)
    assert until(lambda: b.bodies("orders"))
    late.advance(49_000)
    assert b.node.receive("orders")[0].ack() == "settled"
    a.node.put("orders", b"2", ttl=50)
    assert until(lambda: b.bodies("orders"))
    late.advance(51_000)
    b.node.doorbell.nudge()
    assert until(lambda: b.dead())
    assert b.dead()[0][0] == "ttl_expired"


@pytest.mark.scenario("Q-095")
@pytest.mark.parametrize("option", ["reach_by", "ttl"])
def test_what_cannot_leave_in_time_is_a_dead_letter_where_it_waits_and_the_rest_goes_on(net: Net, option: str) -> None:
    a, b = line(net, "ab")
    a.node.put("orders", b"0")
    assert until(lambda: b.bodies("orders") == [b"0"])
    b.stop()
    a.node.put("orders", b"1")
    a.node.put("orders", b"2", **{option: 0.5 + (time.time() if option == "reach_by" else 0)})
    a.node.put("orders", b"3", **{option: 600 + (time.time() if option == "reach_by" else 0)})
    assert until(a.dead)
    assert [reason for reason, _why in a.dead()] == [{"reach_by": "reach_by", "ttl": "ttl_expired"}[option]]
    b.start()
    assert until(lambda: b.bodies("orders") == [b"0", b"1", b"3"])
    assert until(lambda: a.waiting() == 0)


def test_what_the_next_node_will_never_take_is_a_dead_letter_at_once_and_holds_up_nothing(net: Net) -> None:
    a, b = line(net, "ab")
    taken = b.answer

    def picky(headers: object, body: bytes) -> object:
        return (413, [("content-type", "text/plain")], b"") if len(body) > 5_000 else taken(headers, body)  # type: ignore[arg-type]

    def answer(headers: object, body: bytes) -> object:
        found = picky(headers, body)
        return type("A", (), dict(zip(("status", "headers", "content"), found, strict=True)))()  # type: ignore[arg-type,call-overload]

    b.answer = answer  # type: ignore[method-assign,assignment]
    for body in (b"1", b"x" * 10_000, b"2", b"3"):
        a.node.put("orders", body)
    assert until(lambda: a.dead() and len(b.bodies("orders")) == 3)
    assert [reason for reason, _why in a.dead()] == ["refused_there"]
    a.node.put("orders", b"4")
    assert until(lambda: b.bodies("orders") == [b"1", b"2", b"3", b"4"])


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (401, "application/problem+json", "grants it no right: `wsrm-mq token add … --route` there"),
        (200, "text/html", "is there a node of wsrm_mq? Its address ends in /rm"),
        (404, "text/plain", "is there a node of wsrm_mq? Its address ends in /rm"),
    ],
)
def test_a_next_node_that_does_not_answer_as_nodes_do_keeps_what_waits_and_says_what_to_do(
    net: Net, status: int, kind: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.routes.hops.AWAY_SECONDS", 0.2)
    monkeypatch.setattr("wsrm_mq.routes.hops.LADDER", (0.2,))
    a, b = line(net, "ab")
    taken, b.answer = (
        b.answer,
        lambda _headers, _body: type(  # type: ignore[method-assign,assignment]
            "A", (), {"status": status, "headers": [("content-type", kind)], "content": b"<html>"}
        )(),
    )
    a.node.put("orders", b"1")
    assert until(lambda: a.rows("SELECT last_error FROM hop"))
    assert said in a.rows("SELECT last_error FROM hop")[0][0]
    assert a.dead() == []
    b.answer = taken  # type: ignore[method-assign]
    assert until(lambda: b.bodies("orders") == [b"1"])


def test_a_service_of_ws_rm_that_is_no_node_is_handed_nothing(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would acknowledge what it can place nowhere."""
    monkeypatch.setattr("wsrm_mq.routes.hops.AWAY_SECONDS", 0.2)
    monkeypatch.setattr("wsrm_mq.routes.hops.LADDER", (0.2,))
    a, b = line(net, "ab")
    b.is_node = False
    a.node.put("orders", b"1")
    assert until(lambda: a.rows("SELECT last_error FROM hop"))
    assert "/queues/rm beside an application" in a.rows("SELECT last_error FROM hop")[0][0]
    assert (a.waiting(), b.rows("SELECT count(*) FROM message")) == (1, [(0,)])
    b.is_node = True
    assert until(lambda: b.bodies("orders") == [b"1"])


def test_a_full_queue_whose_producers_wait_holds_up_what_came_with_it_and_nothing_else(net: Net) -> None:
    """Messages of another node have their own turn."""
    a, c, b = net.add("a"), net.add("c"), net.add("b")
    b.node.declare("full", max_messages=1, overflow="block")
    b.node.declare("small", max_messages=1)
    b.node.declare("orders")
    for one in (a, c):
        one.node.route("*", b.url)
    for body in numbered(3):
        a.node.put("full", body)
    assert until(lambda: b.bodies("full") == [b"0"] and a.waiting() == 0)
    c.node.put("orders", b"1")
    assert until(lambda: b.bodies("orders") == [b"1"])
    for body in numbered(3):
        assert until(lambda body=body: b.bodies("full") == [body])  # type: ignore[misc]
        assert b.node.receive("full")[0].ack() == "settled"
    for body in numbered(2):
        c.node.put("small", body)
    assert until(b.dead)
    assert [reason for reason, _why in b.dead()] == ["quota"]


def test_more_than_is_looked_at_once_for_a_full_queue_holds_up_nothing_of_other_nodes(net: Net) -> None:
    a, c, b = net.add("a"), net.add("c"), net.add("b")
    b.node.declare("full", max_messages=1, overflow="block")
    b.node.declare("orders")
    for one in (a, c):
        one.node.route("*", b.url)
    a.node.put_many("full", numbered(placing.MOST + 2))
    assert until(lambda: b.bodies("full") == [b"0"] and a.waiting() == 0)
    c.node.put("orders", b"1")
    assert until(lambda: b.bodies("orders") == [b"1"], 10)


def test_what_waits_for_room_is_passed_by_nothing_for_the_same_queue(net: Net) -> None:
    a, b, c = net.add("a"), net.add("b"), net.add("c")
    b.node.declare("full", max_bytes=1000, overflow="block")
    b.node.declare("orders")
    for one in (a, c):
        one.node.route("*", b.url)
    a.node.put("full", b"x" * 900)
    a.node.put("full", b"y" * 500)
    assert until(lambda: len(b.bodies("full")) == 1 and a.waiting() == 0)
    a.stop()
    a.start()
    a.node.put("full", b"z")
    assert until(lambda: a.waiting() == 0)
    lanes = "SELECT count(DISTINCT e.lane) FROM entry e JOIN queue q ON q.id = e.queue WHERE q.name = 'route/in'"
    assert b.rows(f"{lanes} AND e.outcome IS NULL") == [(2,)], "it came in another sequence"
    c.node.put("orders", b"1")
    assert until(lambda: b.bodies("orders") == [b"1"])
    assert len(b.bodies("full")) == 1
    b.node.receive("full")[0].ack()
    assert until(lambda: b.bodies("full") == [b"y" * 500, b"z"])


def test_what_was_in_a_loop_is_placed_when_it_is_redriven_where_its_queue_is_by_then(net: Net) -> None:
    a, b = net.add("a"), net.add("b")
    a.node.route("*", b.url)
    b.node.route("*", a.url)
    a.node.put("orders", b"1")
    assert until(a.dead)
    c = net.add("c")
    c.node.declare("orders")
    a.node.route("orders", c.url, cost=0)
    assert a.node.dead("route/in").redrive() == 1
    assert until(lambda: c.bodies("orders") == [b"1"])


def test_what_was_late_has_time_again_once_it_is_redriven(net: Net) -> None:
    a, b, c = line(net, "abc")
    b.stop()
    a.node.put("orders", b"1", reach_by=time.time() + 0.2)
    assert until(a.dead)
    (queue,) = a.rows("SELECT name FROM queue WHERE name LIKE 'send/hop/%'")[0]
    assert a.node.dead(queue).redrive() == 1
    b.start()
    assert until(lambda: c.bodies("orders") == [b"1"] or b.dead() or c.dead())
    assert (b.dead(), c.dead(), c.bodies("orders")) == ([], [], [b"1"])


def test_what_cannot_be_placed_for_an_error_of_ours_is_set_aside_and_holds_up_nothing(
    net: Net, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = line(net, "ab")
    place = placing._place

    def breaks(tx: Any, at: Any, one: Any, *rest: Any) -> Any:
        if carried(one.seen.body, 0).one.body == b"2":
            raise ZeroDivisionError("a mistake")
        return place(tx, at, one, *rest)

    monkeypatch.setattr(placing, "_place", breaks)
    a.node.put_many("orders", numbered(5))
    assert until(lambda: b.bodies("orders") == [b"0", b"1", b"3", b"4"])
    assert b.dead() == [("unreadable", "ZeroDivisionError: a mistake")]
    assert "a mistake" in caplog.text


def test_a_queue_that_is_called_as_its_node_is_reached(net: Net) -> None:
    a, billing = net.add("a"), net.add("billing")
    billing.node.declare("billing")
    a.node.route("*", billing.url)
    a.node.put("billing", b"1")
    a.node.put("billing@billing", b"2")
    assert until(lambda: billing.bodies("billing") == [b"1", b"2"] or billing.dead())
    assert billing.dead() == []


def test_a_full_disk_while_a_message_is_placed_makes_no_dead_letter(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = line(net, "ab")
    place = placing._place
    full = [True]

    def fails(tx: Any, one: Any, *rest: Any) -> Any:
        if full:
            tx.execute("PRAGMA max_page_count = 1")
            tx.execute("INSERT INTO ledger (at, event) VALUES (1, hex(randomblob(100000)))")
        return place(tx, one, *rest)

    monkeypatch.setattr(placing, "_place", fails)
    a.node.put("orders", b"1")
    assert until(lambda: a.waiting() == 0)
    time.sleep(2.5)  # it was tried three times
    assert (b.dead(), b.bodies("orders")) == ([], [])
    full.clear()
    with b.node.store.reader():
        pass
    b.node.store.call(lambda tx: tx.execute("PRAGMA max_page_count = 1073741823").fetchall())
    assert until(lambda: b.bodies("orders") == [b"1"])


def test_what_no_other_node_takes_is_refused_where_it_is_put(net: Net) -> None:
    a, b = line(net, "ab")
    with pytest.raises(ConfigurationError, match="leave out `deliver_at`"):
        a.node.put("orders", b"1", group="g", delay=5)
    with pytest.raises(ConfigurationError, match="XML"):
        a.node.put("orders", b"1", message_id="A\x1f17")
    b.node.declare("alarms", delivery="at_most_once")
    a.node.put("alarms", b"2", group="g")
    assert until(b.dead)
    assert [reason for reason, _ in b.dead()] == ["rejected"]
    assert b.rows("SELECT id FROM message WHERE id NOT IN (SELECT message FROM entry)") == []
    assert (a.waiting(), b.bodies("orders")) == (0, [])


def test_a_message_with_an_id_that_was_put_before_is_a_repeat_that_the_ledger_names(net: Net) -> None:
    a, b = line(net, "ab")
    b.node.declare("orders", dedupe_window=60)
    a.node.put_many("orders", [b"1", b"2"], message_id="o-1")
    assert until(lambda: b.rows("SELECT reason FROM ledger WHERE event = 'repeated'"))
    assert b.rows("SELECT reason FROM ledger WHERE event = 'repeated'") == [("put before with the id o-1",)]
    assert b.bodies("orders") == [b"1"]


def test_a_next_node_that_refuses_a_sequence_is_away_and_nothing_is_given_up(net: Net) -> None:
    a, b = line(net, "ab")
    answer = b.answer
    refuse = [True]

    def refuses(headers: Any, body: bytes) -> Answer:
        if b"CreateSequence" in body and refuse:
            return Answer(500, [("content-type", "application/soap+xml"), (NODE_HEADER, "rm")], REFUSAL)
        return answer(headers, body)

    b.answer = refuses  # type: ignore[method-assign]
    a.node.put_many("orders", numbered(3))
    assert until(lambda: any("refuses a sequence" in (why or "") for (why,) in a.rows("SELECT last_error FROM hop")))
    assert (a.dead(), a.waiting()) == ([], 3)
    refuse.clear()
    assert until(lambda: b.bodies("orders") == numbered(3))
