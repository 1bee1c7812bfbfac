"""CloseSequence, as an RM Destination takes it (group D-CLO)."""

from __future__ import annotations

import socket

import pytest

from tests.support.orders_server import within
from tests.support.policies import At, each_front
from tests.support.source import Source, in_1_0, in_1_1

pytestmark = each_front

STRANGE = "urn:uuid:00000000-0000-4000-8000-000000000000"


def said(source: Source, identifier: str) -> list[str]:
    """The events in the ledger of a sequence."""
    query = "select event from ledger where sequence = (select id from lane where identifier = ?) order by id"
    return [event for (event,) in source.store.rows(query, identifier)]


@in_1_1
@pytest.mark.spec("D-CLO-001", "D-CLO-002", "D-CLO-009")
def test_a_close_is_answered_with_the_identifier_and_the_final_acknowledgement(at: At) -> None:
    source = at()
    identifier = source.opened(1, 2, 4)
    answer = source.close(identifier)
    assert (answer.status, answer.reply.body_name) == (200, "CloseSequenceResponse")
    assert answer.reply.body.findtext("{*}Identifier") == identifier
    assert answer.reply.ack.identifier == identifier
    assert (answer.reply.ack.ranges, answer.reply.ack.final) == (((1, 2), (4, 4)), True)
    assert source.store.sequence(identifier)["state"] == "closed"


@in_1_1
@pytest.mark.spec("D-CLO-003", "D-CLO-004", "D-CLO-005")
@pytest.mark.scenario("Q-045")
@pytest.mark.peer("P-26")
@pytest.mark.parametrize("number", [6, 4, 5], ids=["above the last", "missing", "the last"])
def test_a_closed_sequence_refuses_every_new_number_and_says_what_is_final(at: At, number: int) -> None:
    source = at()
    identifier = source.opened(1, 2, 3)
    source.close(identifier, 5)
    answer = source.put(identifier, number)
    assert answer.reply.fault is not None
    assert (answer.reply.fault.code, answer.reply.fault.subcode) == ("Sender", "SequenceClosed")
    assert answer.reply.fault.identifier == identifier
    assert (answer.reply.ack.ranges, answer.reply.ack.final) == (((1, 3),), True)
    assert source.delivered(identifier) == [1, 2, 3]
    assert sorted(source.store.outcomes(identifier)) == [1, 2, 3]


@in_1_1
@pytest.mark.spec("D-CLO-006")
@pytest.mark.peer("P-26")
def test_what_was_accepted_and_comes_again_after_the_close_is_not_delivered_again(at: At) -> None:
    source = at()
    identifier = source.opened(1, 3)
    source.close(identifier)
    for number in (1, 3):
        answer = source.put(identifier, number)
        assert (answer.reply.ack.ranges, answer.reply.ack.final) == (((1, 1), (3, 3)), True)
        assert answer.reply.fault is None or answer.reply.fault.subcode == "SequenceClosed"
    assert source.delivered(identifier) == [1, 3]


@in_1_1
@pytest.mark.spec("D-CLO-007")
def test_a_close_sent_again_is_answered_again_and_changes_nothing(at: At) -> None:
    source = at()
    identifier = source.opened(2, 3)
    first = source.close(identifier, 3)
    before = source.store.sequence(identifier)["ended_at"], said(source, identifier)
    again = source.close(identifier, 3)
    assert again.reply.body_name == first.reply.body_name == "CloseSequenceResponse"
    assert again.reply.acks == first.reply.acks
    assert (source.store.sequence(identifier)["ended_at"], said(source, identifier)) == before
    assert source.delivered(identifier) == [2, 3]


@in_1_1
@pytest.mark.spec("D-CLO-008")
def test_a_close_of_an_unknown_sequence_gets_unknown_sequence(at: At) -> None:
    source = at()
    before = source.store.everything()
    answer = source.close(STRANGE)
    assert answer.reply.fault is not None
    assert (answer.reply.fault.subcode, answer.reply.fault.identifier) == ("UnknownSequence", STRANGE)
    assert source.store.everything() == before


@in_1_1
@pytest.mark.spec("D-CLO-010")
def test_a_close_whose_last_number_was_exceeded_already_ends_the_sequence(at: At) -> None:
    source = at()
    identifier = source.opened(1, 2, 3)
    answer = source.close(identifier, 2)
    assert answer.reply.fault is not None
    assert (answer.reply.fault.code, answer.reply.fault.subcode) == ("Sender", "SequenceTerminated")
    row = source.store.sequence(identifier)
    assert (row["state"], row["ended"]) == ("ended", "refused")
    assert source.delivered(identifier) == [1, 2, 3]


@in_1_1
@pytest.mark.spec("D-CLO-011")
@pytest.mark.parametrize("stated", [0, -1, "x", ""])
def test_a_close_whose_last_number_is_none_is_refused_and_the_sequence_stays_open(at: At, stated: int | str) -> None:
    source = at()
    identifier = source.opened(1)
    answer = source.post(source.speak.close(identifier, stated))
    assert answer.reply.fault is not None
    assert answer.reply.fault.code == "Sender"
    assert source.store.sequence(identifier)["state"] == "created"
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [1, 2]


@in_1_1
@pytest.mark.spec("D-CLO-013")
@pytest.mark.parametrize("stated", [None, 3])
def test_a_closed_sequence_is_terminated_as_any_other(at: At, stated: int | None) -> None:
    source = at()
    identifier = source.opened(1, 2, 3)
    source.close(identifier, 3)
    answer = source.terminate(identifier, stated)
    assert answer.reply.body_name == "TerminateSequenceResponse"
    assert answer.reply.body.findtext("{*}Identifier") == identifier
    row = source.store.sequence(identifier)
    assert (row["state"], row["ended"]) == ("ended", "terminated")
    assert source.delivered(identifier) == [1, 2, 3]


@in_1_1
@pytest.mark.spec("D-CLO-014")
def test_closing_an_empty_sequence_is_answered_with_none_and_final(at: At) -> None:
    source = at()
    identifier = source.create()
    ack = source.close(identifier).reply.ack
    assert (ack.ranges, ack.none, ack.final) == ((), True, True)


@in_1_0
@pytest.mark.spec("D-CLO-015")
def test_a_close_in_the_namespace_of_1_0_closes_nothing(at: At) -> None:
    source = at()
    identifier = source.opened(1)
    answer = source.close(identifier)
    assert answer.reply.fault is not None
    assert source.store.sequence(identifier)["state"] == "created"
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [1, 2]


@in_1_1
@pytest.mark.spec("D-CLO-002")
def test_the_final_acknowledgement_waits_for_what_runs_and_names_it(at: At) -> None:
    """Under ``acknowledge="delivered"`` no other acknowledgement names a message that runs."""
    source, other = at("/robust"), at("/robust")
    identifier = source.create()
    source.send(source.speak.put(identifier, 1, "sleep=400"))
    assert within(5, lambda: source.calls(identifier), bool) == [1]
    assert other.ask(identifier).reply.ack.none
    ended = other.close(identifier).reply.ack
    assert (ended.ranges, ended.final) == (((1, 1),), True)
    assert [n for (n,) in source.server.rows("select n from effects where sequence = ?", identifier)] == [1]
    assert source.wire.read().reply.ack.ranges == ((1, 1),)


@in_1_1
@pytest.mark.spec("D-CLO-002")
def test_a_close_waits_for_the_replies_of_all_that_run_or_will(at: At) -> None:
    """Final names both requests: neither source would ask for its reply again."""
    source, first, second, closing = at(), at(), at(), at()
    identifier = source.create()
    gates = [f"{identifier.rpartition(':')[2]}{number}" for number in (1, 2)]
    for number, (sender, gate) in enumerate(zip((first, second), gates, strict=True), 1):
        sender.send(sender.speak.echo(identifier, number, f"gate={gate}"))
        stored = within(5, lambda: len(source.store.outcomes(identifier)), number.__eq__)
        assert stored == number
    closing.send(closing.speak.close(identifier))
    assert within(5, lambda: source.store.sequence(identifier)["state"], lambda state: state == "closed") == "closed"
    source.server.open_gate(gates[0])
    assert first.wire.read().text("echoResult") == f"gate={gates[0]}"
    closing.wire.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        closing.wire.socket.recv(1, socket.MSG_PEEK)
    closing.wire.socket.settimeout(10)
    source.server.open_gate(gates[1])
    assert second.wire.read().text("echoResult") == f"gate={gates[1]}"
    answer = closing.wire.read().reply
    assert (answer.body_name, answer.ack) == ("CloseSequenceResponse", (identifier, ((1, 2),), True, False))
