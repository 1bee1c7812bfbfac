"""An RM Source that polls: what its destination has for it, and cannot send, is fetched by MakeConnection."""

from __future__ import annotations

import time
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, LOST, THERE, Partner, Said, envelope
from tests.source.test_acknowledgements import ONE
from tests.source.test_listening import HERE, offered_by, put, reply_to
from tests.source.test_replies import ask
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.events.telling import Event
from wsrm_mq.sequence.faults import MalformedMessage
from wsrm_mq.source import RMSource
from wsrm_mq.testing import WSRM_1_1, Reply
from wsrm_mq.versions import MAKE_CONNECTION
from wsrm_mq.views.requests import all_requests, told_of_requests

pytestmark = pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm1.1"])


@pytest.fixture
def waiting(partner: Partner) -> deque[Said]:
    """The partner takes messages, says nothing on responses, and gives one of these to each MakeConnection."""
    messages: deque[Said] = deque()

    def says(received: Reply) -> Said:
        if received.action == MAKE_CONNECTION.action:
            return messages.popleft() if messages else partner.answered(202)
        if received.action == partner.speak.rm.action("SequenceAcknowledgement"):
            return partner.answered(202)
        if received.sequence is None:
            return None
        partner.answer(received)
        return partner.answered(202)

    partner.says = says
    return messages


@pytest.fixture
def source(open_source: Open) -> Source:
    return open_source(polls=True)


def polls(partner: Partner) -> list[Reply]:
    return [one for one in partner.received if one.action == MAKE_CONNECTION.action]


def address_in(one: Reply) -> str:
    found = next(one.body.iter("{*}Address")).text
    assert found is not None
    return str(found)


def polls_within(source: Source, count: int, seconds: float = 60) -> bool:
    """Whether so many polls have come, while so much time passes."""
    for _ in range(round(2 * seconds)):
        if len(polls(source.partner)) >= count:
            return True
        source.pass_time(0.5)
        time.sleep(0.02)
    return False


@pytest.mark.spec("MC-014", "S-CRE-004")
def test_each_destination_is_told_an_address_of_its_own_which_a_restart_does_not_change(
    open_source: Open, partner: Partner, waiting: deque[Said]
) -> None:
    for count, to in enumerate((THERE, "http://other.example/", THERE), 1):
        with open_source(polls=True) as source:
            source.ask(envelope(partner.speak), to=to, action=ACTION)
            assert partner.within(lambda count=count: len(partner.places) >= count)
            assert source.at_rest()
    created = [[one.text for one in each.body.iter("{*}Address")] for each in partner.saying("CreateSequence")]
    first, second = created[0][0], created[1][0]
    assert created == [[first] * 2, [second] * 2]  # AcksTo, and Endpoint of the offer
    assert first != second
    assert first.startswith(MAKE_CONNECTION.anonymous)
    asked = [body for body in partner.bodies if b"MessageNumber" in body]
    assert {body.count(first.encode()) + body.count(second.encode()) for body in asked} == {1}  # ReplyTo
    assert first.encode() in asked[-1]


@pytest.mark.spec("MC-015", "MC-017", "S-ACK-001")
def test_an_acknowledgement_is_fetched_and_nothing_is_asked_for_when_nothing_is_expected(
    source: Source, partner: Partner, waiting: deque[Said]
) -> None:
    sent = put(source)
    assert partner.within(lambda: len(partner.places) == 1)
    assert polls(partner) == []
    waiting.append(partner.saying_ack(ONE, (1, 1)))
    assert polls_within(source, 1)
    source.wait(sent, 5)
    assert partner.within(lambda: len(polls(partner)) == 2)  # whether there is more
    assert not polls_within(source, 3, seconds=100)


@pytest.mark.spec("MC-015")
def test_empty_answers_are_followed_by_ever_longer_pauses(
    source: Source, partner: Partner, waiting: deque[Said]
) -> None:
    sent = ask(source)
    assert partner.within(lambda: len(partner.places) == 1)
    waiting.append(partner.saying_ack(ONE, (1, 1)))
    assert polls_within(source, 2)
    begins, times = source.clock(), []
    while source.clock() - begins < 300_000:
        before = len(polls(partner))
        source.pass_time(1)
        time.sleep(0.02)
        if len(polls(partner)) > before:
            times.append(source.clock())
    pauses = [after - before for before, after in pairwise(times)]
    assert max(pauses[:2]) <= 8_000
    assert 20_000 < pauses[-1] < 40_000
    assert len(times) < 25
    assert not source.is_settled(sent)
    with source._engine.store.reader() as db:
        (one,) = all_requests(db)
    address = address_in(polls(partner)[0])
    told = f"waits for 5 min to be replied to at {address}; all are acknowledged."
    assert told_of_requests(one, source.clock(), is_sent=True) == f"1 request to {THERE} {told}"


@pytest.mark.spec("MC-016", "MC-017")
def test_what_waits_is_fetched_at_once_each_by_its_own_headers_and_acknowledged_with_the_next_poll(
    source: Source, partner: Partner, waiting: deque[Said]
) -> None:
    """The replies to three requests, the last first; none relates to the poll that fetches it."""
    sent = [ask(source, one) for one in "abc"]
    assert partner.within(lambda: len(partner.places) == 3)
    requests = [one for one in partner.received if one.sequence is not None]
    offered = offered_by(partner)
    for number, request in enumerate(reversed(requests), 1):
        waiting.append(reply_to(partner, request, offered, number, request.body.text))
    assert polls_within(source, 1)
    assert partner.within(lambda: len(polls(partner)) >= 4)
    for one, what in zip(sent, "abc", strict=True):
        assert Reply.parse(source.reply(one, 5).content).body.text == what
    said = [[ack[:2] for ack in one.acks] for one in polls(partner)]
    assert said == [[], [(offered, ((1, 1),))], [(offered, ((1, 2),))], [(offered, ((1, 3),))]]
    assert len({address_in(one) for one in polls(partner)}) == 1


def test_a_destination_that_asks_for_an_acknowledgement_is_sent_one_and_again_where_it_gives_nothing_more(
    source: Source, partner: Partner, waiting: deque[Said]
) -> None:
    """Metro reads none in a MakeConnection, and keeps the next reply back until it has it."""
    sent = [ask(source, one) for one in "ab"]
    assert partner.within(lambda: len(partner.places) == 2)
    offered, first = offered_by(partner), next(one for one in partner.received if one.sequence is not None)
    reply = reply_to(partner, first, offered, what="a").decode()
    waiting.append(
        reply.replace("<wsa:RelatesTo>", partner.speak.ack_requested_header(offered) + "<wsa:RelatesTo>").encode()
    )
    said = [(offered, ((1, 1),))]
    assert polls_within(source, 2)
    assert partner.within(
        lambda: [[ack[:2] for ack in one.acks] for one in partner.saying("SequenceAcknowledgement")] == [said]
    )
    assert source.is_settled(sent[0])
    assert not source.is_settled(sent[1])
    assert polls_within(source, 6)  # a look at the request that waits begins them anew
    assert len(partner.saying("SequenceAcknowledgement")) > 1


def test_what_comes_on_the_response_is_not_asked_for(source: Source, partner: Partner) -> None:
    def says(received: Reply) -> Said:
        if received.sequence is None:
            return None
        partner.answer(received)
        return partner.answered(200, reply_to(partner, received))

    partner.says = says
    assert Reply.parse(source.reply(ask(source), 5).content).body.text == "done"
    assert not polls_within(source, 1, seconds=20)


@pytest.mark.spec("S-RET-010", "MC-017")
def test_what_was_expected_when_a_program_ended_is_fetched_by_the_next(
    open_source: Open, partner: Partner, waiting: deque[Said]
) -> None:
    with open_source(polls=True) as first:
        sent = ask(first)
        assert partner.within(lambda: len(partner.places) == 1)
        assert partner.within(first.at_rest)
    waiting.append(reply_to(partner, partner.received[-1], offered_by(partner)))
    source = open_source(polls=True)
    assert polls_within(source, 1)
    assert Reply.parse(source.reply(sent, 5).content).body.text == "done"


def test_a_destination_that_knows_no_make_connection_is_told_of_and_asked_ever_less_often(
    open_source: Open, partner: Partner, waiting: deque[Said]
) -> None:
    told: list[Event] = []
    source = open_source(polls=True, on_event=told.append)
    ask(source)
    assert partner.within(lambda: len(partner.places) == 1)
    waiting += [partner.fault(MalformedMessage("What is that?"))] * 3
    assert polls_within(source, 3)
    assert partner.within(lambda: [one.name for one in told].count("source.not_fetched") == 1)
    assert "What is that?" in next(one.fields["error"] for one in told if one.name == "source.not_fetched")


def test_a_poll_that_is_not_answered_is_sent_again(source: Source, partner: Partner, waiting: deque[Said]) -> None:
    sent = ask(source)
    assert partner.within(lambda: len(partner.places) == 1)
    waiting += [LOST, reply_to(partner, partner.received[-1])]
    assert polls_within(source, 1)
    for _ in range(100):
        if source.is_settled(sent):
            break
        source.try_now()
        source.pass_time(1)
        time.sleep(0.02)
    assert Reply.parse(source.reply(sent, 5).content).body.text == "done"


@pytest.mark.parametrize(
    ("options", "says"),
    [({"polls": True, "acks_to": HERE}, "say one of them"), ({"polls": True, "rm": "1.0"}, "write rm='1.1'")],
)
@pytest.mark.usefixtures("rm")
def test_polls_that_cannot_be_say_what_to_write(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        RMSource(tmp_path / "outbox.db", **options)
