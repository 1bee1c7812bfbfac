"""What a sequence, a peer and the store may hold, and that what does not fit leaves no trace."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.queue.build import Instance, Node, arrival, sender
from wsrm_mq.queue import creation
from wsrm_mq.queue.accept import accept
from wsrm_mq.queue.arrival import Body, CreateReceipt, MessageReceipt
from wsrm_mq.queue.ending import bury_tails, expire
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.room import Room
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import CloseSequence, CreateSequence, IncompleteSequenceBehavior, TerminateSequence
from wsrm_mq.sequence.states import Act
from wsrm_mq.sequence.terms import Bounds

UNBOUND = Bounds()
WHOLE = IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE


def policy(bounds: Bounds = UNBOUND, tells_room: bool = False, **room: int) -> QueuePolicy:
    return QueuePolicy(bounds=bounds, room=Room(**room), tells_room=tells_room)


def take(instance: Instance, identifier: str, number: int, rules: QueuePolicy, size: int = 100) -> MessageReceipt:
    return instance.take(identifier, number, policy=rules, body=Body(b"x" * size))


def create(instance: Instance, rules: QueuePolicy, message_id: str | None = None, **who: Any) -> CreateReceipt:
    return instance.run(lambda tx: creation.create(tx, sender(**who), CreateSequence(None), message_id, rules))


def holding(instance: Instance, identifier: str) -> tuple[int, int]:
    """Messages and bytes, as the sequence's row has them."""
    (row,) = instance.rows("SELECT held, held_bytes FROM lane WHERE identifier = ?", identifier)
    return row["held"], row["held_bytes"]


# open sequences


@pytest.mark.spec("SEC-009", versions="all")
@pytest.mark.peer("P-33")
def test_a_peer_over_its_limit_is_refused_by_our_fault_until_one_of_its_sequences_has_closed(one: Instance) -> None:
    rules = policy(max_sequences=2)
    first, second = (create(one, rules).created for _ in range(2))
    assert first is not None
    assert second is not None
    refused = create(one, rules)
    assert isinstance(refused.fault, faults.CreateSequenceRefused)
    assert refused.fault.blame is faults.FaultCode.RECEIVER
    assert refused.created is None
    assert one.rows("SELECT count(*) AS n FROM lane") == [{"n": 2}]
    one.end(CloseSequence(first.terms.identifier))
    assert create(one, rules).created is not None
    assert create(one, rules).fault is not None
    one.end(TerminateSequence(second.terms.identifier))
    assert create(one, rules).created is not None


@pytest.mark.spec("SEC-009", versions="all")
def test_peers_are_told_apart_by_principal_and_without_one_by_address(one: Instance) -> None:
    rules = policy(max_sequences=1)
    peers = (
        {"principal": "acme"},
        {"principal": "other", "peer": "192.0.2.1"},
        {"peer": "192.0.2.1"},
        {"peer": "192.0.2.2"},
        {"peer": None},
    )
    for who in peers:
        assert create(one, rules, **who).created is not None
    for who in peers:
        assert create(one, rules, **who).fault is not None
    assert create(one, rules, principal="acme", peer="192.0.2.9").fault is not None, "the address does not matter"


def test_a_repeated_create_sequence_gets_its_sequence_again_at_the_limit_too(one: Instance) -> None:
    rules = policy(max_sequences=1)
    first = create(one, rules, "urn:create").created
    again = create(one, rules, "urn:create").created
    assert first is not None
    assert again is not None
    assert first.terms.identifier == again.terms.identifier


@pytest.mark.spec("SEC-010", versions="all")
def test_a_sequence_that_ended_by_the_clock_gives_its_place_back(one: Instance, node: Node) -> None:
    rules = QueuePolicy(inactivity=1_000, room=Room(max_sequences=1))
    assert create(one, rules).created is not None
    node.clock.advance(1_000)
    one.run(lambda tx: expire(tx, 1))
    assert create(one, rules).created is not None


# bytes that wait


@pytest.mark.spec("SEC-014", versions="all")
def test_bytes_that_wait_are_bounded_and_what_fills_the_gap_is_always_taken(one: Instance) -> None:
    identifier = one.create().terms.identifier
    rules = policy(max_held_bytes=250)
    assert take(one, identifier, 2, rules).act is Act.ACCEPT
    assert take(one, identifier, 3, rules).act is Act.ACCEPT
    before = one.rows("SELECT * FROM lane")
    refused = take(one, identifier, 4, rules)
    assert (refused.act, refused.fault) == (None, None)
    assert "max_held_bytes is 250" in refused.no_room
    assert one.rows("SELECT * FROM lane") == before
    assert one.rows("SELECT count(*) AS n FROM message") == [{"n": 2}]
    assert holding(one, identifier) == (2, 200)
    assert take(one, identifier, 1, rules, size=10_000).act is Act.ACCEPT
    assert holding(one, identifier) == (0, 0)
    assert take(one, identifier, 5, rules).act is Act.ACCEPT


def test_what_several_runs_weigh_is_counted_again_before_anything_is_refused(one: Instance, node: Node) -> None:
    """The weight of the released run is unknown; its bytes stay on the account until they would matter."""
    identifier = one.create().terms.identifier
    rules = policy(max_held_bytes=1_000)
    take(one, identifier, 2, rules, size=700)
    take(one, identifier, 4, rules, size=100)
    take(one, identifier, 1, rules)
    assert holding(one, identifier) == (1, 800)
    assert take(one, identifier, 5, rules, size=200).act is Act.ACCEPT
    assert holding(one, identifier) == (2, 1_000)
    assert take(one, identifier, 6, rules, size=600).act is Act.ACCEPT, "700 bytes of it are no longer held"
    assert holding(one, identifier) == (3, 900)
    assert take(one, identifier, 7, rules, size=600).no_room
    other = node.start()
    assert take(other, identifier, 7, rules, size=101).no_room, "another process knows it too"
    assert take(other, identifier, 7, rules, size=100).act is Act.ACCEPT


@pytest.mark.spec("SEC-014", versions="all")
def test_what_all_sequences_hold_is_bounded_in_messages_and_in_bytes(one: Instance, node: Node) -> None:
    few, small = policy(max_held_total=3), policy(max_held_bytes_total=300)
    first, second = (one.create().terms.identifier for _ in range(2))
    for identifier, number in ((first, 2), (first, 3), (second, 2)):
        assert take(one, identifier, number, few).act is Act.ACCEPT
    for rules, said in ((few, "all sequences hold 3 messages"), (small, "all sequences hold 300 bytes")):
        assert said in take(one, second, 3, rules).no_room
        assert said in take(node.start(), second, 3, rules).no_room, "another process counts the same"
    assert take(one, first, 1, few).act is Act.ACCEPT
    for rules in (few, small):
        assert take(one, second, 3 if rules is few else 4, rules).act is Act.ACCEPT


@pytest.mark.spec("SEC-014", versions="all")
def test_bytes_that_came_since_they_were_last_added_up_count_too(one: Instance) -> None:
    rules = policy(max_held_bytes_total=300)
    first, second = (one.create().terms.identifier for _ in range(2))
    for identifier, number in ((first, 2), (first, 3), (second, 2)):
        assert take(one, identifier, number, rules).act is Act.ACCEPT
    assert "all sequences hold 300 bytes" in take(one, second, 3, rules).no_room


def test_nothing_is_asked_of_the_store_to_know_what_all_sequences_hold(one: Instance) -> None:
    identifier = one.create().terms.identifier
    rules = policy(max_held_total=100, max_held_bytes=10_000, max_held_bytes_total=10_000)
    for number in (3, 4):
        take(one, identifier, number, rules)
    asked: list[str] = []
    one.db.set_trace_callback(asked.append)
    for number in (1, 5, 2, 6, 7):
        take(one, identifier, number, rules)
    one.db.set_trace_callback(None)
    assert not [text for text in asked if "sum(" in text]


@pytest.mark.spec("SEC-014", versions=("1.1",))
def test_a_sequence_held_as_a_whole_ends_when_it_is_too_large(one: Instance) -> None:
    made = QueuePolicy(behavior=WHOLE, bounds=Bounds(max_held=1), room=Room(max_held_bytes=250))
    identifier = one.create(made).terms.identifier
    for number in (1, 2):
        assert take(one, identifier, number, made).act is Act.ACCEPT, "max_held is not for it"
    ended = take(one, identifier, 3, made)
    assert isinstance(ended.fault, faults.SequenceTerminated)
    assert ended.fault.blame is faults.FaultCode.RECEIVER
    assert ended.needs_watch
    one.run(bury_tails)
    assert one.outcomes(1) == {1: "dead", 2: "dead"}
    assert {row["reason"] for row in one.ledger("dead")} == {"max_held_bytes"}
    (row,) = one.ledger("ended")
    assert "max_held_bytes is 250" in row["reason"]
    assert holding(one, identifier) == (0, 0)


@pytest.mark.spec("SEC-014", versions="all")
def test_what_was_held_is_forgotten_with_the_end_of_its_sequence(one: Instance) -> None:
    for behavior in IncompleteSequenceBehavior:
        rules = QueuePolicy(behavior=behavior)
        identifier = one.create(rules).terms.identifier
        take(one, identifier, 2, rules)
        assert holding(one, identifier) == (1, 100)
        one.end(TerminateSequence(identifier))
        assert holding(one, identifier) == (0, 0)


# the store


@pytest.mark.spec("SEC-031", versions="all")
def test_a_full_store_takes_what_fills_a_gap_and_nothing_else(one: Instance) -> None:
    identifier = one.create().terms.identifier
    one.take(identifier, 3)
    free, used = policy(), policy(max_store=1)
    for number in (2, 4):
        assert "max_store is 1" in take(one, identifier, number, used).no_room
    assert create(one, used).no_room
    assert take(one, identifier, 3, used).act is Act.REPEAT
    assert take(one, identifier, 1, used).act is Act.ACCEPT
    assert take(one, identifier, 2, used).act is Act.ACCEPT
    assert "max_store is 1" in take(one, identifier, 4, used).no_room, "nothing waits for it"
    assert one.record(identifier).value.received.ranges == ((1, 3),)
    assert take(one, identifier, 4, free).act is Act.ACCEPT


def test_room_in_the_store_is_measured_without_what_is_free_in_its_file(one: Instance) -> None:
    identifier = one.create().terms.identifier
    one.take(identifier, 1, body=Body(b"x" * 1_000_000))
    with one.transaction() as tx:
        full = tx.used_bytes
    assert full > 1_000_000
    one.run(lambda tx: tx.execute("UPDATE message SET body = NULL"))
    with one.transaction() as tx:
        assert tx.used_bytes < full - 900_000


# BufferRemaining


@pytest.mark.parametrize(
    ("rules", "numbers", "remaining"),
    [
        (policy(tells_room=True), (1,), 4_096),
        (policy(Bounds(window=8), tells_room=True), (1,), 8),
        (policy(Bounds(window=8), tells_room=True), (1, 2, 5), 5),
        (policy(Bounds(max_held=3), tells_room=True), (1, 3, 4), 1),
        (policy(Bounds(max_held=2), tells_room=True), (3, 4, 5), 0),
        (policy(tells_room=True, max_held_bytes=100), (3,), 0),
        (policy(tells_room=True, max_store=1), (2, 1), 0),
    ],
)
def test_the_room_that_is_left_is_told(
    one: Instance, rules: QueuePolicy, numbers: tuple[int, ...], remaining: int
) -> None:
    identifier = one.create().terms.identifier
    for number in numbers:
        receipt = take(one, identifier, number, rules)
    assert receipt.acknowledgement is not None
    assert receipt.acknowledgement.buffer_remaining == remaining


# acknowledgements that may be put off


def test_an_acknowledgement_is_put_off_for_its_interval_at_most_and_never_for_a_gap_or_a_duplicate(
    one: Instance, node: Node
) -> None:
    identifier = one.create().terms.identifier
    rules = QueuePolicy(acknowledgement_interval=1_000)

    def is_due(number: int, after: int = 0) -> bool:
        node.clock.advance(after)
        return one.take(identifier, number, policy=rules).acknowledge_now

    assert is_due(1)
    assert not is_due(2, 999)
    assert is_due(3, 1)
    assert is_due(3)
    assert is_due(5)
    assert not is_due(4)
    assert is_due(6, -3_600_000), "the clock was stepped back"


# numbers


def test_even_numbers_only_stay_within_the_cap_and_each_costs_what_the_first_ones_did(one: Instance) -> None:
    rules = QueuePolicy()
    most = rules.bounds.max_ranges
    assert most is not None
    identifier = one.create(rules).terms.identifier
    spent, taken = [], 0
    for start in range(1, 100_001, 5_000):
        begun = time.process_time()
        for piece in range(start, start + 5_000, 500):
            with one.transaction() as tx:
                for each in range(piece, piece + 500):
                    receipt = accept(tx, arrival(identifier, 2 * each, policy=rules))
                    taken += receipt.act is Act.ACCEPT
        spent.append(time.process_time() - begun)
    assert taken == most == len(one.record(identifier).value.received)
    assert one.rows("SELECT count(*) AS n FROM range") == [{"n": most}]
    assert max(spent[1:]) < spent[0], "those that are turned away cost less than those that were taken"
    assert max(spent[10:]) < 3 * min(spent[1:10]), "and the last no more than the first"
