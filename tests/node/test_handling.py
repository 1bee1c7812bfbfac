"""Functions that are called with messages."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tests.node.test_subscription import leased, until
from wsrm_mq.node import Node
from wsrm_mq.node.message import Message

Program = Callable[[str], subprocess.Popen[str]]


@pytest.mark.scenario("Q-062")
def test_what_returns_is_acknowledged_and_what_raises_is_back_with_its_error(node: Node) -> None:
    node.declare("orders", retry=[60])
    node.put_many("orders", range(20))
    seen = []

    def handle(message: Message) -> None:
        seen.append(message.json())
        if message.json() == 7:
            raise ValueError("no seven")

    with node.consume("orders", handle, threads=4):
        until(lambda: len(seen) == 20)
    stats = node.stats("orders")
    assert (stats.ready, stats.leased, stats.held) == (0, 0, {"backoff": 1})
    with node.store.reader() as db:
        failed = db.execute("SELECT failures, cancels, last_error FROM entry WHERE failures > 0").fetchall()
    assert failed == [(1, 0, "ValueError: no seven")]
    assert sorted(seen) == list(range(20))


@pytest.mark.scenario("Q-062")
def test_what_was_begun_is_through_when_it_stops(node: Node) -> None:
    node.put_many("orders", range(50))
    done = []

    def handle(message: Message) -> None:
        time.sleep(0.05)
        done.append(message.position)

    consumer = node.consume("orders", handle, threads=4, max_backlog=8)
    until(lambda: len(done) >= 4)
    assert consumer.stop()
    stats = node.stats("orders")
    assert (stats.leased, stats.ready) == (0, 50 - len(done))


def test_threads_handle_messages_of_a_group_one_after_the_other(node: Node) -> None:
    for number in range(30):
        node.put("orders", number, group=f"g{number % 3}")
    running: set[int] = set()
    seen: list[int] = []
    clashes = []

    def handle(message: Message) -> None:
        group = message.json() % 3
        clashes.append(group in running)
        running.add(group)
        time.sleep(0.005)
        seen.append(message.json())
        running.discard(group)

    with node.consume("orders", handle, threads=4, max_backlog=12):
        until(lambda: len(seen) == 30)
    assert not any(clashes)
    for group in range(3):
        assert [number for number in seen if number % 3 == group] == list(range(group, 30, 3))
    assert leased(node) == 0


@pytest.mark.scenario("Q-118")
def test_a_function_may_itself_put_acknowledge_settle_and_subscribe(node: Node) -> None:
    node.put_many("orders", range(3))
    node.put_many("more", range(3))
    done = threading.Event()
    inner = []

    def handle(message: Message) -> None:
        node.put("orders-done", message.json())
        node.settle("more", "priority > 9", "expire")
        with node.subscribe("more") as subscription:
            one = subscription.take(10)
            assert one is not None
            one.ack()
            inner.append(one.json())
        message.ack()
        if len(inner) == 3:
            done.set()

    with node.consume("orders", handle, threads=2):
        assert done.wait(20)
    assert sorted(inner) == [0, 1, 2]
    assert node.stats("orders-done").ready == 3
    assert node.stats("orders").leased == 0


@pytest.mark.scenario("Q-078")
def test_of_ten_messages_only_the_one_that_its_consumer_dies_of_reaches_the_limit(node: Node, program: Program) -> None:
    node.declare("orders", max_failures=2, retry=[0])
    node.put_many("orders", range(10))
    dies = (
        "for message in node.subscribe('orders', max_backlog=10, ack_batch=1):\n"
        "    if message.json() == 4: os.kill(os.getpid(), 9)\n"
        "    print(message.json(), flush=True)\n"
        "    if message.json() == 9: message.ack(); break\n"
        "node.close()\n"
    )
    handled = []
    for _ in range(8):
        consumer = program(dies)
        assert consumer.stdout is not None
        handled += [int(line) for line in consumer.stdout]
        consumer.wait()
        if 9 in handled:
            break
        until(lambda: leased(node) == 0)
    assert [one.json() for one in node.dead("orders").peek()] == [4]
    assert sorted(set(handled)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    until(lambda: node.stats("orders").ready == 0)


def test_a_function_whose_queue_is_deleted_is_told_to_be_called_no_longer(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.put("orders", "first")
    done = threading.Event()
    with node.consume("orders", lambda _message: done.set()) as consumer:
        assert done.wait(10)
        until(lambda: node.stats("orders").messages == 0)
        node.delete("orders", force=True)
        consumer.join()
    (told,) = [one for one in caplog.records if "consumer.ended" in one.message]
    assert told.levelno == logging.ERROR
    assert "orders" in told.message


def test_a_function_that_exits_has_failed(node: Node) -> None:
    node.declare("orders", max_failures=1)
    node.put_many("orders", ["exit", "go on"])
    seen = []

    def handle(message: Message) -> None:
        seen.append(message.body.decode())
        if message.body.decode() == "exit":
            sys.exit(1)

    with node.consume("orders", handle):
        until(lambda: seen == ["exit", "go on"])
    (letter,) = node.dead("orders").peek()
    assert letter.last_error == "SystemExit: 1"


def test_a_watch_that_meets_an_error_says_so_and_goes_on(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = threading.Event()

    def look() -> float:
        monkeypatch.undo()
        met.set()
        raise RuntimeError("no such thing")

    monkeypatch.setattr(node.doorbell, "_look", look)
    node.doorbell.nudge()
    assert met.wait(10)
    until(lambda: any("watch.failed" in one.message and "no such thing" in one.message for one in caplog.records))
    node.put("orders", "on", delay=0.2)
    assert node.receive("orders", wait=10)[0].body.decode() == "on"


def test_a_node_whose_lock_file_is_removed_says_so_and_makes_it_again(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    presence = node.store.presence
    assert presence is not None
    for file in presence.home.glob("*.lock"):
        file.unlink()
    until(lambda: any("instance.files_removed" in one.message for one in caplog.records))
    assert presence.is_in_place
