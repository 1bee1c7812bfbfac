"""A consumer that waits for a message costs next to nothing, whatever lies in its queue that is not for it."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from wsrm_mq.node import Node


def of_another_filter(node: Node) -> None:
    node.put("orders", 1, properties={"region": "us"})


def of_a_group_that_waits(node: Node) -> None:
    node.declare("orders", retry=[60])
    node.put("orders", 1, group="a", properties={"region": "eu"})
    node.receive("orders")[0].nack("not now")


def behind_a_barrier(node: Node) -> None:
    node.declare("orders", barrier="type = 'end of day'")
    node.put("orders", 1)
    node.receive("orders")
    node.put("orders", 2, type="end of day")
    node.put("orders", 3, properties={"region": "eu"})


NOT_FOR_IT = [of_another_filter, of_a_group_that_waits, behind_a_barrier]


@pytest.mark.parametrize("lies_there", NOT_FOR_IT)
@pytest.mark.local("counts the commits of the local node")
def test_who_waits_beside_what_is_not_for_it_asks_the_store_a_few_times_a_second(
    node: Node, lies_there: Callable[[Node], None]
) -> None:
    lies_there(node)
    before = node.store.writer.commits
    assert node.receive("orders", wait=1.5, filter="region = 'eu'") == []
    assert node.store.writer.commits - before < 15


def test_who_waits_gets_what_is_for_it_as_soon_as_it_comes(node: Node) -> None:
    of_another_filter(node)
    took = []
    for _ in range(5):
        later = threading.Timer(0.1, lambda: node.put("orders", time.monotonic(), properties={"region": "eu"}))
        later.start()
        (message,) = node.receive("orders", wait=10, filter="region = 'eu'")
        took.append(time.monotonic() - message.json())
        message.ack()
        later.join()
    assert sorted(took)[2] < 0.4


def test_who_waits_gets_the_next_of_a_group_when_its_wait_is_over(node: Node) -> None:
    node.declare("orders", retry=[1.3], max_failures=None)
    node.put("orders", 1, group="a")
    took = []
    for _ in range(2):
        node.receive("orders", wait=10)[0].nack("not now")
        begun = time.monotonic()
        node.receive("orders", wait=10)[0].release()
        took.append(time.monotonic() - begun)
    assert min(took) < 1.8, "a look a second finds it after two"


def test_a_group_that_waits_for_its_next_try_is_not_counted_as_what_remains(node: Node) -> None:
    node.declare("orders", retry=[60])
    node.put_many("orders", range(3), group="a")
    node.receive("orders")[0].nack("not now")
    node.put("orders", 3)
    assert node.receive("orders").remaining == 0


@pytest.mark.scenario("Q-016")
@pytest.mark.timed
@pytest.mark.local("measures the local node; over the network the line's time is added")
def test_who_waits_has_a_message_of_another_process_within_a_tenth_of_a_second(
    node: Node, program: Callable[[str], subprocess.Popen[str]]
) -> None:
    node.declare("orders")
    program("for n in range(7): time.sleep(0.3); node.put('orders', time.time())")
    took = []
    for _ in range(7):
        (message,) = node.receive("orders", wait=20)
        took.append(time.time() - message.json())
        message.ack()
    assert sorted(took)[3] < 0.1
