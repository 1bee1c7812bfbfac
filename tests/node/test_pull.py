"""A wrapped service in mode ``pull``: what arrives is consumed by programs, through the verbs of every queue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Wrapped
from tests.node.conftest import Connect, assert_sound
from tests.support.in_process import FACTORY, TWO_WAY, InProcess, taken, until
from wsrm_mq.errors import ConfigurationError, NotAllowed, OtherApplication
from wsrm_mq.node import Node

ALL = 99
PUT = "urn:example:orders/put"

Service = Callable[..., InProcess]


@pytest.fixture
def called() -> list[Any]:
    """Numbers of the messages that the application was called with."""
    return []


@pytest.fixture
def wrap(in_process: Wrapped, called: list[Any]) -> Service:
    """Wrap the application: ``put`` has no answer, ``ask`` has one."""

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        called.append(environ.get("wsrm.message_number"))
        body = environ["wsgi.input"].read()
        if b"ask" not in body:
            return taken(start_response)
        start_response("200 OK", [("Content-Type", FACTORY.content_type)])
        return [FACTORY.envelope("urn:example:orders/answer", "<answer/>")]

    return lambda **options: in_process(app, **{"mode": "pull", "one_way": (PUT,), **options})


@pytest.fixture
def service(wrap: Service) -> InProcess:
    return wrap()


@pytest.fixture
def node(connect: Connect, service: InProcess) -> Node:
    return connect("warehouse")


def ask(service: InProcess, identifier: str, number: int) -> tuple[str, bytes]:
    return service.post(
        FACTORY.message(identifier, number, "<ask/>", action="urn:example:orders/ask", reply_to=TWO_WAY)
    )


def numbers(messages: Any) -> list[int | None]:
    return [one.number for one in messages]


def test_a_sequence_is_consumed_in_order_as_a_group_and_the_application_is_not_called(
    service: InProcess, node: Node, connect: Connect, called: list[Any]
) -> None:
    identifier = service.create()
    for number in (2, 3, 1):
        assert service.put(identifier, number).startswith("200")
    got = node.receive("/orders", 2)
    assert numbers(got) == [1, 2]
    assert numbers(connect("other").receive("/orders", ALL)) == [], "the group is one consumer's at a time"
    first = got[0]
    assert (first.type, first.sequence, first.content_type) == (PUT, identifier, FACTORY.content_type)
    assert first.body == FACTORY.message(identifier, 1) or b"<wsrm:MessageNumber>1<" in first.body
    assert node.ack(got) == ["settled"] * 2
    assert numbers(rest := node.receive("/orders", ALL)) == [3]
    assert rest[0].ack() == "settled"
    assert called == []
    assert service.rows("SELECT outcome FROM entry") == [("delivered",)] * 3
    assert service.rows("SELECT messages, bytes FROM queue WHERE mode = 'pull'") == [(0, 0)]


def test_a_gap_holds_what_is_behind_it_from_consumers(service: InProcess, node: Node) -> None:
    identifier = service.create()
    for number in (1, 3):
        service.put(identifier, number)
    assert numbers(node.receive("/orders", ALL)) == [1]
    assert [(one.state, one.reason) for one in node.peek("/orders")] == [("leased", None), ("held", "gap")]
    service.put(identifier, 2)
    assert {one.number: one.state for one in node.peek("/orders")} == {1: "leased", 2: "ready", 3: "ready"}
    assert node.stats("/orders").ready == 2


def test_a_consumer_waits_until_a_message_comes(service: InProcess, node: Node) -> None:
    identifier = service.create()
    subscription = node.subscribe("/orders", max_backlog=5)
    service.put(identifier, 1)
    message = subscription.next(timeout=0.9)
    assert message is not None
    assert message.number == 1
    subscription.close()


def test_a_two_way_message_goes_to_the_application_in_its_turn(
    service: InProcess, node: Node, called: list[Any]
) -> None:
    identifier = service.create()
    line, body = ask(service, identifier, 1)
    assert line.startswith("200")
    assert b"answer" in body
    service.put(identifier, 2)
    service.put(identifier, 3)
    import threading

    answers: list[tuple[str, bytes]] = []
    waiting = threading.Thread(target=lambda: answers.append(ask(service, identifier, 4)))
    waiting.start()
    assert until(lambda: service.rows("SELECT 1 FROM entry WHERE number = 4"))
    assert_sound(service.path)
    service.put(identifier, 5)
    assert called == [1], "what is before it is not consumed yet"
    got = node.receive("/orders", ALL)
    assert numbers(got) == [2, 3], "a consumer is not given what is to be answered, nor what is behind it"
    node.ack(got)
    waiting.join(10)
    assert b"answer" in answers[0][1]
    assert called == [1, 4]
    assert until(lambda: node.stats("/orders").ready == 1)
    assert numbers(node.receive("/orders", ALL, wait=3)) == [5]


def test_messages_without_a_sequence_are_consumed_too(service: InProcess, node: Node, called: list[Any]) -> None:
    assert service.post(FACTORY.envelope(PUT, "<put/>"))[0].startswith("2")
    (one,) = node.receive("/orders", ALL, wait=2)
    assert one.type == PUT
    assert one.ack() == "settled"
    assert called == []
    line, body = service.post(FACTORY.envelope("urn:example:orders/ask", "<ask/>"))
    assert line.startswith("200")
    assert b"answer" in body


def test_a_dispatched_queue_is_refused_with_its_modes(wrap: Service, connect: Connect) -> None:
    service = wrap(mode="dispatch")
    service.put(service.create(), 1)
    node = connect()
    with pytest.raises(NotAllowed, match=r'mode "dispatch".*mode = "pull"'):
        node.receive("/orders")
    with pytest.raises(NotAllowed, match="mode"):
        node.subscribe("/orders")


@pytest.mark.parametrize("mode", ["pull", "dispatch"])
def test_a_queue_has_the_name_that_the_service_gives_it(
    wrap: Service, connect: Connect, called: list[Any], mode: str
) -> None:
    service = wrap(mode=mode, queue="orders")
    identifier = service.create()
    service.put(identifier, 1)
    service.post(FACTORY.terminate(identifier))
    if mode == "pull":
        (one,) = connect().receive("orders")
        assert one.ack() == "settled"
    assert until(lambda: service.rows("SELECT outcome FROM entry") == [("delivered",)])
    assert called == ([] if mode == "pull" else [1])
    assert service.rows("SELECT name FROM queue") == [("orders",)]


def test_a_service_is_not_called_from_a_queue_that_programs_fill(
    wrap: Service, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    node = connect()
    node.put_many("orders", range(2))
    with pytest.raises(OtherApplication, match=r"programs have declared the queue orders.*`mode = \"pull\"`"):
        wrap(mode="dispatch", queue="orders").middleware.start()
    assert len(node.receive("orders", 9)) == 2
    shared = wrap(queue="orders")
    shared.put(shared.create(), 1)
    assert [one.sequence is None for one in node.peek("orders")] == [True, True, False]
    shared.middleware.close()
    wrap(mode="copy", queue="bills").middleware.start()
    with pytest.raises(NotAllowed, match="the queue of a wrapped service"):
        node.declare("bills")
    node.put_many("/orders", range(2))
    service = wrap(mode="dispatch")
    service.put(service.create(), 1)
    assert until(lambda: "queue.taken queue=/orders messages=2" in caplog.text)
    with pytest.raises(NotAllowed, match="nothing can be put there"):
        node.put("/orders", 3)


@pytest.mark.parametrize("name", ["", "a#b", "orders/", "replay/x"])
def test_what_is_no_name_of_a_queue_is_refused_at_the_start(wrap: Service, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"option queue: .* allowed: a name"):
        wrap(queue=name)


def test_what_waits_goes_along_when_the_mode_is_changed_and_back(
    wrap: Service, in_process: Wrapped, connect: Connect, called: list[Any]
) -> None:
    def broken(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        start_response("500 Internal Server Error", [])
        return []

    first = in_process(broken, mode="dispatch", one_way=(PUT,), retry=[60])
    identifier = first.create()
    for number in (1, 2, 4):
        first.put(identifier, number)
    first.post(FACTORY.envelope(PUT, "<put/>"))
    assert until(lambda: first.rows("SELECT 1 FROM entry WHERE failures = 1"))
    first.middleware.close()
    pulled = wrap()
    pulled.middleware.start()
    node = connect("warehouse")
    assert until(lambda: pulled.rows("SELECT 1 FROM queue WHERE mode = 'pull'"))
    assert pulled.rows("SELECT messages FROM queue WHERE name = '/orders'") == [(3,)]
    assert until(lambda: node.stats("/orders").ready == 2)
    got = node.receive("/orders", 1)
    assert numbers(got) == [1]
    pulled.middleware.close()
    back = wrap(mode="dispatch")
    back.middleware.start()
    with pytest.raises(NotAllowed, match="mode"):
        node.receive("/orders")
    assert called == []
    assert got[0].ack() == "settled", "a lease holds until it is settled"
    assert until(lambda: called == [2])
    back.put(identifier, 3)
    assert until(lambda: called == [2, 3, 4])
    assert back.rows("SELECT messages FROM queue WHERE name = '/orders'") == [(0,)]
    assert len(back.rows("SELECT 1 FROM ledger WHERE event = 'mode_changed'")) >= 2


def test_a_lane_that_runs_or_is_leased_stays_so_while_the_mode_is_changed_and_back(
    wrap: Service, in_process: Wrapped, connect: Connect, called: list[Any]
) -> None:
    runs, goes_on = threading.Event(), threading.Event()

    def slow(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        called.append(environ["wsrm.message_number"])
        runs.set()
        goes_on.wait(20)
        return taken(start_response)

    def begun(mode: str) -> InProcess:
        service = wrap(mode=mode)
        service.middleware.start()
        assert until(lambda: service.rows("SELECT mode FROM queue WHERE name = '/orders'") == [(mode,)])
        return service

    first = in_process(slow, mode="dispatch", one_way=(PUT,))
    identifier = first.create()
    for number in (1, 2, 3):
        first.put(identifier, number)
    assert runs.wait(20)
    pulled = begun("pull")
    node, other = connect("warehouse"), connect("other")
    assert node.receive("/orders") == [], "another process runs it"
    goes_on.set()
    assert until(lambda: called == [1, 2, 3])
    first.middleware.close()
    pulled.middleware.close()
    pulled = begun("pull")
    for number in (4, 5):
        pulled.put(identifier, number)
    (leased,) = node.receive("/orders")
    pulled.middleware.close()
    back = begun("dispatch")
    assert leased.renew() == "settled"
    assert back.rows("SELECT owner IS NOT NULL, cursor FROM lane WHERE kind = 'rm'") == [(1, 4)]
    back.middleware.close()
    begun("pull")
    assert other.receive("/orders") == []
    assert (leased.number, leased.ack()) == (4, "settled")
    (last,) = other.receive("/orders")
    assert (last.number, last.ack(), called) == (5, "settled", [1, 2, 3])
