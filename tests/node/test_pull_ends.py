"""A pulled sequence ends before, while and after its messages are consumed, and so does the one that was offered with
it."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import Wrapped
from tests.node.conftest import Connect
from tests.node.test_pull import ALL, PUT, numbers
from tests.support.endpoint import ALLOWED, Endpoint, listening
from tests.support.in_process import FACTORY, InProcess, taken, until
from wsrm_mq.node import Node
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.testing import Reply

ASK = "urn:example:orders/ask"
ANSWER = "urn:example:orders/answer"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with listening() as endpoint:
        yield endpoint


@pytest.fixture
def service(in_process: Wrapped) -> InProcess:
    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        if b"<ask" not in environ["wsgi.input"].read():
            return taken(start_response)
        start_response("200 OK", [("Content-Type", FACTORY.content_type)])
        return [FACTORY.envelope(ANSWER, "<answer/>")]

    return in_process(app, mode="pull", one_way=(PUT,), decoupled=ALLOWED)


@pytest.fixture
def node(service: InProcess, connect: Connect) -> Iterator[Node]:
    node = connect("warehouse")
    yield node
    with node.store.reader() as db:
        assert list(all_findings(db)) == []


def offering(service: InProcess, endpoint: Endpoint) -> tuple[str, str]:
    """A sequence whose first message was answered at the endpoint, in the sequence that was offered with it; the answer
    is acknowledged."""
    offered = uuid.uuid4().urn
    request = FACTORY.create_sequence(
        acks_to=endpoint.url, reply_to=endpoint.url, expires="PT1H", offer=offered, offer_endpoint=endpoint.url
    )
    service.post(request)
    created = endpoint.one("CreateSequenceResponse").created
    assert created is not None
    identifier = created.identifier
    service.post(FACTORY.message(identifier, 1, "<ask/>", action=ASK, reply_to=endpoint.url))
    reply = endpoint.one("answer").sequence
    assert reply is not None
    assert (reply.identifier, reply.number) == (offered, 1)
    service.post(FACTORY.acknowledgement(offered, (1, 1)))
    return identifier, offered


def terminate(service: InProcess, endpoint: Endpoint, identifier: str, last: int) -> None:
    """It is answered with what has arrived, consumed or not."""
    service.post(FACTORY.terminate(identifier, last, reply_to=endpoint.url))
    said = endpoint.one("TerminateSequenceResponse").ack
    assert (said.ranges, said.final) == (((1, last),), True)


def assert_ended(endpoint: Endpoint, offered: str) -> None:
    ended = endpoint.one("TerminateSequence")
    assert ended.body is not None
    assert [one.text for one in ended.body] == [offered, "1"]


def has_ended(endpoint: Endpoint) -> bool:
    return bool(endpoint.saying("TerminateSequence"))


@pytest.mark.local("the service runs in the same process")
@pytest.mark.parametrize("consumed_before_the_end", [0, 1, 2])
def test_the_offered_sequence_ends_when_all_is_consumed_and_the_source_has_ended_its_own(
    service: InProcess, node: Node, endpoint: Endpoint, consumed_before_the_end: int
) -> None:
    identifier, offered = offering(service, endpoint)
    for number in (2, 3):
        service.put(identifier, number)
    got = node.receive("/orders", ALL, wait=5)
    assert numbers(got) == [2, 3]
    node.ack(got[:consumed_before_the_end])
    assert not has_ended(endpoint)
    terminate(service, endpoint, identifier, 3)
    if consumed_before_the_end < 2:
        assert not has_ended(endpoint)
        assert node.ack(got[consumed_before_the_end:])[-1] == "settled"
    assert_ended(endpoint, offered)


@pytest.mark.local("the service runs in the same process")
def test_the_last_message_may_be_given_up_by_its_consumer(service: InProcess, node: Node, endpoint: Endpoint) -> None:
    identifier, offered = offering(service, endpoint)
    service.put(identifier, 2)
    (last,) = node.receive("/orders", wait=5)
    terminate(service, endpoint, identifier, 2)
    assert last.reject("no good") == "settled"
    assert_ended(endpoint, offered)


@pytest.mark.local("the service runs in the same process")
def test_a_consumer_that_dies_before_it_has_acknowledged_delays_the_end_and_no_more(
    service: InProcess, node: Node, endpoint: Endpoint, program: Callable[[str], subprocess.Popen[str]]
) -> None:
    identifier, offered = offering(service, endpoint)
    service.put(identifier, 2)
    consumer = program("print(node.receive('/orders', wait=9)[0].number)\ntime.sleep(60)")
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "2\n"
    terminate(service, endpoint, identifier, 2)
    consumer.kill()
    (again,) = node.receive("/orders", wait=9)
    assert (again.number, again.redelivered) == (2, True)
    assert not has_ended(endpoint)
    assert again.ack() == "settled"
    assert_ended(endpoint, offered)


@pytest.mark.local("the service runs in the same process")
def test_a_consumer_that_dies_with_the_last_acknowledgement_leaves_the_end_to_the_service(
    service: InProcess, endpoint: Endpoint, program: Callable[[str], subprocess.Popen[str]]
) -> None:
    identifier, offered = offering(service, endpoint)
    service.put(identifier, 2)
    terminate(service, endpoint, identifier, 2)
    consumer = program("node.receive('/orders', wait=9)[0].ack()\nos.kill(os.getpid(), 9)")
    assert consumer.wait(20) == -9
    assert_ended(endpoint, offered)


@pytest.mark.local("the service runs in the same process")
@pytest.mark.parametrize("ends", ["close", "terminate"])
def test_an_end_is_answered_at_once_while_consumers_are_at_work(service: InProcess, node: Node, ends: str) -> None:
    identifier = service.create()
    for number in (1, 2):
        service.put(identifier, number)
    got = node.receive("/orders", 1)
    end = FACTORY.close if ends == "close" else FACTORY.terminate
    for _again in range(2):
        said = Reply.parse(service.post(end(identifier, 2))[1]).ack
        assert (said.ranges, said.final) == (((1, 2),), True)
    assert node.ack(got) == ["settled"]
    last = node.receive("/orders", ALL)
    assert numbers(last) == [2]
    assert node.ack(last) == ["settled"]
    ended = "SELECT ended FROM lane"
    assert until(lambda: service.rows(ended) == [("terminated" if ends == "terminate" else None,)])
