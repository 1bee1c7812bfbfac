"""An operator holds a sequence, and resumes it."""

from __future__ import annotations

import pytest

from tests.queue.build import Instance, Node
from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue.ending import bury_tails, expire_due
from wsrm_mq.queue.operate import hold, resume
from wsrm_mq.queue.ownership import give_back
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior, TerminateSequence

FOLLOWING = QueuePolicy(behavior=IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP)
WAITS = QueuePolicy(retry=(60_000,))


def do_hold(one: Instance, identifier: str) -> int | None:
    return one.run(lambda tx: hold(tx, identifier, actor="alice", reason="the backend is down"))


def do_resume(one: Instance, identifier: str) -> int | None:
    return one.run(lambda tx: resume(tx, identifier, actor="alice", reason="it is up"))


@pytest.mark.peer("P-64")
def test_what_comes_for_a_held_sequence_is_accepted_and_waits(one: Instance) -> None:
    identifier = one.create().terms.identifier
    assert do_hold(one, identifier) is None
    receipt = one.take(identifier, 1, waits=True)
    assert receipt.acknowledgement is not None
    assert receipt.acknowledgement.ranges == ((1, 1),)
    assert (receipt.claim, receipt.is_stuck) == (None, True)
    assert one.runnable() == []
    (shown,) = one.rows("SELECT state, reason FROM messages")
    assert shown == {"state": "held", "reason": "operator"}
    assert one.rows("SELECT delivery FROM sequences") == [{"delivery": "held"}]
    assert do_resume(one, identifier) == 1
    (claim,) = one.runnable()
    assert one.to_run(claim) == [1]
    assert [(row["event"], row["actor"], row["reason"]) for row in one.ledger("held", "resumed")] == [
        ("held", "alice", "the backend is down"),
        ("resumed", "alice", "it is up"),
    ]


def test_the_message_that_runs_is_let_end_and_nothing_follows_it(one: Instance) -> None:
    identifier = one.create().terms.identifier
    claim = one.take(identifier, 1).claim
    assert claim is not None
    one.take(identifier, 2)
    assert do_hold(one, identifier) == 1
    assert [row["state"] for row in one.rows("SELECT state FROM messages ORDER BY number")] == ["leased", "held"]
    settled = one.settle(claim, 1, release=True)
    assert (settled.goes_on, settled.released) == (False, True)
    assert one.runnable() == []
    assert do_resume(one, identifier) == 2


def test_a_run_that_is_ahead_of_the_hold_settles_what_it_has_called(one: Instance) -> None:
    identifier = one.create().terms.identifier
    claim = one.take(identifier, 1).claim
    assert claim is not None
    for number in (2, 3):
        one.take(identifier, number)
    do_hold(one, identifier)
    assert [one.settle(claim, number).goes_on for number in (1, 2)] == [False, False]
    assert one.run(lambda tx: give_back(tx, claim)), "although number 3 is left"
    assert one.outcomes(claim.lane) == {1: "delivered", 2: "delivered", 3: None}


def test_another_process_learns_of_a_hold_from_its_own_next_commit(node: Node) -> None:
    serving, shell = node.start(), node.start()
    identifier = serving.create().terms.identifier
    claim = serving.take(identifier, 1).claim
    assert claim is not None
    serving.take(identifier, 2)
    do_hold(shell, identifier)
    assert not serving.settle(claim, 1).goes_on
    do_resume(shell, identifier)
    assert not serving.run(lambda tx: give_back(tx, claim)), "it was resumed meanwhile: the owner goes on"
    assert serving.to_run(claim) == [2]


def test_a_retry_is_not_taken_while_it_is_held_and_a_resume_begins_the_ladder_again(one: Instance) -> None:
    identifier = one.create(WAITS).terms.identifier
    claim = one.take(identifier, 1, policy=WAITS).claim
    assert claim is not None
    one.fail(claim, 1, WAITS)
    do_hold(one, identifier)
    one.clock.advance(61_000)
    assert one.runnable() == []
    assert do_resume(one, identifier) == 1
    assert one.entry(claim.lane, 1)["failures"] == 0
    assert len(one.runnable()) == 1


@pytest.mark.parametrize("policy", [QueuePolicy(), FOLLOWING], ids=["NoDiscard", "DiscardFollowingFirstGap"])
def test_the_clock_moves_nothing_of_what_an_operator_holds(one: Instance, policy: QueuePolicy) -> None:
    value = one.create(policy, expires=5_000)
    identifier = value.terms.identifier
    do_hold(one, identifier)
    for number in (1, 3):
        one.take(identifier, number, policy=policy)
    one.clock.advance(6_000)
    assert one.run(lambda tx: expire_due(tx, 10)) == 1
    one.run(lambda tx: bury_tails(tx, 10))
    record = one.record(identifier)
    assert record.value.state == "expired"
    assert one.outcomes(record.id) == {1: None, 3: None}
    assert one.runnable() == []
    do_resume(one, identifier)
    one.run(lambda tx: bury_tails(tx, 10))
    (claim,) = one.runnable()
    assert one.to_run(claim) == ([1, 3] if policy is not FOLLOWING else [1])
    assert one.outcomes(record.id)[3] == (None if policy is not FOLLOWING else "dead")


def test_a_sequence_is_held_once_and_resumed_once(one: Instance) -> None:
    identifier = one.create().terms.identifier
    do_hold(one, identifier)
    with pytest.raises(NotAllowed, match="held already"):
        do_hold(one, identifier)
    assert do_resume(one, identifier) is None
    with pytest.raises(NotAllowed, match="nothing to deliver"):
        do_resume(one, identifier)


def test_there_is_nothing_to_hold_of_what_has_ended_and_is_delivered(one: Instance) -> None:
    identifier = one.create().terms.identifier
    one.end(TerminateSequence(identifier))
    with pytest.raises(NotAllowed, match="nothing left to deliver"):
        do_hold(one, identifier)
    assert one.ledger("held") == []
