"""An operator closes or terminates a sequence."""

from __future__ import annotations

import pytest

from tests.queue.build import USUAL, Instance, Node
from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue.ending import bury_tails
from wsrm_mq.queue.operate import Ended, close, hold, note, terminate
from wsrm_mq.queue.ownership import give_back
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior, TerminateSequence
from wsrm_mq.sequence.faults import SequenceClosed, SequenceTerminated
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.versions import WSRM_1_0, WSRM_1_1, RMVersion

FOLLOWING = QueuePolicy(behavior=IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP)
GAP = AckRanges(((2, 2),))


def do_close(one: Instance, identifier: str) -> Ended:
    return one.run(lambda tx: close(tx, identifier, actor="alice", reason="the partner is gone"))


def do_terminate(one: Instance, identifier: str, *, drain: bool) -> Ended:
    return one.run(lambda tx: terminate(tx, identifier, drain=drain, actor="alice", reason="the partner is gone"))


def with_gap(one: Instance, policy: QueuePolicy = USUAL, rm: RMVersion = WSRM_1_1) -> tuple[str, int]:
    """A sequence that has received 1 and 3, of which none is delivered: (identifier, key)."""
    identifier = one.create(policy, rm).terms.identifier
    for number in (1, 3):
        one.take(identifier, number, rm=rm, policy=policy)
    key = one.record(identifier).id
    return identifier, key


@pytest.mark.peer("P-64")
def test_a_closed_sequence_takes_no_new_number_and_delivers_across_its_gap(one: Instance) -> None:
    identifier, key = with_gap(one)
    assert do_close(one, identifier) == Ended(GAP, delivers=2, gives_up=0)
    refused = one.take(identifier, 2)
    assert isinstance(refused.fault, SequenceClosed)
    assert refused.acknowledgement is not None
    assert (refused.acknowledgement.ranges, refused.acknowledgement.final) == (((1, 1), (3, 3)), True)
    assert set(one.outcomes(key)) == {1, 3}
    assert one.record(identifier).value.limit == 4
    (row,) = one.ledger("closed")
    assert (row["actor"], row["reason"]) == ("alice", "the partner is gone")
    assert one.end(TerminateSequence(identifier)).fault is None, "the source may still end it"


def test_a_close_does_what_a_behavior_that_discards_has_announced(one: Instance) -> None:
    identifier, key = with_gap(one, FOLLOWING)
    assert do_close(one, identifier) == Ended(GAP, delivers=1, gives_up=1)
    one.run(lambda tx: bury_tails(tx, 10))
    assert one.outcomes(key) == {1: None, 3: "dead"}


@pytest.mark.parametrize(
    ("rm", "ends", "why"),
    [
        (WSRM_1_0, False, "WS-ReliableMessaging 1.0, which has no close; terminate it"),
        (WSRM_1_1, True, "has ended"),
        (WSRM_1_1, False, "closed already"),
    ],
)
def test_what_cannot_be_closed_is_refused(one: Instance, rm: RMVersion, ends: bool, why: str) -> None:
    identifier = one.create(rm=rm).terms.identifier
    if rm is WSRM_1_1:
        do_terminate(one, identifier, drain=True) if ends else do_close(one, identifier)
    rows = len(one.ledger())
    with pytest.raises(NotAllowed, match=why):
        do_close(one, identifier)
    assert len(one.ledger()) == rows


@pytest.mark.peer("P-64")
@pytest.mark.parametrize("rm", [WSRM_1_0, WSRM_1_1], ids=lambda rm: rm.label)
def test_drained_a_sequence_ends_and_what_it_has_is_delivered(one: Instance, rm: RMVersion) -> None:
    identifier, key = with_gap(one, rm=rm)
    assert do_terminate(one, identifier, drain=True) == Ended(GAP, delivers=2, gives_up=0)
    assert isinstance(one.take(identifier, 2, rm=rm).fault, SequenceTerminated)
    record = one.record(identifier)
    assert (record.value.state, record.value.limit) == ("failed", 4)
    assert [row["actor"] for row in one.ledger("terminated", "ended")] == ["alice", "alice"]
    assert one.outcomes(key) == {1: None, 3: None}


@pytest.mark.peer("P-64")
def test_terminated_now_all_that_is_undelivered_goes_to_the_dead_letters(one: Instance) -> None:
    identifier = one.create().terms.identifier
    one.run(lambda tx: hold(tx, identifier, actor="alice", reason="first"))
    for number in (1, 3):
        one.take(identifier, number)
    assert do_terminate(one, identifier, drain=False) == Ended(GAP, delivers=0, gives_up=2)
    one.run(lambda tx: bury_tails(tx, 10))
    record = one.record(identifier)
    assert one.outcomes(record.id) == {1: "dead", 3: "dead"}
    assert record.on_hold_since is None, "what held it would keep it from the dead letters"
    assert isinstance(one.take(identifier, 2).fault, SequenceTerminated)


def test_what_runs_is_settled_before_the_rest_is_given_up(node: Node) -> None:
    serving, shell = node.start(), node.start()
    identifier = serving.create().terms.identifier
    claim = serving.take(identifier, 1).claim
    assert claim is not None
    serving.take(identifier, 2)
    do_terminate(shell, identifier, drain=False)
    shell.run(lambda tx: bury_tails(tx, 10))
    assert serving.outcomes(claim.lane) == {1: None, 2: None}, "its owner may be running some of it"
    assert not serving.settle(claim, 1).goes_on
    assert serving.run(lambda tx: give_back(tx, claim))
    shell.run(lambda tx: bury_tails(tx, 10))
    assert serving.outcomes(claim.lane) == {1: "delivered", 2: "dead"}
    assert serving.entry(claim.lane, 2)["reason"] == "terminated_by_operator"
    assert [str(found) for found in all_findings(shell.db)] == []


def test_what_fails_while_the_rest_is_given_up_goes_with_it(node: Node) -> None:
    serving, shell = node.start(), node.start()
    policy = QueuePolicy(retry=())
    identifier = serving.create(policy).terms.identifier
    claim = serving.take(identifier, 1, policy=policy).claim
    assert claim is not None
    do_terminate(shell, identifier, drain=False)
    assert serving.fail(claim, 1, policy).released
    shell.run(lambda tx: bury_tails(tx, 10))
    record = serving.record(identifier)
    assert (record.blocked, record.owner, record.discarding) == (None, None, False)
    assert serving.outcomes(record.id) == {1: "dead"}


def test_what_blocks_a_sequence_goes_with_the_rest_even_after_its_end(one: Instance) -> None:
    policy = QueuePolicy(retry=())
    identifier = one.create(policy).terms.identifier
    claim = one.take(identifier, 1, policy=policy).claim
    assert claim is not None
    one.take(identifier, 2, policy=policy)
    one.fail(claim, 1, policy)
    one.end(TerminateSequence(identifier))
    with pytest.raises(NotAllowed, match="has ended; what it has left \\(2\\) is delivered"):
        do_terminate(one, identifier, drain=True)
    assert do_terminate(one, identifier, drain=False).gives_up == 2
    one.run(lambda tx: bury_tails(tx, 10))
    assert one.outcomes(claim.lane) == {1: "dead", 2: "dead"}
    assert one.rows("SELECT delivery FROM sequences") == [{"delivery": "idle"}]
    with pytest.raises(NotAllowed, match="nothing left to deliver"):
        do_terminate(one, identifier, drain=False)
    assert [str(found) for found in all_findings(one.db)] == []


def test_a_note_is_a_row_of_the_ledger_and_nothing_else(one: Instance) -> None:
    identifier = one.create().terms.identifier
    before = one.record(identifier).saved
    one.run(lambda tx: note(tx, identifier, actor="alice", reason="called Bob, he looks"))
    assert one.record(identifier).saved == before
    (row,) = one.ledger("noted")
    assert (row["actor"], row["reason"]) == ("alice", "called Bob, he looks")
