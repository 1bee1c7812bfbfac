from __future__ import annotations

import pytest

from tests.queue.build import USUAL, Instance, Node
from wsrm_mq.queue.ending import bury_tails, due, expire, expire_due
from wsrm_mq.queue.policy import OnPoison, QueuePolicy
from wsrm_mq.sequence.elements import CloseSequence, IncompleteSequenceBehavior, TerminateSequence
from wsrm_mq.sequence.states import State
from wsrm_mq.store import lanes

FOLLOWING = QueuePolicy(
    behavior=IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP, retry=(), on_poison=OnPoison.TERMINATE
)
ENTIRE = QueuePolicy(behavior=IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE)
MINUTE = 60_000


def having(one: Instance, numbers: tuple[int, ...], policy: QueuePolicy = USUAL) -> str:
    """A sequence that has taken ``numbers``; it does not run."""
    identifier = one.create(policy, expires=MINUTE).terms.identifier
    for number in numbers:
        one.take(identifier, number, policy=policy)
    one.run(lambda tx: setattr(tx.sequence_named(identifier), "owner", None))
    return identifier


def bury_all(one: Instance, count: int = 500) -> int:
    """How many batches it takes."""
    batches = 1
    while one.run(lambda tx: bury_tails(tx, count)):
        batches += 1
    return batches


@pytest.mark.spec("D-DEL-009", "D-DEL-010", "D-TRM-010", versions=("1.1",))
@pytest.mark.invariant("I11")
@pytest.mark.parametrize("element", [CloseSequence, TerminateSequence])
def test_no_discard_runs_what_was_held_across_the_gaps_and_says_so(one: Instance, element: type) -> None:
    identifier = having(one, (1, 3, 6))
    receipt = one.end(element(identifier))
    assert receipt.claim is not None
    assert one.to_run(receipt.claim) == [1, 3, 6]
    for number in (1, 3, 6):
        settled = one.settle(receipt.claim, number, release=True)
    assert settled.released
    assert [row["reason"] for row in one.ledger("released_across_gap")] == ["missing 2,4-5"]


@pytest.mark.spec("D-DEL-011", "D-DEL-017", versions=("1.1",))
@pytest.mark.invariant("I8", "I11")
def test_what_follows_the_first_gap_goes_to_the_dead_letters_in_batches(one: Instance) -> None:
    identifier = having(one, (1, 2, 4, 5, 6, 8), FOLLOWING)
    receipt = one.end(CloseSequence(identifier))
    assert receipt.needs_watch
    assert receipt.claim is not None
    key = receipt.claim.lane
    assert one.to_run(receipt.claim) == [1, 2], "before a single one was moved"
    assert bury_all(one, count=2) == 3
    assert one.outcomes(key) == {1: None, 2: None, 4: "dead", 5: "dead", 6: "dead", 8: "dead"}
    assert {row["reason"] for row in one.ledger("dead")} == {"first_gap"}
    assert len(one.ledger("discarding")) == 1
    for number in (1, 2):
        settled = one.settle(receipt.claim, number, release=True)
    assert settled.released
    assert one.runnable() == []
    assert one.record(identifier).value.acknowledgement().ranges == ((1, 2), (4, 6), (8, 8))
    assert not one.record(identifier).discarding
    assert one.db.execute(lanes.DISCARDING, {"count": 1}).fetchall() == []


@pytest.mark.spec("D-DEL-012", versions=("1.1",))
def test_with_the_first_number_missing_nothing_is_run(one: Instance) -> None:
    identifier = having(one, (2, 3), FOLLOWING)
    receipt = one.end(TerminateSequence(identifier))
    assert receipt.claim is None
    key = one.record(identifier).id
    bury_all(one)
    assert one.outcomes(key) == {2: "dead", 3: "dead"}
    record = one.record(identifier)
    assert record.cursor == record.value.limit


def test_a_missing_tail_leaves_nothing_to_discard(one: Instance) -> None:
    identifier = having(one, (1, 2), FOLLOWING)
    receipt = one.end(CloseSequence(identifier, 5))
    assert receipt.claim is not None
    assert not receipt.needs_watch
    assert one.ledger("discarding") == []
    assert one.to_run(receipt.claim) == [1, 2]


@pytest.mark.spec("D-DEL-014", "D-DEL-015", "D-DEL-016", versions=("1.1",))
@pytest.mark.parametrize(("last_number", "run"), [(3, [1, 2, 3]), (4, None), (None, [1, 2, 3])])
def test_an_entire_sequence_is_run_or_buried_together(
    one: Instance, last_number: int | None, run: list[int] | None
) -> None:
    identifier = having(one, (3, 1, 2), ENTIRE)
    assert one.runnable() == []
    receipt = one.end(CloseSequence(identifier, last_number))
    key = one.record(identifier).id
    if run is None:
        assert receipt.claim is None
        bury_all(one)
        assert set(one.outcomes(key).values()) == {"dead"}
        assert {row["reason"] for row in one.ledger("dead")} == {"incomplete_sequence"}
    else:
        assert receipt.claim is not None
        assert one.to_run(receipt.claim) == run


@pytest.mark.invariant("I11")
def test_a_prefix_that_fails_for_good_after_its_tail_was_buried_is_buried_too(one: Instance) -> None:
    identifier = having(one, (1, 2, 4), FOLLOWING)
    claim = one.end(CloseSequence(identifier)).claim
    assert claim is not None
    bury_all(one)
    one.fail(claim, 1, FOLLOWING)
    assert one.runnable() == []
    bury_all(one)
    assert one.outcomes(claim.lane) == {1: "dead", 2: "dead", 4: "dead"}


@pytest.mark.spec("D-EXP-001", "D-EXP-003", versions="all")
def test_the_clock_ends_a_sequence_once_and_releases_what_it_held(one: Instance, node: Node) -> None:
    identifier = having(one, (2,))
    key = one.record(identifier).id
    node.clock.advance(MINUTE - 1)
    assert one.run(lambda tx: due(tx, 10)) == []
    one.run(lambda tx: expire(tx, key))
    assert one.record(identifier).value.state == "created", "not before its time"
    node.clock.advance(1)
    assert one.run(lambda tx: due(tx, 10)) == [key]
    for _ in range(2):
        one.run(lambda tx: expire(tx, key))
    assert one.run(lambda tx: due(tx, 10)) == []
    assert [row["reason"] for row in one.ledger("ended")] == ["expired"]
    (claim,) = one.runnable()
    assert one.to_run(claim) == [2]


@pytest.mark.spec("D-EXP-005", versions=("1.0",))
def test_a_silent_sequence_ends_after_its_inactivity_limit(one: Instance, node: Node) -> None:
    policy = QueuePolicy(inactivity=1_000)
    identifier = having(one, (1,), policy)
    key = one.record(identifier).id
    node.clock.advance(999)
    one.take(identifier, 2, policy=policy)
    node.clock.advance(999)
    assert one.run(lambda tx: due(tx, 10)) == [key], "it is looked at as if it had been silent since its creation"
    assert one.run(lambda tx: expire_due(tx, 10)) == 1
    assert one.run(lambda tx: due(tx, 10)) == [], "it was not: now it is known when to look again"
    assert one.record(identifier).value.state is State.CREATED
    node.clock.advance(1)
    assert one.run(lambda tx: due(tx, 10)) == [key]
    one.run(lambda tx: expire_due(tx, 10))
    assert one.record(identifier).value.state is State.EXPIRED


@pytest.mark.spec("SEC-010", versions="all")
def test_traffic_does_not_write_the_end_that_it_puts_off(one: Instance, node: Node) -> None:
    policy = QueuePolicy(inactivity=30_000)
    identifier = having(one, (1,), policy)
    before = one.rows("SELECT due_at FROM lane")
    node.clock.advance(5_000)
    one.take(identifier, 2, policy=policy)
    assert one.rows("SELECT due_at FROM lane") == before
    assert one.record(identifier).value.due_at == node.clock() + 30_000


def test_the_life_of_a_sequence_is_in_the_ledger(one: Instance) -> None:
    identifier = having(one, (1, 2))
    one.end(CloseSequence(identifier, 2))
    one.end(CloseSequence(identifier, 2))
    one.end(TerminateSequence(identifier, 2))
    one.end(TerminateSequence(identifier, 2))
    assert [(row["event"], row["number"], row["reason"]) for row in one.ledger()] == [
        ("created", None, None),
        ("closed", 2, None),
        ("ended", None, "terminated"),
    ]


@pytest.mark.invariant("I4")
def test_filling_the_gap_before_a_long_run_moves_one_row(one: Instance) -> None:
    identifier = having(one, tuple(range(2, 301)))
    before = one.db.total_changes
    receipt = one.take(identifier, 1)
    assert one.db.total_changes - before < 10
    assert receipt.claim is not None
    assert one.to_run(receipt.claim, count=1_000) == list(range(1, 301))
