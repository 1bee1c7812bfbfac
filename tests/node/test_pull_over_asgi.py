"""The modes ``pull`` and ``copy`` behind a real server of ASGI: what arrives on sockets is consumed by programs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import wsrm_mq
from tests.support.asgi_server import ASGIServer
from tests.support.orders import Orders, OrderSender
from tests.support.orders_server import within
from wsrm_mq.errors import NotAllowed
from wsrm_mq.node import Node
from wsrm_mq.node.message import Message
from wsrm_mq.testing import HTTPAnswer, HTTPWire

pytestmark = pytest.mark.local("has one node beside one server for all of its tests")

ALL = 99
PARTNERS = {
    "robust": {"path": "/robust", "acknowledge": "delivered"},
    "copied": {"path": "/copied", "mode": "copy"},
    "called": {"path": "/called", "mode": "dispatch"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ASGIServer]:
    """Each of its paths is a partner with a mode of its own; all others are pulled."""
    server = ASGIServer(tmp_path_factory.mktemp("pulled"), "uvicorn", "asgi", mode="pull", partners=PARTNERS)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def node(server: ASGIServer) -> Iterator[Node]:
    with wsrm_mq.connect(server.home / "store.db", "warehouse") as node:
        yield node


def numbers(messages: list[Message]) -> list[int | None]:
    return [one.number for one in messages]


def test_a_consumer_gets_the_bytes_of_the_socket_in_order_and_the_service_is_not_called(
    server: ASGIServer, node: Node
) -> None:
    orders = Orders(path="/bytes")
    with OrderSender(server, orders) as client:
        sent = {number: orders.put(client.identifier, number, "\u00fcber") for number in (2, 1)}
        for envelope in sent.values():
            client.post(envelope)
        first, second = node.receive("/bytes", ALL, wait=5)
        assert numbers([first, second]) == [1, 2]
        assert (first.body, second.body) == (sent[1], sent[2])
        assert second.content_type == orders.content_type
        assert node.ack([first, second]) == ["settled"] * 2
        assert server.calls(client.identifier) == []


def test_a_question_waits_on_its_socket_until_what_is_before_it_is_consumed(server: ASGIServer, node: Node) -> None:
    with OrderSender(server, Orders(path="/asked")) as client, client.another() as asking:
        client.send(1)
        answers: list[HTTPAnswer] = []
        thread = threading.Thread(target=lambda: answers.append(asking.echo(2, "hello")))
        thread.start()
        (first,) = node.receive("/asked", ALL, wait=5)
        assert within(5, lambda: server.store.received(client.identifier), [(1, 2)].__eq__) == [(1, 2)]
        assert server.calls(client.identifier) == []
        first.ack()
        thread.join(10)
        assert answers[0].text("echoResponse") == "hello"
        assert client.send(3).acked == [(1, 3)]
        assert numbers(node.receive("/asked", ALL, wait=5)) == [3]
        assert server.calls(client.identifier) == [2]


def test_one_way_messages_without_a_sequence_are_consumed_in_order_of_receipt(server: ASGIServer, node: Node) -> None:
    orders = Orders(path="/plain")
    with HTTPWire(server.port, "/plain") as wire:
        sent = [orders.put_plain(n) for n in (1, 2)]
        assert [wire.post(one, orders.fields(one)).status for one in sent] == [202, 202]
    got = within(5, lambda: node.receive("/plain", ALL), bool)
    got += node.receive("/plain", ALL)
    assert [one.body for one in got] == sent
    assert node.ack(got) == ["settled"] * 2


def test_a_source_hears_of_a_message_when_a_consumer_has_acknowledged_it(server: ASGIServer, node: Node) -> None:
    with OrderSender(server, Orders(path="/robust")) as client, client.another() as asking:
        answers: list[HTTPAnswer] = []
        thread = threading.Thread(target=lambda: answers.append(client.send(1)))
        thread.start()
        (first,) = node.receive("/robust", ALL, wait=5)
        assert asking.ask().acked in ([], None), "it is stored, and not delivered"
        first.ack()
        thread.join(10)
        assert answers[0].acked == [(1, 1)]


def test_subscriptions_get_what_the_service_has_taken(server: ASGIServer, node: Node) -> None:
    orders = Orders(path="/copied")
    with node.subscribe(topic="copied/#", client="audit", name="all") as copies, OrderSender(server, orders) as client:
        client.post(sent := orders.put(client.identifier, 1))
        copy = copies.next(timeout=5)
        assert copy is not None
        assert (copy.topic, copy.body) == ("copied/put_order", sent)
        assert server.effects(client.identifier) == [1]


def test_a_consumer_of_a_queue_that_the_service_is_called_from_is_told_of_the_modes(
    server: ASGIServer, node: Node
) -> None:
    with OrderSender(server, Orders(path="/called")) as client:
        client.send(1)
        for consume in (lambda: node.receive("/called"), lambda: node.subscribe("/called")):
            with pytest.raises(NotAllowed, match=r'mode "dispatch".*mode = "pull".*mode = "copy"'):
                consume()
        assert server.effects_soon(client.identifier, [1]) == [1]


def test_a_queue_may_have_a_name_of_its_own_whatever_the_paths(tmp_path: Path) -> None:
    server = ASGIServer(tmp_path, "uvicorn", "wsgi", mode="pull", queue="orders", paths=["/a", "/b"])
    server.start()
    try:
        with OrderSender(server, Orders(path="/a")) as client:
            client.send(1)
            client.send(2)
        with wsrm_mq.connect(tmp_path / "store.db") as node:
            assert node.keys() == ["orders"]
            got = node.receive("orders", ALL, wait=5)
            assert numbers(got) == [1, 2]
            node.put("orders", "of a program")
            assert node.ack(got) == ["settled"] * 2
            assert [one.body for one in node.receive("orders", ALL, wait=5)] == [b"of a program"]
        server.kill()
        server.start()
        with OrderSender(server, Orders(path="/b")) as client:
            assert client.echo(1, "hello").text("echoResponse") == "hello"
    finally:
        server.kill()
