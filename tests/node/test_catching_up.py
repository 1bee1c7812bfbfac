"""A subscription catches up on what it missed, and goes on with what is live."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.node.conftest import Connect
from tests.node.test_subscription import taken, until
from tests.node.test_topics import published_on
from wsrm_mq.errors import SubscriptionClosed
from wsrm_mq.node import Node

Program = Callable[[str], subprocess.Popen[str]]


@pytest.mark.scenario("Q-026")
def test_what_was_missed_comes_first_and_ends_and_what_is_live_goes_on(connect: Connect, node: Node) -> None:
    a = connect("A")
    a.subscribe_durable("db/*", "s")
    for number in range(25):
        node.publish("db/add", number)
    with a.subscribe(topic="db/*", name="s", max_backlog=10) as subscription:
        missed = []
        for message in subscription.catch_up():
            missed.append(message.json())
            if len(missed) == 5:
                node.publish("db/add", 25)
        assert missed == list(range(25))
        assert [message.json() for message in (subscription.next(5),) if message] == [25]
        node.publish("db/add", 26)
        assert [message.json() for message in (subscription.next(5),) if message] == [26]
        assert list(subscription.catch_up()) == []
    assert node.stats("A/s").messages == 0


@pytest.mark.scenario("Q-026")
def test_there_is_neither_gap_nor_repeat_where_a_publisher_goes_on_meanwhile(connect: Connect, node: Node) -> None:
    connect("A").subscribe_durable("db/*", "s")
    publisher = published_on(node, range(400), half=200)
    with connect("A").subscribe(topic="db/*", name="s", max_backlog=20) as subscription:
        missed = [message.json() for message in subscription.catch_up()]
        assert 200 <= len(missed) <= 400
        live: list[int] = []
        while len(missed) + len(live) < 400 and (message := subscription.next(10)) is not None:
            live.append(message.json())
        publisher.join()
        assert missed + live == list(range(400))
        assert subscription.next(0.2) is None


@pytest.mark.scenario("Q-027")
@pytest.mark.local("a server goes on handing over to a client that was killed, until its session ends")
def test_who_comes_back_at_once_after_a_kill_gets_first_what_it_had_not_acknowledged(
    node: Node, program: Program
) -> None:
    queue = node.subscribe_durable("db/*", "s", client="A")
    for number in range(10):
        node.publish("db/add", number)
    one = program(f"node.receive({queue!r}, 4)\nprint('has it')\nsys.stdin.read()")
    lines(one, "has it")
    one.kill()
    one.wait()
    with node.subscribe(topic="db/*", name="s", client="A", max_backlog=10) as subscription:
        found = taken(subscription, 10)
    assert [(one.json(), one.redelivered) for one in found] == [(number, number < 4) for number in range(10)]


PUBLISHES = """
for number in range({first}, {end}):
    node.publish('db/add', number)
    time.sleep({pause})
print('published')
sys.stdin.read()
"""
CATCHES_UP = """
with node.subscribe(topic='db/*', name='s', client='A', max_backlog=9) as subscription:
    for message in subscription.catch_up():
        print(message.body.decode(), message.redelivered)
    print('live')
    for message in subscription:
        print(message.body.decode(), message.redelivered)
"""


def lines(one: subprocess.Popen[str], end: str) -> list[str]:
    """All that it says up to the line that begins so."""
    assert one.stdout is not None
    said = [one.stdout.readline().strip()]
    while not said[-1].startswith(end):
        said.append(one.stdout.readline().strip())
        assert said[-1], "it has ended"
    return said


@pytest.mark.scenario("Q-025")
@pytest.mark.local("a server goes on handing over to a client that was killed, until its session ends")
def test_what_was_published_while_a_client_that_was_killed_is_away_comes_first_and_what_is_live_behind_it(
    node: Node, program: Program
) -> None:
    queue = node.subscribe_durable("db/*", "s", client="A")
    first = program(CATCHES_UP)
    lines(first, "live")
    node.publish("db/add", 0)
    lines(first, "0 ")
    node.publish("db/add", 1)
    lines(first, "1 ")
    until(lambda: node.stats(queue).messages == 0)
    first.kill()
    first.wait()
    publisher = program(PUBLISHES.format(first=2, end=52, pause=0))
    lines(publisher, "published")
    publisher.kill()
    second = program(CATCHES_UP)
    missed = lines(second, "live")
    node.publish("db/add", 52)
    live = lines(second, "52 ")
    assert [one.split()[0] for one in (*missed, *live)] == [*map(str, range(2, 52)), "live", "52"]
    assert not [one for one in (*missed, *live) if one.endswith("True")]


@pytest.mark.scenario("Q-026")
@pytest.mark.local("a server goes on handing over to a client that was killed, until its session ends")
def test_where_the_client_is_killed_while_publishing_goes_on_nothing_is_missing_and_only_what_is_marked_comes_again(
    node: Node, program: Program
) -> None:
    node.subscribe_durable("db/*", "s", client="A")
    publisher = program(PUBLISHES.format(first=0, end=300, pause=0.003))
    first = program(CATCHES_UP)
    seen = [one.split() for one in lines(first, "60 ") if one != "live"]
    first.kill()
    assert first.stdout is not None
    seen += [one.split() for one in first.stdout.read().splitlines() if one.endswith(("True", "False"))]
    second = program(CATCHES_UP)
    again = [one.split() for one in lines(second, "299 ") if one != "live"]
    assert [int(number) for number, _redelivered in seen] == list(range(len(seen)))
    begins = int(again[0][0])
    assert begins <= len(seen)
    assert [int(number) for number, _redelivered in again] == list(range(begins, 300))
    assert all(redelivered == "True" for number, redelivered in again if int(number) < len(seen))
    lines(publisher, "published")


def test_one_of_several_consumers_is_through_when_the_others_have_the_rest(node: Node) -> None:
    node.put_many("orders", range(10))
    node.put("orders", 10, delay=60)
    others = node.receive("orders", 4)
    with node.subscribe("orders", max_backlog=3) as subscription:
        found = []
        for message in subscription.catch_up():
            found.append(message.json())
            if found == [4, 5]:
                message.release()  # it comes again
        assert sorted(found) == [4, 5, 5, 6, 7, 8, 9]
    node.ack(others)


def test_what_a_filter_leaves_out_is_not_waited_for(node: Node) -> None:
    for number in range(6):
        node.put("orders", number, properties={"region": "eu" if number % 2 else "us"})
    with node.subscribe("orders", filter="region = 'eu'") as subscription:
        assert [message.json() for message in subscription.catch_up()] == [1, 3, 5]


def test_groups_are_caught_up_with_too(node: Node) -> None:
    for number in range(8):
        node.put("orders", number, group=str(number % 2))
    with node.subscribe("orders", max_backlog=4) as subscription:
        assert sorted(message.json() for message in subscription.catch_up()) == list(range(8))


def test_the_end_of_a_subscription_is_not_taken_for_having_caught_up(node: Node) -> None:
    node.put_many("orders", range(3))
    with node.subscribe("orders") as subscription:
        missed = subscription.catch_up()
        assert next(missed).json() == 0
        subscription.close()
        with pytest.raises(SubscriptionClosed, match="by its `close` in the thread MainThread"):
            next(missed)
    assert node.stats("orders").ready == 3


@pytest.mark.scenario("Q-028")
def test_a_backlog_lacks_nothing_after_the_publishers_process_was_killed(
    connect: Connect, node: Node, program: Program
) -> None:
    node.subscribe_durable("db/#", "s", client="A")
    one = program("for number in range(100000):\n    node.publish('db/add', number)\n    print(number)")
    assert one.stdout is not None
    confirmed = [int(one.stdout.readline()) for _ in range(50)]
    one.send_signal(signal.SIGKILL)
    one.wait()
    confirmed += [int(line) for line in one.stdout.read().split()]
    with connect("A").subscribe(topic="db/#", name="s", max_backlog=10) as subscription:
        missed = [message.json() for message in subscription.catch_up()]
    assert missed == list(range(len(missed)))
    assert len(missed) >= len(confirmed)
