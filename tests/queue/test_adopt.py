"""Going on with a store that forgot: the sources learn it, nothing runs twice unasked, nothing vanishes."""

from __future__ import annotations

import pytest

from tests.queue.build import Instance, Node
from tests.queue.test_retention import claim_of, delivered
from wsrm_mq.queue.adopt import ADOPTED, Adopted, adopt, confirm
from wsrm_mq.queue.ending import bury_tails
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import CloseSequence, IncompleteSequenceBehavior, TerminateSequence
from wsrm_mq.sequence.faults import SequenceTerminated
from wsrm_mq.sequence.states import ENDED
from wsrm_mq.store.identity import identify
from wsrm_mq.store.invariants import all_findings

WHY = {"actor": "alice", "reason": "the disk is gone"}


def adopted(node: Node, *, deliver: bool = False) -> tuple[Instance, Adopted]:
    """The store in the hands of another process than those that it knows."""
    after = node.start()
    what = after.run(lambda tx: adopt(tx, **WHY, deliver=deliver))
    assert list(all_findings(after.db)) == []
    return after, what


def test_an_open_sequence_ends_and_its_source_is_told_with_its_next_message(node: Node) -> None:
    identifier = delivered(node.start(), 1, 2)
    after, what = adopted(node)
    assert what == Adopted(ended=1, undelivered=0)
    for number in (2, 3):
        assert isinstance(after.take(identifier, number).fault, SequenceTerminated)
    assert [row["reason"] for row in after.ledger("ended")] == [ADOPTED]
    (row,) = after.ledger("adopted")
    assert (row["actor"], row["reason"]) == (
        "alice",
        "1 open sequences ended, 0 messages dead letters: the disk is gone",
    )


def test_a_closed_sequence_ends_too_and_an_ended_one_stays_as_it_is(node: Node) -> None:
    one = node.start()
    closed, ended = delivered(one, 1), delivered(one, 1)
    one.end(CloseSequence(closed))
    one.end(TerminateSequence(ended))
    before = one.record(ended).value
    after, what = adopted(node)
    assert what.ended == 1
    assert after.record(closed).value.state in ENDED
    assert after.record(ended).value == before


@pytest.mark.parametrize("end", [None, CloseSequence, TerminateSequence])
def test_what_is_undelivered_goes_to_the_dead_letters_and_is_not_run(
    node: Node, end: type[CloseSequence] | None
) -> None:
    one = node.start()
    identifier = one.create().terms.identifier
    for number in (1, 2, 4):
        one.take(identifier, number)
    if end is not None:
        one.end(end(identifier))
    after, what = adopted(node)
    assert what.undelivered == 3
    assert after.runnable() == []
    assert not after.run(lambda tx: bury_tails(tx, 10))
    assert set(after.outcomes(after.record(identifier).id).values()) == {"dead"}
    assert {row["reason"] for row in after.ledger("dead")} == {ADOPTED}
    assert list(all_findings(after.db)) == []


def test_what_blocked_a_sequence_is_a_dead_letter_like_the_rest(node: Node) -> None:
    one = node.start()
    identifier = one.create().terms.identifier
    for number in (1, 2):
        one.take(identifier, number)
    one.fail(claim_of(one, identifier), 1, QueuePolicy(retry=()))
    after, _what = adopted(node)
    after.run(lambda tx: bury_tails(tx, 10))
    assert set(after.outcomes(after.record(identifier).id).values()) == {"dead"}
    assert list(all_findings(after.db)) == []


def test_told_to_deliver_it_delivers_all_as_possible_redeliveries_in_order(node: Node) -> None:
    one = node.start()
    identifier = one.create().terms.identifier
    for number in (1, 2, 4):
        one.take(identifier, number)
    after, what = adopted(node, deliver=True)
    assert what == Adopted(ended=1, undelivered=3)
    (held,) = after.runnable()
    assert after.to_run(held) == [1, 2, 4]
    assert after.record(identifier).redelivery_below == 5
    assert isinstance(after.take(identifier, 5).fault, SequenceTerminated)


def test_told_to_deliver_it_keeps_to_a_behavior_that_was_announced(node: Node) -> None:
    one = node.start()
    policy = QueuePolicy(behavior=IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP)
    identifier = one.create(policy).terms.identifier
    for number in (1, 3):
        one.take(identifier, number, policy=policy)
    after, _what = adopted(node, deliver=True)
    (held,) = after.runnable()
    assert after.to_run(held) == [1]
    after.run(lambda tx: bury_tails(tx, 10))
    assert after.outcomes(held.lane) == {1: None, 3: "dead"}


def test_a_store_that_is_confirmed_goes_on_as_it_is(node: Node) -> None:
    one = node.start()
    identifier = delivered(one, 1)
    before = identify(one.db)
    one.run(lambda tx: confirm(tx, **WHY))
    after = identify(one.db)
    assert after.id != before.id
    assert after.mark > before.mark
    assert one.take(identifier, 2).fault is None
    assert [(row["actor"], row["reason"]) for row in one.ledger("confirmed")] == [("alice", "the disk is gone")]
