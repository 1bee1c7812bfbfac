from __future__ import annotations

import io
import random
import uuid
from itertools import pairwise

import pytest

from tests.queue.build import USUAL, Instance, Node, arrival, sender
from wsrm_mq.queue import creation
from wsrm_mq.queue.accept import accept
from wsrm_mq.queue.arrival import Body, Sender
from wsrm_mq.queue.dead_letters import discard
from wsrm_mq.queue.lifecycle import lifecycle
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.room import Room
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import AckRequested, CloseSequence, CreateSequence, TerminateSequence
from wsrm_mq.sequence.states import Act
from wsrm_mq.sequence.terms import Bounds, DeliveryAssurance
from wsrm_mq.store.applications import Serving
from wsrm_mq.versions import WSA_2005, WSRM_1_0, WSRM_1_1, RMVersion, SOAPVersion

BOTH = pytest.mark.parametrize("rm", [WSRM_1_0, WSRM_1_1], ids=["rm10", "rm11"])


def numbers(instance: Instance) -> list[int]:
    return [row["number"] for row in instance.rows("SELECT number FROM entry ORDER BY id")]


@BOTH
@pytest.mark.spec("D-SEQ-004", "D-ACK-001")
def test_an_accepted_message_is_stored_acknowledged_and_claimed_in_one_commit(one: Instance, rm: RMVersion) -> None:
    identifier = one.create(rm=rm).terms.identifier
    receipt = one.take(identifier, 1, rm=rm, message_id="urn:m", connection="c1", body=Body(b"<a/>"))
    assert receipt.act is Act.ACCEPT
    assert receipt.acknowledgement is not None
    assert receipt.acknowledgement.ranges == ((1, 1),)
    assert receipt.claim is not None
    assert receipt.runs_here
    (stored,) = one.rows("SELECT m.*, e.number, e.outcome FROM message m JOIN entry e ON e.message = m.id")
    assert (stored["message_id"], stored["connection"], stored["body"]) == ("urn:m", "c1", b"<a/>")
    assert (stored["body_size"], stored["received_at"], stored["outcome"]) == (4, one.clock(), None)


@BOTH
@pytest.mark.spec("D-SEQ-007", "D-SEQ-008", "D-SEQ-010")
def test_a_duplicate_is_counted_acknowledged_and_not_stored_whatever_its_body(one: Instance, rm: RMVersion) -> None:
    identifier = one.create(rm=rm).terms.identifier
    first = one.take(identifier, 1, rm=rm, body=Body(b"first"))
    again = one.take(identifier, 1, rm=rm, body=Body(b"another"))
    assert (again.act, again.position) == (Act.REPEAT, first.position)
    assert again.claim is None
    assert again.acknowledgement == first.acknowledgement
    assert one.rows("SELECT body FROM message") == [{"body": b"first"}]
    assert one.record(identifier).duplicates == 1
    assert not one.ledger("duplicate"), "a ledger row for each would be a way to fill the disk"


@BOTH
@pytest.mark.spec("D-SEQ-005", "D-SEQ-006", "D-DEL-005")
def test_a_message_behind_a_gap_is_acknowledged_and_held(one: Instance, rm: RMVersion) -> None:
    identifier = one.create(rm=rm).terms.identifier
    receipt = one.take(identifier, 3, rm=rm)
    assert receipt.outcome == "held"
    assert receipt.claim is None
    assert receipt.acknowledgement is not None
    assert receipt.acknowledgement.ranges == ((3, 3),)
    assert one.runnable() == []


@pytest.mark.invariant("I1", "I4")
def test_positions_follow_arrival_and_numbers_rule_delivery(one: Instance) -> None:
    identifier = one.create().terms.identifier
    positions = [one.take(identifier, number).position for number in (1, 5, 4, 3)]
    held = one.record(identifier)
    assert (held.value.limit, held.value.held) == (2, 3)
    positions.append(one.take(identifier, 2).position)
    assert positions == sorted(positions)  # type: ignore[type-var]
    record = one.record(identifier)
    assert (record.value.limit, record.value.held) == (6, 0)


@pytest.mark.scenario("Q-051")
@pytest.mark.spec("D-SEQ-023", "D-SEQ-024", versions="all")
def test_what_has_no_room_leaves_no_trace_and_is_taken_when_there_is_room(one: Instance) -> None:
    identifier = one.create().terms.identifier
    policy = QueuePolicy(bounds=Bounds(max_held=2))
    for number in (1, 3, 4):
        one.take(identifier, number, policy=policy)
    refused = one.take(identifier, 5, policy=policy)
    assert "max_held" in refused.no_room
    assert (refused.act, refused.fault, refused.position) == (None, None, None)
    assert numbers(one) == [1, 3, 4]
    assert one.rows("SELECT count(*) AS n FROM message") == [{"n": 3}]
    assert one.take(identifier, 2, policy=policy).act is Act.ACCEPT
    assert one.take(identifier, 5, policy=policy).act is Act.ACCEPT


def test_what_an_operator_has_discarded_is_not_held(one: Instance) -> None:
    identifier = one.create().terms.identifier
    policy = QueuePolicy(bounds=Bounds(max_held=2))
    taken = [one.take(identifier, number, policy=policy).position for number in (1, 3, 4)]
    position = taken[1]
    assert position is not None
    one.run(lambda tx: discard(tx, position, actor="ann", reason="wrong"))
    assert one.take(identifier, 5, policy=policy).act is Act.ACCEPT
    assert "2 messages are held" in one.take(identifier, 6, policy=policy).no_room


@pytest.mark.spec("D-SEQ-002", "D-SEQ-021", versions="all")
def test_ten_thousand_identifiers_repeat_nothing_show_no_pattern_and_cannot_be_foretold(one: Instance) -> None:
    random.seed(7)
    endless = QueuePolicy(room=Room(max_sequences=None))
    with one.transaction() as tx:
        made = [creation.create(tx, sender(), CreateSequence(None), None, endless).created for _ in range(10_000)]
        random.seed(7)
        again = creation.create(tx, sender(), CreateSequence(None), None, endless).created
    assert again is not None
    names = [sequence.terms.identifier for sequence in made if sequence is not None]
    assert again.terms.identifier not in names, "their source is not one that can be set back"
    uuids = [uuid.UUID(name.removeprefix("urn:uuid:")) for name in names]
    assert {(one.version, one.variant) for one in uuids} == {(4, uuid.RFC_4122)}, "122 bits are free"
    values = [one.int for one in uuids]
    assert len({value >> 64 for value in values}) == len({value & (2**64 - 1) for value in values}) == 10_000
    fixed = [bit for bit in range(128) if bit in (62, 63) or 76 <= bit < 80]
    for drawn in (values, [before ^ after for before, after in pairwise(values)]):
        ones = [sum(value >> bit & 1 for value in drawn) for bit in range(128) if bit not in fixed]
        assert 4_650 < min(ones) <= max(ones) < 5_350, "each bit is as often 1 as 0, whatever the one before it was"


def test_an_unknown_identifier_is_compared_character_by_character(one: Instance) -> None:
    identifier = one.create().terms.identifier
    for other in ("urn:uuid:unknown", identifier.upper(), identifier + "/"):
        assert isinstance(one.take(other, 1).fault, faults.UnknownSequence)
    assert numbers(one) == []


@pytest.mark.parametrize(
    "stranger",
    [
        sender(principal="mallory"),
        sender(queue="/other"),
        sender(WSRM_1_0, soap=SOAPVersion.SOAP_1_1, addressing=WSA_2005),
    ],
    ids=["another principal", "another path", "another version"],
)
@pytest.mark.spec("D-TRM-015", versions="all")
def test_to_a_stranger_a_sequence_is_unknown_and_nothing_changes(one: Instance, stranger: Sender) -> None:
    identifier = one.create().terms.identifier
    message = arrival(identifier, 1, sender=stranger)
    assert isinstance(one.run(lambda tx: accept(tx, message)).fault, faults.UnknownSequence)
    ending = one.run(lambda tx: lifecycle(tx, stranger, TerminateSequence(identifier), USUAL))
    assert isinstance(ending.fault, faults.UnknownSequence)
    assert one.rows("SELECT name FROM queue") == [{"name": "/orders"}], "nor is a queue made for what is refused"
    assert one.take(identifier, 1).act is Act.ACCEPT


def test_a_sequence_keeps_to_one_soap_version(one: Instance) -> None:
    identifier = one.create().terms.identifier
    other = sender(soap=SOAPVersion.SOAP_1_2)
    receipt = one.run(lambda tx: accept(tx, arrival(identifier, 1, sender=other)))
    assert isinstance(receipt.fault, faults.MalformedMessage)
    assert numbers(one) == []


def test_a_repeated_create_gets_the_same_sequence_and_another_one_another(one: Instance) -> None:
    def create(message_id: str | None, peer: str = "192.0.2.1") -> str:
        request = CreateSequence(None, 60_000)
        receipt = one.run(lambda tx: creation.create(tx, sender(peer=peer), request, message_id, QueuePolicy()))
        assert receipt.created is not None
        assert receipt.lifetime == 60_000
        return receipt.created.terms.identifier

    first = create("urn:1")
    assert create("urn:1") == first
    assert len({first, create("urn:2"), create(None), create(None), create("urn:1", "192.0.2.2")}) == 5
    one.end(CloseSequence(first))
    assert create("urn:1") != first, "a closed sequence is of no use to who asks for one"


@pytest.mark.spec("D-CRE-027", "D-EXP-002", versions="all")
def test_a_repeated_create_gets_no_sequence_whose_time_is_over(one: Instance, node: Node) -> None:
    """Nothing has ended it yet: the clock is looked at now and then."""

    def create() -> str:
        request = CreateSequence(None, 60_000)
        receipt = one.run(lambda tx: creation.create(tx, sender(), request, "urn:1", QueuePolicy()))
        assert receipt.created is not None
        return receipt.created.terms.identifier

    first = create()
    node.clock.advance(59_999)
    assert create() == first
    node.clock.advance(1)
    second = create()
    assert second != first
    assert one.take(second, 1).act is Act.ACCEPT


@pytest.mark.spec("SEC-002", versions="all")
def test_a_create_gets_no_sequence_of_another_principal_whatever_their_names_and_message_ids(one: Instance) -> None:
    """A name and a MessageID may run together to the same text, and a name be another client's address."""

    def create(message_id: str, **who: str) -> str:
        request = CreateSequence(None, None)
        receipt = one.run(lambda tx: creation.create(tx, sender(**who), request, message_id, QueuePolicy()))
        assert receipt.created is not None
        return receipt.created.terms.identifier

    pairs = [("urn:c", {"principal": "a b"}), ("b urn:c", {"principal": "a"})]
    pairs += [("urn:d", {"peer": "192.0.2.7"}), ("urn:d", {"principal": "192.0.2.7"})]
    assert len({create(message_id, **who) for message_id, who in pairs}) == 4


def test_an_ack_request_for_an_unknown_sequence_does_not_stop_the_message_it_rides_on(one: Instance) -> None:
    identifier, other = one.create().terms.identifier, one.create().terms.identifier
    one.take(other, 7)
    asked = tuple(AckRequested(name) for name in (identifier, other, "urn:unknown", other))
    receipt = one.take(identifier, 1, ack_requested=asked)
    assert receipt.act is Act.ACCEPT
    assert [(ack.identifier, ack.ranges) for ack in receipt.others] == [(other, ((7, 7),))]
    assert [fault.identifier for fault in receipt.other_faults] == ["urn:unknown"]


def test_an_ack_request_for_a_sequence_of_another_application_is_not_answered(node: Node) -> None:
    orders, bills = (node.start(Serving(application=name)) for name in ("orders:app", "bills:app"))
    asked = (AckRequested(orders.create().terms.identifier),)
    receipt = bills.run(lambda tx: lifecycle(tx, sender(), None, USUAL, asked))
    assert (receipt.others, receipt.other_faults) == ((), ())
    (answered,) = orders.run(lambda tx: lifecycle(tx, sender(), None, USUAL, asked)).others
    assert answered.identifier == asked[0].identifier


def test_a_large_body_is_stored_from_its_file(one: Instance) -> None:
    content = b"<big>" + b"x" * 3_000_000
    file = io.BytesIO(content)
    file.read(10)
    identifier = one.create().terms.identifier
    one.take(identifier, 1, body=Body(None, file, len(content)))
    (stored,) = one.rows("SELECT body, body_size FROM message")
    assert stored == {"body": content, "body_size": len(content)}


@pytest.mark.spec("D-LST-004", versions=("1.0",))
@pytest.mark.invariant("I11")
@pytest.mark.parametrize("early", [False, True], ids=["in order", "before the others"])
def test_an_empty_last_message_is_never_run_and_stops_nothing(one: Instance, early: bool) -> None:
    identifier = one.create(rm=WSRM_1_0).terms.identifier
    options = {"last": True, "empty_last": True, "rm": WSRM_1_0, "named": False}
    if early:
        one.take(identifier, 2, **options)
    receipt = one.take(identifier, 1, rm=WSRM_1_0)
    assert receipt.claim is not None
    assert one.to_run(receipt.claim) == [1]
    if not early:
        one.take(identifier, 2, **options)
    settled = one.settle(receipt.claim, 1, release=True)
    if not settled.released:
        assert one.to_run(receipt.claim) == []
    assert one.outcomes(receipt.claim.lane) == {1: "delivered", 2: "discarded"}
    assert [row["number"] for row in one.ledger("discarded")] == [2]
    assert one.record(identifier).value.acknowledgement().ranges == ((1, 2),)


@pytest.mark.spec("D-DEL-007", versions="all")
@pytest.mark.invariant("I11")
def test_at_most_once_discards_what_comes_late_and_says_so(one: Instance) -> None:
    policy = QueuePolicy(assurance=DeliveryAssurance.AT_MOST_ONCE)
    identifier = one.create(policy).terms.identifier
    first, third = one.take(identifier, 1, policy=policy), one.take(identifier, 3, policy=policy)
    assert first.claim is not None
    assert third.outcome == "accepted"
    assert one.to_run(first.claim) == [1, 3]
    for number in (1, 3):
        one.settle(first.claim, number, release=True)
    late = one.take(identifier, 2, policy=policy)
    assert late.settled
    assert late.claim is None, "there is nothing to run"
    assert one.outcomes(first.claim.lane)[2] == "discarded"
    assert [row["reason"] for row in one.ledger("discarded")] == ["late"]


@pytest.mark.spec("D-ACK-002", "D-DEL-021", versions="all")
def test_an_unnamed_message_is_left_out_of_acknowledgements_until_it_is_settled(one: Instance, node: Node) -> None:
    identifier = one.create().terms.identifier
    receipt = one.take(identifier, 1, wants_reply=True, named=False)
    assert receipt.acknowledgement is not None
    assert receipt.acknowledgement.ranges == ()
    elsewhere = node.start()
    assert elsewhere.record(identifier).value.acknowledgement().ranges == ()
    assert receipt.claim is not None
    one.settle(receipt.claim, 1)
    assert elsewhere.record(identifier).value.acknowledgement().ranges == ((1, 1),)
    assert one.record(identifier).value.acknowledgement().ranges == ((1, 1),)


@pytest.mark.parametrize("element", [CloseSequence, TerminateSequence])
def test_an_end_says_which_unnamed_message_still_runs(one: Instance, element: type) -> None:
    identifier = one.create().terms.identifier
    running = one.take(identifier, 1, wants_reply=True, named=False)
    receipt = one.end(element(identifier))
    assert receipt.unfinished == running.position
    assert running.claim is not None
    assert one.entry(running.claim.lane, 1)["waiter"] == one.name
    assert receipt.acknowledgement is not None
    assert receipt.acknowledgement.ranges == ((1, 1),), "Final names every accepted number"


@pytest.mark.spec("D-CLO-002", versions=("1.1",))
def test_an_end_waits_for_the_last_of_those_that_run_or_will(one: Instance) -> None:
    """Its Final names them all, so their replies have to be there."""
    identifier = one.create().terms.identifier
    positions = [one.take(identifier, number, wants_reply=True, named=False).position for number in (1, 2, 3)]
    assert one.end(CloseSequence(identifier)).unfinished == positions[-1]


def test_an_end_does_not_wait_for_what_will_not_run(one: Instance) -> None:
    policy = QueuePolicy(behavior=arrival("x", 1).policy.behavior.DISCARD_FOLLOWING_FIRST_GAP)
    identifier = one.create(policy).terms.identifier
    one.take(identifier, 2, policy=policy, wants_reply=True, named=False)
    assert one.end(CloseSequence(identifier)).unfinished is None


@pytest.mark.spec("D-EXP-002", "D-EXP-004", versions="all")
def test_a_message_after_expiry_ends_the_sequence_and_is_refused(one: Instance, node: Node) -> None:
    identifier = one.create(expires=1_000).terms.identifier
    one.take(identifier, 1)
    node.clock.advance(1_000)
    assert isinstance(one.take(identifier, 2).fault, faults.UnknownSequence)
    assert numbers(one) == [1]
    assert [row["reason"] for row in one.ledger("ended")] == ["expired"]


@pytest.mark.spec("D-DUR-004", "D-ACK-030", "D-EXP-006", versions="all")
@pytest.mark.invariant("I12")
def test_after_a_restart_every_sequence_answers_as_before(node: Node) -> None:
    first = node.start()
    opened = first.create(expires=5_000).terms.identifier
    closed, ended = (first.create().terms.identifier for _ in range(2))
    for identifier in (opened, closed, ended):
        for number in (1, 3):
            first.take(identifier, number)
    first.end(CloseSequence(closed, 3))
    first.end(TerminateSequence(ended, 3))
    before = {name: first.record(name) for name in (opened, closed, ended)}
    first.close()
    node.clock.advance(1_000)
    again = node.start()
    for name, record in before.items():
        assert again.record(name).value == record.value
    assert again.take(opened, 3).act is Act.REPEAT
    assert isinstance(again.take(closed, 2).fault, faults.SequenceClosed)
    assert isinstance(again.take(ended, 1).fault, faults.UnknownSequence)
    node.clock.advance(4_000)
    assert isinstance(again.take(opened, 2).fault, faults.UnknownSequence)


@pytest.mark.spec("D-SEQ-018", versions="all")
def test_the_largest_number_can_be_stored_closed_and_delivered(one: Instance) -> None:
    identifier = one.create().terms.identifier
    refused = one.take(identifier, 2**63 - 1)
    assert isinstance(refused.fault, faults.MessageNumberRollover)
    one.take(identifier, refused.fault.max_number)
    receipt = one.end(TerminateSequence(identifier))
    assert receipt.claim is not None
    assert one.to_run(receipt.claim) == [refused.fault.max_number]
    assert one.settle(receipt.claim, refused.fault.max_number, release=True).released


def test_a_record_of_one_partner_is_kept_with_its_sequence(one: Instance) -> None:
    who = sender()._replace(partner="acme")
    receipt = one.run(lambda tx: creation.create(tx, who, CreateSequence(None), None, QueuePolicy()))
    assert receipt.created is not None
    assert one.record(receipt.created.terms.identifier).partner == "acme"
