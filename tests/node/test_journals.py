"""Journals: what came into a queue and what became of it stays when the queue has forgotten it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.node.conftest import Connect, Rows
from wsrm_mq.errors import ConfigurationError, NotAllowed, UnknownQueue
from wsrm_mq.node import Node
from wsrm_mq.node.apart import Journal
from wsrm_mq.queue.retention import Kept, batches


def told(journal: Journal, **options: object) -> list[tuple[bytes, str | None, str | None]]:
    return [(one.message.body, one.of.outcome, one.of.reason) for one in journal.peek(**options)]  # type: ignore[arg-type]


@pytest.mark.scenario("Q-100")
def test_a_journal_has_each_message_with_arrival_and_outcome_and_outlives_what_the_queue_had(
    node: Node, rows: Rows
) -> None:
    node.declare("orders", journal=True, max_failures=1)
    positions = node.put_many("orders", [b"taken", b"failed", b"rejected", b"expired", b"purged", b"waits"])
    journal = node.journal("orders")
    assert [(one.of.queue, one.of.position, one.of.outcome) for one in journal.peek()] == [
        ("orders", position, None) for position in positions
    ]
    taken, failed, rejected, expired = node.receive("orders", 4)
    taken.ack()
    failed.nack("no stock")
    rejected.reject("bad")
    expired.expire()
    node.purge("orders", positions[4], positions[4])
    outcomes = [
        (b"taken", "delivered", None),
        (b"failed", "dead", "max_failures"),
        (b"rejected", "dead", "rejected"),
        (b"expired", "dead", "forced_expire"),
        (b"purged", "purged", "purged"),
    ]
    assert told(journal) == [*outcomes, (b"waits", None, None)]
    for one in journal.peek(limit=5):
        assert one.of.settled_at is not None
        assert one.message.received_at <= one.of.settled_at / 1000
    node.purge("orders")
    assert told(journal) == [*outcomes, (b"waits", "purged", "purged")]
    node.delete("orders")
    assert told(node.journal("orders")) == [*outcomes, (b"waits", "purged", "purged")]
    assert rows("SELECT count(*) FROM message") == [(6,)]  # each is stored once


def test_a_queue_that_is_declared_anew_goes_on_with_its_journal(node: Node) -> None:
    node.declare("orders", journal=True)
    node.put("orders", b"before")
    node.delete("orders", force=True)
    node.declare("orders", journal=True)
    node.put("orders", b"after")
    assert told(node.journal("orders")) == [(b"before", "purged", "queue_deleted"), (b"after", None, None)]
    assert node.keys() == ["orders"]


@pytest.mark.scenario("Q-101")
def test_a_full_journal_lets_messages_flow_and_says_that_it_skips_them(node: Node, rows: Rows) -> None:
    node.declare("orders", journal=True)
    node.declare("orders#journal", max_messages=2)
    node.put_many("orders", [b"1", b"2"])
    assert rows("SELECT reason FROM ledger WHERE event = 'journal_skipped'") == []
    for body in (b"3", b"4", b"5"):
        node.put("orders", body)
    assert [one.body for one in node.receive("orders", 10)] == [b"1", b"2", b"3", b"4", b"5"]
    assert [body for body, *_ in told(node.journal("orders"))] == [b"1", b"2"]
    skipped = rows("SELECT reason FROM ledger WHERE event = 'journal_skipped'")
    assert skipped == [("orders#journal has 2 messages, and its `max_messages` is 2.",)]  # told once
    node.journal("orders").purge()
    node.put("orders", b"6")
    assert [body for body, *_ in told(node.journal("orders"))] == [b"6"]


def test_a_journal_is_received_from_and_filtered_as_any_queue(node: Node) -> None:
    node.declare("orders", journal=True)
    node.put("orders", b"gone", properties={"region": "eu"})
    node.put("orders", b"here", properties={"region": "eu"})
    node.put("orders", b"far", properties={"region": "us"})
    journal = node.journal("orders")
    node.receive("orders")[0].ack()
    assert [one[0] for one in told(journal, filter="region = 'eu'")] == [b"gone", b"here"]
    assert told(journal, filter="outcome = 'delivered'") == [(b"gone", "delivered", None)]
    (record,) = journal.receive(10, filter="outcome is not null")
    assert (record.message.body, record.of.outcome) == (b"gone", "delivered")
    record.message.ack()
    assert [body for body, *_ in told(journal)] == [b"here", b"far"]
    assert journal.purge().settled == 2
    assert node.stats("orders").ready == 2


def test_the_outcome_is_that_of_the_last_delivery_where_a_dead_letter_is_redriven(node: Node) -> None:
    node.declare("orders", journal=True, max_failures=1, on_poison="skip")
    node.put("orders", b"loose")
    node.put("orders", b"grouped", group="7")
    for one in node.receive("orders", 2):
        one.nack("not now")
    assert [one[1] for one in told(node.journal("orders"))] == ["dead", "dead"]
    assert node.dead("orders").redrive() == 2
    assert [one[1] for one in told(node.journal("orders"))] == [None, None]
    for one in node.receive("orders", 2):
        one.ack()
    assert [one[1] for one in told(node.journal("orders"))] == ["delivered", "delivered"]


def test_every_subscription_that_has_a_journal_records_what_is_published(node: Node) -> None:
    node.declare("audit", journal=True)
    node.declare("plain")
    for queue in ("audit", "plain"):
        node.bind("db/#", queue)
    node.publish("db/add", b"row")
    node.receive("plain")[0].ack()
    assert told(node.journal("audit")) == [(b"row", None, None)]
    node.receive("audit")[0].ack()
    assert told(node.journal("audit")) == [(b"row", "delivered", None)]


@pytest.mark.local("prunes by the verbs of the local node")
def test_a_body_stays_while_a_journal_has_it_and_goes_with_that(node: Node, rows: Rows) -> None:
    node.declare("orders", journal=True)
    node.put("orders", b"kept")
    node.receive("orders")[0].ack()
    assert rows("SELECT body FROM message") == [(b"kept",)]
    pruned(node)
    assert told(node.journal("orders")) == [(b"kept", "delivered", None)]
    node.journal("orders").receive()[0].message.ack()
    assert rows("SELECT body FROM message") == [(None,)]
    pruned(node)
    pruned(node)
    assert rows("SELECT count(*) FROM entry UNION ALL SELECT count(*) FROM message") == [(0,), (0,)]


def pruned(node: Node) -> None:
    for batch in list(batches(node.store.reader, lambda _partner: Kept(0, 0), node.store.clock() + 3_600_000)):
        node.call(batch)


def test_a_journal_keeps_what_it_has_as_long_as_it_is_told_to(node: Node, rows: Rows) -> None:
    node.declare("orders", journal=True)
    node.declare("orders#journal", ttl=0.05)
    node.put("orders", b"short")
    deadline = 200
    while told(node.journal("orders")) and deadline:
        node.receive("orders#journal", wait=0.05, filter="size = 0")
        deadline -= 1
    assert told(node.journal("orders")) == []
    assert rows("SELECT event, reason FROM ledger WHERE event = 'discarded'") == [("discarded", "ttl_expired")]
    assert [one.body for one in node.receive("orders")] == [b"short"]


def test_the_outcome_is_in_the_journal_or_not_at_all_when_a_process_is_killed(
    node: Node, program: Callable[[str], subprocess.Popen[str]]
) -> None:
    node.declare("orders", journal=True)
    node.put_many("orders", [b"%d" % number for number in range(40)])
    running = program(
        "for m in node.subscribe('orders', max_backlog=10):\n    print(m.position)\n    time.sleep(0.002)"
    )
    assert running.stdout is not None
    for _number in range(20):
        running.stdout.readline()
    running.kill()
    running.wait()
    left = {one.position for one in node.peek("orders", limit=100)}
    recorded = node.journal("orders").peek(limit=100)
    assert len(recorded) == 40
    assert {one.of.position for one in recorded if one.of.outcome is None} == left
    assert {one.of.outcome for one in recorded} <= {None, "delivered"}


def test_what_a_journal_cannot_be_is_refused(node: Node) -> None:
    with pytest.raises(UnknownQueue, match=r"orders has no journal\. Give it one"):
        node.journal("orders")
    node.declare("orders", journal=True)
    with pytest.raises(ConfigurationError, match="A journal has no option `journal`; it has access, fairness"):
        node.declare("orders#journal", journal=True)
    with pytest.raises(NotAllowed, match="orders#journal has what was in another queue"):
        node.put("orders#journal", b"forged")
    with pytest.raises(NotAllowed, match="put into that one"):
        node.bind("db/#", "orders#journal")
    with pytest.raises(ConfigurationError, match="no name of a queue"):
        node.declare("other#journal", ttl=1)


@pytest.mark.local("counts the statements of the local node")
def test_a_queue_without_a_journal_is_asked_nothing_more(node: Node, connect: Connect) -> None:
    statements = counted(node, "plain")
    node.declare("journaled", journal=True)
    assert counted(node, "plain") == statements
    assert counted(node, "journaled") == statements + 1  # its messages and its journal are counted each


def counted(node: Node, queue: str) -> int:
    """The statements of a put, a lease and an acknowledgement together."""
    node.put(queue, b"first")
    node.receive(queue)[0].ack()
    db = node.call(lambda tx: tx.db)
    found: list[str] = []
    db.set_trace_callback(found.append)  # type: ignore[attr-defined]
    node.put(queue, b"counted")
    node.receive(queue)[0].ack()
    db.set_trace_callback(None)  # type: ignore[attr-defined]
    return len([text for text in found if not text.startswith("PRAGMA")])
