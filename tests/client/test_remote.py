"""A node over HTTP: puts that are gathered, consumers that outlive their server, and what goes wrong on the line."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import wsrm_mq
from tests.client.conftest import Server
from tests.node.test_subscription import taken, until
from tests.servers.queues import TOKEN
from wsrm_mq.client import line, supply
from wsrm_mq.client.apart import RemoteDeadLetters, RemoteJournal
from wsrm_mq.client.forms import Answer
from wsrm_mq.client.node import RemoteNode
from wsrm_mq.errors import (
    ConfigurationError,
    LeaseLost,
    NoQueueServer,
    NotAnswered,
    NotAuthenticated,
    QuotaExceeded,
    ServerUnavailable,
    StoreUnavailable,
    WSRMError,
)
from wsrm_mq.node import Node
from wsrm_mq.node.apart import DeadLetters, Journal

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


def test_what_one_thread_puts_is_stored_in_its_order_however_it_puts_it(node: RemoteNode) -> None:
    node.declare("orders")
    for n in range(300):
        node.put("orders", n, wait=False)
    node.put_many("orders", range(300, 303))
    for n in range(303, 600):
        node.put("orders", n, wait=False)
    with node.transaction():
        node.put("orders", 600)
    assert numbers(node) == [*range(601)]


@pytest.mark.scenario("Q-058")
def test_acknowledgements_travel_ten_together_under_a_backlog_of_thirty(
    node: RemoteNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    exchange = line.Line._exchange

    async def counted(self: line.Line, request: Any, headers: dict[str, str]) -> Any:
        sent.append(request.body.count(b'"ack"'))
        return await exchange(self, request, headers)

    monkeypatch.setattr(line.Line, "_exchange", counted)
    node.put_many("orders", range(60))
    with node.subscribe("orders", max_backlog=30, ack_timeout=60) as subscription:
        for _ in range(30):
            subscription.next(10)
        until(lambda: sum(sent) >= 20)
        assert min(filter(None, sent)) >= 10, "none goes by itself; a client that is busy has more of them together"


class Lossy:
    """A line on which answers that have messages are lost: those for which ``loses`` says so. ``instead``: what comes
    in their place."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        loses: Callable[[int], bool],
        instead: Answer | NotAnswered = NotAnswered("the connection was reset"),  # noqa: B008
    ) -> None:
        self.lost = self._leases = 0
        exchange = line.Line._exchange

        async def lossy(that: line.Line, request: Any, headers: dict[str, str]) -> Any:
            answer = await exchange(that, request, headers)
            if request.leases and answer.status == 200:
                self._leases += 1
                if loses(self._leases):
                    self.lost += 1
                    if isinstance(instead, Answer):
                        return instead
                    raise instead
            return answer

        monkeypatch.setattr(line.Line, "_exchange", lossy)


@pytest.mark.parametrize("group", [None, "a"])
def test_what_was_leased_by_an_answer_that_was_lost_comes_in_its_place_and_uncounted(
    node: RemoteNode, monkeypatch: pytest.MonkeyPatch, group: str | None
) -> None:
    node.declare("orders", lease=60)
    node.put_many("orders", range(6), group=group)
    wire = Lossy(monkeypatch, lambda number: number < 3)
    found = node.receive("orders", 2, wait=10)
    assert ([one.json() for one in found], wire.lost) == ([0, 1], 2)
    assert {(one.deliveries, one.failures) for one in found} == {(1, 0)}
    node.ack(found)
    assert numbers(node) == [2, 3, 4, 5]


def test_a_subscription_gets_all_in_order_though_each_third_answer_is_lost(
    node: RemoteNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supply, "AGAIN_SECONDS", 0.01)
    node.declare("orders", lease=None)
    node.put_many("orders", range(40))
    wire = Lossy(monkeypatch, lambda number: number % 3 == 1)
    with node.subscribe("orders", max_backlog=4) as subscription:
        came = [one.json() for one in taken_and_acked(subscription, 40)]
    assert (came, wire.lost > 0) == ([*range(40)], True)
    assert node.stats("orders").messages == 0


BROKEN = Answer(500, "application/problem+json", None, b'{"code": "Broken", "detail": "it was reset"}')


@pytest.mark.parametrize("instead", [NotAnswered("the connection was reset"), BROKEN])
def test_what_a_receive_has_leased_that_was_given_up_is_ready_at_once(
    node: RemoteNode, monkeypatch: pytest.MonkeyPatch, instead: Answer | NotAnswered
) -> None:
    node.declare("orders", lease=60)
    node.put_many("orders", range(3))
    monkeypatch.setattr(line.Line.ask, "__kwdefaults__", {"patience": 0.0})
    Lossy(monkeypatch, lambda number: True, instead)
    with pytest.raises(WSRMError, match="reset"):
        node.receive("orders", 3)
    until(lambda: node.stats("orders").ready == 3, 5)
    assert {(one.failures, one.state) for one in node.peek("orders")} == {(0, "ready")}


@pytest.mark.parametrize("at", ["before", "behind"])
def test_what_a_call_of_asyncio_has_leased_that_is_cancelled_is_ready_at_once(
    node: RemoteNode, where: str, credentials: dict[str, str], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    node.declare("orders", lease=60)
    node.put_many("orders", range(3))
    exchange = line.Line._exchange
    leased = threading.Event()

    async def held_up(that: line.Line, request: Any, headers: dict[str, str]) -> Any:
        answer = await exchange(that, request, headers)
        if request.leases:
            leased.set()
            if at == "before":
                await asyncio.sleep(60)
        return answer

    monkeypatch.setattr(line.Line, "_exchange", held_up)

    async def program() -> None:
        async with await wsrm_mq.connect_async(where, **credentials) as other:
            receiving = asyncio.create_task(other.receive("orders", 3, wait=30))
            await asyncio.sleep(0)  # it has begun
            assert leased.wait(30)
            time.sleep(0.2)  # the answer is here, and this loop has not seen it
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            await asyncio.to_thread(until, lambda: node.stats("orders").ready == 3)

    asyncio.run(program())
    assert {one.failures for one in node.peek("orders")} == {0}


Page = tuple[int, str, bytes]
LOGIN: Page = (200, "text/html", b"<html><head><style>p { color: red }</style></head><body><p>Log in,\nplease</body>")
GATEWAY: Page = (502, "text/html", b"<html><h1>502 Bad Gateway</h1><hr>nginx")


def answer_pages(
    monkeypatch: pytest.MonkeyPatch, page: Page, times: float = float("inf"), *, leases_only: bool = False
) -> list[str]:
    """What stands before the server answers pages instead of it; gives the requests that it has answered so."""
    answered: list[str] = []
    exchange = line.Line._exchange

    async def proxied(self: line.Line, request: Any, headers: dict[str, str]) -> Any:
        if len(answered) >= times or (leases_only and not request.leases):
            return await exchange(self, request, headers)
        answered.append(request.path)
        status, kind, body = page
        return Answer(status, kind, None, body)

    monkeypatch.setattr(line.Line, "_exchange", proxied)
    return answered


FORBIDDEN: Page = (403, "text/html", b"<p>Log in, please")


@pytest.mark.parametrize("page", [LOGIN, (302, "", b""), FORBIDDEN, (200, "", b"Log in, please")])
def test_a_page_instead_of_an_answer_ends_a_consumer_with_an_error_that_quotes_it(
    node: RemoteNode, monkeypatch: pytest.MonkeyPatch, page: Page
) -> None:
    node.put_many("orders", range(2))
    subscription = node.subscribe("orders", max_backlog=8)
    taken(subscription, 1)
    answer_pages(monkeypatch, page, leases_only=True)
    node.put("orders", 2)  # the request that waits is answered, and the next one so
    words = "Log in, please" if page[2] else ""
    said = f"http://127.*/[a-z]+ answers {page[0]}, as no queue server does: '{words}'"
    with pytest.raises(NoQueueServer, match=said):
        list(subscription)
    monkeypatch.undo()
    subscription.close()


def test_an_address_with_another_path_is_told_as_one_of_no_queue_server(server: Server) -> None:
    with (
        wsrm_mq.connect(f"{server.address}/queues", token=TOKEN) as node,
        pytest.raises(NoQueueServer, match=r"no POST .*See that the address is that of the queues"),
    ):
        node.put("orders", 1)


OVERLOADED: Page = (503, "application/problem+json", b'{"code": "Overloaded", "detail": "later"}')


@pytest.mark.parametrize("page", [FORBIDDEN, OVERLOADED], ids=["ends", "goes on"])
def test_a_consumer_that_one_answer_ends_or_holds_up_has_acknowledged_what_it_did(
    node: RemoteNode, monkeypatch: pytest.MonkeyPatch, page: Page
) -> None:
    node.declare("orders", lease=None)
    node.put_many("orders", range(5))
    with node.subscribe("orders", max_backlog=8, ack_timeout=60) as subscription:
        came = [one.json() for one in taken_and_acked(subscription, 2)]
        answer_pages(monkeypatch, page, 1, leases_only=True)
        node.put("orders", 5)  # the request that waits is answered, and the next one so
        if page is OVERLOADED:
            came += [one.json() for one in taken_and_acked(subscription, 4)]
            assert came == [*range(6)]
        else:
            until(lambda: (node.stats("orders").messages, node.stats("orders").ready) == (4, 4))
            with pytest.raises(NoQueueServer):
                subscription.take(1)


def test_what_a_proxy_says_while_its_server_is_away_is_told_and_the_consumer_goes_on(
    node: RemoteNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supply, "AGAIN_SECONDS", 0.01)
    node.put_many("orders", range(3))
    with node.subscribe("orders") as subscription:
        answered = answer_pages(monkeypatch, GATEWAY, 5)  # the session outlives that
        assert [one.json() for one in taken_and_acked(subscription, 3)] == [0, 1, 2]
    assert len(answered) == 5
    assert caplog.text.count("server.away") == 1, "it is told once"
    assert "answers 502, as no queue server does: '502 Bad Gateway nginx'" in caplog.text


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


def test_acknowledgements_go_with_the_request_for_the_next_messages(
    node: RemoteNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.declare("orders")
    node.put_many("orders", range(600))
    sent: list[str] = []
    exchange = line.Line._exchange

    async def counted(that: line.Line, request: Any, headers: dict[str, str]) -> Any:
        sent.append(request.path.partition("/")[0])
        return await exchange(that, request, headers)

    monkeypatch.setattr(line.Line, "_exchange", counted)
    with node.subscribe("orders", max_backlog=30, ack_batch=10) as subscription:
        assert [one.json() for one in taken_and_acked(subscription, 600)] == [*range(600)]
    assert node.stats("orders").messages == 0
    assert sent.count("settlements") < sent.count("subscriptions") <= 120


def test_acknowledgements_wait_for_no_messages_that_are_slow_to_come(
    node: RemoteNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.declare("orders")
    node.put_many("orders", range(8))
    begun, go_on = threading.Event(), threading.Event()
    read = aiohttp.ClientResponse.read

    async def slow(answer: aiohttp.ClientResponse) -> bytes:
        if "Settled" in answer.headers:
            begun.set()
            await asyncio.to_thread(go_on.wait, 60)
        return await read(answer)

    monkeypatch.setattr(aiohttp.ClientResponse, "read", slow)
    with node.subscribe("orders", max_backlog=4, ack_batch=2) as subscription:
        try:
            for number, one in enumerate(taken(subscription, 4)):
                one.ack()
                assert number != 1 or begun.wait(20)
            until(lambda: node.stats("orders").messages == 4)
        finally:
            go_on.set()
        assert [one.json() for one in taken_and_acked(subscription, 4)] == [4, 5, 6, 7]
    assert node.stats("orders").messages == 0


@pytest.mark.scenario("Q-071")
def test_what_a_killed_client_has_leased_is_ready_again_when_its_session_ends(
    node: RemoteNode, program: Program
) -> None:
    node.declare("orders", lease=None)
    node.put_many("orders", range(4))
    other = program(
        """
from wsrm_mq.client import line, supply
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


@pytest.mark.parametrize("puts", [0, 25])
def test_a_session_lives_while_nothing_is_sent_or_what_is_of_no_session(
    connect: Connect, server: Server, monkeypatch: pytest.MonkeyPatch, puts: int
) -> None:
    monkeypatch.setattr(line, "SESSION_SECONDS", 1.0)
    node = connect()
    node.put("orders", 1)
    (message,) = node.receive("orders", lease=60)
    for number in range(puts):
        node.put("other", number)
        time.sleep(0.1)
    time.sleep(0 if puts else 2.5)
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


@pytest.mark.parametrize("token", ["wsrm-mq-secret\n", "wsrm-mq-secret two", "wsrm-mq-sécret", "", b"wsrm-mq-secret"])
def test_what_is_no_token_is_refused_at_once_and_not_told(token: Any) -> None:
    with pytest.raises(ConfigurationError, match="stripped") as refused:
        wsrm_mq.connect("http://127.0.0.1:9", token=token)
    assert "cret" not in str(refused.value)


def test_a_wrong_token_is_refused(server: Server) -> None:
    with wsrm_mq.connect(server.address, token="wsrm-mq-wrong") as node, pytest.raises(NotAuthenticated):
        node.put("orders", 1)


def test_a_node_that_is_closed_says_so(connect: Connect) -> None:
    node = connect()
    node.close()
    with pytest.raises(StoreUnavailable, match="Call `connect`"):
        node.put("orders", 1)


def test_a_node_whose_server_is_gone_closes(connect: Connect, server: Server) -> None:
    node = connect()
    node.put("orders", 1)
    assert node.receive("orders")
    server.end()
    node.close()
    with pytest.raises(StoreUnavailable, match="Call `connect`"):
        node.keys()


def test_options_are_of_a_store_or_of_a_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="for a server"):
        wsrm_mq.connect(str(tmp_path / "store.db"), token="secret", store=tmp_path / "outbox.db")
    with pytest.raises(ConfigurationError, match="its server has its own"):
        wsrm_mq.connect("https://host/q", auto_create=False)


LEFT_OUT = {
    Node: {
        *("call", "submit", "declared", "places", "place_of", "verb", "leased", "heads", "is_ready", "count_ready"),
        *("abandon", "reader", "route", "routes", "unroute", "is_large", "purged", "settle_where"),
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
