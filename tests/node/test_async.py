"""The node for programs of asyncio."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from wsrm_mq import connect_async
from wsrm_mq.errors import LeaseLost
from wsrm_mq.node.async_node import AsyncMessage, AsyncNode
from wsrm_mq.queue.settling import Settlement


@pytest.mark.scenario("Q-063")
def test_messages_are_put_and_iterated_over(path: Path) -> None:
    async def program() -> list[int]:
        async with await connect_async(path) as node:
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


def test_consumers_that_wait_cost_no_thread(path: Path) -> None:
    async def program() -> None:
        async with await connect_async(path) as node:
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
            assert [one.json() for one in got if one is not None] == list(range(1, 40))
            assert len(await received[0]) == 1
            for one in subscriptions:
                await one.close()
            found = [one.json() for one in await asyncio.gather(waiting[0], *more) if one is not None]
            assert found == [0]

    asyncio.run(asyncio.wait_for(program(), 60))


@pytest.mark.scenario("Q-062")
def test_what_a_coroutine_function_returns_from_is_acknowledged_and_what_it_raises_is_a_failure(path: Path) -> None:
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
        async with await connect_async(path) as node:
            await program(node)

    asyncio.run(asyncio.wait_for(whole(), 60))
    assert sorted(seen) == list(range(10))


@pytest.mark.scenario("Q-068")
def test_a_late_acknowledgement_is_refused(path: Path) -> None:
    async def program() -> None:
        async with await connect_async(path) as node:
            await node.declare("orders", lease=0.2, retry=[60])
            await node.put("orders", 1)
            (message,) = await node.receive("orders")
            while (await node.stats("orders")).leased:
                await asyncio.sleep(0.05)
            with pytest.raises(LeaseLost):
                await message.ack()

    asyncio.run(program())
