"""TerminateSequence, as an RM Destination takes it (group D-TRM), but for what needs a channel to the source."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.orders import Orders
from tests.support.orders_server import within
from tests.support.policies import At
from tests.support.source import Source, each_rm, every_version, in_1_0, in_1_1

STRANGE = "urn:uuid:00000000-0000-4000-8000-000000000000"


def opened(source: Source, *numbers: int, **options: str) -> str:
    """A new sequence in which the server accepted ``numbers``."""
    identifier = source.create(**options)
    for number in numbers:
        assert source.put(identifier, number).status == 200
    return identifier


def end(source: Source, identifier: str) -> None:
    assert source.terminate(identifier).status == (200 if source.speak.rm.has_close else 202)


def settled(source: Source, identifier: str) -> dict[str, Any]:
    """The row of a sequence once it does not run, but for the time of its last message."""
    row = within(5, lambda: source.store.sequence(identifier), lambda row: row["owner"] is None)
    return {name: value for name, value in row.items() if name != "active_at"}


def fault_of(source: Source, envelope: bytes, *fields: str) -> str | None:
    reply = source.post(envelope, *fields).reply
    return reply.fault.subcode if reply.fault is not None else None


@in_1_1
@pytest.mark.spec("D-TRM-001", "D-TRM-003")
def test_terminate_is_answered_with_the_identifier_and_the_final_acknowledgement(at: At) -> None:
    source = at()
    identifier = opened(source, 1, 2, 3)
    answer = source.terminate(identifier, 3)
    assert (answer.status, answer.reply.body_name) == (200, "TerminateSequenceResponse")
    assert answer.reply.body.findtext("{*}Identifier") == identifier
    assert (answer.reply.ack.identifier, answer.reply.ack.ranges) == (identifier, ((1, 3),))
    assert answer.reply.ack.final
    row = source.store.sequence(identifier)
    assert (row["state"], row["ended"]) == ("ended", "terminated")


@in_1_0
@pytest.mark.spec("D-TRM-002")
def test_terminate_in_1_0_is_one_way(at: At) -> None:
    source = at()
    identifier = opened(source, 1)
    answer = source.terminate(identifier)
    assert (answer.status, answer.body) == (202, b"")
    assert source.store.sequence(identifier)["state"] == "ended"


@in_1_1
@pytest.mark.spec("D-TRM-004")
def test_terminating_an_unknown_sequence_gets_unknown_sequence(at: At) -> None:
    source = at()
    before = source.store.everything()
    answer = source.terminate(STRANGE)
    assert answer.reply.fault is not None
    assert (answer.reply.fault.subcode, answer.reply.fault.identifier) == ("UnknownSequence", STRANGE)
    assert source.store.everything() == before


@in_1_1
@pytest.mark.spec("D-TRM-005")
def test_terminate_sent_again_is_answered_again(at: At) -> None:
    source = at()
    identifier = opened(source, 1, 3)
    first = source.terminate(identifier)
    assert source.delivered(identifier) == [1, 3]
    before = settled(source, identifier)
    again = source.terminate(identifier)
    assert first.reply.body_name == again.reply.body_name == "TerminateSequenceResponse"
    assert again.reply.acks == first.reply.acks
    assert settled(source, identifier) == before
    assert source.delivered(identifier) == [1, 3]


@in_1_1
@pytest.mark.spec("D-TRM-006")
@pytest.mark.scenario("Q-046")
def test_terminate_needs_no_close_and_no_complete_sequence(at: At) -> None:
    """1 to 3 are delivered, then what follows the gap; the ledger tells of the gap."""
    source = at()
    identifier = opened(source, 1, 2, 3, 7, 5, 6)
    assert source.delivered(identifier) == [1, 2, 3]
    answer = source.terminate(identifier, 7)
    assert answer.reply.body_name == "TerminateSequenceResponse"
    assert source.delivered(identifier) == [1, 2, 3, 5, 6, 7]
    crossings = source.store.rows(
        "select reason from ledger where event = 'released_across_gap'"
        " and sequence = (select id from lane where identifier = ?)",
        identifier,
    )
    assert crossings == [("missing 4",)]


@in_1_1
@pytest.mark.scenario("Q-046")
def test_on_incomplete_dead_letter_buries_what_lies_beyond_the_gap_and_announces_it(at: At) -> None:
    source = at("/bury")
    created = source.post(source.speak.create_sequence()).reply.created
    assert created is not None
    assert created.behavior == "DiscardFollowingFirstGap"
    identifier = created.identifier
    for number in (1, 2, 3, 5, 6):
        source.put(identifier, number)
    assert source.terminate(identifier).reply.ack.ranges == ((1, 3), (5, 6))
    assert source.delivered(identifier) == [1, 2, 3]
    buried = within(5, lambda: graves(source, identifier), lambda found: len(found) == 2)
    assert buried == [(5, "/bury#dead", "sequence_terminated"), (6, "/bury#dead", "sequence_terminated")]
    assert source.delivered(identifier) == [1, 2, 3]


def graves(source: Source, identifier: str) -> list[tuple[int, str, str]]:
    """Number, queue and reason of the dead letters of a sequence."""
    return source.store.rows(
        "select number, name, reason from entry join queue on queue.id = entry.queue where outcome = 'dead'"
        " and lane = (select id from lane where identifier = ?) order by number",
        identifier,
    )


@in_1_1
@pytest.mark.spec("D-TRM-007")
def test_terminate_that_contradicts_the_close_gets_sequence_terminated(at: At) -> None:
    source = at()
    identifier = opened(source, 1, 2)
    source.close(identifier, 4)
    answer = source.terminate(identifier, 5)
    assert answer.reply.fault is not None
    assert (answer.reply.fault.code, answer.reply.fault.subcode) == ("Sender", "SequenceTerminated")
    assert source.delivered(identifier) == [1, 2]


@in_1_1
@pytest.mark.spec("D-TRM-007")
def test_each_last_number_is_held_to_the_one_stated_before(at: At) -> None:
    """Stated by a CloseSequence that came again; by the TerminateSequence before; lower than what was sent. Refused
    once, it stays refused."""
    source = at()
    identifier = opened(source, 1, 2)
    assert source.close(identifier).reply.body_name == "CloseSequenceResponse"
    assert source.close(identifier, 4).reply.body_name == "CloseSequenceResponse"
    for _ in range(2):
        refused = source.terminate(identifier, 5).reply.fault
        assert refused is not None
        assert (refused.code, refused.subcode) == ("Sender", "SequenceTerminated")
    assert source.store.sequence(identifier)["last_number"] == 4

    ended = opened(source, 1, 2)
    assert source.terminate(ended, 4).reply.body_name == "TerminateSequenceResponse"
    for wrong in (5, 1):
        refused = source.terminate(ended, wrong).reply.fault
        assert refused is not None
        assert (refused.code, refused.subcode, refused.identifier) == ("Sender", "SequenceTerminated", ended)
    for right in (4, None):
        assert source.terminate(ended, right).reply.body_name == "TerminateSequenceResponse"
    assert source.delivered(ended) == [1, 2]


@in_1_1
@pytest.mark.spec("D-TRM-008")
def test_after_the_end_everything_but_terminate_gets_unknown_sequence(at: At) -> None:
    source = at()
    identifier = opened(source, 1, 2)
    source.terminate(identifier)
    speak = source.speak
    assert fault_of(source, source.speak.put(identifier, 3)) == "UnknownSequence"
    assert fault_of(source, source.speak.put(identifier, 1)) == "UnknownSequence"
    assert fault_of(source, speak.ack_requested(identifier)) == "UnknownSequence"
    assert fault_of(source, speak.close(identifier)) == "UnknownSequence"
    assert source.delivered(identifier) == [1, 2]
    assert sorted(source.store.outcomes(identifier)) == [1, 2]


@each_rm
@pytest.mark.spec("D-TRM-009")
def test_an_end_gives_back_what_a_sequence_held(at: At) -> None:
    """Its timer, its place in the dispatcher, the request that waited in it, and every message that waited."""
    source, waiting = at(), at()
    identifier = opened(source, 1, 4, expires="PT1H")
    waiting.send(source.speak.echo(identifier, 3, "three"))
    assert within(5, lambda: source.store.outcomes(identifier), lambda found: 3 in found)
    end(source, identifier)
    assert waiting.wire.read().text("echoResult") == "three"
    assert source.delivered(identifier) == [1, None, 4]
    row = settled(source, identifier)
    assert (row["owner"], row["running_since"], row["due_at"], row["retry_at"]) == (None, None, None, None)
    assert set(source.store.outcomes(identifier).values()) == {"delivered"}
    assert row["cursor"] == row["limit"] == 5


@each_rm
@pytest.mark.spec("D-TRM-010")
def test_what_was_acknowledged_before_the_end_is_delivered_after_it(at: At) -> None:
    source = at()
    identifier = source.create()
    gate = identifier.rpartition(":")[2]
    source.put(identifier, 1, f"gate={gate}")
    for number in (2, 4):
        assert source.put(identifier, number).status == 200
    end(source, identifier)
    assert source.store.outcomes(identifier) == {1: None, 2: None, 4: None}
    source.server.open_gate(gate)
    assert source.delivered(identifier) == [1, 2, 4]


@every_version
@pytest.mark.spec("D-TRM-012")
def test_terminate_among_the_header_blocks_does_nothing(at: At) -> None:
    """The message that carries it is refused, and the sequence goes on as if it had never come."""
    source = at()
    identifier = opened(source, 1)
    assert source.delivered(identifier) == [1]
    before = settled(source, identifier)
    block = f"<wsrm:TerminateSequence><wsrm:Identifier>{identifier}</wsrm:Identifier></wsrm:TerminateSequence>"
    for envelope in (
        source.speak.put(identifier, 2, headers=block),
        source.speak.envelope(source.speak.rm.action("TerminateSequence"), "", headers=block, reply_to=""),
    ):
        assert source.post(envelope).reply.fault is not None
    assert settled(source, identifier) == before
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [1, 2]


@in_1_0
@pytest.mark.spec("D-TRM-013")
def test_an_incomplete_end_in_1_0_reports_no_more_than_was_acknowledged(at: At) -> None:
    source = at()
    identifier = opened(source, 1, 4)
    assert source.ask(identifier).reply.ack.ranges == ((1, 1), (4, 4))
    answer = source.terminate(identifier)
    if answer.body:  # a SequenceTerminated fault is tolerated
        assert answer.reply.fault is not None
        assert answer.reply.fault.subcode == "SequenceTerminated"
        assert all(ack.ranges == ((1, 1), (4, 4)) for ack in answer.reply.acks)
    assert source.store.received(identifier) == [(1, 1), (4, 4)]
    assert source.delivered(identifier) == [1, 4]


@each_rm
@pytest.mark.spec("D-TRM-015")
@pytest.mark.parametrize("stranger", [(), ("X-User: mallory",)], ids=["nobody", "somebody else"])
def test_only_the_peer_that_a_sequence_is_bound_to_can_end_it(at: At, speak: Orders, stranger: tuple[str, ...]) -> None:
    owner, other = at(fields=("X-User: alice",)), at(fields=stranger)
    identifier = opened(owner, 1)
    assert owner.delivered(identifier) == [1]
    before = settled(owner, identifier)
    assert fault_of(other, speak.terminate(identifier)) == "UnknownSequence"
    assert settled(owner, identifier) == before
    assert owner.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    end(owner, identifier)
    assert owner.store.sequence(identifier)["principal"] == "alice"
    assert owner.delivered(identifier) == [1, 2]
