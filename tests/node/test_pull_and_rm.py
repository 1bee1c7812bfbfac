"""Mode ``pull`` and what WS-ReliableMessaging promises: acknowledgements, room, ends, operators, dead letters."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Wrapped
from tests.node.conftest import Connect, assert_sound
from tests.node.test_pull import ALL, PUT, numbers
from tests.support.in_process import FACTORY, InProcess, taken, until
from wsrm_mq.node import Node
from wsrm_mq.queue import operate
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store.outside import run_once
from wsrm_mq.testing import Reply

WHO = {"actor": "test", "reason": "test"}


@pytest.fixture
def wrap(in_process: Wrapped) -> Callable[..., InProcess]:
    def app(_environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        return taken(start_response)

    return lambda **options: in_process(app, **{"mode": "pull", "one_way": (PUT,), **options})


def acknowledged(service: InProcess, identifier: str) -> tuple[tuple[int, int], ...]:
    """The numbers that an acknowledgement of the sequence names now."""
    return Reply.parse(service.post(FACTORY.ack_requested(identifier))[1]).ack.ranges


@pytest.mark.scenario("Q-107")
def test_a_full_queue_answers_503_and_what_is_sent_again_finds_room(
    wrap: Callable[..., InProcess], connect: Connect
) -> None:
    service, node = wrap(), connect()
    node.declare("/orders", max_messages=10)
    identifier = service.create()
    for number in range(1, 11):
        assert service.put(identifier, number).startswith("200")
    (before,) = service.rows("SELECT count(*), max(id) FROM message")
    answers: list[dict[str, str]] = []

    def seen(status: str, headers: list[tuple[str, str]], *_: Any) -> Callable[[bytes], None]:
        answers.append({"status": status, **dict(headers)})
        return lambda _data: None

    from io import BytesIO

    body = FACTORY.message(identifier, 11)
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/orders",
        "CONTENT_TYPE": FACTORY.content_type,
        "CONTENT_LENGTH": str(len(body)),
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(body),
    }
    content = b"".join(service.middleware(environ, seen))
    assert answers[0]["status"].startswith("503")
    assert int(answers[0]["Retry-After"]) > 0
    assert b"max_messages" in content
    assert acknowledged(service, identifier) == ((1, 10),)
    assert service.rows("SELECT count(*), max(id) FROM message") == [before], "no trace"
    assert node.receive("/orders")[0].ack() == "settled"
    assert service.put(identifier, 11).startswith("200")
    assert acknowledged(service, identifier) == ((1, 11),)


def test_what_fills_a_gap_is_taken_by_a_full_queue(wrap: Callable[..., InProcess], connect: Connect) -> None:
    service, node = wrap(), connect()
    node.declare("/orders", max_messages=2)
    identifier = service.create()
    for number in (2, 3):
        assert service.put(identifier, number).startswith("200")
    assert service.put(identifier, 4).startswith("503")
    assert service.put(identifier, 1).startswith("200"), "what is behind it could never leave"
    assert numbers(node.receive("/orders", ALL)) == [1, 2, 3]


def test_delivered_means_acknowledged_by_a_consumer(wrap: Callable[..., InProcess], connect: Connect) -> None:
    service, node = wrap(acknowledge="delivered", hold_wait=0.1), connect()
    identifier = service.create()
    for number in (1, 2, 3):
        assert service.put(identifier, number).startswith("202")
    assert acknowledged(service, identifier) == ()
    first, second = node.receive("/orders", 2)
    assert first.ack() == "settled"
    assert acknowledged(service, identifier) == ((1, 1),)
    assert second.reject("no good") == "settled"
    assert acknowledged(service, identifier) == ((1, 2),)
    assert node.purge("/orders").settled == 1
    assert acknowledged(service, identifier) == ((1, 3),), "what is given up is not sent again"


def test_a_request_waits_for_the_consumer_where_an_acknowledgement_means_delivered(
    wrap: Callable[..., InProcess], connect: Connect
) -> None:
    service, node = wrap(acknowledge="delivered"), connect()
    identifier = service.create()
    answers: list[str] = []
    sending = threading.Thread(target=lambda: answers.append(service.put(identifier, 1)))
    sending.start()
    (one,) = node.receive("/orders", wait=5)
    assert one.ack() == "settled"
    sending.join(10)
    assert answers[0].startswith("200")


@pytest.mark.local("has a node die")
def test_a_sequence_that_is_terminated_is_no_longer_leased_by_a_consumer_that_has_died(
    wrap: Callable[..., InProcess],
) -> None:
    service = wrap()
    node = Node(service.path)
    node.doorbell.stop()
    node.upkeep.stop()
    node.declare("/orders", lease=None)
    identifier = service.create()
    service.put(identifier, 1)
    assert numbers(node.receive("/orders")) == [1]
    node.store.suspend()
    node.store.abandon()
    run_once(service.path, lambda tx: operate.terminate(tx, identifier, drain=False, **WHO))
    assert service.rows("SELECT owner, leased_until FROM lane WHERE identifier = ?", identifier) == [(None, None)]


@pytest.mark.invariant("I3")
def test_without_order_the_last_of_a_run_may_be_settled_first_and_the_others_stay_leased(
    wrap: Callable[..., InProcess], connect: Connect
) -> None:
    service, node = wrap(ordered=False), connect()
    identifier = service.create()
    for number in (1, 3):
        service.put(identifier, number)
    first, last = node.receive("/orders", ALL)
    service.put(identifier, 2)
    assert last.ack() == "settled"
    assert node.receive("/orders", ALL) == [], "the first is leased"
    assert first.ack() == "settled"
    assert numbers(node.receive("/orders", ALL)) == [2], "what came between is not a part of that lease"


@pytest.mark.parametrize("filter", ["number > 2", "number < 3"])
def test_properties_of_an_envelope_are_promoted_and_a_group_goes_as_far_as_a_filter(
    wrap: Callable[..., InProcess], connect: Connect, filter: str
) -> None:
    service, node = wrap(), connect()
    node.declare("/orders", properties={"number": "number(//*[local-name()='MessageNumber'])"})
    identifier = service.create()
    for number in (1, 2, 3):
        service.put(identifier, number)
    got = node.receive("/orders", ALL, filter=filter)
    assert numbers(got) == ([1, 2] if "<" in filter else []), "nothing of a sequence is passed over"
    assert [one.properties for one in node.peek("/orders", filter="number = 3")] == [{"number": 3}]


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_sequence_that_is_delivered_as_a_whole_is_consumed_when_it_is_complete(
    wrap: Callable[..., InProcess], connect: Connect, is_whole: bool
) -> None:
    service, node = wrap(behavior="DiscardEntireSequence"), connect()
    identifier = service.create()
    for number in (1, 2, 3) if is_whole else (1, 3):
        service.put(identifier, number)
    assert node.receive("/orders", ALL) == []
    service.post(FACTORY.terminate(identifier, 3))
    if is_whole:
        assert numbers(node.receive("/orders", ALL, wait=3)) == [1, 2, 3]
    else:
        assert until(lambda: len(node.dead("/orders").peek()) == 2)
        assert node.receive("/orders", ALL) == []
        assert service.rows("SELECT messages FROM queue WHERE name = '/orders'") == [(0,)]


def test_behind_the_first_gap_nothing_is_consumed_at_the_end(wrap: Callable[..., InProcess], connect: Connect) -> None:
    service, node = wrap(behavior="DiscardFollowingFirstGap"), connect()
    identifier = service.create()
    for number in (1, 3):
        service.put(identifier, number)
    service.post(FACTORY.terminate(identifier, 3))
    assert until(lambda: [one.reason for one in node.dead("/orders").peek()] == ["first_gap"])
    (one,) = node.receive("/orders", ALL)
    assert one.ack() == "settled"


def test_across_a_gap_that_stays_the_rest_is_consumed_at_the_end(
    wrap: Callable[..., InProcess], connect: Connect
) -> None:
    service, node = wrap(), connect()
    identifier = service.create()
    for number in (1, 3):
        service.put(identifier, number)
    service.post(FACTORY.terminate(identifier, 3))
    got = node.receive("/orders", ALL, wait=3)
    assert numbers(got) == [1, 3]
    assert node.ack(got) == ["settled"] * 2


def test_an_operator_holds_forces_and_skips_what_is_consumed(wrap: Callable[..., InProcess], connect: Connect) -> None:
    service, node = wrap(), connect()
    node.declare("/orders", retry=[], max_failures=1)
    identifier = service.create()
    for number in (1, 2, 4):
        service.put(identifier, number)
    run_once(service.path, lambda tx: operate.hold(tx, identifier, **WHO))
    assert node.receive("/orders", ALL) == []
    run_once(service.path, lambda tx: operate.resume(tx, identifier, **WHO))
    (one,) = node.receive("/orders")
    one.nack("broken")
    assert node.receive("/orders", ALL) == [], "the sequence stops at what has failed for good"
    run_once(service.path, lambda tx: operate.skip(tx, identifier, 1, **WHO))
    got = node.receive("/orders", ALL)
    assert numbers(got) == [2]
    node.ack(got)
    forced = run_once(service.path, lambda tx: operate.force(tx, identifier, past=3, **WHO))
    assert forced.missing == AckRanges(((3, 3),))
    (last,) = node.receive("/orders", ALL)
    service.put(identifier, 3)
    assert last.ack() == "settled", "a number that comes late does not take the lease of another"
    assert numbers(node.receive("/orders", ALL)) == [3]


def test_a_dead_letter_of_a_sequence_is_leased_settled_and_redriven_as_any(
    wrap: Callable[..., InProcess], connect: Connect
) -> None:
    service, node = wrap(), connect()
    identifier = service.create()
    for number in (1, 2, 3):
        service.put(identifier, number)
    for one in node.receive("/orders", ALL):
        one.reject("no good")
    letters = node.dead("/orders")
    first, second, _third = letters.peek()
    assert (first.number, first.reason, first.last_error) == (1, "rejected", "no good")
    (leased,) = node.receive("/orders#dead")
    assert (leased.position, leased.ack()) == (first.position, "settled")
    letters.redrive([second.position])
    (again,) = node.receive("/orders", ALL)
    assert again.body == second.body
    assert node.stats("/orders").leased == 1
    assert again.ack() == "settled"
    assert len(letters.peek()) == 1
    assert_counted(service)


def assert_counted(service: InProcess) -> None:
    assert_sound(service.path)
    assert service.rows("SELECT messages FROM queue WHERE name = '/orders'") == [(0,)]
