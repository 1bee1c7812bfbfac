"""The quota of a node: what it may add to all queues together."""

from __future__ import annotations

import threading

import pytest

from tests.node.conftest import Connect
from wsrm_mq.errors import ConfigurationError, QuotaExceeded
from wsrm_mq.node import Node


@pytest.mark.local("an option of a store that is opened here")
def test_what_all_queues_have_together_is_bounded_and_nothing_of_what_is_refused_is_stored(
    node: Node, connect: Connect
) -> None:
    bounded = connect(max_messages=3)
    node.put("others", b"1")
    bounded.put("orders", b"2")
    with pytest.raises(QuotaExceeded, match="would have 4 messages, and its `max_messages` is 3"):
        bounded.put_many("orders", [b"3", b"4"])
    bounded.put("orders", b"3")
    bounded.bind("db/#", "audit")
    with pytest.raises(QuotaExceeded):
        bounded.publish("db/add", b"4")
    assert (node.stats("orders").messages, node.stats("others").messages, node.stats("audit").messages) == (2, 1, 0)
    node.put("orders", b"another program may")
    node.ack(node.receive("orders", 10))
    bounded.put("orders", b"there is room")


@pytest.mark.local("an option of a store that is opened here")
def test_bytes_are_bounded_too_and_a_journal_does_not_count(node: Node, connect: Connect) -> None:
    bounded = connect(max_bytes=10)
    bounded.declare("orders", journal=True)
    bounded.put("orders", b"12345678")
    with pytest.raises(QuotaExceeded, match="would have 11 bytes, and its `max_bytes` is 10"):
        bounded.put("orders", b"123")
    node.receive("orders")[0].ack()
    bounded.put("orders", b"12345678")
    assert len(node.journal("orders").peek()) == 2


@pytest.mark.local("an option of a store that is opened here")
def test_a_producer_waits_where_its_queue_says_so(node: Node, connect: Connect) -> None:
    bounded = connect(max_messages=1)
    bounded.declare("orders", overflow="block")
    bounded.put("orders", b"1")
    waiting = threading.Thread(target=bounded.put, args=("orders", b"2"))
    waiting.start()
    node.receive("orders")[0].ack()
    waiting.join(10)
    assert [one.body for one in node.receive("orders")] == [b"2"]


@pytest.mark.local("an option of a store that is opened here")
def test_a_quota_that_is_none_is_refused(connect: Connect) -> None:
    with pytest.raises(ConfigurationError, match="`max_messages` of a node is 0"):
        connect(max_messages=0)
