"""Messages are published to topics, and go into the queues that are bound to those and into durable subscriptions."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.node.conftest import Connect
from tests.node.test_subscription import bodies, taken, until
from wsrm_mq.errors import ConfigurationError, FilterError, NotAllowed, QuotaExceeded, UnknownQueue, Unrouted
from wsrm_mq.node import Node
from wsrm_mq.queue.topics import Published

Program = Callable[[str], subprocess.Popen[str]]


def all_of(node: Node, queue: str) -> list[Any]:
    found: list[Any] = []
    while batch := node.receive(queue, 100):
        found += [one.json() for one in batch]
        node.ack(batch)
    return found


def rows(node: Node, statement: str) -> list[tuple[Any, ...]]:
    with node.store.reader() as db:
        return [tuple(row) for row in db.execute(statement)]


@pytest.mark.scenario("Q-022")
def test_each_subscription_gets_what_its_pattern_takes(node: Node) -> None:
    a, b = node.subscribe_durable("db/delete", "A"), node.subscribe_durable("db/#", "B")
    assert node.publish("db/delete", 1).queues == (a, b)
    assert node.publish("db/add", 2).queues == (b,)
    assert (all_of(node, a), all_of(node, b)) == ([1], [1, 2])
    assert rows(node, "SELECT count(*) FROM message") == [(2,)]


def test_a_message_knows_its_topic(node: Node) -> None:
    node.bind("db/*", "audit")
    position = node.publish("db/add", {"row": 7}, properties={"region": "eu"}, type="row").position
    (message,) = node.receive("audit")
    assert (message.position, message.topic, message.type) == (position, "db/add", "row")
    assert message.properties == {"region": "eu"}


@pytest.mark.scenario("Q-023")
def test_what_no_queue_takes_is_on_record(node: Node) -> None:
    assert node.publish("db/add", b"lost") == Published(None, ())
    with pytest.raises(Unrouted, match=r"node.bind\('db/add', queue\)"):
        node.publish("db/add", b"lost", mandatory=True)
    assert rows(node, "SELECT reason FROM ledger WHERE event = 'unrouted'") == [("db/add",)] * 2
    assert rows(node, "SELECT * FROM message") == []


def test_what_no_filter_takes_is_on_record_and_not_kept(node: Node) -> None:
    node.bind("db/#", "audit", filter="region = 'eu' and priority > 5")
    assert node.publish("db/add", b"", properties={"region": "us"}, priority=9).queues == ()
    assert node.publish("db/add", b"", properties={"region": "eu"}).queues == ()
    assert rows(node, "SELECT id FROM message UNION SELECT message FROM header") == []
    assert rows(node, "SELECT count(*) FROM ledger WHERE event = 'unrouted'") == [(2,)]
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
def test_the_body_stays_until_the_last_subscription_has_it(node: Node) -> None:
    a, b = node.subscribe_durable("db/#", "A"), node.subscribe_durable("db/#", "B")
    node.publish("db/add", b"body")
    node.receive(a)[0].ack()
    assert rows(node, "SELECT body FROM message") == [(b"body",)]
    (other,) = node.receive(b)
    assert other.body == b"body"
    other.ack()
    assert rows(node, "SELECT body FROM message") == [(None,)]


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
    is_half = threading.Event()

    def publish() -> None:
        for number in range(400):
            node.publish("db/add", number)
            if number == 200:
                is_half.set()

    publisher = threading.Thread(target=publish)
    publisher.start()
    assert is_half.wait(30)
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
def test_an_ended_subscription_collects_nothing_and_purges_what_it_has(node: Node) -> None:
    queue = node.subscribe_durable("db/#", "A")
    position = node.publish("db/add", 1).position
    node.publish("db/add", 2)
    node.receive(queue)
    assert node.unsubscribe("A").settled == 2
    assert rows(node, f"SELECT outcome, reason FROM entry WHERE id = {position}") == [("purged", "queue_deleted")]
    assert node.publish("db/add", 3).queues == ()
    assert rows(node, "SELECT count(*) FROM subscription WHERE ended_at IS NULL") == [(0,)]
    with pytest.raises(UnknownQueue):
        node.unsubscribe("A")
    assert node.subscribe_durable("db/#", "A") == queue
    assert all_of(node, queue) == []


def test_a_subscription_with_another_pattern_keeps_what_it_has(node: Node) -> None:
    queue = node.subscribe_durable("db/add", "A")
    node.publish("db/add", 1)
    assert node.subscribe_durable("db/delete", "A", filter="priority > 4") == queue
    assert node.publish("db/add", 2).queues == ()
    assert node.publish("db/delete", 3).queues == ()
    node.publish("db/delete", 4, priority=5)
    assert sorted(all_of(node, queue)) == [1, 4]
    assert rows(node, "SELECT pattern, filter FROM subscription") == [("db/delete", "priority > 4")]


def test_a_queue_that_is_deleted_is_bound_to_nothing(node: Node) -> None:
    node.bind("db/add", "audit")
    node.delete("audit")
    assert node.publish("db/add", 1).queues == ()


def test_what_cannot_be_is_refused(node: Node) -> None:
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
    assert rows(node, "SELECT * FROM binding") == []


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
        ("B", "live", ("orders",), ()),
        ("C", "live", ("C/s",), ("db/*",)),
    ]
    assert node.clients()[2].pid == one.pid
    one.send_signal(signal.SIGKILL)
    one.wait()
    until(lambda: [one.state for one in node.clients()] == ["live", "live", "gone"])
    c = connect("C")
    c.subscribe("orders")
    assert [(one.name, one.state, one.queues) for one in node.clients()][2] == ("C", "live", ("C/s", "orders"))


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
