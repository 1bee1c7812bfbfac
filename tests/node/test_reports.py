"""Reports and the sender's own journal: what a message was put with wishes for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.node.conftest import Connect, Rows
from tests.node.test_journals import counted, told
from tests.node.test_subscription import taken, until
from wsrm_mq.errors import ConfigurationError, NotAllowed, UnknownQueue
from wsrm_mq.node import Node


def reports(node: Node, queue: str = "answers") -> list[tuple[Any, ...]]:
    """The reports that came: of which message, on what, and why."""
    found = node.receive(queue, 100)
    node.ack(found)
    assert all(one.type == "report" and one.body == b"" for one in found)
    return [(one.properties.get("message_id"), one.properties["report"], one.properties.get("reason")) for one in found]


@pytest.mark.scenario("Q-099")
def test_only_what_was_put_so_is_in_the_senders_journal_once_it_has_left(node: Node) -> None:
    first = node.put("orders", b"1", journal="source")
    node.put("orders", b"2")
    assert told(node.journal()) == []
    node.ack(node.receive("orders", 2))
    assert told(node.journal()) == [(b"1", "delivered", None)]
    (record,) = node.journal().peek()
    assert (record.of.queue, record.of.position) == ("orders", first)


def test_the_senders_journal_tells_every_way_of_leaving_and_records_each_message_once(node: Node) -> None:
    node.declare("orders", max_failures=1, on_poison="skip")
    node.declare("plain", dead_letter=False, max_failures=1)
    node.declare("once", delivery="at_most_once")
    for body, queue, group in (("dead", "orders", None), ("grouped", "orders", "g"), ("discarded", "plain", None)):
        node.put(queue, body, group=group, journal="source")
    node.put("once", "handed out", journal="source")
    node.put("orders", "purged", journal="source", delay=60)
    for one in [*node.receive("orders", 2), *node.receive("plain")]:
        one.nack("no")
    node.receive("once")
    node.purge("orders")
    assert {body: (outcome, reason) for body, outcome, reason in told(node.journal())} == {
        b"dead": ("dead", "max_failures"),
        b"grouped": ("dead", "max_failures"),
        b"discarded": ("discarded", "max_failures"),
        b"handed out": ("delivered", None),
        b"purged": ("purged", "purged"),
    }
    node.dead("orders").redrive()
    for one in node.receive("orders", 2):
        one.ack()
    assert sorted(one[1] or "" for one in told(node.journal())) == [*["delivered"] * 3, "discarded", "purged"]


def test_the_senders_journal_is_bounded_as_any(node: Node, rows: Rows) -> None:
    node.declare("#journal", max_messages=1)
    node.put_many("orders", [b"1", b"2"], journal="source")
    node.ack(node.receive("orders", 2))
    assert told(node.journal()) == [(b"1", "delivered", None)]
    assert rows("SELECT count(*) FROM ledger WHERE event = 'journal_skipped'") == [(1,)]
    assert node.stats("orders").messages == 0


@pytest.mark.scenario("Q-106")
def test_a_report_comes_when_a_message_is_stored_and_when_it_is_received_or_given_up(node: Node) -> None:
    node.declare("orders", max_failures=1, on_poison="skip")
    node.put("orders", b"", message_id="taken", report_to="answers")
    assert reports(node) == [("taken", "reached", None)]
    node.receive("orders")[0].ack()
    assert reports(node) == [("taken", "received", None)]
    node.put("orders", b"", message_id="failed", report_to="answers")
    node.put("orders", b"", message_id="grouped", group="g", report_to="answers")
    node.put("orders", b"", message_id="purged", delay=60, report_to="answers")
    assert [one[1] for one in reports(node)] == ["reached"] * 3
    for one in node.receive("orders", 2):
        one.nack("no")
    node.purge("orders")
    assert reports(node) == [
        ("failed", "not_delivered", "max_failures"),
        ("grouped", "not_delivered", "max_failures"),
        ("purged", "not_delivered", "purged"),
    ]
    assert reports(node) == []  # none is about a report


@pytest.mark.local("asks the doorbell of the node itself")
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_who_waits_for_a_report_is_woken_by_it(connect: Connect, node: Node, delivery: str) -> None:
    waits = connect("waits")
    waits.receive("answers")
    waits.doorbell.listen()
    node.declare("orders", delivery=delivery)
    with node.subscribe("orders", max_backlog=9, ack_batch=2) as subscription:
        for verb in ("batch", "alone"):
            node.put_many("orders", [b""] * 2, report_to="answers", report="received")
            until(lambda: not waits.doorbell.wait(waits.doorbell.rings, 0.1))  # it has heard of the puts
            before = waits.doorbell.rings
            if verb == "batch":
                subscription.next()
                subscription.next()
                subscription.next(0)
            else:
                node.ack(taken(subscription, 2))
            until(lambda since=before: waits.doorbell.rings > since)  # type: ignore[misc]
            until(lambda: len(waits.receive("answers", 9)) == 2)


def test_a_report_says_of_which_message_it_is(node: Node) -> None:
    position = node.put("orders", b"", report_to="answers", report=["reached"])
    (one,) = node.receive("answers")
    assert one.properties == {"report": "reached", "queue": "orders", "position": position}


def test_only_the_reports_come_that_were_asked_for(node: Node) -> None:
    node.put("orders", b"", message_id="a", report_to="answers", report="received")
    node.put("orders", b"", message_id="b", report_to="answers", report="reached, not_delivered")
    node.ack(node.receive("orders", 2))
    assert reports(node) == [("b", "reached", None), ("a", "received", None)]


def test_what_is_published_is_reported_for_each_queue(node: Node) -> None:
    for queue in ("audit", "stock"):
        node.bind("db/#", queue)
    node.publish("db/add", b"", report_to="answers")
    node.receive("stock")[0].ack()
    found = [(one.properties["queue"], one.properties["report"]) for one in node.receive("answers", 10)]
    assert found == [("audit", "reached"), ("stock", "reached"), ("stock", "received")]


def test_a_report_and_what_it_says_are_one_transaction(node: Node) -> None:
    node.begin()
    node.put("orders", b"", report_to="answers")
    node.rollback()
    assert node.keys() == []
    node.put("orders", b"", report_to="answers", report="received")
    (one,) = node.receive("orders")
    node.begin()
    one.ack()
    node.rollback()
    assert reports(node) == []
    one.ack()
    assert [report for _id, report, _reason in reports(node)] == ["received"]


def test_a_queue_of_reports_that_is_full_or_gone_harms_no_message_and_is_told(node: Node, rows: Rows) -> None:
    node.declare("answers", max_messages=1)
    node.put_many("orders", [b"1", b"2"], report_to="answers", report="received")
    node.ack(node.receive("orders", 2))
    node.put("orders", b"3", report_to="answers", report="received")
    node.delete("answers", force=True)
    node.receive("orders")[0].ack()
    full, gone = rows("SELECT reason FROM ledger WHERE event = 'report_skipped' ORDER BY id")
    assert "answers has 1 messages" in full[0]
    assert "There is no queue answers" in gone[0]
    assert node.stats("orders").messages == 0


@pytest.mark.local("an option of a store that is opened here")
def test_wishes_that_cannot_be_met_are_refused(node: Node, connect: Connect) -> None:
    with pytest.raises(ConfigurationError, match=r"`report` is 'seen'; it names some of reached, received"):
        node.put("orders", b"", report_to="answers", report="seen")
    with pytest.raises(ConfigurationError, match="and `report_to` the queue that has them"):
        node.put("orders", b"", report="received")
    with pytest.raises(ConfigurationError, match="of a message it is 'source'"):
        node.put("orders", b"", journal="target")
    node.journal()
    with pytest.raises(NotAllowed):
        node.put("orders", b"", report_to="#journal")
    strict = connect(auto_create=False)
    node.declare("orders")
    with pytest.raises(UnknownQueue, match="There is no queue nowhere"):
        strict.put("orders", b"", report_to="nowhere")
    assert node.stats("orders").messages == 0


@pytest.mark.local("counts the statements of the local node")
def test_a_message_without_wishes_costs_no_statement_more(node: Node) -> None:
    before = counted(node, "plain")
    node.put("orders", json.dumps({}), report_to="answers", journal="source")
    node.receive("orders")[0].ack()
    assert counted(node, "plain") == before
