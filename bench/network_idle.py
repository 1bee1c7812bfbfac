"""Consumers that wait for a message by the thousand, each on a connection of its own: the memory that the server has
for them, and how soon a message is with one of them."""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

import aiohttp

from bench.measure import Spent, resident_bytes
from bench.network_servers import QUEUE, TOKENS, Served

__all__ = ["Idle", "over_http", "over_stomp"]

_AT_ONCE: Final = 50
"""Connections that are begun together."""
_QUIET_SECONDS: Final = 0.5
_SETTLING_SECONDS: Final = 15.0
_QUIET: Final = 0.05
"""The share of a core that a server takes at most once all wait."""
_LONGEST_SECONDS: Final = 60.0
_LEASE: Final = 3_600
"""No consumer acknowledges its message: with a shorter lease one that came before would come again, and be measured."""
_LENGTH: Final = 1_024


class Idle(NamedTuple):
    """``rest`` and ``waiting``: bytes of the server's process before and while all wait; ``woken_ms``: from before a
    message is put until a consumer has it."""

    rest: int
    waiting: int
    woken_ms: list[float]
    others: float


Wait = Callable[[int, "asyncio.Queue[float]"], Awaitable[None]]
"""Wait as the consumer of this number, again and again; when a message came, how long that took."""


def over_http(served: Served, consumers: int, wake_ups: int) -> Idle:
    """Each long-polls."""
    return asyncio.run(_idle(served, consumers, wake_ups, lambda http: _polling(http, served.url)))


def over_stomp(served: Served, consumers: int, wake_ups: int) -> Idle:
    """Each has subscribed; what is put comes over HTTP all the same."""
    return asyncio.run(_idle(served, consumers, wake_ups, lambda _: _subscribing(served.stomp)))


def _polling(http: aiohttp.ClientSession, url: str) -> Wait:
    async def wait(number: int, woken: asyncio.Queue[float]) -> None:
        while True:
            async with http.post(_path(url, f"leases?wait=60&lease={_LEASE}"), headers=_shown(number)) as answer:
                body = await answer.read()
                answer.raise_for_status()
            if body:
                woken.put_nowait(_taken_ms(body))

    return wait


def _subscribing(port: int) -> Wait:
    async def wait(number: int, woken: asyncio.Queue[float]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            token = TOKENS[number % len(TOKENS)]
            writer.write(f"CONNECT\naccept-version:1.2\nhost:bench\npasscode:{token}\n\n\0".encode())
            await reader.readuntil(b"\0")
            subscribe = f"SUBSCRIBE\nid:1\ndestination:/queue/{QUEUE}\nack:client-individual\nlease:{_LEASE}\n\n\0"
            writer.write(subscribe.encode())
            while True:
                frame = await reader.readuntil(b"\0")
                head, _, body = frame.lstrip(b"\n").partition(b"\n\n")
                if not head.startswith(b"MESSAGE"):
                    raise RuntimeError(f"STOMP: {frame.decode()}")
                woken.put_nowait(_taken_ms(body[:-1]))
        finally:
            writer.close()

    return wait


async def _idle(served: Served, consumers: int, wake_ups: int, how: Callable[[aiohttp.ClientSession], Wait]) -> Idle:
    _allow_files(consumers + 200)
    woken: asyncio.Queue[float] = asyncio.Queue()
    connector, forever = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=forever) as http:
        async with http.get(f"{served.url}/openapi.json") as answer:
            await answer.read()
        await _quiet(served.pid)
        rest, spent, wait = resident_bytes(served.pid), Spent([served.pid]), how(http)
        async with _all_waiting(wait, consumers, woken) as failed:
            await _quiet(served.pid)
            waiting = resident_bytes(served.pid)
            chance, taken = random.Random(wake_ups), []
            for _ in range(wake_ups):
                await asyncio.sleep(chance.uniform(0.01, 0.03))
                body = str(time.monotonic_ns()).encode().ljust(_LENGTH)
                async with http.post(_path(served.url, "messages"), data=body, headers=_shown(0)) as answer:
                    answer.raise_for_status()
                taken.append(await _first(woken, failed))
            return Idle(rest, waiting, taken, spent.others)


@asynccontextmanager
async def _all_waiting(wait: Wait, consumers: int, woken: asyncio.Queue[float]) -> Any:
    tasks = []
    try:
        for number in range(consumers):
            tasks.append(asyncio.ensure_future(wait(number, woken)))
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0.02)
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first(woken: asyncio.Queue[float], waiting: Sequence[asyncio.Future[None]]) -> float:
    """How long the message took. A consumer that has failed ends the run."""
    try:
        async with asyncio.timeout(_LONGEST_SECONDS):
            return await woken.get()
    except TimeoutError:
        for one in waiting:
            if one.done():
                one.result()
        raise


async def _quiet(pid: int) -> None:
    """Wait until the server has nothing to do, or no less than now and then."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_SETTLING_SECONDS):
            while True:
                spent = Spent([pid])
                await asyncio.sleep(_QUIET_SECONDS)
                if spent.cpu <= _QUIET * _QUIET_SECONDS:
                    return


def _path(url: str, rest: str) -> str:
    return f"{url}/queues/{QUEUE}/{rest}"


def _shown(number: int) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[number % len(TOKENS)]}"}


def _taken_ms(body: bytes) -> float:
    return (time.monotonic_ns() - int(body)) / 1_000_000


def _allow_files(most: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, hard), hard))
