"""Messages are published to topics, and go into the queues that are bound to those and into durable subscriptions."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.node.conftest import Connect, Rows
from tests.node.test_subscription import bodies, taken, until
from wsrm_mq.errors import ConfigurationError, FilterError, NotAllowed, QuotaExceeded, UnknownQueue, Unrouted
from wsrm_mq.node import Node
from wsrm_mq.queue.topics import Published
from wsrm_mq.testing import ManualClock

Program = Callable[[str], subprocess.Popen[str]]


def all_of(node: Node, queue: str) -> list[Any]:
    found: list[Any] = []
    while batch := node.receive(queue, 100):
        found += [one.json() for one in batch]
        node.ack(batch)
    return found


def published_on(node: Node, numbers: range, half: int) -> threading.Thread:
    """A thread that publishes numbers to ``db/add``, and has come to ``half`` of them."""
    is_half = threading.Event()

    def publish() -> None:
        for number in numbers:
            node.publish("db/add", number)
            if number == half:
                is_half.set()

    publisher = threading.Thread(target=publish)
    publisher.start()
    assert is_half.wait(30)
    return publisher


@pytest.mark.scenario("Q-022")
def test_each_subscription_gets_what_its_pattern_takes(node: Node, rows: Rows) -> None:
    a, b = node.subscribe_durable("db/delete", "A"), node.subscribe_durable("db/#", "B")
    assert node.publish("db/delete", 1).queues == (a, b)
    assert node.publish("db/add", 2).queues == (b,)
    assert (all_of(node, a), all_of(node, b)) == ([1], [1, 2])
    assert rows("SELECT count(*) FROM message") == [(2,)]


def test_a_pattern_takes_whole_topics(node: Node) -> None:
    node.bind("db/add", "orders")
    assert [node.publish(topic, b"").queues for topic in ("db/added", "db/add/row", "a/db/add")] == [()] * 3
    assert node.publish("db/add", b"").queues == ("orders",)


def test_a_message_knows_its_topic(node: Node) -> None:
    node.bind("db/*", "audit")
    position = node.publish("db/add", {"row": 7}, properties={"region": "eu"}, type="row").position
    (message,) = node.receive("audit")
    assert (message.position, message.topic, message.type) == (position, "db/add", "row")
    assert message.properties == {"region": "eu"}


@pytest.mark.scenario("Q-023")
def test_what_no_queue_takes_is_on_record(node: Node, rows: Rows) -> None:
    assert node.publish("db/add", b"lost") == Published(None, ())
    with pytest.raises(Unrouted, match=r"node.bind\('db/add', queue\)"):
        node.publish("db/add", b"lost", mandatory=True)
    assert rows("SELECT reason FROM ledger WHERE event = 'unrouted'") == [("db/add",)] * 2
    assert rows("SELECT * FROM message") == []


def test_what_no_filter_takes_is_on_record_and_not_kept(node: Node, rows: Rows) -> None:
    node.bind("db/#", "audit", filter="region = 'eu' and priority > 5")
    assert node.publish("db/add", b"", properties={"region": "us"}, priority=9).queues == ()
    assert node.publish("db/add", b"", properties={"region": "eu"}).queues == ()
    assert rows("SELECT id FROM message UNION SELECT message FROM header") == []
    assert rows("SELECT count(*) FROM ledger WHERE event = 'unrouted'") == [(2,)]
    assert node.publish("db/add", b"", properties={"region": "eu"}, priority=6).queues == ("audit",)


def test_a_queue_that_is_bound_twice_gets_a_message_once(node: Node) -> None:
    node.bind("db/#", "audit", filter="type = 'never'")
    node.bind("db/*", "audit")
    node.bind("db/*", "audit")
    node.bind("#", "audit")
    node.publish("db/add", 1)
    assert all_of(node, "audit") == [1]
    assert [node.unbind(pattern, "audit") for pattern in ("db/#", "db/*", "#", "x")] == [1, 1, 1, 0]
    assert node.publish("db/add", 2).queues == ()


def test_a_filter_may_ask_for_what_a_queue_promotes(node: Node) -> None:
    node.declare("audit", properties={"region": "$.region"})
    node.bind("db/#", "audit", filter="region = 'eu'")
    assert node.publish("db/add", {"region": "eu"}).queues == ("audit",)
    assert node.publish("db/add", {"region": "us"}).queues == ()


def test_all_queues_get_a_message_or_none(node: Node) -> None:
    node.bind("db/add", "one")
    node.declare("two", max_messages=1)
    node.bind("db/add", "two")
    node.publish("db/add", 1)
    with pytest.raises(QuotaExceeded):
        node.publish("db/add", 2)
    assert (all_of(node, "one"), all_of(node, "two")) == ([1], [1])


def test_the_same_message_is_published_once(node: Node) -> None:
    node.bind("db/add", "one")
    first = node.publish("db/add", 1, message_id="m")
    assert node.publish("db/add", 1, message_id="m") == first
    node.bind("db/add", "two")
    assert node.publish("db/add", 1, message_id="m").queues == ("one", "two")
    assert (all_of(node, "one"), all_of(node, "two")) == ([1], [1])


def test_what_is_published_in_a_transaction_comes_with_it(node: Node) -> None:
    node.bind("db/add", "audit")
    with node.transaction() as transaction:
        node.publish("db/add", 1)
        assert node.receive("audit") == []
    assert node.peek("audit")[0].position == transaction.positions[0]
    node.begin()
    node.put("audit", 2)
    node.publish("db/none", 2, mandatory=True)
    with pytest.raises(Unrouted):
        node.commit()
    assert all_of(node, "audit") == [1]


def test_groups_and_schedules_are_as_of_a_put(node: Node) -> None:
    node.bind("db/add", "audit")
    for number in range(3):
        node.publish("db/add", number, group="g")
    node.publish("db/add", 3, delay=60)
    assert all_of(node, "audit") == [0, 1, 2]
    assert node.peek("audit")[0].json() == 3


@pytest.mark.scenario("Q-024")
def test_the_body_stays_until_the_last_subscription_has_it(node: Node, rows: Rows) -> None:
    a, b = node.subscribe_durable("db/#", "A"), node.subscribe_durable("db/#", "B")
    node.publish("db/add", b"body")
    node.receive(a)[0].ack()
    assert rows("SELECT body FROM message") == [(b"body",)]
    (other,) = node.receive(b)
    assert other.body == b"body"
    other.ack()
    assert rows("SELECT body FROM message") == [(None,)]


@pytest.mark.invariant("I15")
@pytest.mark.parametrize("first", ["kept", "orders"])
@pytest.mark.local("sets the clock of the node that prunes")
def test_the_body_stays_as_long_as_one_of_its_queues_keeps_it_whichever_settles_it_last(
    path: Path, rows: Rows, first: str
) -> None:
    clock = ManualClock(1_767_225_600_123)
    with Node(path, clock=clock) as node:
        node.declare("kept", retain=60)
        for queue in ("kept", "orders"):
            node.bind("db/#", queue)
        last = {"kept": "orders", "orders": "kept"}[first]
        node.publish("db/add", b"body")
        node.receive(first)[0].ack()
        node.receive(last)[0].ack()
        assert rows("SELECT body FROM message") == [(b"body",)]
        node.publish("db/add", b"another")
        node.receive("kept")[0].ack()
        clock.advance(60_000)
        node.purge("orders")
        assert rows("SELECT body FROM message WHERE id > 2") == [(None,)]


@pytest.mark.invariant("I15")
def test_the_body_goes_with_the_last_queue_that_has_it_also_where_another_was_deleted(node: Node, rows: Rows) -> None:
    for queue in ("gone", "orders"):
        node.declare(queue)
        node.bind("db/#", queue)
    node.publish("db/add", b"body")
    node.delete("gone")
    node.receive("orders")[0].ack()
    assert rows("SELECT body FROM message") == [(None,)]


@pytest.mark.scenario("Q-025")
def test_a_subscription_collects_while_its_client_is_away(connect: Connect, node: Node) -> None:
    with connect("A") as a, a.subscribe(topic="db/*", name="s", max_backlog=10) as subscription:
        node.publish("db/add", -1)
        taken(subscription, 1)[0].ack()
    for number in range(50):
        node.publish("db/add", number)
    with connect("A").subscribe(topic="db/*", name="s", max_backlog=100) as subscription:
        assert bodies(taken(subscription, 50)) == list(range(50))
        node.publish("db/add", 50)
        assert bodies(taken(subscription, 1)) == [50]


@pytest.mark.scenario("Q-026")
def test_nothing_is_missing_where_the_backlog_meets_what_is_live(connect: Connect, node: Node) -> None:
    connect("A").subscribe_durable("db/*", "s")
    publisher = published_on(node, range(400), half=200)
    seen = []
    with connect("A").subscribe(topic="db/*", name="s", max_backlog=20) as subscription:
        for _ in range(400):
            (message,) = taken(subscription, 1)
            seen.append(message.json())
            message.ack()
        publisher.join()
        assert subscription.take(0.2) is None
    assert seen == list(range(400))


@pytest.mark.scenario("Q-027")
def test_a_client_that_was_killed_gets_what_it_did_not_acknowledge(
    node: Node, connect: Connect, program: Callable[[str], subprocess.Popen[str]]
) -> None:
    queue = node.subscribe_durable("db/#", "s", client="A")
    for number in range(10):
        node.publish("db/add", number)
    one = program(f"got = node.receive({queue!r}, 10)\nnode.ack(got[:6])\nprint('done')\ntime.sleep(60)")
    assert one.stdout is not None
    assert one.stdout.readline().strip() == "done"
    one.send_signal(signal.SIGKILL)
    one.wait()
    node.publish("db/add", 10)
    until(lambda: node.stats(queue).leased == 0)
    with connect("A").subscribe(topic="db/#", name="s", max_backlog=10) as subscription:
        found = taken(subscription, 5, 30)
        assert bodies(found) == [6, 7, 8, 9, 10]
        assert all(one.redelivered is (one.json() != 10) for one in found)


@pytest.mark.scenario("Q-029")
def test_durable_names_have_a_queue_each(connect: Connect) -> None:
    a, b = connect("A"), connect("B")
    queues = [a.subscribe_durable("db/#", "x"), a.subscribe_durable("db/#", "y"), b.subscribe_durable("db/#", "x")]
    assert queues == ["A/x", "A/y", "B/x"]
    a.publish("db/add", 1)
    assert [all_of(b, queue) for queue in queues] == [[1]] * 3


@pytest.mark.scenario("Q-030")
def test_an_ended_subscription_collects_nothing_and_purges_what_it_has(node: Node, rows: Rows) -> None:
    queue = node.subscribe_durable("db/#", "A")
    position = node.publish("db/add", 1).position
    node.publish("db/add", 2)
    node.receive(queue)
    assert node.unsubscribe("A").settled == 2
    assert rows(f"SELECT outcome, reason FROM entry WHERE id = {position}") == [("purged", "queue_deleted")]
    assert node.publish("db/add", 3).queues == ()
    assert rows("SELECT count(*) FROM subscription WHERE ended_at IS NULL") == [(0,)]
    with pytest.raises(UnknownQueue):
        node.unsubscribe("A")
    assert node.subscribe_durable("db/#", "A") == queue
    assert all_of(node, queue) == []


def test_a_subscription_is_not_made_another_one_by_being_opened_so(node: Node) -> None:
    queue = node.subscribe_durable("db/add", "A", client="shop")
    node.publish("db/add", 1)
    for pattern, filter in (("db/delete", None), ("db/add", "priority > 4")):
        with pytest.raises(
            NotAllowed, match=r"shop/A collects all of 'db/add', .*`node.unsubscribe\('A', client='shop'"
        ):
            node.subscribe(topic=pattern, name="A", client="shop", filter=filter)
    node.publish("db/add", 2)
    assert all_of(node, queue) == [1, 2]
    node.unsubscribe("A", client="shop")
    assert node.subscribe_durable("db/delete", "A", client="shop") == queue
    assert node.publish("db/add", 3).queues == ()


@pytest.mark.scenario("Q-081")
def test_a_durable_subscription_collects_what_fits_its_new_filter_and_keeps_what_it_has(node: Node, rows: Rows) -> None:
    with node.subscribe(topic="db/add", name="A", max_backlog=2) as subscription:
        node.publish("db/add", 1)
        (leased,) = taken(subscription, 1)
        node.publish("db/add", 2)
        subscription.replace("priority > 4")
        assert node.publish("db/add", 3).queues == ()
        node.publish("db/add", 4, priority=5)
        assert leased.ack() == "settled"
        assert sorted(one.json() for one in taken(subscription, 2)) == [2, 4]
    assert rows("SELECT filter FROM subscription WHERE pattern IS NOT NULL") == [("priority > 4",)]
    node.subscribe_durable("db/add", "A", filter="priority > 4")


def test_a_queue_that_is_deleted_is_bound_to_nothing(node: Node) -> None:
    node.bind("db/add", "audit")
    node.delete("audit")
    assert node.publish("db/add", 1).queues == ()


@pytest.mark.local("over the network a name is of its client alone")
def test_what_cannot_be_is_refused(node: Node, rows: Rows) -> None:
    node.declare("orders")
    with pytest.raises(NotAllowed, match="Choose another name"):
        node.subscribe_durable("db/#", "orders")
    with pytest.raises(NotAllowed):
        node.unsubscribe("orders")
    with pytest.raises(FilterError):
        node.bind("db/#", "orders", filter="region ==")
    for call in (
        lambda: node.bind("db/#/x", "orders"),
        lambda: node.publish("db/#", 1),
        lambda: node.subscribe(),
        lambda: node.subscribe(topic="db/#"),
        lambda: node.subscribe("orders", topic="db/#", name="s"),
    ):
        with pytest.raises(ConfigurationError):
            call()
    assert rows("SELECT * FROM binding") == []


@pytest.mark.scenario("Q-031")
def test_clients_are_listed_with_what_they_are_subscribed_to(
    node: Node, connect: Connect, program: Callable[[str], subprocess.Popen[str]]
) -> None:
    a = connect("A")
    a.subscribe_durable("db/#", "s")
    b = connect("B")
    b.subscribe(["orders", "invoices"])
    lines = "node.subscribe_durable('db/*', 's', client='C')\nprint('done')\ntime.sleep(60)"
    one = program(lines)
    assert one.stdout is not None
    assert one.stdout.readline().strip() == "done"
    assert [(one.name, one.state, one.queues, one.patterns) for one in node.clients()] == [
        ("A", "live", ("A/s",), ("db/#",)),
        ("B", "live", ("orders", "invoices"), ()),
        ("C", "live", ("C/s",), ("db/*",)),
    ]
    one.send_signal(signal.SIGKILL)
    one.wait()
    until(lambda: [one.state for one in node.clients()] == ["live", "live", "gone"])
    c = connect("C")
    c.subscribe("orders")
    assert [(one.name, one.state, one.queues) for one in node.clients()][2] == ("C", "live", ("C/s", "orders"))


@pytest.mark.local("looks for the process of the program, where that of a server's clients is the server's")
def test_a_client_is_listed_with_its_process(node: Node) -> None:
    node.subscribe_durable("db/#", "s", client="C")
    assert [one.pid for one in node.clients()] == [os.getpid()]


@pytest.mark.scenario("Q-017")
def test_three_queues_get_each_message_once_though_the_publisher_is_killed(
    node: Node, program: Callable[[str], subprocess.Popen[str]]
) -> None:
    for queue in ("one", "two", "three"):
        node.bind("root/#", queue)
    one = program("for number in range(100000):\n    node.publish('root/x', number)\n    print(number, flush=True)")
    assert one.stdout is not None
    for _ in range(50):
        one.stdout.readline()
    one.send_signal(signal.SIGKILL)
    one.wait()
    got = [all_of(node, queue) for queue in ("one", "two", "three")]
    assert got[0] == got[1] == got[2] == list(range(len(got[0])))
    assert len(got[0]) >= 50


@pytest.mark.local("over the network a client is listed as long as it subscribes")
def test_a_client_is_listed_with_all_the_queues_of_a_subscription(node: Node) -> None:
    for queue in ("a", "b", "c"):
        node.declare(queue)
    with node.subscribe(["b", "a", "c"], client="several"), node.subscribe("a", client="one"):
        assert [(one.name, one.queues) for one in node.clients()] == [("several", ("b", "a", "c")), ("one", ("a",))]
    assert [one.queues for one in node.clients()] == [(), ()]


def test_what_no_filter_wants_is_not_taken_for_a_message_that_the_store_has_lost(node: Node, connect: Connect) -> None:
    node.declare("orders")
    node.bind("db/*", "orders", filter="kind = 'x'")
    for _ in range(3):
        assert node.publish("db/add", b"one", properties={"kind": "y"}).queues == ()
    connect().put("orders", b"two")
    node.put("orders", b"three")
    assert node.stats("orders").messages == 2
