"""Headers of WS-RM that ride on another message: they are answered, and the message is served as without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.in_process import InProcess, taken
from tests.support.orders import ECHO, PUT_ORDER, Orders, echo, put_order
from tests.support.orders_server import OrdersServer, within
from tests.support.policies import At, each_front
from tests.support.source import Source, every_version
from wsrm_mq.testing import HTTPAnswer

from .conftest import Servers
from .conversation import UNKNOWN


def acked(answer: HTTPAnswer) -> dict[str, tuple[tuple[int, int], ...]]:
    """The ranges of each acknowledgement, by its sequence."""
    return {ack.identifier: ack.ranges for ack in answer.reply.acks} if answer.body else {}


def opened(source: Source, *numbers: int) -> str:
    identifier = source.create()
    for number in numbers:
        source.put(identifier, number)
    return identifier


# an application's message outside of any sequence


@pytest.mark.spec("D-ACK-015")
@each_front
@every_version
def test_a_plain_one_way_that_asks_for_an_acknowledgement_runs_and_gets_it(at: At) -> None:
    source = at()
    identifier = opened(source, 1, 3)
    seen = source.server.at("/orders").mark()
    answer = source.put_plain(70, identifier, headers=source.speak.ack_requested_header(identifier))
    assert (answer.status, answer.reply.body_name) == (200, None)
    assert acked(answer) == {identifier: ((1, 1), (3, 3))}
    assert identifier in seen.texts()


@pytest.mark.spec("D-ACK-015")
@each_front
@every_version
def test_a_plain_two_way_that_asks_for_an_acknowledgement_is_answered_with_it(at: At) -> None:
    source = at()
    identifier, other = opened(source, 1, 3), opened(source, 1, 2)
    asking = source.speak.ack_requested_header(identifier) + source.speak.ack_requested_header(other)
    answer = source.post(source.speak.envelope(ECHO, echo("hé"), reply_to="", headers=asking))
    assert (answer.status, answer.text("echoResult")) == (200, "hé")
    assert acked(answer) == {identifier: ((1, 1), (3, 3)), other: ((1, 2),)}


@pytest.mark.spec("D-ACK-015")
@each_front
@every_version
def test_the_fault_of_the_service_takes_the_acknowledgement_along(at: At) -> None:
    source = at()
    identifier = opened(source, 1)
    asking = source.speak.ack_requested_header(identifier)
    answer = source.post(source.speak.envelope(ECHO, echo("client-fault"), reply_to="", headers=asking))
    assert answer.reply.fault is not None
    assert answer.reply.fault.reason == "no such order"
    assert acked(answer) == {identifier: ((1, 1),)}


@pytest.mark.spec("D-ACK-018")
@each_front
@every_version
def test_what_rides_in_error_does_not_touch_a_plain_message(at: At) -> None:
    """An unknown sequence, one without an Identifier, an acknowledgement of something that was never sent from here,
    one whose children do not go together."""
    source, speak = at(), at().speak
    number = f"<wsrm:Identifier>{UNKNOWN}</wsrm:Identifier>"
    riders = [
        speak.ack_requested_header(UNKNOWN),
        speak.ack_requested_header(None),
        f'<wsrm:SequenceAcknowledgement>{number}<wsrm:AcknowledgementRange Lower="1" Upper="2"/>'
        "</wsrm:SequenceAcknowledgement>",
        f'<wsrm:SequenceAcknowledgement>{number}<wsrm:AcknowledgementRange Lower="2" Upper="1"/>'
        "</wsrm:SequenceAcknowledgement>",
    ]
    before = source.store.everything()
    for rider in riders:
        seen = source.server.at("/orders").mark()
        answer = source.put_plain(71, rider[:20], headers=rider)
        assert (answer.status, answer.body) == (202, b"")
        assert rider[:20] in seen.texts()
        answer = source.post(speak.envelope(ECHO, echo("x"), reply_to="", headers=rider))
        assert (answer.status, answer.text("echoResult"), acked(answer)) == (200, "x", {})
    assert source.store.everything() == before


@pytest.mark.spec("D-ACK-015", "D-SEQ-026")
@each_front
@every_version
def test_where_wsrm_is_required_a_plain_message_is_refused_and_its_question_answered(at: At) -> None:
    source = at("/needs_rm")
    identifier = opened(source, 1)
    seen = source.server.at("/needs_rm").mark()
    answer = source.put_plain(72, headers=source.speak.ack_requested_header(identifier))
    assert answer.reply.fault is not None
    assert answer.reply.fault.subcode == "WSRMRequired"
    assert acked(answer) == {identifier: ((1, 1),)}
    assert 72 not in seen.calls()


@pytest.mark.spec("D-ACK-015")
@every_version
def test_a_plain_one_way_that_is_queued_is_delivered_and_its_question_answered(servers: Servers, speak: Orders) -> None:
    server: OrdersServer = servers(queue_one_way=True)
    with Source(server, speak) as source:
        identifier = opened(source, 1)
        seen = server.mark()
        answer = source.put_plain(73, headers=speak.ack_requested_header(identifier))
        assert acked(answer) == {identifier: ((1, 1),)}
        assert 73 in within(5, seen.numbers, lambda numbers: 73 in numbers)
        assert source.put_plain(74).body == b""


@pytest.mark.spec("SEC-003")
@every_version
def test_a_stranger_s_plain_message_is_served_and_learns_nothing(at: At) -> None:
    owner, stranger = at(fields=("X-User: alice",)), at(fields=("X-User: mallory",))
    identifier = opened(owner, 1)
    asking = owner.speak.ack_requested_header(identifier)
    answer = stranger.post(stranger.speak.envelope(ECHO, echo("m"), reply_to="", headers=asking))
    assert (answer.text("echoResult"), acked(answer)) == ("m", {})


# a message of WS-RM


@pytest.mark.spec("D-ACK-015")
@each_front
@every_version
def test_whatever_asks_about_another_sequence_is_answered(at: At) -> None:
    source, speak = at(), at().speak
    other, identifier = opened(source, 1, 4), source.create()
    asking, wanted = speak.ack_requested_header(other), {other: ((1, 1), (4, 4))}
    answers = {
        "a one-way": source.put(identifier, 1, headers=asking),
        "a two-way": source.echo(identifier, 2, "two", headers=asking),
        "its duplicate": source.echo(identifier, 2, "two", headers=asking),
        "a refused message": source.put(identifier, 0, headers=asking),
        "CreateSequence": source.post(speak.create_sequence(headers=asking)),
        "CreateSequenceRefused": source.post(speak.create_sequence(acks_to=speak.none, headers=asking)),
        "TerminateSequence": source.terminate(identifier, headers=asking),
        "a message after the end": source.put(identifier, 3, headers=asking),
    }
    if speak.rm.has_close:
        closed = source.create()
        answers["CloseSequence"] = source.close(closed, headers=asking)
    for malformed in ("a refused message", "CreateSequenceRefused"):  # refused before anything is asked of the store
        assert answers.pop(malformed).reply.fault is not None
    got = {name: acked(answer) for name, answer in answers.items()}
    assert {name: {other: acks.get(other)} for name, acks in got.items()} == dict.fromkeys(answers, wanted)
    assert answers["a two-way"].text("echoResult") == answers["its duplicate"].text("echoResult") == "two"
    assert answers["CreateSequence"].reply.created is not None


@pytest.mark.spec("D-ACK-015")
@each_front
@every_version
def test_a_request_that_waits_for_its_turn_takes_the_answer_along(at: At) -> None:
    source, second = at(), at()
    other, identifier = opened(source, 1), source.create()
    asking = source.speak.ack_requested_header(other)
    second.send(second.speak.echo(identifier, 2, "two", headers=asking))
    assert source.echo(identifier, 1, "one").text("echoResult") == "one"
    answer = second.wire.read()
    assert answer.text("echoResult") == "two"
    assert acked(answer) == {identifier: ((1, 2),), other: ((1, 1),)}


@pytest.mark.spec("D-ACK-015")
@every_version
def test_an_end_that_asks_about_its_own_sequence_is_answered(at: At) -> None:
    source = at()
    identifier = opened(source, 1, 2)
    answer = source.terminate(identifier, headers=source.speak.ack_requested_header(identifier))
    assert acked(answer) == {identifier: ((1, 2),)}


@pytest.mark.spec("D-ACK-018")
@every_version
def test_a_malformed_question_does_not_stop_what_carries_it(at: At) -> None:
    source, malformed = at(), at().speak.ack_requested_header(None)
    created = source.post(source.speak.create_sequence(headers=malformed)).reply.created
    assert created is not None
    assert source.put(created.identifier, 1, put := PUT_ORDER, headers=malformed).reply.ack.ranges == ((1, 1),)
    assert put in put_order(1, put)
    assert source.terminate(created.identifier, headers=malformed).status in (200, 202)
    assert source.store.sequence(created.identifier)["ended"] == "terminated"


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("<wsrm:None/>", False),
        ('<wsrm:AcknowledgementRange Lower="1" Upper="1"/>', True),
        ("<wsrm:Nack>1</wsrm:Nack>", True),
    ],
)
def test_metro_s_acknowledgement_of_nothing_is_no_warning_for_each_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, says: str, told: bool
) -> None:
    """A Metro client of a two-way contract offers a sequence, and goes on where the offer is declined: each of its
    messages says that it has received nothing in it."""
    about = f"<wsrm:Identifier>urn:offered</wsrm:Identifier>{says}"
    rider = f"<wsrm:SequenceAcknowledgement>{about}</wsrm:SequenceAcknowledgement>"
    wsrm = InProcess(tmp_path, lambda _environ, start_response: taken(start_response), one_way=["put"])
    try:
        assert wsrm.put(wsrm.create(), 1, headers=rider).startswith("200")
    finally:
        wsrm.middleware.close(5)
    assert ("acknowledgement.unknown" in caplog.text) == told
