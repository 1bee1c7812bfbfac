"""A topic retains what is published to it: that is replayed, and told by events."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.node.conftest import Connect, Rows
from tests.node.test_subscription import taken, until
from tests.node.test_topics import all_of
from wsrm_mq.errors import ConfigurationError, FilterError, Unrouted
from wsrm_mq.node import Node

DAY = 86_400.0


def replayed(node: Node, topic: str, **options: Any) -> list[Any]:
    return [message.json() for message in node.replay(topic, **options)]


@pytest.mark.scenario("Q-034")
def test_all_that_is_retained_is_replayed_in_order_and_no_subscription_changes(
    node: Node, connect: Connect, rows: Rows
) -> None:
    node.declare_topic("db/*", retain=DAY)
    queue = node.subscribe_durable("db/#", "s")
    node.publish("db/add", 0)
    with node.subscribe(queue) as subscription:
        taken(subscription, 1)[0].ack()
    for number in range(1, 300):
        node.publish("db/add" if number % 2 else "db/delete", number)
    before = rows("SELECT * FROM entry ORDER BY id"), rows("SELECT * FROM subscription")
    assert replayed(node, "db/*", since="first") == list(range(300))
    assert replayed(connect("other"), "db/delete") == list(range(2, 300, 2))
    assert (rows("SELECT * FROM entry ORDER BY id"), rows("SELECT * FROM subscription")) == before
    assert node.stats(queue).ready == 299


def test_what_no_queue_takes_and_what_all_have_taken_is_replayed(node: Node, rows: Rows) -> None:
    node.declare_topic("db/#", retain=DAY)
    position = node.publish("db/add", b"1", mandatory=True, group="g", delay=60, ttl=0, receive_by=time.time()).position
    assert rows("SELECT * FROM ledger WHERE event = 'unrouted'") == []
    node.bind("#", "audit")
    done = node.publish("db", b"2")
    assert done.queues == ("audit",)
    assert all_of(node, "audit") == [2]
    first, second = node.replay("db/#")
    assert (first.position, first.topic, first.body, first.state, first.reason) == (
        *(position, "db/add", b"1"),
        *("held", "retained"),
    )
    assert second.body == b"2"
    assert first.ack() is None
    node.unbind("#", "audit")
    with pytest.raises(Unrouted):
        node.publish("fs/add", b"", mandatory=True)


def test_a_replay_begins_at_a_position_or_a_time_and_may_be_filtered(node: Node) -> None:
    node.declare_topic("db/*", retain=None)
    for number in range(3):
        node.publish("db/add", number, properties={"region": "eu" if number else "us"})
    time.sleep(0.01)
    at = time.time()
    last = node.publish("db/add", 3, properties={"region": "us"}).position
    assert last is not None
    assert replayed(node, "db/*", since=last) == [3]
    assert replayed(node, "db/*", since=last + 1) == []
    assert replayed(node, "db/*", since=at) == [3]
    assert replayed(node, "db/*", since=last - 1, filter="region = 'us'") == [3]
    assert replayed(node, "db/*", filter="region = 'us'") == [0, 3]
    for since in (last + 2, int(at), -1, "last", None, 1e300, float("inf")):
        with pytest.raises(ConfigurationError, match=r"`time.time\(\) - 3600`"):
            node.replay("db/*", since=since)  # type: ignore[arg-type]
    with pytest.raises(FilterError):
        node.replay("db/*", filter="region ==")
    with pytest.raises(ConfigurationError):
        node.replay("db/*/")


def test_a_message_that_two_patterns_retain_is_replayed_once(node: Node, rows: Rows) -> None:
    node.declare_topic("db/*", retain=DAY)
    node.declare_topic("#", retain=DAY)
    node.publish("db/add", 1)
    node.publish("d_/add", 2)
    node.publish("db/add", 3)
    assert replayed(node, "#") == [1, 2, 3]
    assert replayed(node, "d_/*") == [2]
    last = list(node.replay("#"))[-1]
    assert list(node.replay("#", since=last.position + 1)) == []
    assert rows("SELECT count(*) FROM message") == [(3,)]


def test_a_body_stays_as_long_as_its_topic_retains_it(node: Node, rows: Rows) -> None:
    node.declare_topic("db/*", retain=0.4)
    node.bind("db/*", "audit")
    node.publish("db/add", 1)
    node.publish("db/add", 2)
    node.receive("audit")[0].ack()
    assert replayed(node, "db/*") == [1, 2]
    until(lambda: node.stats("db/*#retained").messages == 0)
    assert replayed(node, "db/*") == []
    assert rows("SELECT id, body FROM message ORDER BY id")[0][1] is None
    assert all_of(node, "audit") == [2]
    assert rows("SELECT DISTINCT body FROM message") == [(None,)]
    told = rows("SELECT event, reason FROM ledger WHERE event = 'discarded'")
    assert told == [("discarded", "ttl_expired")] * 2


def test_a_topic_that_retains_no_longer_purges_what_it_has(node: Node, rows: Rows) -> None:
    node.declare_topic("db/*", retain=0)
    node.declare_topic("db/*", retain=DAY)
    node.declare_topic("db/*", retain=2 * DAY)
    node.publish("db/add", 1)
    node.declare_topic("db/*", retain=0)
    assert replayed(node, "db/*") == []
    assert rows("SELECT body FROM message") == [(None,)]
    assert node.publish("db/add", 2).position is None
    for retain in (-1, "1 day"):
        with pytest.raises(ConfigurationError):
            node.declare_topic("db/*", retain=retain)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        node.declare_topic("db/", retain=DAY)


@pytest.mark.scenario("Q-115")
def test_the_events_of_a_bucket_have_their_counts_and_last_times(node: Node) -> None:
    node.declare_topic("db/#", retain=DAY)
    node.declare_topic("db/add", retain=DAY)
    for topic in ("db/add", "db/delete", "db/add", "db/add/row", "dbx/add", "db"):
        node.publish(topic, b"")
    before = time.time()
    node.publish("db/add", b"")
    found = node.events("db")
    assert [(one.name, one.messages) for one in found] == [("add", 3), ("add/row", 1), ("delete", 1)]
    assert found[0].last_at >= before - 0.002 > found[2].last_at - 1
    assert node.events("fs") == []
    with pytest.raises(ConfigurationError):
        node.events("db/*")
