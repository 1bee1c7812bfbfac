"""A message that is put into the outbox of a client comes to its server once and in order, whatever is killed."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wsrm_mq
from tests.client.conftest import Server
from tests.client.test_remote import numbers
from tests.node.test_subscription import until
from tests.servers.queues import TOKEN
from wsrm_mq.client.node import RemoteNode
from wsrm_mq.errors import UnknownQueue

Program = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def outbox(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


def producer(server: Server, outbox: Path, lines: str) -> str:
    """The lines of a program whose ``client`` has an outbox."""
    connecting = f"wsrm_mq.connect({server.address!r}, token={TOKEN!r}, store={str(outbox)!r})"
    return f"node.close()\nclient = {connecting}\n{lines}"


@pytest.mark.scenario("Q-014")
def test_what_was_put_while_the_server_was_down_survives_the_client_too(
    server: Server, outbox: Path, node: RemoteNode, program: Program
) -> None:
    node.declare("orders")
    server.end()
    first = program(
        producer(
            server,
            outbox,
            "for n in range(200): client.put('orders', n)\nprint('put', flush=True)\nsys.stdin.read()",
        ).replace("node.close()\n", "")
    )
    assert first.stdout is not None
    assert first.stdout.readline().strip() == "put"
    first.send_signal(signal.SIGKILL)
    first.wait()
    with wsrm_mq.connect(server.address, token=TOKEN, store=outbox) as again:
        assert again.outbox.waiting == 200
        server.begin()
        assert again.outbox.flush(30)
    assert numbers(node) == [*range(200)]


def test_a_client_that_dies_again_and_again_while_it_sends_has_failed_at_no_message(
    server: Server, outbox: Path, node: RemoteNode, program: Program
) -> None:
    node.declare("orders")
    server.end()
    lines = (
        "client.put('orders', {})\n"
        "while not client.outbox.node.stats(client.outbox.queue).leased: time.sleep(0.01)\n"
        "print('sends', flush=True)\nsys.stdin.read()"
    )
    for n in range(6):
        one = program("import time\n" + producer(server, outbox, lines.format(n)).replace("node.close()\n", ""))
        assert one.stdout is not None
        assert one.stdout.readline().strip() == "sends"
        one.kill()
        one.wait()
    server.begin()
    with wsrm_mq.connect(server.address, token=TOKEN, store=outbox) as client:
        assert client.outbox.flush(10)
    assert numbers(node) == [*range(6)]


@pytest.mark.scenario("Q-015")
def test_a_server_that_is_restarted_again_and_again_gets_each_message_once_in_order(
    server: Server, outbox: Path, node: RemoteNode
) -> None:
    node.declare("orders")
    with wsrm_mq.connect(server.address, token=TOKEN, store=outbox) as client:
        for n in range(1_000):
            if n % 200 == 100:
                server.end(random.choice([signal.SIGKILL, signal.SIGTERM]))
                server.begin()
            client.put("orders", n, wait=False)
        assert client.outbox.flush(60)
    assert numbers(node) == [*range(1_000)]


@pytest.mark.scenario("Q-011")
def test_a_batch_of_an_outbox_is_one_commit_there_and_each_message_goes_where_it_is_to(
    server: Server, outbox: Path, node: RemoteNode
) -> None:
    node.declare("audit")
    node.bind("db/#", "audit")
    with wsrm_mq.connect(server.address, token=TOKEN, store=outbox) as client:
        client.put_many("orders", range(3), properties={"region": "eu"}, type="Order", priority=7)
        client.publish("db/add", {"id": 7})
        client.put("later", b"x", delay=60, content_type="image/png")
        assert client.outbox.flush(30)
        with client.transaction():
            client.put("orders", 3)
            assert client.outbox.waiting == 0
    assert [one.json() for one in node.peek("orders")] == [0, 1, 2, 3]
    first = node.peek("orders")[0]
    assert (first.properties, first.type, first.priority) == ({"region": "eu"}, "Order", 7)
    assert [(one.topic, one.json()) for one in node.peek("audit")] == [("db/add", {"id": 7})]
    (held,) = node.peek("later")
    assert (held.state, held.content_type, held.body) == ("held", "image/png", b"x")


def test_what_the_server_refuses_is_a_dead_letter_of_the_outbox(server: Server, outbox: Path, node: RemoteNode) -> None:
    with wsrm_mq.connect(server.address, token=TOKEN, store=outbox) as client:
        client.put_many("orders", range(2))
        client.put("no/such#queue", 2)
        client.put("orders", 3)
        assert client.outbox.flush(30)
        (letter,) = client.outbox.dead.peek()
        assert letter.json() == 2
        assert UnknownQueue.__name__ in (letter.last_error or "") or letter.last_error
        client.outbox.put(b"4", None, {"queue": "orders", "colour": "red"}).result()
        client.put("orders", 5)
        assert client.outbox.flush(30)
        assert "unknown field `colour`" in (client.outbox.dead.peek()[1].last_error or "")
    assert numbers(node) == [0, 1, 3, 5]


@pytest.mark.parametrize(
    "times",
    [pytest.param(3, marks=pytest.mark.brief), pytest.param(30, marks=[pytest.mark.long, pytest.mark.timeout(300)])],
)
def test_kills_of_client_and_server_lose_nothing_and_put_nothing_twice(
    server: Server, outbox: Path, node: RemoteNode, program: Program, times: int
) -> None:
    """Of the client alone, of both, and of the server first."""
    node.declare("orders")
    confirmed = killed_in_a_loop(server, outbox, program, times)
    with wsrm_mq.connect(server.address, token=TOKEN, store=outbox) as client:
        assert client.outbox.flush(60)
    check(confirmed, numbers(node))


def killed_in_a_loop(server: Server, outbox: Path, program: Program, times: int) -> list[list[int]]:
    """Run producers, each of which is killed, as is the server now and then; answers the numbers of each that were
    confirmed."""
    confirmed: list[list[int]] = []
    for round_ in range(times):
        lines = (
            f"n = {round_ * 1_000_000}\n"
            "while True:\n"
            "    client.put('orders', n)\n"
            "    print(n, flush=True)\n"
            "    n += 1\n"
        )
        one = program(producer(server, outbox, lines))
        assert one.stdout is not None
        seen = [int(one.stdout.readline()) for _ in range(20)]
        if round_ % 3 != 0:
            server.end()
            time.sleep(random.random() * 0.05)
        if round_ % 3 == 2:
            server.begin()
        one.kill()
        seen += [int(line) for line in one.stdout.read().split("\n")[:-1]]
        if server.pid is None:
            server.begin()
        confirmed.append(seen)
    return confirmed


def check(confirmed: list[list[int]], came: list[Any]) -> None:
    """Each message that was confirmed came once, and those of a program in their order; one more may have come of each,
    which was stored when its program was killed."""
    assert len(came) == len(set(came))
    for seen in confirmed:
        mine = [n for n in came if n // 1_000_000 == seen[0] // 1_000_000]
        assert mine == sorted(mine)
        assert mine[: len(seen)] == seen
        assert len(mine) <= len(seen) + 1


def test_the_lane_of_an_outbox_is_known_when_its_client_comes_back(
    server: Server, outbox: Path, node: RemoteNode
) -> None:
    for n in range(3):
        with wsrm_mq.connect(server.address, token=TOKEN, store=outbox) as client:
            client.put("orders", n)
            assert client.outbox.flush(30)
        server.end()
        server.begin()
    until(lambda: node.stats("orders").ready == 3)
    assert numbers(node) == [0, 1, 2]
