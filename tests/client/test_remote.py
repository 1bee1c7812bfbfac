"""A node over HTTP: puts that are gathered, consumers that outlive their server, and what goes wrong on the line."""

from __future__ import annotations

import inspect
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import wsrm_mq
from tests.client.conftest import Server
from tests.node.test_subscription import taken, until
from wsrm_mq.client import line
from wsrm_mq.client.apart import RemoteDeadLetters, RemoteJournal
from wsrm_mq.client.node import RemoteNode
from wsrm_mq.errors import (
    ConfigurationError,
    LeaseLost,
    NotAuthenticated,
    QuotaExceeded,
    ServerUnavailable,
    StoreUnavailable,
)
from wsrm_mq.node import Node
from wsrm_mq.node.dead_letters import DeadLetters
from wsrm_mq.node.journals import Journal

Program = Callable[[str], subprocess.Popen[str]]
Connect = Callable[..., RemoteNode]


def numbers(node: RemoteNode, queue: str = "orders") -> list[Any]:
    """The bodies of all messages, which are acknowledged."""
    found: list[Any] = []
    while batch := node.receive(queue, 200):
        found += [one.json() for one in batch]
        node.ack(batch)
    return found


@pytest.mark.scenario("Q-116")
def test_puts_without_waiting_travel_in_few_requests_and_each_is_confirmed(
    node: RemoteNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.declare("orders")
    sent: list[str] = []
    exchange = line.Line._exchange

    async def counted(self: line.Line, request: Any, headers: dict[str, str]) -> Any:
        sent.append(request.path)
        return await exchange(self, request, headers)

    monkeypatch.setattr(line.Line, "_exchange", counted)
    done: list[Future[int]] = [node.put("orders", n, wait=False) for n in range(1_000)]
    positions = [one.result() for one in done]
    assert positions == sorted(set(positions))
    assert len(sent) < 100
    assert set(sent) == {"messages"}
    assert numbers(node) == [*range(1_000)]


@pytest.mark.scenario("Q-058")
def test_acknowledgements_travel_ten_together_under_a_backlog_of_thirty(
    node: RemoteNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    exchange = line.Line._exchange

    async def counted(self: line.Line, request: Any, headers: dict[str, str]) -> Any:
        if request.path == "settlements":
            sent.append(request.body.count(b'"ack"'))
        return await exchange(self, request, headers)

    monkeypatch.setattr(line.Line, "_exchange", counted)
    node.put_many("orders", range(60))
    with node.subscribe("orders", max_backlog=30, ack_timeout=60) as subscription:
        for _ in range(30):
            subscription.next(10)
        until(lambda: sum(sent) >= 20)
    assert min(filter(None, sent)) >= 10, "none goes by itself; a client that is busy has more of them together"


def test_more_messages_than_one_request_takes_are_put_and_looked_at(node: RemoteNode) -> None:
    positions = node.put_many("orders", range(2_100))
    assert positions == sorted(set(positions))
    assert [one.json() for one in node.peek("orders", limit=2_050)] == [*range(2_050)]
    assert numbers(node) == [*range(2_100)]
    node.declare("small", max_messages=1_500)
    with pytest.raises(QuotaExceeded) as refused:
        node.put_many("small", range(2_100))
    assert refused.value.__notes__ == ["The first 1000 of the 2100 messages are there."]


def test_properties_and_a_content_type_that_no_header_takes_come_as_they_are(node: RemoteNode) -> None:
    properties = {"a\n": "ü" * 20_000}
    position = node.put("orders", b"", content_type='text/plain; name="ü\r\n"', properties=properties)
    seen = node.get("orders", position)
    assert seen is not None
    assert (seen.content_type, seen.properties) == ('text/plain; name="ü\r\n"', properties)
    assert node.receive("orders")[0].properties == properties


def test_one_put_that_is_refused_refuses_no_other_of_its_request(node: RemoteNode) -> None:
    node.declare("small", max_messages=1)
    node.declare("orders")
    done = [node.put(("orders", "small")[n % 2], n, wait=False) for n in range(6)]
    refused = [isinstance(one.exception(), QuotaExceeded) for one in done]
    assert refused == [False, False, False, True, False, True]
    assert numbers(node) == [0, 2, 4]


def test_a_consumer_goes_on_when_its_server_was_killed_and_is_back(
    node: RemoteNode, server: Server, connect: Connect
) -> None:
    node.declare("orders")
    node.put_many("orders", range(20))
    with node.subscribe("orders", max_backlog=10) as subscription:
        first = taken(subscription, 8)
        for message in first[:4]:
            message.ack()
        until(lambda: node.stats("orders").messages == 16)
        server.end()
        server.begin()
        with pytest.raises(LeaseLost):
            until(lambda: first[5].ack() is None)
        seen = [one.json() for one in taken_and_acked(subscription, 16)]
    assert sorted(seen) == [*range(4, 20)]
    assert node.stats("orders").messages == 0


def taken_and_acked(subscription: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        (message,) = taken(subscription, 1, 30)
        message.ack()
        found.append(message)
    return found


@pytest.mark.scenario("Q-028")
def test_a_durable_subscription_is_complete_after_its_server_was_killed(
    server: Server, connect: Connect, credentials: dict[str, str]
) -> None:
    first = connect("a")
    first.subscribe_durable("db/#", "audit")
    for n in range(5):
        first.publish("db/add", n)
    first.close()
    server.end()
    server.begin()
    again = connect("a")
    with again.subscribe(topic="db/#", name="audit") as subscription:
        missed = [one.json() for one in subscription.catch_up()]
        again.publish("db/add", 5)
        assert missed == [*range(5)]
        assert subscription.next(20) is not None


@pytest.mark.scenario("Q-102", "Q-103")
def test_express_messages_that_were_lost_with_the_server_are_recovered_from_a_journal(
    node: RemoteNode, server: Server
) -> None:
    node.declare("ticks", durability="express", journal=True)
    node.put_many("ticks", range(3))
    node.put("ticks", 3, durability="recoverable")
    node.receive("ticks")[0].ack()
    server.end()
    server.begin()
    assert numbers(node, "ticks") == [3]
    assert node.recover_express("ticks") == 2
    assert numbers(node, "ticks") == [1, 2]
    assert node.recover_express() == 0


@pytest.mark.scenario("Q-071")
def test_what_a_killed_client_has_leased_is_ready_again_when_its_session_ends(
    node: RemoteNode, program: Program
) -> None:
    node.declare("orders", lease=None)
    node.put_many("orders", range(4))
    other = program(
        """
from wsrm_mq.client import line
line.SESSION_SECONDS = 1.0
print(len(node.receive('orders', 3)))
sys.stdin.read()
"""
    )
    assert other.stdout is not None
    assert other.stdout.readline().strip() == "3"
    assert node.stats("orders").leased == 3
    other.kill()
    until(lambda: node.stats("orders").ready == 4)
    assert [(one.json(), one.failures) for one in node.receive("orders", 4)] == [(n, 0) for n in range(4)]


def test_a_session_lives_while_nothing_is_sent(
    connect: Connect, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "SESSION_SECONDS", 1.0)
    node = connect()
    node.put("orders", 1)
    (message,) = node.receive("orders", lease=60)
    time.sleep(2.5)
    assert message.ack() == "settled"


def test_a_server_that_is_down_is_told_when_patience_is_over(
    connect: Connect, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = connect()
    node.put("orders", 1)
    server.end()
    monkeypatch.setattr(line.Line.ask, "__kwdefaults__", {"patience": 0.2})
    with pytest.raises(ServerUnavailable, match="cannot be reached"):
        node.put("orders", 2)
    server.begin()
    assert numbers(node) == [1]


def test_a_put_waits_for_a_server_that_is_restarted(connect: Connect, server: Server) -> None:
    node = connect()
    node.put("orders", 1)
    server.end()
    begins = threading.Timer(0.5, server.begin)
    begins.start()
    node.put("orders", 2, message_id="two")
    begins.join()
    assert numbers(node) == [1, 2]


def test_a_wrong_token_is_refused(server: Server) -> None:
    with wsrm_mq.connect(server.address, token="wsrm-mq-wrong") as node, pytest.raises(NotAuthenticated):
        node.put("orders", 1)


def test_a_node_that_is_closed_says_so(connect: Connect) -> None:
    node = connect()
    node.close()
    with pytest.raises(StoreUnavailable, match="Call `connect`"):
        node.put("orders", 1)


def test_options_are_of_a_store_or_of_a_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="for a server"):
        wsrm_mq.connect(str(tmp_path / "store.db"), token="secret", store=tmp_path / "outbox.db")
    with pytest.raises(ConfigurationError, match="its server has its own"):
        wsrm_mq.connect("https://host/q", auto_create=False)


LEFT_OUT = {
    Node: {
        *("call", "submit", "declared", "places", "place_of", "verb", "leased", "heads", "is_ready", "count_ready"),
        *("abandon", "reader"),
    },
    DeadLetters: set[str](),
    Journal: set[str](),
}
"""These are of a store; the API of the server has none of them."""


@pytest.mark.parametrize(
    ("local", "remote"), [(Node, RemoteNode), (DeadLetters, RemoteDeadLetters), (Journal, RemoteJournal)]
)
def test_a_remote_node_has_the_interface_of_a_local_one(local: type, remote: type) -> None:
    methods = {name for name in dir(local) if not name.startswith("_") and callable(getattr(local, name))}
    assert {name for name in methods if not hasattr(remote, name)} - LEFT_OUT[local] == set()
    for name in methods & {name for name in dir(remote)} - LEFT_OUT[local]:
        here, there = (
            {one: part.default for one, part in inspect.signature(getattr(kind, name)).parameters.items()}
            for kind in (local, remote)
        )
        assert there.items() <= here.items() or "options" in here, name
