"""What an operator does to a live sequence by the command line, as its source and its service see it."""

from __future__ import annotations

import time

import pytest

from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source, each_rm, in_1_1, in_one_version
from wsrm_mq.delivery.dispatcher import LOOK_SECONDS
from wsrm_mq.testing import HTTPAnswer
from wsrm_mq.testing.reply import ReplyFault

from .conftest import Operate


def fault_of(answer: HTTPAnswer) -> ReplyFault:
    assert answer.reply.fault is not None, answer.body
    return answer.reply.fault


def buried(source: Source, identifier: str, number: int) -> str | None:
    """The outcome of a message that is on its way to the dead letters, once it is there."""
    return within(5, lambda: source.store.outcomes(identifier)[number], lambda outcome: outcome == "dead")


@each_rm
@pytest.mark.peer("P-64")
def test_what_is_held_is_acknowledged_and_delivered_once_it_is_resumed(source: Source, operate: Operate) -> None:
    identifier = source.opened(1)
    assert source.delivered(identifier) == [1]
    assert "until it is resumed" in operate("hold", identifier).stderr
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    assert source.soon(identifier, [1]) == [1]
    assert source.calls(identifier) == [1]
    assert "number 2" in operate("resume", identifier).stderr
    assert source.delivered(identifier) == [1, 2]


@in_one_version
@pytest.mark.timed
def test_a_held_sequence_is_not_delivered_by_the_watch_nor_after_its_end(source: Source, operate: Operate) -> None:
    identifier = source.create()
    operate("hold", identifier)
    for number in (1, 2):
        source.put(identifier, number)
    source.terminate(identifier, 2)
    source.server.look()
    assert source.calls(identifier) == []
    operate("resume", identifier)
    assert source.delivered(identifier) == [1, 2]


@in_one_version
@pytest.mark.peer("P-64")
def test_a_hold_lets_the_operation_end_that_runs_and_stops_what_follows(
    source: Source, server: OrdersServer, operate: Operate
) -> None:
    identifier = source.create()
    source.put(identifier, 1, "gate=held")
    for number in range(2, 10):
        source.put(identifier, number)
    assert within(5, lambda: source.calls(identifier), bool) == [1]
    assert "number 1, which is being run, is let end" in operate("hold", identifier).stderr
    time.sleep(2 * LOOK_SECONDS)  # where operations take less, some more may have been called
    server.open_gate("held")
    assert within(5, lambda: source.store.sequence(identifier)["owner"], lambda owner: owner is None) is None
    assert source.soon(identifier, [1]) == [1]
    assert source.calls(identifier) == [1]
    operate("resume", identifier)
    assert source.delivered(identifier) == list(range(1, 10))


@in_one_version
def test_a_two_way_request_of_a_held_sequence_does_not_wait_for_the_operator(source: Source, operate: Operate) -> None:
    identifier = source.create()
    operate("hold", identifier)
    assert source.echo(identifier, 1, "hello").status == 202
    operate("resume", identifier)
    answer = within(5, lambda: source.echo(identifier, 1, "hello"), lambda answer: answer.status == 200)
    assert b"hello" in answer.body


@each_rm
@pytest.mark.peer("P-25")
def test_past_a_gap_that_is_forced_delivery_goes_on_and_what_was_missing_is_delivered_when_it_comes(
    source: Source, operate: Operate
) -> None:
    identifier = source.opened(1, 3, 4, 6)
    assert source.soon(identifier, [1]) == [1]
    operate("force", identifier, "--past", "2")
    assert source.soon(identifier, [1, 3, 4]) == [1, 3, 4]
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 4), (6, 6))
    assert source.soon(identifier, [1, 3, 4, 2]) == [1, 3, 4, 2]
    source.put(identifier, 5)
    assert source.delivered(identifier) == [1, 3, 4, 2, 5, 6]


@each_rm
@pytest.mark.peer("P-25")
def test_what_was_missing_is_a_dead_letter_where_the_operator_refuses_it(source: Source, operate: Operate) -> None:
    identifier = source.opened(1, 3)
    operate("force", identifier, "--past", "2", "--late", "refuse")
    assert source.delivered(identifier) == [1, 3]
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 3),), "its source is done with it"
    assert source.store.outcomes(identifier) == {1: "delivered", 2: "dead", 3: "delivered"}
    source.put(identifier, 4)
    assert source.delivered(identifier) == [1, 3, 4]


@in_1_1
@pytest.mark.spec("D-CLO-003")
@pytest.mark.peer("P-64")
def test_the_source_of_a_closed_sequence_is_told_with_its_next_message(source: Source, operate: Operate) -> None:
    identifier = source.opened(1, 3)
    operate("close", identifier)
    answer = source.put(identifier, 2)
    assert (fault_of(answer).code, fault_of(answer).subcode) == ("Sender", "SequenceClosed")
    assert (answer.reply.ack.ranges, answer.reply.ack.final) == (((1, 1), (3, 3)), True)
    assert source.delivered(identifier) == [1, 3]
    assert source.terminate(identifier).status == 200


@each_rm
@pytest.mark.peer("P-64")
@pytest.mark.parametrize(("fate", "third"), [("--drain", "delivered"), ("--now", "dead")])
def test_the_source_of_a_terminated_sequence_is_told_with_its_next_message(
    source: Source, operate: Operate, fate: str, third: str
) -> None:
    identifier = source.opened(1, 3)
    assert source.soon(identifier, [1]) == [1]
    operate("terminate", identifier, fate)
    answer = source.put(identifier, 2)
    assert fault_of(answer).subcode == "SequenceTerminated"
    assert fault_of(answer).identifier == identifier
    if third == "dead":
        assert buried(source, identifier, 3) == "dead"
    assert source.delivered(identifier) == ([1, 3] if third == "delivered" else [1])
    assert source.store.outcomes(identifier) == {1: "delivered", 3: third}
    assert source.put(source.create(), 1).status == 200, "it begins another one"


@in_one_version
def test_what_runs_when_a_sequence_is_terminated_at_once_ends_and_is_settled(
    source: Source, server: OrdersServer, operate: Operate
) -> None:
    identifier = source.create()
    source.put(identifier, 1, "gate=ends")
    source.put(identifier, 2)
    assert within(5, lambda: source.calls(identifier), bool) == [1]
    operate("terminate", identifier, "--now")
    server.open_gate("ends")
    assert buried(source, identifier, 2) == "dead"
    assert source.store.outcomes(identifier) == {1: "delivered", 2: "dead"}
    assert source.calls(identifier) == [1]


@each_rm
def test_what_version_1_0_does_not_know_is_said_before_anything_changes(source: Source, operate: Operate) -> None:
    identifier = source.opened(1)
    knows = source.speak.rm.has_close
    done = operate("close", identifier, status=0 if knows else 4)
    assert knows or "WS-ReliableMessaging 1.0, which has no close; terminate it." in done.stderr
    assert source.store.sequence(identifier)["state"] == ("closed" if knows else "created")
