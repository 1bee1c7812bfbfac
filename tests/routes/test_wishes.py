"""What a message is put with wishes for, beside its delivery, is heeded at whatever node that is to be done."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.routes.net import Net, One, until
from wsrm_mq.errors import UnknownQueue


def line(net: Net, *names: str) -> list[One]:
    """Nodes of which each hands on to the next what is for ``orders``, and back what is for another node."""
    nodes = [net.add(name) for name in names]
    for one, after in pairwise(nodes):
        one.node.route("orders*", after.url)
        after.node.route("*@*", one.url)
    return nodes


def reports(one: One, queue: str = "admin") -> list[dict[str, Any]]:
    return [message.properties for message in one.node.peek(queue, limit=100)]


@pytest.mark.scenario("Q-106")
def test_the_sender_is_told_when_its_message_has_reached_its_queue_elsewhere_and_when_it_was_taken(net: Net) -> None:
    a, _b, c = line(net, "a", "b", "c")
    a.node.declare("admin")
    c.node.declare("orders")
    position = a.node.put("orders", b"1", report_to="admin", message_id="o-1")
    assert until(lambda: len(reports(a)) == 1)
    (message,) = c.node.receive("orders")
    message.ack()
    assert until(lambda: len(reports(a)) == 2)
    common = {"queue": "orders", "position": position, "node": "c", "message_id": "o-1"}
    assert reports(a) == [{"report": "reached", **common}, {"report": "received", **common}]


@pytest.mark.scenario("Q-092")
def test_a_message_of_too_many_nodes_is_a_dead_letter_where_that_is_seen_and_its_sender_is_told(net: Net) -> None:
    a, b, c, d = line(net, "a", "b", "c", "d")
    a.node.declare("admin")
    d.node.declare("orders")
    position = a.node.put("orders", b"1", max_hops=2, report_to="admin", report="not_delivered")
    assert until(lambda: len(reports(a)) == 1)
    assert [(one.name, reason) for one in (a, b, c, d) for reason, _error in one.dead()] == [
        ("c", "hop_count_exceeded")
    ]
    said = {"report": "not_delivered", "reason": "hop_count_exceeded", "queue": "orders", "position": position}
    assert reports(a) == [{**said, "node": "c"}]


@pytest.mark.scenario("Q-094")
def test_the_sender_is_told_that_there_is_no_such_queue_at_the_last_node(net: Net) -> None:
    a, b = line(net, "a", "b")
    a.node.declare("admin")
    a.node.put("orders/odd", b"1", report_to="admin", report="not_delivered")
    assert until(lambda: len(reports(a)) == 1)
    assert (reports(a)[0]["reason"], reports(a)[0]["node"]) == ("unknown_destination", "b")
    assert [reason for reason, _error in b.dead()] == ["unknown_destination"]


@pytest.mark.scenario("Q-094")
def test_the_first_node_refuses_what_no_route_is_for_and_tells_the_sender_of_what_has_none_any_more(net: Net) -> None:
    a, b = net.add("a"), net.add("b")
    b.stop()
    a.node.declare("admin")
    a.node.route("x/*", b.url)
    with pytest.raises(UnknownQueue, match="There is no queue orders here, and no route is for it"):
        a.node.put("orders", b"1", report_to="admin", report="not_delivered")
    assert a.rows("SELECT count(*) FROM message") == [(0,)]
    a.node.put("x/orders", b"1", report_to="admin", report="not_delivered")
    assert a.node.unroute("x/*") == 1
    assert until(lambda: len(reports(a)) == 1)
    assert (reports(a)[0]["reason"], reports(a)[0]["node"]) == ("unknown_destination", "a")
    assert [reason for reason, _error in a.dead()] == ["unknown_destination"]


def test_the_sender_is_told_of_a_dead_letter_in_a_transmission_queue_and_of_one_that_was_taken_too_late(
    net: Net,
) -> None:
    a, b = line(net, "a", "b")
    a.node.declare("admin")
    b.node.declare("orders", ttl=0.2)
    a.node.put("orders", b"1", report_to="admin", report="not_delivered")
    assert until(lambda: [one["reason"] for one in reports(a)] == ["ttl_expired"])
    assert reports(a)[0]["node"] == "b"
    b.stop()
    a.node.put("orders", b"2", ttl=0.3, report_to="admin", report="not_delivered")
    assert until(lambda: len(reports(a)) == 2)
    assert (reports(a)[1]["node"], reports(a)[1]["queue"]) == ("a", "orders")


def test_a_report_that_no_route_is_for_is_told_and_counted_and_the_message_goes_on(net: Net) -> None:
    a, b = net.add("a"), net.add("b")
    a.node.declare("admin")
    b.node.declare("orders")
    a.node.route("orders", b.url)
    a.node.put("orders", b"1", report_to="admin")
    assert until(lambda: b.bodies("orders") == [b"1"])
    assert b.rows("SELECT reason FROM ledger WHERE event = 'report_skipped'") == [
        ("no route is for admin@a, where the message was put",)
    ]


@pytest.mark.scenario("Q-099")
def test_the_senders_journal_has_the_message_that_asks_for_it_once_the_next_node_has_it(net: Net) -> None:
    a, b = net.add("a"), net.add("b")
    b.node.declare("orders", journal=True)
    a.node.route("orders", b.url)
    net.fate = lambda *_: "request lost"
    a.node.put("orders", b"1", journal="source")
    a.node.put("orders", b"2")
    kept = lambda: [(one.message.body, one.of.outcome) for one in a.node.journal().peek()]  # noqa: E731
    assert kept() == []
    net.fate = lambda *_: "through"
    assert until(lambda: kept() == [(b"1", "delivered")])
    assert until(lambda: len(b.bodies("orders")) == 2)
    for message in b.node.receive("orders", 10):
        message.ack()
    there = [(one.message.body, one.of.outcome) for one in b.node.journal("orders").peek()]
    assert (there, kept()) == ([(b"1", "delivered"), (b"2", "delivered")], [(b"1", "delivered")])


def test_two_messages_of_one_sender_with_the_same_id_are_one_in_a_queue_that_keeps_ids(net: Net) -> None:
    """The second one came to a message that was there: its facts could not be kept twice, and nothing was placed."""
    a, b = net.add("a"), net.add("b")
    b.node.declare("orders", dedupe_window=60)
    a.node.route("orders", b.url)
    for body in (b"1", b"again"):
        a.node.put("orders", body, message_id="o-1")
    a.node.put("orders", b"2")
    assert until(lambda: b.bodies("orders") == [b"1", b"2"] and a.waiting() == 0)
