"""zeep's client for asyncio over an RM Source, against a real service: nothing holds up the loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from zeep.exceptions import Fault

from tests.source.test_processes import effects
from tests.support.orders_server import OrdersServer, within
from wsrm_mq.errors import NotFound, Pending
from wsrm_mq.source import AsyncReliableClient


@pytest.fixture
def orders_server(tmp_path: Path) -> Iterator[OrdersServer]:
    server = OrdersServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def run(tmp_path: Path, orders_server: OrdersServer) -> Callable[..., Any]:
    """Run a program with a client of the service."""

    @asynccontextmanager
    async def client(**options: Any) -> AsyncIterator[AsyncReliableClient]:
        where = {"wsdl": f"{orders_server.url}?wsdl", "store": tmp_path / "outbox.db"}
        async with await asyncio.to_thread(AsyncReliableClient, **{**where, **options}) as made:
            yield made

    def run(program: Callable[[AsyncReliableClient], Coroutine[Any, Any, Any]], **options: Any) -> Any:
        async def whole() -> Any:
            async with client(**options) as made:
                return await asyncio.wait_for(program(made), 60)

        return asyncio.run(whole())

    return run


def test_operations_are_awaited_many_at_a_time_and_one_after_the_other_in_their_order(
    run: Callable[..., Any], orders_server: OrdersServer
) -> None:
    async def program(client: AsyncReliableClient) -> list[str]:
        for n in range(5):
            assert await client.service.put_order(n=n, text="two seats") is None
        return list(await asyncio.gather(*(client.service.echo(text=f"order {n}") for n in range(20))))

    assert run(program) == [f"order {n}" for n in range(20)]
    assert within(20, lambda: effects(orders_server), lambda found: len(found) >= 5)[:5] == list(range(5))


def test_the_loop_goes_on_while_a_reply_is_waited_for(run: Callable[..., Any], orders_server: OrdersServer) -> None:
    async def program(client: AsyncReliableClient) -> str:
        asked = asyncio.create_task(client.service.echo(text="gate=open"))
        while not orders_server.rows("SELECT 1 FROM calls WHERE text = 'gate=open'"):
            await asyncio.sleep(0.01)
        assert not asked.done()
        orders_server.open_gate("open")
        return str(await asked)

    assert run(program, timeout=None) == "gate=open"


def test_the_loop_goes_on_while_the_store_is_locked(
    run: Callable[..., Any], orders_server: OrdersServer, tmp_path: Path
) -> None:
    async def program(client: AsyncReliableClient) -> None:
        with closing(sqlite3.connect(tmp_path / "outbox.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            calls = [
                asyncio.create_task(made)
                for made in (client.service.put_order(n=1, text="x"), client.later.put_order(n=2, text="x"))
            ]
            done, _ = await asyncio.wait(calls, timeout=0.2)
            assert not done
            other.execute("ROLLBACK")
        await asyncio.gather(*calls)
        await calls[1].result().result()

    run(program)
    found = within(20, lambda: effects(orders_server), lambda found: len(found) >= 2)
    assert sorted(found) == [1, 2]


def test_what_is_not_replied_to_in_time_is_pending_and_answered_later(
    run: Callable[..., Any], orders_server: OrdersServer
) -> None:
    async def program(client: AsyncReliableClient) -> str:
        with pytest.raises(Pending) as pending:
            await client.service.echo(text="gate=late")
        assert await client.replies(pending.value.message_id) is None
        orders_server.open_gate("late")
        while (said := await client.replies(pending.value.message_id)) is None:
            await asyncio.sleep(0.01)
        with pytest.raises(NotFound, match="urn:never"):
            await client.replies("urn:never")
        return str(said)

    assert run(program, timeout=0.2) == "gate=late"


def test_later_is_awaited_until_it_is_stored_and_its_result_until_it_is_there(
    run: Callable[..., Any], orders_server: OrdersServer
) -> None:
    async def program(client: AsyncReliableClient) -> list[Any]:
        put = await client.later.put_order(n=1, text="x")
        asked = await client.later.echo(text="gate=later")
        assert not await asked.done()
        with pytest.raises(Pending, match=asked.message_id):
            await asked.result(0.05)
        orders_server.open_gate("later")
        results = [await put.result(20), await asked.result(20)]
        assert await asked.done()
        with pytest.raises(Fault, match="no such order"):
            await (await client.later.echo(text="client-fault")).result(20)
        return results

    assert run(program) == [None, "gate=later"]


def test_a_request_is_enqueued_in_a_transaction_of_the_program_s_own(
    run: Callable[..., Any], orders_server: OrdersServer, tmp_path: Path
) -> None:
    async def program(client: AsyncReliableClient) -> str:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
            client.enqueue(shop).put_order(n=1, text="x")
            shop.rollback()
            client.enqueue(shop).put_order(n=2, text="x")
            asked = client.enqueue(shop).echo(text="hello")
            shop.commit()
        client.source.relay(lambda: sqlite3.connect(tmp_path / "shop.db"))
        while True:
            try:
                said = await client.replies(asked)
            except NotFound:  # it is not moved yet
                said = None
            if said is not None:
                return str(said)
            await asyncio.sleep(0.01)

    assert run(program) == "hello"
    assert effects(orders_server)[0] == 2
