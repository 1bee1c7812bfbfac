"""The node for programs of asyncio."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.node.conftest import Connect, ConnectAsync, Program, Rows
from wsrm_mq.errors import LeaseLost, SubscriptionClosed
from wsrm_mq.node import Node
from wsrm_mq.node.apart import DeadLetters, Journal
from wsrm_mq.node.async_node import AsyncDeadLetters, AsyncJournal, AsyncMessage, AsyncNode, AsyncSubscription
from wsrm_mq.node.message import Message
from wsrm_mq.node.subscription import Subscription
from wsrm_mq.queue.settling import Settlement


@pytest.mark.scenario("Q-063")
def test_messages_are_put_and_iterated_over(connect_async: ConnectAsync) -> None:
    async def program() -> list[int]:
        async with await connect_async() as node:
            positions = await asyncio.gather(*(node.put("orders", number) for number in range(20)))
            assert len(set(positions)) == 20
            seen = []
            async with await node.subscribe("orders", max_backlog=6) as subscription:
                async for message in subscription:
                    seen.append(message.json())
                    if len(seen) == 20:
                        assert await message.ack() is Settlement.SETTLED
                        break
            stats = await node.stats("orders")
            assert (stats.ready, stats.leased) == (0, 0)
            return seen

    assert asyncio.run(program()) == list(range(20))


def test_consumers_that_wait_cost_no_thread(connect_async: ConnectAsync) -> None:
    async def program() -> None:
        async with await connect_async() as node:
            subscriptions = [await node.subscribe(f"queue{number}") for number in range(40)]
            waiting = [asyncio.create_task(one.take()) for one in subscriptions]
            received = [asyncio.create_task(node.receive("other", wait=20)) for _ in range(1)]
            await asyncio.sleep(0.2)
            before = threading.active_count()
            more = [asyncio.create_task(subscriptions[0].take()) for _ in range(100)]
            await asyncio.sleep(0.2)
            assert threading.active_count() <= before
            for number in range(40):
                await node.put(f"queue{number}", number)
            await node.put("other", "x")
            got = [await one for one in waiting[1:]]
            assert [one.json() for one in got] == list(range(1, 40))
            assert len(await received[0]) == 1
            for one in subscriptions:
                await one.close()
            ends = await asyncio.gather(waiting[0], *more, return_exceptions=True)
            assert [one.json() for one in ends if isinstance(one, AsyncMessage)] == [0]
            assert sum(isinstance(one, SubscriptionClosed) for one in ends) == 100
            assert str(subscriptions[0].closed_by).startswith("its `close`")

    asyncio.run(asyncio.wait_for(program(), 60))


@pytest.mark.scenario("Q-062")
def test_what_a_coroutine_function_returns_from_is_acknowledged_and_what_it_raises_is_a_failure(
    connect_async: ConnectAsync,
) -> None:
    seen = []

    async def handle(message: AsyncMessage) -> None:
        await asyncio.sleep(0.01)
        seen.append(message.json())
        if message.json() == 3:
            raise ValueError("no three")

    async def program(node: AsyncNode) -> None:
        await node.declare("orders", retry=[60])
        await node.put_many("orders", range(10))
        async with await node.consume("orders", handle, tasks=4):
            while len(seen) < 10:
                await asyncio.sleep(0.01)
        stats = await node.stats("orders")
        assert (stats.ready, stats.leased, stats.held) == (0, 0, {"backoff": 1})

    async def whole() -> None:
        async with await connect_async() as node:
            await program(node)

    asyncio.run(asyncio.wait_for(whole(), 60))
    assert sorted(seen) == list(range(10))


@pytest.mark.scenario("Q-068")
def test_a_late_acknowledgement_is_refused(connect_async: ConnectAsync) -> None:
    async def program() -> None:
        async with await connect_async() as node:
            await node.declare("orders", lease=0.2, retry=[60])
            await node.put("orders", 1)
            (message,) = await node.receive("orders")
            while (await node.stats("orders")).leased:
                await asyncio.sleep(0.05)
            with pytest.raises(LeaseLost):
                await message.ack()

    asyncio.run(program())


OF_THE_MESSAGE = {"ack", "release", "nack", "reject", "expire", "renew"}
"""A message that was received is awaited itself."""
OF_A_PLACE = {"places", "place_of", "verb", "begun", "leased", "heads", "is_ready", "declared", "settle_where"}
OF_A_SUBSCRIPTION = {"send", "last_missed", "is_behind", "replace_filter", "end"}
"""A subscription asks these of its node."""
INNER = {
    Node: {
        "begin",
        "commit",
        "rollback",
        "abandon",
        "at_commit",
        "count_ready",
        "call",
        "submit",
        "forget",
        "hand_back",
        "settle_messages",
        "purged",
        "reader",
        "refuse_in_transaction",
        "send_last",
        *OF_A_SUBSCRIPTION,
        *OF_A_PLACE,
        *OF_THE_MESSAGE,
    },
    DeadLetters: set[str](),
    Journal: {"receive"},
    Message: {"json"},
    Subscription: {
        "next",
        "hand_back",
        "settle_messages",
        "withdraw",
        "send_last",
        "acknowledge",
        "last_missed",
        "is_behind",
        "ahead",
        "keep_ahead",
        "pause",
        "is_over",
        "held_up",
        "send_before",
        "abandon",
        "join",
        "hand_over",
        "gone",
        "renewed",
        "unwait",
        "ask",
        *OF_THE_MESSAGE,
    },
}


@pytest.mark.local("compares what is written in two classes of this process")
@pytest.mark.parametrize(
    ("of_threads", "of_tasks"),
    [
        (Node, AsyncNode),
        (DeadLetters, AsyncDeadLetters),
        (Journal, AsyncJournal),
        (Message, AsyncMessage),
        (Subscription, AsyncSubscription),
    ],
)
def test_all_that_a_node_has_is_awaited_too(of_threads: type, of_tasks: type) -> None:
    methods = {name for name in dir(of_threads) if not name.startswith("_") and callable(getattr(of_threads, name))}
    assert {name for name in methods if not hasattr(of_tasks, name)} == INNER[of_threads]


@pytest.mark.scenario("Q-011")
def test_a_transaction_is_of_its_task(connect_async: ConnectAsync) -> None:
    async def program(node: AsyncNode) -> None:
        await node.declare("orders")

        async def other() -> None:
            await node.put("orders", "other")

        beside = asyncio.create_task(other())
        async with node.transaction() as transaction:
            await node.put("orders", 1)
            await node.put_many("orders", [2, 3])
            await node.publish("db/none", 0)
            await beside
            assert [one.body for one in await node.peek("orders")] == [b"other"]
        assert [one.position for one in await node.peek("orders", after=1)] == transaction.positions[:3]
        with suppress(ZeroDivisionError):
            async with node.transaction():
                await node.put("orders", 4)
                raise ZeroDivisionError
        await node.put("orders", 5)
        assert [one.body for one in await node.receive("orders", 9)] == [b"other", b"1", b"2", b"3", b"5"]

    run(connect_async, program)


def test_a_confirmation_is_awaited_when_it_is_wanted(connect_async: ConnectAsync) -> None:
    async def program(node: AsyncNode) -> None:
        confirmations = [await node.put("orders", number, wait=False) for number in range(30)]
        assert await asyncio.gather(*confirmations) == [one.position for one in await node.peek("orders")]

    run(connect_async, program)


def test_dead_letters_and_replays_and_what_was_missed_are_awaited(connect_async: ConnectAsync) -> None:
    async def program(node: AsyncNode) -> None:
        await node.declare_topic("db/#", retain=None)
        queue = await node.subscribe_durable("db/#", "s")
        for number in range(5):
            await node.publish("db/add", number)
        async with await node.subscribe(topic="db/#", name="s", max_backlog=2) as subscription:
            missed = []
            async for message in subscription.catch_up():
                missed.append(message.json())
                if message.json() == 4:
                    await node.publish("db/add", 5)
            assert missed == list(range(5))
            live = await anext(subscription)
            assert live.json() == 5
            await live.reject("none of it")
        letters = await node.dead(queue)
        assert [one.last_error for one in await letters.peek()] == ["none of it"]
        assert await letters.redrive() == 1
        assert [one.json() for one in await node.receive(queue)] == [5]
        assert [one.json() async for one in node.replay("db/*")] == list(range(6))
        assert [one.messages for one in await node.events("db")] == [6]

    run(connect_async, program)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """What writes waits as long as this."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            db.rollback()


CALLS: dict[str, Callable[[AsyncNode], Awaitable[object]]] = {
    "receive": lambda node: node.receive("orders", 2, wait=20),
    "subscribe": lambda node: node.subscribe("orders", max_backlog=2, client="cancelled"),
    "consume": lambda node: node.consume("orders", print, client="cancelled"),
    "letters": lambda node: letters(node),
}


async def letters(node: AsyncNode) -> None:
    await (await node.dead("orders")).receive()


@pytest.mark.local("holds the lock of a store of its own")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_what_a_call_that_was_cancelled_has_leased_or_subscribed_is_given_back(
    connect_async: ConnectAsync, path: Path, call: Callable[[AsyncNode], Awaitable[object]]
) -> None:
    async def program(node: AsyncNode) -> None:
        # Its one thread asks the store what comes next when it is through with the call.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        await node.declare("orders", lease=None, max_failures=1)
        await node.put_many("orders", range(4))
        for message in await node.receive("orders", 2):
            await message.reject()
        dead = (await node.dead("orders")).name
        with locked(path):
            task = asyncio.ensure_future(call(node))
            await asyncio.sleep(0.3)  # its thread waits for the lock
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        while any(one.queues for one in await node.clients()):
            await asyncio.sleep(0.02)
        while (await node.stats("orders")).leased or (await node.stats(dead)).leased:
            await asyncio.sleep(0.02)
        again = [*await node.receive("orders", 2, wait=20), *await node.receive(dead, wait=20)]
        assert [one.json() for one in again] == [2, 3, 0]
        assert [one.failures for one in again] == [0, 0, 0]

    run(connect_async, program)


def test_a_coroutine_function_that_stops_its_consumer_ends_it_with_its_own_message_which_is_acknowledged(
    connect_async: ConnectAsync,
) -> None:
    async def program(node: AsyncNode) -> None:
        await node.put_many("orders", range(5))
        seen = []

        async def handle(message: AsyncMessage) -> None:
            seen.append(message.json())
            await consumer.stop()

        consumer = await node.consume("orders", handle, max_backlog=3)
        while consumer.subscription.closed_by is None or (await node.stats("orders")).ready < 4:
            await asyncio.sleep(0.02)
        await consumer.stop()
        stats = await node.stats("orders")
        assert (seen, stats.ready, stats.leased) == ([0], 4, 0)

    run(connect_async, program)


@pytest.mark.local("holds the lock of a store of its own")
def test_a_node_whose_opening_was_cancelled_is_closed(
    connect_async: ConnectAsync, node: Node, path: Path, rows: Rows
) -> None:
    async def program() -> None:
        with locked(path):
            task = asyncio.ensure_future(connect_async())
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    before = threading.active_count()
    asyncio.run(program())
    until(lambda: threading.active_count() <= before)
    assert [found for (found,) in rows("SELECT ended_at IS NULL FROM instance ORDER BY id")] in ([1], [1, 0])


def test_what_was_missed_and_never_handed_over_as_that_was_cancelled_comes_again_and_is_not_acknowledged(
    connect_async: ConnectAsync,
) -> None:
    async def program(node: AsyncNode) -> None:
        await node.declare("orders", lease=None)
        async with await node.subscribe("orders", max_backlog=2) as subscription:
            seen: list[int] = []
            await node.put_many("orders", range(20))

            async def catch_up() -> None:
                async for message in subscription.catch_up():
                    seen.append(message.json())

            for _ in range(30):
                task = asyncio.create_task(catch_up())
                for _ in range(random.randrange(12)):
                    await asyncio.sleep(0)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await catch_up()
            assert seen == list(range(20))
        stats = await node.stats("orders")
        assert (stats.ready, stats.leased) == (0, 0)

    run(connect_async, program)


def test_a_subscription_that_was_waited_for_in_vain_is_attended_by_none(
    connect_async: ConnectAsync,
) -> None:
    async def program(node: AsyncNode) -> None:
        await node.declare("orders", lease=0.3)
        async with await node.subscribe("orders") as subscription:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(subscription.take(), 0.1)
            while subscription.inner.flow.is_attended:
                await asyncio.sleep(0.05)

    run(connect_async, program)


@pytest.mark.local("kills the process whose node keeps express messages")
def test_a_put_that_was_cancelled_while_it_waited_for_a_keeper_is_never_done(
    connect_async: ConnectAsync, program: Program, connect: Connect
) -> None:
    one = program("node.declare('ticks', durability='express')\nprint('kept')\nsys.stdin.read()")
    assert one.stdout is not None
    assert one.stdout.readline() == "kept\n"
    one.kill()
    one.wait()

    async def whole(node: AsyncNode) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(node.put("ticks", "late", gone="wait"), 0.3)
        connect().declare("ticks", durability="express")
        assert await node.put("ticks", "first", gone="wait") > 0
        await asyncio.sleep(0.5)
        assert [one.body for one in await node.peek("ticks")] == [b"first"]

    run(connect_async, whole)


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def run(connect_async: ConnectAsync, program: Callable[[AsyncNode], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with await connect_async() as node:
            await program(node)

    asyncio.run(asyncio.wait_for(whole(), 60))
