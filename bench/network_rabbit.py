"""RabbitMQ beside our queue server: each server on one core, the load on another one.

Over AMQP it is driven by its own load tool, PerfTest, and ours by requests that were made before: what is compared are
the servers. Over HTTP both are driven by the same client. The queue of RabbitMQ is a quorum queue, its messages are
persistent, and puts are confirmed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
from yarl import URL

from bench.network_servers import QUEUE, TOKENS, Served
from bench.process import THIS_TREE
from bench.queue_brokers import Rabbit, is_installed
from wsrm_mq.parts import content_type, new_boundary, written

__all__ = ["CASES", "CLIENT_CORE", "SERVER_CORE", "Case", "absent", "emptied", "fill", "on_core"]

SERVER_CORE: Final = 0
CLIENT_CORE: Final = 1
_POM: Final = Path(__file__).with_name("perf_test.xml")
_CONNECTIONS: Final = 8
_TOGETHER: Final = 100
"""Messages of one request of ours, and puts that RabbitMQ has not confirmed, to each connection."""
_LEASE: Final = 300
_BY_HTTP: Final = 30
"""Messages of one request that takes them over HTTP."""
_RATE: Final = re.compile(r"(?:confirmed|received|rate avg): (\d+) msg/s")
_MESSAGE: Final = re.compile(rb'"position":(\d+),.*?"lease":(\d+)')
_BODY: Final = b"x" * 1_024

Act = Callable[[aiohttp.ClientSession], Awaitable[int]]
"""One exchange; answers with how many messages."""


def absent() -> str | None:
    """Why there is nothing to compare with here; ``None``: there is."""
    wanted = {"java": "openjdk-17-jre-headless", "mvn": "maven", "taskset": "util-linux"}
    lacking = [package for tool, package in wanted.items() if shutil.which(tool) is None]
    if not is_installed():
        lacking.append("rabbitmq-server")
    if (os.cpu_count() or 1) < 2:
        return "each server has a core, and the load another one: there is one core"
    return f"apt install {' '.join(lacking)}" if lacking else None


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """This process, and what it starts, runs on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# over AMQP, by its own load tool


def load_tool() -> Path:
    """The directory of PerfTest and of what it needs, which Maven brings once."""
    place = THIS_TREE / "build" / "perf-test"
    if not place.exists():
        command = ["mvn", "--quiet", "--batch-mode", "-f", str(_POM), "dependency:copy-dependencies"]
        made = place.with_name("perf-test.new")
        subprocess.run([*command, f"-DoutputDirectory={made}"], check=True)
        made.rename(place)
    return place


def fill(broker: Rabbit, waiting: int) -> None:
    """So many messages wait there."""
    _perf_test(broker, "-x", 1, "-y", 0, "-c", _TOGETHER * _CONNECTIONS, "-C", waiting)


def put_by_amqp(broker: Rabbit, seconds: float, _waiting: int) -> float:
    """Messages a second that are put and confirmed."""
    return _perf_test(broker, "-x", 1, "-y", 0, "-c", _TOGETHER * _CONNECTIONS, "-z", max(1, round(seconds)))


def taken_by_amqp(broker: Rabbit, _seconds: float, waiting: int) -> float:
    """Messages a second that are delivered and acknowledged."""
    return _perf_test(broker, "-x", 0, "-y", 1, "-q", _LEASE, "--multi-ack-every", _TOGETHER, "-D", waiting)


def _perf_test(broker: Rabbit, *options: object) -> float:
    """What it confirms, or receives, in its best second: it is warm by then."""
    where = ["--uri", f"amqp://guest:guest@127.0.0.1:{broker.port}", "-qq", "-u", QUEUE, "-k", QUEUE, "-s", len(_BODY)]
    command = ["java", "-cp", f"{load_tool()}/*", "com.rabbitmq.perf.PerfTest", *where, *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=300)
    rates = [int(rate) for rate in _RATE.findall(done.stdout)]
    if done.returncode or not rates:
        raise RuntimeError(f"PerfTest: {done.stdout[-2_000:]}{done.stderr[-2_000:]}")
    return max(rates)


# over HTTP


def put_to_ours(served: Served, seconds: float, together: int) -> float:
    """Messages a second that are put by requests of so many."""
    said = {"Authorization": f"Bearer {TOKENS[0]}"}
    where, body = f"{served.url}/queues/{QUEUE}/messages", _BODY
    if together > 1:
        boundary = new_boundary()
        said["Content-Type"] = content_type(boundary)
        body = b"".join(written(boundary, [({"Content-Type": "text/plain"}, _BODY)] * together))

    async def put(http: aiohttp.ClientSession) -> int:
        await _asked(http, "POST", where, body, said)
        return together

    return _in_a_loop(put, seconds)


def taken_from_ours(served: Served, seconds: float, lease: int, ack: int) -> float:
    """Messages a second that are leased and acknowledged, by requests of so many."""
    said = {"Authorization": f"Bearer {TOKENS[0]}"}

    async def take(http: aiohttp.ClientSession) -> int:
        found = await _asked(http, "POST", f"{served.url}/queues/{QUEUE}/leases?max={lease}", b"", said)
        acts = [
            {"position": int(position), "lease": int(number), "action": "ack"}
            for position, number in _MESSAGE.findall(found)
        ]
        for first in range(0, len(acts), ack):
            body = json.dumps({"settlements": acts[first : first + ack]}).encode()
            await _asked(http, "POST", f"{served.url}/settlements", body, said)
        return len(acts)

    return _in_a_loop(take, seconds)


def put_to_rabbit(broker: Rabbit, seconds: float, _waiting: int) -> float:
    """The same of RabbitMQ, whose HTTP API takes one message a request."""
    said = {"routing_key": QUEUE, "payload": base64.b64encode(_BODY).decode(), "payload_encoding": "base64"}
    body = json.dumps({**said, "properties": {"delivery_mode": 2}}).encode()

    async def put(http: aiohttp.ClientSession) -> int:
        await _asked(http, "POST", _of_rabbit(broker, "exchanges/%2F/amq.default/publish"), body, _GUEST)
        return 1

    return _in_a_loop(put, seconds)


def taken_from_rabbit(broker: Rabbit, seconds: float, _waiting: int) -> float:
    """The same of RabbitMQ, whose HTTP API acknowledges what it gives."""
    body = json.dumps({"count": _BY_HTTP, "ackmode": "ack_requeue_false", "encoding": "base64"}).encode()

    async def take(http: aiohttp.ClientSession) -> int:
        return len(json.loads(await _asked(http, "POST", _of_rabbit(broker, f"queues/%2F/{QUEUE}/get"), body, _GUEST)))

    return _in_a_loop(take, seconds)


def emptied(broker: Rabbit) -> None:
    """Its queue is there, and has nothing."""

    async def empty() -> None:
        async with aiohttp.ClientSession() as http:
            declared = json.dumps({"durable": True, "arguments": {"x-queue-type": "quorum"}}).encode()
            await _asked(http, "PUT", _of_rabbit(broker, f"queues/%2F/{QUEUE}"), declared, _GUEST)
            await _asked(http, "DELETE", _of_rabbit(broker, f"queues/%2F/{QUEUE}/contents"), b"", _GUEST)

    asyncio.run(empty())


_GUEST: Final = {"Authorization": f"Basic {base64.b64encode(b'guest:guest').decode()}"}


def _of_rabbit(broker: Rabbit, path: str) -> str:
    return f"http://127.0.0.1:{broker.management}/api/{path}"


async def _asked(http: aiohttp.ClientSession, method: str, url: str, body: bytes, headers: dict[str, str]) -> bytes:
    async with http.request(method, URL(url, encoded=True), data=body, headers=headers) as answer:
        said = await answer.read()
        answer.raise_for_status()
        return said


def _in_a_loop(act: Act, seconds: float) -> float:
    """Messages a second of connections in closed loop."""

    async def run() -> float:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            begun = time.perf_counter()

            async def one() -> int:
                done = 0
                while time.perf_counter() - begun < seconds and (count := await act(http)):
                    done += count
                return done

            done = sum(await asyncio.gather(*(one() for _ in range(_CONNECTIONS))))
            return done / (time.perf_counter() - begun)

    return asyncio.run(run())


class Case(NamedTuple):
    """``api``: the one of RabbitMQ that ours is beside. ``is_taking``: messages wait there before. ``ours`` and ``its``
    answer messages a second. ``least``: what ours has to be to it."""

    name: str
    api: str
    is_taking: bool
    ours: Callable[[Served, float], float]
    its: Callable[[Rabbit, float, int], float]
    least: float


_BY_100: Final = partial(put_to_ours, together=_TOGETHER)
_ONE_BY_ONE: Final = partial(put_to_ours, together=1)
_TAKEN: Final = partial(taken_from_ours, lease=_LEASE, ack=_TOGETHER)
_TAKEN_BY_HTTP: Final = partial(taken_from_ours, lease=_BY_HTTP, ack=_BY_HTTP)
CASES: Final = (
    Case("put", "AMQP", False, _BY_100, put_by_amqp, 0.5),
    Case("lease and ack", "AMQP", True, _TAKEN, taken_by_amqp, 0.5),
    Case("put, one a request", "HTTP API", False, _ONE_BY_ONE, put_to_rabbit, 1),
    Case(f"lease and ack, {_BY_HTTP} a request", "HTTP API", True, _TAKEN_BY_HTTP, taken_from_rabbit, 1),
)
