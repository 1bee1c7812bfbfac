"""Acknowledged only when delivered: the service fails or declines, the source sends again until it is taken."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.support.orders_server import within
from tests.support.policies import At, Start
from tests.support.source import Source
from wsrm_mq.testing import HTTPAnswer

ROBUST: Final[dict[str, Any]] = {"acknowledge": "delivered", "hold_wait": 0.3, "retry": [3.0]}
"""A request gives up long before the failed message is tried again: the source has to resend."""


def acknowledges(answer: HTTPAnswer) -> bool:
    return b"AcknowledgementRange" in answer.body


def resent(source: Source, envelope: bytes) -> list[HTTPAnswer]:
    """The answers to the same bytes, sent until one of them acknowledges."""
    answers: list[HTTPAnswer] = []

    def resend() -> HTTPAnswer:
        answers.append(source.post(envelope))
        return answers[-1]

    within(10, resend, acknowledges)
    return answers


def attempts(source: Source, identifier: str) -> list[tuple[int, int]]:
    """The number and the attempt of each call."""
    return source.server.rows("select number, attempt from calls where sequence = ? order by rowid", identifier)


@pytest.mark.peer("P-59")
@pytest.mark.parametrize("killed", [False, True], ids=["server lives", "server is killed"])
def test_while_the_service_fails_nothing_is_acknowledged_and_a_resend_succeeds_later(
    at: At, start: Start, killed: bool
) -> None:
    server = start(**ROBUST)
    source = at(server=server)
    identifier = source.create()
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
    envelope = source.speak.put(identifier, 2, "fail=1")
    refused = source.post(envelope)
    assert (refused.status, acknowledges(refused)) == (202, False)
    assert attempts(source, identifier) == [(1, 1), (2, 1)]
    if killed:
        server.kill()
        server.start()
        source.reconnect()
    assert source.ask(identifier).reply.ack.ranges == ((1, 1),)
    answers = resent(source, envelope)
    assert answers[-1].reply.ack.ranges == ((1, 2),)
    assert {answer.status for answer in answers[:-1]} <= {202}
    assert source.delivered(identifier) == [1, 2]
    assert attempts(source, identifier) == [(1, 1), (2, 1), (2, 2)]  # resending made no call of its own
    assert resent(source, envelope)[0].reply.ack.ranges == ((1, 2),)
    assert len(attempts(source, identifier)) == 3


@pytest.mark.peer("P-59")
def test_a_service_that_stays_down_is_never_acknowledged_for(at: At, start: Start) -> None:
    source = at(server=start(**ROBUST | {"retry": [0.1]}))
    identifier = source.create()
    envelope = source.speak.put(identifier, 1, "fail=99")
    for _ in range(3):
        assert not acknowledges(source.post(envelope))
    assert within(5, lambda: source.store.sequence(identifier)["blocked"], bool)
    assert not acknowledges(source.post(envelope))
    assert source.ask(identifier).reply.ack.ranges == ()
    assert source.store.outcomes(identifier) == {1: None}


@pytest.mark.peer("P-60")
def test_a_message_that_the_application_declines_is_not_acknowledged_and_comes_again(at: At, start: Start) -> None:
    """The operation ends well and answers; only what it said counts."""
    source = at(server=start(**ROBUST))
    identifier = source.create()
    envelope = source.speak.put(identifier, 1, "refuse=1")
    declined = source.post(envelope)
    assert (declined.status, acknowledges(declined)) == (202, False)
    assert source.ask(identifier).reply.ack.ranges == ()
    [(event, reason)] = source.store.rows("select event, reason from ledger where number = 1")
    assert event == "failed"
    assert "the order book is closed" in reason
    assert resent(source, envelope)[-1].reply.ack.ranges == ((1, 1),)
    assert attempts(source, identifier) == [(1, 1), (1, 2)]
    assert source.store.outcomes(identifier) == {1: "delivered"}


@pytest.mark.peer("P-60")
def test_a_message_that_the_application_does_not_decline_is_acknowledged_and_comes_once(at: At, start: Start) -> None:
    source = at(server=start(**ROBUST))
    identifier = source.create()
    envelope = source.speak.put(identifier, 1, "refuse=0")
    assert [answer.reply.ack.ranges for answer in resent(source, envelope)] == [((1, 1),)]
    assert [answer.reply.ack.ranges for answer in resent(source, envelope)] == [((1, 1),)]
    assert attempts(source, identifier) == [(1, 1)]
    assert source.store.rows("select count(*) from ledger where event = 'failed'") == [(0,)]


@pytest.mark.peer("P-60")
def test_a_declined_message_that_is_acknowledged_already_comes_again_without_a_resend(at: At) -> None:
    source = at()
    identifier = source.create()
    assert source.put(identifier, 1, "refuse=1").reply.ack.ranges == ((1, 1),)
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    assert within(5, lambda: source.store.unsettled(identifier), lambda left: left == 0) == 0
    assert attempts(source, identifier) == [(1, 1), (1, 2), (2, 1)]
