"""A stranger's mistakes are refused in words, each with its next step, and nothing is done by it."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import wsrm_mq
from tests.node.conftest import Connect, ConnectAsync, Rows
from tests.node.test_subscription import until
from wsrm_mq.errors import (
    ConfigurationError,
    FilterError,
    LeaseLost,
    NotAllowed,
    StoreCorrupt,
    StoreUnavailable,
    SubscriptionClosed,
    TooLarge,
    UnknownQueue,
)
from wsrm_mq.node import Node
from wsrm_mq.queue import policies
from wsrm_mq.queue.policies import QueuePolicy

Anything = Any
"""Values of a wrong type, as a program without a type checker would give them."""
NO_NAMES: list[Anything] = [None, 5, b"orders", "", "a#b", "a/", " a", "x" * 300, "\ud800", ["orders"]]
NO_TEXTS: list[Anything] = [5, ["a"], b"a"]


async def coroutine(_message: object) -> None: ...


MISTAKES: dict[str, tuple[str, Callable[[Anything], object]]] = {
    "a body that JSON cannot say": ("JSON cannot say it", lambda node: node.put("orders", object())),
    "a priority out of bounds": ("it is 0 to 9", lambda node: node.put("orders", b"", priority=10)),
    "a time that is a text": ("`ttl` is '5'; it is seconds", lambda node: node.put("orders", b"", ttl="5")),
    "a datetime": ("it is seconds", lambda node: node.put("orders", b"", deliver_at=datetime.now(UTC))),
    "an option that is none": ("has no option `propertys`", lambda node: node.put("orders", b"", propertys={})),
    "a group that is a number": ("`group` is 7; it is a text", lambda node: node.put("orders", b"", group=7)),
    "a durability that is none": ("one of recoverable", lambda node: node.put("orders", b"", durability="safe")),
    "a report that is none": ("names some of reached", lambda node: node.put("orders", b"", report_to="r", report=7)),
    "a timeout that is a text": ("it is seconds", lambda node: node.put("orders", b"", timeout="1")),
    "one body for several": ("one body, not several", lambda node: node.put_many("orders", "abc")),
    "a mapping for several bodies": ("one body, not several", lambda node: node.put_many("orders", {"a": 1})),
    "a number for several bodies": ("one body, not several", lambda node: node.put_many("orders", 5)),
    "a number of messages as a text": ("`max` is '3'", lambda node: node.receive("orders", max="3")),
    "more messages than can be counted": ("below 2**63", lambda node: node.receive("orders", max=2**63)),
    "a wait that is none": ("`wait` is None; it is seconds", lambda node: node.receive("orders", wait=None)),
    "a number of bytes as a text": ("`max_bytes` is '3'", lambda node: node.receive("orders", max_bytes="3")),
    "a lease of no time": ("more than 0 seconds", lambda node: node.receive("orders", lease=0)),
    "a filter that is a number": ("A filter is a text", lambda node: node.receive("orders", filter=5)),
    "a filter to subscribe by": ("A filter is a text", lambda node: node.subscribe("orders", filter=5)),
    "a filter to bind by": ("A filter is a text", lambda node: node.bind("a/b", "orders", filter=5)),
    "a filter to replay by": ("A filter is a text", lambda node: node.replay("a/b", filter=5)),
    "no filter to settle by": ("A filter is a text", lambda node: node.settle("orders", None)),
    "an action that is none": ("one of ack, expire, reject", lambda node: node.settle("orders", "priority > 3", "x")),
    "a backlog of nothing": ("at least 1", lambda node: node.subscribe("orders", max_backlog=0)),
    "a backlog beyond count": ("below 2**63", lambda node: node.subscribe("orders", max_backlog=2**63)),
    "a topic without a name": ("has a `name`", lambda node: node.subscribe(topic="a/b")),
    "a topic beside a queue": ("no `queue` beside it", lambda node: node.subscribe("orders", topic="a/b", name="n")),
    "a message for several": ("a list of messages", lambda node: node.ack(node.receive("orders")[0])),
    "what is no message": ("a list of messages", lambda node: node.nack([5])),
    "a policy that is none": ("has no option `leese`", lambda node: node.declare("orders", leese=3)),
    "a policy with a lease of no time": ("more than 0 seconds", lambda node: node.declare("orders", lease=0)),
    "a policy with a time beyond count": ("before the year 9999", lambda node: node.declare("orders", lease=1e300)),
    "a policy with a bound beyond count": ("below 2**63", lambda node: node.declare("orders", max_messages=2**63)),
    "a policy of a wrong type": ("a number of seconds, or None", lambda node: node.declare("orders", lease="x")),
    "a position that is a text": ("a whole number", lambda node: node.get("orders", "x")),
    "a limit that is a text": ("a whole number", lambda node: node.peek("orders", limit="x")),
    "a limit below 1": ("at least 1", lambda node: node.peek("orders", limit=-1)),
    "a bound of a purge that is a text": ("a whole number", lambda node: node.purge("orders", "a")),
    "a position to settle that is a text": ("a whole number", lambda node: node.ack_at("orders", "x")),
    "one position to settle for several": ("a list of positions", lambda node: node.ack_many("orders", 7)),
    "positions that are texts": ("a whole number", lambda node: node.ack_many("orders", ["7"])),
    "an id that is a number": ("it is a text", lambda node: node.received("orders", 5)),
    "one position for several": ("a list of positions", lambda node: node.dead("orders").redrive(5)),
    "a pattern to publish to": ("is no topic", lambda node: node.publish("a/*", b"")),
    "a retention that is a text": ("a number of seconds, or None", lambda node: node.declare_topic("a/b", retain="x")),
    "no time to replay from": ("`time.time", lambda node: node.replay("a/b", since=datetime.now(UTC))),
    "a function that is none": ("`function` is None", lambda node: node.consume("orders")),
    "a function that is awaited": ("`wsrm_mq.connect_async`", lambda node: node.consume("orders", coroutine)),
    "no thread": ("`threads` is 0", lambda node: node.consume("orders", print, threads=0)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_is_told_in_words_and_nothing_is_done(node: Node, rows: Rows, mistake: str) -> None:
    node.put_many("orders", [b"1", b"2"])
    told, act = MISTAKES[mistake]
    with pytest.raises((ConfigurationError, FilterError)) as refused:
        act(node)
    assert told in str(refused.value)
    assert rows("SELECT count(*) FROM entry WHERE outcome IS NULL") == [(2,)]
    assert rows("SELECT name FROM queue WHERE policy IS NOT NULL AND name NOT LIKE '%#%'") == [("orders",)]


@pytest.mark.parametrize("name", NO_NAMES, ids=repr)
def test_what_is_no_name_of_a_queue_is_refused_wherever_it_is_given(node: Node, name: Anything) -> None:
    acts: tuple[Callable[[], object], ...] = (
        lambda: node.put(name, b""),
        lambda: node.put_many(name, [b""]),
        lambda: node.put(name, b"", wait=False).result(9),
        lambda: node.declare(name),
        lambda: node.bind("a/b", name),
        lambda: node.unbind("a/b", name),
        lambda: node.stats(name),
        lambda: node.peek(name),
        lambda: node.get(name, 1),
        lambda: node.purge(name),
        lambda: node.delete(name),
        lambda: node.dead(name),
        lambda: node.settle(name, "priority > 3"),
        lambda: node.received(name, "id"),
        lambda: node.ack_at(name, 1),
    )
    several: tuple[Callable[[], object], ...] = (
        lambda: node.receive(name),
        lambda: node.subscribe(name),
        lambda: node.consume(name, print),
    )
    for act in (*acts, *(() if isinstance(name, list) else several)):
        with pytest.raises((ConfigurationError, UnknownQueue), match=r"is no name of a queue|There is no|give one"):
            act()
    assert node.keys() == []


@pytest.mark.parametrize("text", [None, *NO_TEXTS], ids=repr)
def test_what_is_no_topic_no_client_or_no_subscription_is_refused(node: Node, text: Anything) -> None:
    acts: list[Callable[[], object]] = [
        lambda: node.publish(text, b""),
        lambda: node.bind(text, "orders"),
        lambda: node.declare_topic(text, retain=5),
        lambda: node.replay(text),
        lambda: node.events(text),
        lambda: node.subscribe_durable(text, "name"),
        lambda: node.subscribe_durable("a/b", text),
        lambda: node.unsubscribe(text),
    ]
    if text is not None:
        acts += [
            lambda: node.subscribe("orders", client=text),
            lambda: node.subscribe(topic="a/b", name="name", client=text),
            lambda: node.unsubscribe("name", client=text),
        ]
    for act in acts:
        with pytest.raises(ConfigurationError):
            act()


@pytest.mark.local("a session is the consumer of all that it receives")
@pytest.mark.parametrize("text", NO_TEXTS, ids=repr)
def test_what_is_no_consumer_is_refused(node: Node, text: Anything) -> None:
    with pytest.raises(ConfigurationError):
        node.receive("orders", consumer=text)


def test_what_is_not_there_says_how_it_is_made(node: Node) -> None:
    node.declare("orders")
    with pytest.raises(UnknownQueue, match=r"Declare it: `node.declare\('none'\)`"):
        node.delete("none")
    with pytest.raises(UnknownQueue, match=r"`node.declare\('orders', journal=True\)`"):
        node.journal("orders")
    with pytest.raises(UnknownQueue, match="There is no subscription 'none'"):
        node.unsubscribe("none")


def test_what_is_done_at_once_is_no_part_of_a_transaction(node: Node) -> None:
    position = node.put("orders", b"1", message_id="a")
    acts: tuple[Callable[[], object], ...] = (
        lambda: node.settle("orders", "priority = 4"),
        lambda: node.ack_at("orders", position),
        lambda: node.received("orders", "a"),
        lambda: node.purge("orders"),
        lambda: node.delete("orders"),
        lambda: node.dead("orders").discard(),
        lambda: node.dead("orders").redrive(),
    )
    with node.transaction():
        for act in acts:
            with pytest.raises(NotAllowed, match=r"no part of a transaction\. Do it before, or behind its end"):
                act()
    assert node.stats("orders").ready == 1


def test_what_is_settled_twice_or_behind_the_end_of_its_subscription_is_told(node: Node) -> None:
    node.put_many("orders", [b"1", b"2"])
    (message,) = node.receive("orders")
    assert [message.ack(), message.ack(), message.nack("late")] == ["settled", "already_settled", "already_settled"]
    node.put("invoices", b"3")
    (other,) = node.peek("invoices")
    assert node.ack_at("orders", other.position) == "unknown", "it is in another queue"
    with node.subscribe("orders") as subscription:
        late = subscription.next(10)
    assert late is not None
    with pytest.raises(LeaseLost, match="it is delivered again"):
        late.ack()
    with pytest.raises(SubscriptionClosed):
        subscription.replace("priority > 3")
    with pytest.raises(ConfigurationError, match="it is seconds"):
        node.subscribe("orders").next("5")  # type: ignore[arg-type]


def test_a_function_that_answers_what_is_to_be_awaited_has_failed(node: Node) -> None:
    node.declare("orders", max_failures=1)
    node.put("orders", b"1")
    awaits = [coroutine(None)]
    with node.consume("orders", lambda _message: awaits[0]):
        until(lambda: node.stats("orders").dead == 1)
    awaits[0].close()
    (letter,) = node.dead("orders").peek()
    assert "`wsrm_mq.connect_async`" in str(letter.last_error)


def test_a_plain_function_is_called_by_tasks_too(connect_async: ConnectAsync) -> None:
    asyncio.run(_with_a_plain_function(connect_async))


async def _with_a_plain_function(connect_async: ConnectAsync) -> None:
    async with await connect_async() as node:
        await node.put("orders", 1)
        seen: list[object] = []
        async with await node.consume("orders", lambda message: seen.append(message.json())):  # type: ignore[arg-type, return-value]
            while not seen:
                await asyncio.sleep(0.01)
        assert (await node.stats("orders")).messages == 0


@pytest.mark.local("what is too large never leaves the client")
def test_a_body_that_no_row_can_hold_is_refused_with_the_limit(node: Node) -> None:
    with pytest.raises(TooLarge, match=r"1,000,000,001 bytes; a message has at most 999,000,000"):
        node.put("orders", bytes(10**9 + 1))
    assert node.keys() == []


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("overflow", "x", "'reject', 'drop_head' or 'block'"),
        ("delivery", 1, "'at_least_once' or 'at_most_once'"),
        ("lease", "a", "a number of seconds, or None for no end"),
        ("journal", 3, "True or False"),
        ("retry", ["x"], r"a list of seconds, such as \[0, 1, 5\]"),
        ("max_failures", "x", "a whole number, at least 1, or None for no bound"),
        ("max_backlog", 0, "at least 1"),
        ("memory_limit", None, "a whole number of bytes"),
        ("barrier", 1, "a filter, as a text, or None"),
        ("retain", [], "a number of seconds"),
        ("properties", {"a": 1}, "a path for each name, such as {'amount': '/order/amount'}"),
    ],
)
def test_a_wrong_value_of_an_option_is_told_with_its_name_and_what_may_be(
    node: Node, option: str, value: object, allowed: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"`{option}` is {re.escape(repr(value))}; it is {allowed}"):
        node.declare("orders", **{option: value})


def test_every_option_says_what_it_may_be() -> None:
    assert [name for name in QueuePolicy.__struct_fields__ if not policies._allowed(name)] == []


@pytest.mark.local("forks the process of a local node")
def test_a_fork_is_told_to_connect_anew_whatever_it_asks(node: Node) -> None:
    node.put("orders", b"1")
    (message,) = node.receive("orders")
    node.put("orders", b"2")
    subscription, ahead = node.subscribe("orders"), node.subscribe("orders", max_backlog=2)
    node.put_many("orders", [b"3", b"4", b"5"])
    until(lambda: node.stats("orders").leased == 4)
    acts: tuple[Callable[[], object], ...] = (
        lambda: subscription.next(5),
        lambda: next(ahead),
        lambda: subscription.take(5),
        lambda: next(iter(ahead)),
        lambda: next(ahead.catch_up()),
        lambda: node.begin(),
        lambda: node.transaction(),
        lambda: node.subscribe_durable("a/b", "c"),
        lambda: node.put("orders", b""),
        lambda: node.put("orders", b"", wait=False).result(5),
        lambda: node.receive("orders"),
        lambda: node.subscribe("orders"),
        lambda: node.peek("orders"),
        lambda: node.stats("orders"),
        lambda: node.keys(),
        lambda: node.clients(),
        lambda: list(node.replay("a/b")),
        lambda: node.events("a"),
        message.ack,
    )
    child = os.fork()
    if child == 0:
        told = 0
        for act in acts:
            try:
                act()
            except StoreUnavailable as error:
                told += "Call `connect` in the child" in str(error)
        subscription.close()
        node.close()  # are the parent's
        os._exit(len(acts) - told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert message.ack() == "settled"


def test_a_node_that_is_closed_says_so(connect: Connect) -> None:
    node = connect()
    node.put("orders", b"1")
    (message,) = node.receive("orders")
    node.close()
    node.close()
    acts: tuple[Callable[[], object], ...] = (
        lambda: node.put("orders", b""),
        lambda: node.put("orders", b"", wait=False),
        lambda: node.receive("orders", wait=5),
        lambda: node.subscribe("orders"),
        lambda: node.stats("orders"),
        lambda: node.keys(),
        message.ack,
    )
    for act in acts:
        with pytest.raises(StoreUnavailable, match=r"the node is closed. Call `connect` anew"):
            act()


@pytest.mark.local("opens stores of its own")
def test_what_is_no_store_is_refused_and_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for where in (None, 5, "", "sqlite:///", b""):
        with pytest.raises(ConfigurationError, match="A store is a path, a directory, or sqlite:///path"):
            wsrm_mq.connect(where)  # type: ignore[arg-type]
    for where in (":memory:", "sqlite://", "sqlite:///:memory:"):
        with pytest.raises(ConfigurationError, match=r"a store is a file, .* Name a path, in a directory"):
            wsrm_mq.connect(where)
    for name in NO_TEXTS:
        with pytest.raises(ConfigurationError, match="`name` is "):
            wsrm_mq.connect("queues.db", name)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreUnavailable, match="Make the directory"):
        wsrm_mq.connect("none/queues.db")
    theirs = tmp_path / "theirs.db"
    with sqlite3.connect(theirs) as db:
        db.execute("CREATE TABLE t (id)")
    db.close()
    theirs.chmod(0o664)
    with pytest.raises(StoreCorrupt, match="Name another file"):
        wsrm_mq.connect(theirs)
    assert theirs.stat().st_mode & 0o777 == 0o664
