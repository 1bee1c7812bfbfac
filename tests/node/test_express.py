"""Express messages: in the memory of one process, used from all, and gone with it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import wsrm_mq
from wsrm_mq.errors import (
    ConfigurationError,
    KeeperGone,
    NotAllowed,
    PeekForbidden,
    QueueBusy,
    QuotaExceeded,
    Unrouted,
)
from wsrm_mq.node import Node
from wsrm_mq.queue import express
from wsrm_mq.queue.policies import Durability
from wsrm_mq.store import sharing
from wsrm_mq.store.sharing import TURN_SECONDS

from .conftest import Connect, ConnectAsync, Rows
from .test_durability import needs_strace, syncs

Program = Callable[[str], subprocess.Popen[str]]
ALL = 1_000


def said(one: subprocess.Popen[str]) -> str:
    assert one.stdout is not None
    return one.stdout.readline().strip()


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def kill(one: subprocess.Popen[str]) -> None:
    one.kill()
    one.wait()


def bodies(messages: Any) -> list[str]:
    return [message.body.decode() for message in messages]


KEEPER = """
node.declare('ticks', durability='express')
node.put_many('ticks', range(5))
print('kept')
sys.stdin.read()
"""


@pytest.fixture
def keeper(program: Program) -> subprocess.Popen[str]:
    """A process that keeps five express messages."""
    one = program(KEEPER)
    assert said(one) == "kept"
    return one


# in one process


def test_an_express_message_is_put_taken_and_settled_as_any_other(node: Node) -> None:
    node.declare("ticks", durability="express", max_failures=1)
    first = node.put("ticks", "1", priority=2)
    second = node.put("ticks", {"a": 2}, type="t", properties={"p": 1})
    assert second > first
    assert node.get("ticks", second).properties == {"p": 1}  # type: ignore[union-attr]
    assert bodies(node.receive("ticks", 5, filter="p = 1")) == ['{"a":2}']
    (one,) = node.receive("ticks")
    one.nack("no good")
    assert [(letter.position, letter.last_error) for letter in node.dead("ticks").peek()] == [(first, "no good")]
    assert node.dead("ticks").redrive() == 1
    assert node.purge("ticks").settled == 1
    assert node.stats("ticks").ready == 0


def test_a_group_is_taken_in_order_and_ends_with_its_consumer(node: Node) -> None:
    node.declare("ticks", durability="express")
    node.put_many("ticks", range(4), group="a")
    one, two = node.receive("ticks", 2)
    assert bodies(node.receive("ticks", 9)) == []
    one.ack()
    two.release()
    assert bodies(node.receive("ticks", 9)) == ["1", "2", "3"]


@pytest.mark.invariant("I1")
def test_positions_rise_and_none_is_given_twice_over_restarts(node: Node, connect: Connect) -> None:
    node.declare("ticks", durability="express")
    other = connect()
    seen = [node.put("ticks", "1"), node.put("orders", "1"), other.put("ticks", "2"), other.put("orders", "2")]
    seen += node.put_many("ticks", range(3_000))
    node.purge("ticks")
    again = connect()
    again.declare("tocks", durability="express")
    seen += [again.put("tocks", "1"), again.put("orders", "3"), node.put("ticks", "3")]
    assert len(set(seen)) == len(seen)
    ticks = [seen[0], seen[2], *seen[4:3_004], seen[-1]]
    assert ticks == sorted(ticks)


def test_both_kinds_of_one_queue_come_by_priority_and_position(node: Node) -> None:
    positions = {}
    for number in range(6):
        durability: Durability = "express" if number % 2 else "recoverable"
        positions[node.put("orders", str(number), durability=durability, priority=5 if number > 3 else 4)] = str(number)
    order = [positions[at] for at in sorted(positions)]
    expected = [one for one in order if one in "45"] + [one for one in order if one not in "45"]
    assert bodies(node.peek("orders")) == order
    assert [one.position for one in node.peek("orders", limit=2)] == sorted(positions)[:2]
    found = node.receive("orders", 4)
    assert (bodies(found), found.remaining) == (expected[:4], 2)
    node.release(found)
    assert node.stats("orders").ready == 6
    with node.subscribe("orders") as subscription:
        seen = []
        for message in subscription:
            seen.append(message)
            if len(seen) == 6:
                break
        for kind in ("024", "135"):
            assert [one for one in bodies(seen) if one in kind] == [one for one in expected if one in kind]
        assert node.stats("orders").leased <= 2, "one of each kind, to know which comes first"


def test_a_subscription_gets_express_messages_that_come_later(node: Node, connect: Connect) -> None:
    other = connect()
    with node.subscribe("orders", max_backlog=4) as subscription:
        other.put("orders", "1", durability="express")
        other.put("orders", "2")
        first, second = (subscription.next(timeout=5) for _ in range(2))
        assert first is not None
        assert second is not None
        assert {first.body, second.body} == {b"1", b"2"}
        assert (first.ack(), second.ack()) == ("already_settled", "settled")
        assert subscription.next(timeout=0.05) is None
    assert node.stats("orders").messages == 0


def test_what_bounds_a_queue_bounds_its_express_messages(node: Node) -> None:
    node.declare("ticks", durability="express", max_messages=2, peek=False)
    node.put_many("ticks", ["1", "2"])
    with pytest.raises(QuotaExceeded):
        node.put("ticks", "3")
    with pytest.raises(PeekForbidden):
        node.peek("ticks")
    node.declare("ticks", max_messages=3)
    assert node.put("ticks", "3") > 0


@pytest.mark.local("over the network a transaction is one request, which is judged at its end")
def test_a_transaction_is_of_express_messages_or_of_others(node: Node) -> None:
    node.declare("ticks", durability="express")
    node.begin()
    node.put("orders", "1")
    with pytest.raises(NotAllowed, match="express messages, or of those in the store"):
        node.put("ticks", "1")
    node.rollback()
    with node.transaction() as both:
        node.put("ticks", "1")
        node.put("ticks", "2")
    assert both.positions == [one.position for one in node.peek("ticks")]
    (one,) = node.receive("ticks")
    node.begin()
    node.put("orders", "1")
    with pytest.raises(NotAllowed, match="express messages"):
        one.ack()
    node.rollback()
    assert (node.keys(), node.stats("ticks").leased) == (["ticks"], 1)


def test_a_queue_may_become_an_express_one_and_be_one_no_longer(node: Node, connect: Connect, rows: Rows) -> None:
    other = connect()
    other.put("orders", "1")
    node.declare("orders", durability="express")
    other.put("orders", "2")
    assert (other.stats("orders").keeper, other.stats("orders").messages) == (node.stats("orders").keeper, 2)
    node.declare("orders", durability="recoverable")
    other.put("orders", "3")
    assert rows("SELECT count(*) FROM entry") == [(2,)]


# topics


@pytest.mark.local("asks which process keeps express messages")
def test_what_is_published_as_express_goes_into_all_queues_of_one_process_by_their_filters(
    node: Node, keeper: subprocess.Popen[str], connect: Connect
) -> None:
    node.purge("ticks")
    node.bind("t/#", "ticks")
    node.bind("t/#", "eu", filter="region = 'eu'")
    node.publish("t/a", "both", properties={"region": "eu"})
    assert node.stats("eu").keeper is None, "it is recoverable, as one of its queues wants it"
    with pytest.raises(NotAllowed, match=r"kept by several processes \(ticks, eu\)"):
        node.publish("t/a", "x", durability="express")
    node.unbind("t/#", "ticks")
    done = node.publish("t/a", "here", durability="express", properties={"region": "eu"})
    assert (done.position, done.queues) == (node.peek("eu")[-1].position, ("eu",))
    assert node.stats("eu").keeper.pid == os.getpid()  # type: ignore[union-attr]
    with node.transaction() as both:
        connect().bind("t/*", "more")
        node.publish("t/a", "in two", durability="express", properties={"region": "eu"})
    assert both.positions == [node.peek("eu")[-1].position]
    assert bodies(node.peek("more")) == ["in two"]


def test_where_no_queue_takes_what_is_express_that_is_on_record_in_the_store(node: Node, rows: Rows) -> None:
    node.declare("ticks", durability="express")
    node.bind("t/#", "ticks", filter="region = 'eu'")
    assert node.publish("t/a", "x").queues == ()
    assert node.publish("none/a", "x", durability="express").queues == ()
    with pytest.raises(Unrouted):
        node.publish("t/a", "x", mandatory=True)
    until(lambda: rows("SELECT reason FROM ledger WHERE event = 'unrouted'") == [("t/a",), ("none/a",), ("t/a",)])
    node.declare_topic("t/#", retain=60)
    with pytest.raises(NotAllowed, match="retains"):
        node.publish("t/a", "x", durability="express")
    assert node.publish("t/a", "x").position is not None
    with pytest.raises(ConfigurationError, match="no report comes"):
        node.publish("none/a", "x", durability="express", report_to="answers")


@pytest.mark.local("kills the process whose node keeps express messages")
def test_a_publisher_waits_for_a_keeper(node: Node, keeper: subprocess.Popen[str], program: Program) -> None:
    node.bind("t/#", "ticks")
    kill(keeper)
    with pytest.raises(KeeperGone):
        node.publish("t/a", "1")
    program("time.sleep(0.5)\nnode.declare('ticks', durability='express')\nsys.stdin.read()")
    assert node.publish("t/a", "2", gone="wait", timeout=20).queues == ("ticks",)
    assert bodies(node.peek("ticks")) == ["2"]


# memory


@pytest.mark.scenario("Q-104")
@pytest.mark.parametrize(("size", "overflows"), [(1, False), (16, True)])
@pytest.mark.local("looks at the files of the process that keeps express messages")
def test_what_is_more_than_its_memory_overflows_into_a_file(program: Program, size: int, overflows: bool) -> None:
    one = program(
        "node.declare('ticks', durability='express', memory_limit=4 * 2**20)\n"
        f"bodies = [bytes([n % 256]) * 16384 for n in range({size} * 64)]\n"
        "for body in bodies: node.put('ticks', body)\n"
        "files = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if n != '3' "
        "and os.path.islink(f'/proc/self/fd/{n}')]\n"
        "print(any('etilqs' in file for file in files))\n"
        "found = [m for _ in range(100) for m in node.receive('ticks', 64)]\n"
        "print([m.body for m in found] == bodies)"
    )
    assert (said(one), said(one)) == (str(overflows), "True")


@pytest.mark.local("reads the log of the process that keeps express messages")
def test_the_first_overflow_is_told(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.declare("ticks", durability="express", memory_limit=2**20)
    node.put("ticks", bytes(2**21))
    until(lambda: "express.overflow size=" in caplog.text)
    node.ack(node.receive("ticks"))


# syncs


@needs_strace
@pytest.mark.scenario("Q-105")
@pytest.mark.local("counts what the process of the node asks of the system")
def test_an_express_put_syncs_nothing(path: Path) -> None:
    counts = syncs(
        path,
        "node.declare('ticks', durability='express')\n"
        "mark('express')\n"
        "for number in range(50): node.put('ticks', str(number))\n"
        "mark('taken')\n"
        "for one in node.receive('ticks', 50): one.ack()\n"
        "mark('recoverable')\n"
        "node.put('ticks', 'r', durability='recoverable')\n",
    )
    assert (counts["express"], counts["recoverable"] > 0) == (0, True)


# from other processes


@pytest.mark.local("kills the process whose node keeps express messages")
def test_another_process_puts_takes_settles_and_looks(node: Node, keeper: subprocess.Popen[str]) -> None:
    assert bodies(node.peek("ticks")) == list("01234")
    stats = node.stats("ticks")
    assert (stats.ready, stats.keeper.pid, stats.keeper.lives) == (5, keeper.pid, True)  # type: ignore[union-attr]
    assert node.put("ticks", "5") > node.peek("ticks")[-2].position
    assert node.put("ticks", "6", wait=False).result() > 0
    one, two = node.receive("ticks", 2)
    assert (one.ack(), two.release()) == ("settled", "settled")
    assert bodies(node.receive("ticks", ALL)) == list("123456")
    node.put("ticks", b"x" * 3_000_000)
    with node.subscribe("ticks", max_backlog=3) as subscription:
        message = subscription.next(timeout=5)
        assert message is not None
        assert len(message.body) == 3_000_000
        assert (message.reject("too large"), [one.reason for one in node.dead("ticks").peek()]) == (
            "settled",
            ["rejected"],
        )


def test_a_consumer_of_another_process_is_woken_and_what_it_leased_comes_back_when_it_dies(
    node: Node, program: Program
) -> None:
    node.declare("ticks", durability="express")
    one = program("print('here')\n(m,) = node.receive('ticks', wait=20)\nprint(m.body.decode())\nsys.stdin.read()")
    assert said(one) == "here"
    time.sleep(0.3)
    node.put("ticks", "1")
    assert said(one) == "1"
    assert node.receive("ticks") == []
    kill(one)
    (again,) = node.receive("ticks", wait=10)
    assert (again.body, again.redelivered) == (b"1", True)


def test_two_processes_consume_what_a_third_keeps_once_each(
    node: Node, keeper: subprocess.Popen[str], program: Program
) -> None:
    lines = (
        "consumer = node.consume(\n"
        "    'ticks', lambda m: sys.stdout.write(f'{m.body.decode()}\\n'), threads=2, max_backlog=6\n)\n"
        "sys.stdin.read()\nconsumer.stop()\nprint('end')"
    )
    both = [program(lines), program(lines)]
    for number in range(5, 200):
        node.put("ticks", str(number))
    until(lambda: node.stats("ticks").messages == 0)
    seen: list[str] = []
    for one in both:
        out, _ = one.communicate("")
        seen += out.split()[:-1]
    assert sorted(seen, key=int) == [str(number) for number in range(200)]


# deaths


@pytest.mark.scenario("Q-102")
@pytest.mark.local("kills the process whose node keeps express messages")
def test_express_messages_are_gone_with_their_process_and_recoverable_ones_remain(
    node: Node, program: Program, rows: Rows
) -> None:
    one = program(
        "for n in range(100):\n"
        "    node.put('orders', f'express {n}', durability='express')\n"
        "    node.put('orders', f'recoverable {n}')\n"
        "print('put')\nsys.stdin.read()"
    )
    assert said(one) == "put"
    assert node.stats("orders").ready == 200
    kill(one)
    assert bodies(node.receive("orders", ALL)) == [f"recoverable {n}" for n in range(100)]
    until(lambda: node.stats("orders").keeper is None)
    ((told,),) = rows("SELECT reason FROM ledger WHERE event = 'express_lost'")
    assert told.startswith(f"process {one.pid}")
    node.put("orders", "again", durability="express")
    assert bodies(node.receive("orders", ALL)) == ["again"], "the next to put one keeps them"


@pytest.mark.local("kills the process whose node keeps express messages")
def test_where_the_keeper_is_gone_a_put_says_what_to_do_or_waits(
    node: Node, keeper: subprocess.Popen[str], program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    node.put("ticks", "5")
    kill(keeper)
    with pytest.raises(KeeperGone, match="Declare the queue"):
        node.put("ticks", "6")
    until(lambda: "express.lost queue=ticks" in caplog.text)
    with pytest.raises(KeeperGone, match="No process keeps the express messages of ticks"):
        node.put("ticks", "6", gone="wait", timeout=0.1)
    assert node.put("ticks", "7", durability="recoverable") > 0
    other = program("time.sleep(0.5)\nnode.declare('ticks', durability='express')\nsys.stdin.read()")
    assert node.put("ticks", "8", gone="wait", timeout=20) > 0
    assert node.stats("ticks").keeper.pid == other.pid  # type: ignore[union-attr]
    assert sorted(bodies(node.peek("ticks"))) == ["7", "8"]


@pytest.mark.local("kills the process whose node keeps express messages")
def test_who_declares_the_queue_at_the_death_of_its_keeper_keeps_it(node: Node, keeper: subprocess.Popen[str]) -> None:
    assert len(node.receive("ticks", ALL)) == 5
    kill(keeper)
    node.declare("ticks", durability="express", max_failures=3)
    node.put("ticks", "6")
    assert bodies(node.receive("ticks", ALL)) == ["6"]
    kept = node.stats("ticks").keeper
    assert kept is not None
    assert (kept.pid, kept.lives) == (os.getpid(), True)


@pytest.mark.local("kills the process whose node keeps express messages")
def test_a_subscription_outlives_the_keeper_and_goes_on_with_the_next(
    node: Node, keeper: subprocess.Popen[str], program: Program
) -> None:
    with node.subscribe("ticks") as subscription:
        assert subscription.next(timeout=5).body == b"0"  # type: ignore[union-attr]
        kill(keeper)
        node.put("ticks", "stored", durability="recoverable")
        while (message := subscription.next(timeout=10)) is not None and message.body != b"stored":
            assert message.body in b"01234", "what was here before"
        assert message is not None
        other = program(KEEPER)
        assert said(other) == "kept"
        assert subscription.next(timeout=10).body == b"0"  # type: ignore[union-attr]


@pytest.mark.local("kills the process whose node keeps express messages")
def test_a_subscription_outlives_the_keeper_of_what_it_has_acknowledged(
    node: Node, keeper: subprocess.Popen[str], rows: Rows
) -> None:
    with node.subscribe("ticks", max_backlog=6, ack_batch=3, ack_timeout=60) as subscription:
        assert subscription.next(timeout=5).body == b"0"  # type: ignore[union-attr]
        node.put("ticks", "stored", durability="recoverable", priority=9)
        until(lambda: node.stats("ticks").ready == 0)
        stored = subscription.next(timeout=5)
        assert stored is not None
        kill(keeper)
        assert (stored.body, stored.release()) == (b"stored", "settled")
        until(lambda: rows("SELECT deliveries FROM entry WHERE leased_until IS NOT NULL") == [(2,)])
        while (message := subscription.next(timeout=10)) is not None and not message.redelivered:
            assert message.body in (b"1", b"2"), "what was here before"
        assert message is not None
        assert message.body == b"stored"


@pytest.mark.local("kills the process whose node keeps express messages")
def test_a_subscription_that_is_awaited_outlives_that_keeper_too(
    node: Node, keeper: subprocess.Popen[str], connect_async: ConnectAsync, rows: Rows
) -> None:
    async def consume() -> None:
        async with (
            await connect_async() as other,
            await other.subscribe("ticks", max_backlog=6, ack_batch=3, ack_timeout=60) as subscription,
        ):
            assert (await anext(subscription)).body == b"0"
            node.put("ticks", "stored", durability="recoverable", priority=9)
            until(lambda: node.stats("ticks").ready == 0)
            stored = await anext(subscription)
            kill(keeper)
            assert (stored.body, await stored.release()) == (b"stored", "settled")
            until(lambda: rows("SELECT deliveries FROM entry WHERE leased_until IS NOT NULL") == [(2,)])
            while not (message := await anext(subscription)).redelivered:
                assert message.body in (b"1", b"2"), "what was here before"
            assert message.body == b"stored"

    asyncio.run(consume())


@pytest.mark.local("closes the node that keeps express messages")
def test_what_a_closed_node_kept_is_counted_in_the_ledger(node: Node, connect: Connect, rows: Rows) -> None:
    other = connect()
    other.declare("ticks", durability="express")
    other.put_many("ticks", range(3))
    other.close()
    ((told,),) = rows("SELECT reason FROM ledger WHERE event = 'express_lost'")
    assert told.startswith("3 were not settled")
    assert list(node.store.path.with_name("store.db.d").glob("*.express")) == []


@pytest.mark.local("kills the process whose node keeps express messages")
def test_a_fork_that_outlives_its_parent_keeps_nothing_and_is_not_taken_for_it(node: Node, program: Program) -> None:
    one = program(
        "node.declare('ticks', durability='express')\nnode.put('ticks', '1')\nnode.put('orders', '1')\n"
        "child = os.fork()\n"
        "if not child:\n    os.close(1)\n    time.sleep(60)\n    os._exit(0)\n"
        "print(child, len(node.receive('orders')))\nsys.stdin.read()"
    )
    child, leased = said(one).split()
    try:
        assert (leased, node.stats("ticks").ready) == ("1", 1)
        kill(one)
        until(lambda: node.stats("ticks").keeper is None)
        assert len(node.receive("orders", wait=10)) == 1
    finally:
        os.kill(int(child), signal.SIGKILL)


@pytest.mark.local("stops the process whose node keeps express messages")
def test_a_keeper_that_hangs_keeps_no_message_of_the_store_waiting(
    node: Node, connect: Connect, keeper: subprocess.Popen[str]
) -> None:
    other, seen = connect(), list[bytes]()
    with node.subscribe("ticks") as ticks, node.consume("orders", lambda message: seen.append(message.body)):
        assert ticks.next(timeout=5) is not None
        keeper.send_signal(signal.SIGSTOP)
        try:
            for number in range(10):
                other.put("orders", str(number))
                until(lambda number=number: len(seen) == number + 1, 3)  # type: ignore[misc]
                time.sleep(0.1)
        finally:
            keeper.send_signal(signal.SIGCONT)
    assert node.stats("ticks").keeper.lives  # type: ignore[union-attr]


@pytest.mark.local("stops the process whose node keeps express messages")
def test_a_queue_whose_keeper_hangs_is_deleted_by_force_alone_and_the_loss_is_on_record(
    node: Node, connect: Connect, keeper: subprocess.Popen[str], rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(sharing, "FRAME_SECONDS", 0.5)
    node.put("ticks", "stored", durability="recoverable")
    keeper.send_signal(signal.SIGSTOP)
    try:
        for asks in (node, connect()):
            with pytest.raises(KeeperGone, match=f"process {keeper.pid}.*does not delete them.*force=True"):
                asks.delete("ticks")
    finally:
        keeper.send_signal(signal.SIGCONT)
    assert node.stats("ticks").ready == 6
    keeper.send_signal(signal.SIGSTOP)
    try:
        assert connect().delete("ticks", force=True).settled == 1
    finally:
        keeper.send_signal(signal.SIGCONT)
    ((reason,),) = rows("SELECT reason FROM ledger WHERE event = 'express_lost'")
    assert f"process {keeper.pid}" in reason
    assert node.keys() == []


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "express"])
def test_a_queue_that_may_not_be_deleted_keeps_its_messages_of_both_kinds(node: Node, stored: bool) -> None:
    positions = {
        stored: node.put("orders", str(stored), durability="recoverable" if stored else "express")
        for stored in (True, False)
    }
    leased, other = node.receive("orders", 2)
    (leased if positions[stored] == other.position else other).release()
    with pytest.raises(QueueBusy):
        node.delete("orders")
    with pytest.raises(QueueBusy):
        node.delete("orders", if_empty=True)
    assert sorted(bodies(node.peek("orders"))) == ["False", "True"]
    assert node.delete("orders", force=True).settled == 2
    assert node.keys() == []


@pytest.mark.local("over the network a name is of its client alone")
def test_what_is_no_subscription_keeps_its_express_messages_when_it_is_ended_as_one(node: Node) -> None:
    node.declare("ticks", durability="express")
    node.put("ticks", 1)
    with pytest.raises(NotAllowed, match="none of a durable subscription"):
        node.unsubscribe("ticks")
    assert bodies(node.peek("ticks")) == ["1"]


@pytest.mark.local("kills the process whose node keeps express messages")
def test_a_program_of_asyncio_waits_for_a_keeper_and_goes_on_with_the_next(
    node: Node, keeper: subprocess.Popen[str], program: Program, path: Path
) -> None:
    async def go() -> list[bytes]:
        async with await wsrm_mq.connect_async(path) as there, await there.subscribe("ticks") as subscription:
            seen = []
            async for message in subscription:
                seen.append(message.body)
                if len(seen) == 5:
                    break
            kill(keeper)
            with pytest.raises(KeeperGone):
                await there.put("ticks", "lost")
            program("time.sleep(0.5)\nnode.declare('ticks', durability='express')\nsys.stdin.read()")
            assert await there.put("ticks", "last", gone="wait", timeout=20) > 0
            async for message in subscription:
                if message.body == b"last":
                    return [*seen, message.body]
        return []

    assert asyncio.run(go()) == [b"0", b"1", b"2", b"3", b"4", b"last"]
    with pytest.raises(ConfigurationError, match="leave out `wait=False`"):
        node.put("ticks", "x", wait=False, gone="wait")


# the journal


JOURNALED = """
node.declare('ticks', durability='express', journal=True, max_failures=1)
node.put_many('ticks', range(6), type='tick', priority=6)
print('kept')
sys.stdin.read()
"""


@pytest.mark.local("kills the process whose node keeps express messages")
@pytest.mark.scenario("Q-103")
def test_a_journal_has_what_was_lost_with_its_process_and_what_was_not_settled_is_recovered(
    node: Node, program: Program
) -> None:
    keeper = program(JOURNALED)
    assert said(keeper) == "kept"
    one, two, three, four = node.receive("ticks", 4)
    one.ack()
    two.reject("no good")
    node.purge("ticks", three.position, four.position)  # both are leased
    three.ack()
    four.nack("failed")
    outcomes = ["delivered", "dead", "delivered", "dead", None, None]
    assert [record.of.outcome for record in node.journal("ticks").peek()] == outcomes
    assert node.recover_express() == 0, "its process has them"
    kill(keeper)
    assert node.recover_express() == 2
    assert node.recover_express("ticks") == 0
    found = node.receive("ticks", ALL)
    assert [(it.body, it.type, it.priority) for it in found] == [(b"4", "tick", 6), (b"5", "tick", 6)]
    node.ack(found)
    assert [record.of.outcome for record in node.journal("ticks").peek()] == [*outcomes[:4], "delivered", "delivered"]
    letters = node.dead("ticks").peek()
    assert [(it.body, it.reason, it.last_error, it.failures) for it in letters] == [
        (b"1", "rejected", "no good", 0),
        (b"3", "max_failures", "failed", 1),
    ]


@pytest.mark.local("kills the process whose node keeps express messages")
@pytest.mark.parametrize("after", [1, 40, 41, 90])
def test_whenever_its_keeper_is_killed_what_was_confirmed_is_delivered_once_or_recovered(
    node: Node, program: Program, after: int
) -> None:
    keeper = program("node.declare('ticks', durability='express', journal=True)\nprint('kept')\nsys.stdin.read()")
    assert said(keeper) == "kept"
    confirmed, taken, in_doubt = [], [], ""
    killer = threading.Timer(0.005 * after, kill, [keeper])
    killer.start()
    with suppress(KeeperGone):
        for number in range(100_000):
            node.put("ticks", str(number))
            confirmed.append(str(number))
            if number % 3 == 2:
                found = node.receive("ticks")
                if not found:
                    break  # they are gone with their keeper
                in_doubt = found[0].body.decode()
                found[0].ack()
                taken.append(in_doubt)
    killer.join()
    until(lambda: node.stats("ticks").keeper is None)
    node.recover_express()
    left = bodies(node.receive("ticks", 10_000))
    assert len(set(left)) == len(left)
    assert not set(left) & set(taken)
    assert {*confirmed} - {in_doubt} <= {*left, *taken} <= {*confirmed, str(len(confirmed))}


@pytest.mark.local("kills the process whose node keeps express messages")
def test_what_was_lost_and_is_in_the_journal_waits_as_dead_letters(node: Node, program: Program) -> None:
    keeper = program(JOURNALED)
    assert said(keeper) == "kept"
    assert node.purge("ticks", 0, node.peek("ticks")[1].position).settled == 2
    kill(keeper)
    until(lambda: node.stats("ticks").keeper is None)
    assert {(one.body, one.reason) for one in node.dead("ticks").peek()} == {
        (b"%d" % n, "express_lost") for n in (2, 3, 4, 5)
    }
    assert [record.of.outcome for record in node.journal("ticks").peek()] == ["purged"] * 2 + ["dead"] * 4
    with node.store.reader() as db:
        (told,) = db.execute("SELECT reason FROM ledger WHERE event = 'express_lost'").fetchall()
    assert told[0].endswith("4 are among the dead letters, as the journal has them")
    assert node.dead("ticks").redrive() == 4


@pytest.mark.local("closes the node that keeps express messages")
def test_a_journal_that_is_full_keeps_no_express_message_back(node: Node, connect: Connect) -> None:
    other = connect()
    other.declare("ticks", durability="express", journal=True)
    other.declare("ticks#journal", max_messages=2)
    node.put_many("ticks", range(4))
    node.receive("ticks")[0].ack()
    assert node.stats("ticks").ready == 3
    assert [record.of.outcome for record in node.journal("ticks").peek()] == ["delivered", None]
    other.declare("ticks", journal=False)
    node.put("ticks", 4)
    node.journal("ticks").purge()
    node.ack(node.receive("ticks", ALL))
    other.close()
    assert node.recover_express() == 0
    assert node.dead("ticks").peek() == []


@pytest.mark.local("closes the node that keeps express messages")
def test_a_put_into_a_journal_is_refused_where_the_store_takes_its_process_for_dead(
    node: Node, connect: Connect
) -> None:
    other = connect()
    other.declare("ticks", durability="express", journal=True)
    other.put("ticks", "1")
    with node.store.reader() as db:
        keeper = express.keepers(db)["ticks"]
    node.call(lambda tx: express.lose(tx, keeper))
    with pytest.raises(KeeperGone):
        other.express._own.place.put("ticks", "2", durability="express")  # type: ignore[union-attr]
    assert node.recover_express() == 1


# strangers


def stranger(node: Node) -> socket.socket:
    assert node.store.presence is not None
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with sharing.address_of(node.store.path, node.store.presence.name) as address:
        peer.connect(address)
    peer.settimeout(10)
    return peer


GREETING = b"wsrm_mq express 1\n"


@pytest.mark.parametrize(
    "said_first",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
        GREETING + b"\xff\xff\xff\xff",
        GREETING + b"\x00\x00\x00\x05hello",
        GREETING + b"\x00\x00\x00\x02\x81",
    ],
    ids=["another language", "nothing", "a frame without end", "no MessagePack", "half a frame"],
)
@pytest.mark.local("speaks to the socket of a node that keeps express messages")
def test_what_is_not_understood_is_cut_off_and_told(
    node: Node, said_first: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    node.declare("ticks", durability="express")
    with stranger(node) as peer:
        peer.sendall(said_first)
        assert peer.recv(100) in (b"", GREETING)
        assert peer.recv(100) == b""
    until(lambda: "express.cut_off" in caplog.text)
    assert node.put("ticks", "1") > 0


@pytest.mark.local("speaks to the socket of a node that keeps express messages")
def test_a_transaction_that_is_left_open_is_rolled_back(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.declare("ticks", durability="express")
    with stranger(node) as peer:
        peer.sendall(GREETING)
        assert peer.recv(100) == GREETING
        begin = b"\x82\xa4type\xa5begin\xa4wait\xc3"
        peer.sendall(len(begin).to_bytes(4, "big") + begin)
        assert peer.recv(100) != b""
        began = time.monotonic()
        assert node.put("ticks", "1") > 0
        assert time.monotonic() - began < TURN_SECONDS + 2
        assert peer.recv(100) == b""
    until(lambda: "express.cut_off" in caplog.text)


@pytest.mark.local("speaks to the socket of a node that keeps express messages")
def test_no_other_user_can_open_the_socket(node: Node) -> None:
    node.declare("ticks", durability="express")
    (socket_file,) = node.store.path.with_name("store.db.d").glob("*.express")
    assert oct(os.stat(socket_file).st_mode & 0o777) == "0o600"
