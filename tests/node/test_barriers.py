"""A barrier waits for all before it, goes to every subscription, and parts it from all behind."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.node.conftest import Connect, Rows
from tests.node.test_subscription import taken, until
from wsrm_mq.errors import ConfigurationError, FilterError
from wsrm_mq.node import Node
from wsrm_mq.node.message import Message

Program = Callable[[str], subprocess.Popen[str]]


def with_barrier(node: Node, before: int, behind: int = 1) -> None:
    node.declare("orders", barrier="type = 'end of day'")
    node.put_many("orders", range(before))
    node.put("orders", "barrier", type="end of day", group="g", delay=60)
    node.put_many("orders", range(before, before + behind))


@pytest.mark.scenario("Q-080")
def test_a_barrier_comes_to_every_subscription_once_all_before_it_is_settled(
    node: Node, connect: Connect, rows: Rows
) -> None:
    with_barrier(node, 100, 2)
    other = connect("B")
    a = node.subscribe("orders", max_backlog=60)
    b = other.subscribe("orders", max_backlog=60)
    got: list[Message] = []
    while len(got) < 100:  # whatever the share of each is
        got += [one for subscription in (a, b) if (one := subscription.take(0.1)) is not None]
    c = other.subscribe("orders", max_backlog=1)
    assert len({one.position for one in got}) == 100
    assert not any(one.is_barrier for one in got)
    for one in got[:-1]:
        one.ack()
    assert [one.take(0.3) for one in (a, b, c)] == [None] * 3
    assert node.stats("orders").held == {"barrier": 1}
    got[-1].ack()
    for subscription in (a, b, c):
        (barrier,) = taken(subscription, 1)
        assert (barrier.is_barrier, barrier.body, barrier.leased_until) == (True, b"barrier", None)
        assert barrier.ack() is None
    late = [message for _ in range(2) for one in (a, b, c) if (message := one.take(0.2)) is not None]
    assert sorted(one.json() for one in late) == [100, 101]
    assert rows("SELECT count(*) FROM entry WHERE hold IS NOT NULL AND outcome IS NULL") == [(0,)]


READS = "s = node.subscribe('orders')\nfor _ in range(2):\n    print(s.next().body)\n    sys.stdin.readline()"


def begun(program: Program) -> subprocess.Popen[str]:
    """A process that has read the first message, and acknowledges it and reads the next when it is told."""
    one = program(READS)
    assert one.stdout is not None
    assert one.stdout.readline() == "b'0'\n"
    return one


@pytest.mark.local("either process may get what lies behind")
def test_what_lies_behind_waits_until_subscriptions_of_all_processes_have_the_barrier(
    node: Node, program: Program
) -> None:
    with_barrier(node, 1)
    one = begun(program)
    assert one.stdin is not None
    assert one.stdout is not None
    with node.subscribe("orders") as subscription:
        assert subscription.take(0.3) is None
        one.stdin.write("\n")
        assert [message.body for message in taken(subscription, 2)] == [b"barrier", b"1"]
        assert one.stdout.readline() == "b'barrier'\n"


def test_a_consumer_that_was_killed_is_not_waited_for(node: Node, program: Program) -> None:
    with_barrier(node, 1)
    one = begun(program)
    with node.subscribe("orders") as subscription:
        assert subscription.take(0.3) is None
        one.send_signal(signal.SIGKILL)
        one.wait()
        assert [message.body for message in (subscription.next(20) for _ in range(3)) if message] == [
            *(b"0", b"barrier", b"1")
        ]


def test_without_a_subscription_the_first_who_receives_gets_it(node: Node, rows: Rows) -> None:
    with_barrier(node, 2)
    node.put("orders", "again", type="end of day")
    first, second = node.receive("orders", 9)
    assert node.receive("orders", 9) == []
    node.ack([first, second])
    barrier, behind = node.receive("orders", 9)
    assert (barrier.is_barrier, behind.json()) == (True, 2)
    assert node.receive("orders", 9) == []
    behind.ack()
    assert [message.body for message in node.receive("orders", 9)] == [b"again"]
    assert node.stats("orders").messages == 0
    assert rows("SELECT DISTINCT body FROM message") == [(None,)]


def test_groups_stop_at_a_barrier_and_a_filter_sees_what_is_before_it(node: Node) -> None:
    node.declare("orders", barrier="/stop = true")
    node.put("orders", 0, group="g")
    node.put("orders", 1, properties={"region": "eu"})
    node.put("orders", "stop", properties={"stop": True})
    node.put("orders", 2, group="g")
    node.put("orders", 3, properties={"region": "eu"})
    (filtered,) = node.receive("orders", 9, filter="region = 'eu'")
    (grouped,) = node.receive("orders", 9)
    assert (filtered.json(), grouped.json()) == (1, 0)
    node.ack([filtered, grouped])
    assert [message.body for message in node.receive("orders", 9)] == [b"stop", b"2", b"3"]


def test_a_barrier_that_outlives_its_deadline_holds_nothing_up(node: Node) -> None:
    node.declare("orders", barrier="type = 'stop'")
    node.put("orders", "0")
    node.put("orders", "stop", type="stop", ttl=0.1)
    node.put("orders", "1")
    until(lambda: node.stats("orders").dead == 1)
    assert [message.body for message in node.receive("orders", 9)] == [b"0", b"1"]


def test_what_cannot_be_is_refused(node: Node) -> None:
    with pytest.raises(FilterError):
        node.declare("orders", barrier="type ==")
    node.declare("orders", barrier="type = 'stop'")
    with pytest.raises(ConfigurationError, match="by itself"):
        node.subscribe(["orders", "others"])
