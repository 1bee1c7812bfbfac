"""An operator forces a sequence past a gap."""

from __future__ import annotations

import pytest

from tests.queue.build import USUAL, Instance
from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue.broken_run import take_from_dead
from wsrm_mq.queue.dead_letters import discard
from wsrm_mq.queue.operate import Forced, force
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.inbound import Late
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.transaction import Transaction


def do_force(
    one: Instance, identifier: str, to: int | None = None, late: Late = Late.ACCEPT, *, past: int | None = 2
) -> Forced:
    past = past if to is None else None
    return one.run(lambda tx: force(tx, identifier, past=past, to=to, late=late, actor="alice", reason="2 is lost"))


def with_gaps(one: Instance, *numbers: int, policy: QueuePolicy = USUAL) -> tuple[str, int]:
    """A sequence that has received ``numbers`` and delivered what it could: (identifier, key)."""
    identifier = one.create(policy).terms.identifier
    for number in numbers:
        claim = one.take(identifier, number, policy=policy).claim
        if claim is not None:
            one.settle(claim, number, release=True)
    return identifier, one.record(identifier).id


def missing(*numbers: int) -> AckRanges:
    return AckRanges.of(numbers)


@pytest.mark.parametrize(
    ("to", "forced", "runs"),
    [
        (None, Forced(5, 2, missing(2, 3)), [4, 5]),
        (2, Forced(2, 0, missing(2)), []),
        (3, Forced(5, 2, missing(2, 3)), [4, 5]),
        (4, Forced(5, 2, missing(2, 3)), [4, 5]),
        (7, Forced(8, 3, missing(2, 3, 6, 7)), [4, 5, 8]),
        (8, Forced(8, 3, missing(2, 3, 6, 7)), [4, 5, 8]),
    ],
)
def test_the_next_run_goes_on_or_all_up_to_a_number(
    one: Instance, to: int | None, forced: Forced, runs: list[int]
) -> None:
    identifier, _key = with_gaps(one, 1, 4, 5, 8)
    assert do_force(one, identifier, to) == forced
    assert [one.to_run(claim) for claim in one.runnable()] == ([runs] if runs else [])
    record = one.record(identifier)
    assert (record.value.limit, record.value.expected) == (forced.to + 1, 2)
    assert record.held == 3 - len(runs)
    (row,) = one.ledger("forced")
    assert (row["number"], row["actor"], row["reason"]) == (forced.to, "alice", "2 is lost")
    assert [row["reason"] for row in one.ledger("released_across_gap")] == [f"missing {forced.missing}"]
    assert [str(found) for found in all_findings(one.db)] == []


@pytest.mark.peer("P-25")
def test_a_missing_number_that_comes_late_is_delivered_by_itself_and_marked(one: Instance) -> None:
    identifier, key = with_gaps(one, 1, 3)
    do_force(one, identifier)
    (claim,) = one.runnable()
    late = one.take(identifier, 2)
    assert late.is_late
    assert late.acknowledgement is not None
    assert late.acknowledgement.ranges == ((1, 3),)
    one.settle(claim, 3)
    assert one.to_run(claim) == [2], "the run that is behind it comes back to it"
    assert one.settle(claim, 2, release=True).released
    assert one.outcomes(key) == {1: "delivered", 2: "delivered", 3: "delivered"}
    assert [row["late"] for row in one.rows("SELECT late FROM entry ORDER BY number")] == [0, 1, 0]
    assert not one.take(identifier, 4).is_late
    assert one.record(identifier).cursor == 4
    assert [str(found) for found in all_findings(one.db)] == []


@pytest.mark.peer("P-25")
def test_a_missing_number_that_is_refused_goes_to_the_dead_letters_and_its_source_is_done_with_it(
    one: Instance,
) -> None:
    identifier, key = with_gaps(one, 1, 3)
    do_force(one, identifier, late=Late.REFUSE)
    (claim,) = one.runnable()
    one.settle(claim, 3, release=True)
    late = one.take(identifier, 2, named=False)
    assert (late.settled, late.claim) == (True, None)
    assert late.acknowledgement is not None
    assert late.acknowledgement.ranges == ((1, 3),)
    entry = one.entry(key, 2)
    assert (entry["outcome"], entry["reason"], entry["late"], entry["named"]) == ("dead", "late_refused", 1, 1)
    assert one.take(identifier, 2).outcome == "duplicate"
    assert one.runnable() == []
    (claim,) = filter(None, [one.take(identifier, 4).claim])
    assert one.to_run(claim) == [4]
    assert [str(found) for found in all_findings(one.db)] == []


def test_what_fills_the_next_gap_is_in_order_and_not_late(one: Instance) -> None:
    identifier, _key = with_gaps(one, 1, 3, 5)
    do_force(one, identifier)
    fills = one.take(identifier, 4)
    assert not fills.is_late
    (claim,) = [fills.claim] if fills.claim is not None else one.runnable()
    assert one.to_run(claim) == [3, 4, 5]


def test_what_was_discarded_behind_the_gap_is_not_among_what_was_forced(one: Instance) -> None:
    identifier, key = with_gaps(one, 1, 3, 4, 6)
    discarded = one.entry(key, 4)["id"]
    one.run(lambda tx: discard(tx, discarded, actor="alice", reason="wrong"))
    assert do_force(one, identifier) == Forced(4, 1, missing(2))
    assert one.record(identifier).held == 1


def test_what_is_said_twice_gives_up_one_gap(one: Instance) -> None:
    identifier, _key = with_gaps(one, 1, 4, 6)
    assert do_force(one, identifier, past=3) == Forced(4, 1, missing(2, 3))
    for again in (2, 3):
        with pytest.raises(NotAllowed, match=f"gone past number {again} already. It waits for number 5: --past 5 "):
            do_force(one, identifier, past=again)
    assert one.record(identifier).value.limit == 5
    assert len(one.ledger("forced")) == 1


@pytest.mark.parametrize(
    ("past", "why"),
    [
        (None, "past which gap\\? It waits for numbers 2-3: --past 2 gives that up"),
        (1, "has gone past number 1 already"),
        (4, "number 4 of .* has come, and waits for others. It waits for numbers 2-3"),
        (5, "number 5 of .* is not in its next gap. It waits for numbers 2-3"),
        (9, "number 9 of .* is not in its next gap"),
    ],
)
def test_a_gap_that_is_not_the_next_one_is_refused_with_the_one_that_is(
    one: Instance, past: int | None, why: str
) -> None:
    identifier, _key = with_gaps(one, 1, 4, 6)
    with pytest.raises(NotAllowed, match=why):
        do_force(one, identifier, past=past)
    assert one.ledger("forced") == []


def test_what_has_come_of_a_gap_since_it_was_seen_is_not_given_up(one: Instance) -> None:
    identifier, _key = with_gaps(one, 1, 5)
    one.take(identifier, 3)
    assert do_force(one, identifier, past=2) == Forced(3, 1, missing(2))
    assert one.record(identifier).value.limit == 4, "number 4 is waited for"


@pytest.mark.parametrize(
    ("numbers", "to", "behavior", "why"),
    [
        ((1, 2), None, "NoDiscard", "holds nothing behind a gap"),
        ((1, 3), 1, "NoDiscard", "lies from 2 to 3; number 1 does not"),
        ((1, 3), 4, "NoDiscard", "lies from 2 to 3; number 4 does not"),
        ((1, 3), None, "DiscardFollowingFirstGap", "nothing is delivered across a gap"),
        ((1, 3), None, "DiscardEntireSequence", "nothing is delivered across a gap"),
    ],
)
def test_what_cannot_be_forced_is_refused(
    one: Instance, numbers: tuple[int, ...], to: int | None, behavior: str, why: str
) -> None:
    identifier, _key = with_gaps(one, *numbers, policy=QueuePolicy(behavior=IncompleteSequenceBehavior(behavior)))
    before = one.record(identifier).saved
    with pytest.raises(NotAllowed, match=why):
        do_force(one, identifier, to)
    assert one.record(identifier).saved == before
    assert one.ledger("forced") == []


@pytest.mark.parametrize(
    ("settled", "ran"),
    [((), 101), ((101,), 102), ((101, 102), 2), ((101, 102, 2), 4)],
)
def test_a_death_counts_against_the_number_that_ran_and_not_against_those_that_came_late(
    one: Instance, settled: tuple[int, ...], ran: int
) -> None:
    """The run reads 101 and 102; 2 and 4 come while it is at 101."""
    identifier, key = with_gaps(one, 1, 101, 102)
    do_force(one, identifier)
    (claim,) = one.runnable()
    for number in (2, 4):
        one.clock.advance(1)
        one.take(identifier, number)
    for number in settled:
        one.clock.advance(1)
        one.settle(claim, number)
    one.clock.advance(1)
    one.take(identifier, 3)

    def die(tx: Transaction) -> None:
        record = tx.sequence(key)
        assert record is not None
        take_from_dead(tx, record)

    one.run(die)
    assert one.rows("SELECT number FROM entry WHERE deaths = 1") == [{"number": ran}]
    assert [row["number"] for row in one.ledger("holder_died")] == [ran]


@pytest.mark.parametrize("late", [1, 99])
def test_what_ran_when_its_process_died_is_marked_however_many_came_late(one: Instance, late: int) -> None:
    identifier, key = with_gaps(one, 1, 101, 102)
    do_force(one, identifier)
    (claim,) = one.runnable()
    assert one.to_run(claim) == [101, 102]
    for number in range(2, 2 + late):
        one.take(identifier, number)

    def die(tx: Transaction) -> None:
        record = tx.sequence(key)
        assert record is not None
        take_from_dead(tx, record)

    one.run(die)
    assert one.record(identifier).redelivery_below > 102
