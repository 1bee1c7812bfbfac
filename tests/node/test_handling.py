"""Functions that are called with messages."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tests.node.conftest import Connect, Rows
from tests.node.test_subscription import leased, until
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.node import Node
from wsrm_mq.node.message import Message

Program = Callable[[str], subprocess.Popen[str]]


@pytest.mark.scenario("Q-062")
def test_what_returns_is_acknowledged_and_what_raises_is_back_with_its_error(node: Node, rows: Rows) -> None:
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
    failed = rows("SELECT failures, cancels, last_error FROM entry WHERE failures > 0")
    assert failed == [(1, 0, "ValueError: no seven")]
    assert sorted(seen) == list(range(20))


def test_an_error_without_a_text_of_its_own_is_a_failure_like_any_other(node: Node) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("there is none")

    node.declare("orders", retry=[0], max_failures=2)
    node.put("orders", b"one")
    begun = []

    def handle(message: Message) -> None:
        begun.append(message.deliveries)
        raise Mute

    with node.consume("orders", handle) as consumer:
        until(lambda: node.stats("orders").dead == 1)
    assert (begun, consumer.error) == ([1, 2], None)
    (letter,) = node.dead("orders").peek()
    assert str(letter.last_error).startswith("Mute: ")


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


def test_what_fails_in_a_group_is_back_when_what_is_before_it_waited_for_its_batch(node: Node) -> None:
    node.declare("orders", retry=[0])
    node.put_many("orders", range(6), group="a")
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(message.json())
        if message.json() == 2 and not message.redelivered:
            raise ValueError("not yet")

    with node.consume("orders", handle, max_backlog=6, ack_batch=3, ack_timeout=60) as consumer:
        until(lambda: len(seen) == 7 or consumer.error is not None)
    assert (consumer.error, seen) == (None, [0, 1, 2, 2, 3, 4, 5])
    assert node.stats("orders").messages == 0


def test_a_group_goes_on_when_a_function_was_at_one_of_it_for_longer_than_its_lease(node: Node) -> None:
    node.declare("orders", retry=[0], lease=0.3, max_failures=None)
    node.put_many("orders", range(4), group="a")
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(message.json())
        if len(seen) == 1:
            time.sleep(1)

    with node.consume("orders", handle, threads=2, max_backlog=4):
        until(lambda: node.stats("orders").messages == 0)
    assert sorted(set(seen)) == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:`ack_batch`")
@pytest.mark.parametrize("verb", ["nack", "release", "reject", "ack"])
def test_what_is_done_with_a_message_of_a_group_comes_after_what_waits_for_its_batch(node: Node, verb: str) -> None:
    node.declare("orders", retry=[0])
    node.put_many("orders", range(3), group="a")
    with node.subscribe("orders", max_backlog=3, ack_batch=3, ack_timeout=60) as subscription:
        for message in subscription:
            if message.json() == 2:
                with node.transaction():
                    getattr(message, verb)()
                break
    assert [one.json() for one in node.peek("orders")] == ([2] if verb in ("nack", "release") else [])


@pytest.mark.parametrize("threads", [1, 3])
def test_a_function_that_stops_its_consumer_ends_it_with_its_own_message_which_is_acknowledged(
    node: Node, threads: int
) -> None:
    node.put_many("orders", range(12))
    seen: list[int] = []
    begun = threading.Barrier(threads + 1)

    def handle(message: Message) -> None:
        begun.wait(10)
        seen.append(message.json())
        assert not consumer.stop(), "it is not through before this returns"

    consumer = node.consume("orders", handle, threads=threads, max_backlog=6)
    begun.wait(10)
    consumer.join()
    assert consumer.stop()
    assert (sorted(seen), consumer.error) == ([*range(threads)], None)
    stats = node.stats("orders")
    assert (stats.leased, stats.ready) == (0, 12 - threads)


@pytest.mark.local("what a remote client has leased ahead is charged when it ends at the server")
@pytest.mark.scenario("Q-078")
@pytest.mark.parametrize("group", [None, "a"])
def test_a_function_that_hangs_at_one_message_costs_none_of_those_that_it_has_not_begun_a_delivery_too_many(
    node: Node, group: str | None
) -> None:
    node.declare("orders", lease=0.8, retry=[0], max_deliveries=2, on_poison="skip")
    node.put_many("orders", range(8), group=group)
    seen: list[int] = []
    released = threading.Event()

    def handle(message: Message) -> None:
        if message.json() == 2:
            released.wait(20)
        else:
            seen.append(message.json())

    consumers = [node.consume("orders", handle, max_backlog=6, ack_batch=1) for _ in range(2)]
    until(lambda: node.stats("orders").dead == 1, 20)
    if group is None:
        assert all(one.deliveries <= 1 for one in node.peek("orders")), "none was delivered that was not handed over"
    node.consume("orders", handle, max_backlog=6)
    until(lambda: node.stats("orders").messages == 0, 20)
    released.set()
    for one in consumers:
        one.stop()
    assert [letter.json() for letter in node.dead("orders").peek()] == [2]
    assert sorted(set(seen)) == [0, 1, 3, 4, 5, 6, 7]


def test_a_function_whose_lease_ends_while_it_is_called_is_told(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.declare("orders", lease=0.2, retry=[60])
    node.put("orders", 1)
    told: list[bool] = []

    def handle(message: Message) -> None:
        told.append(message.lost)
        until(lambda: message.lost)
        told.append(message.lost)

    with node.consume("orders", handle) as consumer:
        until(lambda: consumer.subscription.lost == 1)
    assert told == [False, True]
    assert caplog.text.count("consumer.late") == 1


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


@pytest.mark.local("over the network a client is listed as long as it subscribes")
def test_an_error_of_our_own_ends_a_consumer_closes_its_subscription_and_gives_back_what_it_had(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.put_many("orders", range(8))
    begun = threading.Barrier(3)

    def nack(_self: Message, error: object = "") -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Message, "nack", nack)

    def handle(message: Message) -> None:
        begun.wait(10)
        if message.json() == 1:
            raise ValueError

    consumer = node.consume("orders", handle, threads=3, max_backlog=6)
    consumer.join()
    assert isinstance(consumer.error, KeyboardInterrupt)
    assert caplog.text.count("consumer.ended") == 1
    assert str(consumer.subscription.closed_by).startswith("an error in its consumer: KeyboardInterrupt")
    stats = node.stats("orders")
    assert (stats.leased, stats.ready) == (0, 6)
    assert node.clients()[0].queues == ()


def test_a_consumer_whose_node_is_closed_knows_by_whom(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    node = connect()
    consumer = node.consume("orders", lambda _message: None)
    until(lambda: bool(consumer.subscription.flow._waiters))
    node.close()
    consumer.join()
    assert "closed, by the node's `close`" in str(consumer.error)
    assert "consumer.ended" not in caplog.text


def test_a_function_consumes_a_topic(node: Node) -> None:
    seen: list[object] = []
    with node.consume(topic="db/#", name="mine", function=lambda message: seen.append(message.json())):
        node.publish("db/add", 1)
        until(lambda: seen == [1])
    for function in (None, "orders"):
        with pytest.raises(ConfigurationError, match=r"`node.consume\('orders', function\)`"):
            node.consume("orders", function)  # type: ignore[arg-type]


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


@pytest.mark.local("breaks the watch of the local node")
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


@pytest.mark.local("removes files beside the store of the local node")
def test_a_node_whose_lock_file_is_removed_says_so_and_makes_it_again(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    presence = node.store.presence
    assert presence is not None
    for file in presence.home.glob("*.lock"):
        file.unlink()
    until(lambda: any("instance.files_removed" in one.message for one in caplog.records))
    assert presence.is_in_place
