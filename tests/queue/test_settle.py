from __future__ import annotations

import json

import pytest

from tests.queue.build import Instance, Node
from wsrm_mq.errors import FenceLost
from wsrm_mq.queue.broken_run import take_over
from wsrm_mq.queue.ending import bury_tails
from wsrm_mq.queue.failure import Aftermath
from wsrm_mq.queue.ownership import Claim, give_back
from wsrm_mq.queue.policy import OnPoison, QueuePolicy
from wsrm_mq.queue.room import Room
from wsrm_mq.queue.settle import ServiceReply, settlement
from wsrm_mq.sequence.elements import TerminateSequence
from wsrm_mq.sequence.terms import Bounds

TWICE = QueuePolicy(retry=(1_000, 5_000))
ONCE_THEN = {on_poison: QueuePolicy(retry=(), on_poison=on_poison) for on_poison in OnPoison}
UNORDERED = QueuePolicy(retry=(1_000, 5_000), ordered=False)


def received(one: Instance, *numbers: int, policy: QueuePolicy = TWICE) -> tuple[str, Claim]:
    """A sequence that has taken ``numbers``, and the claim that came with the first deliverable."""
    identifier = one.create(policy).terms.identifier
    claims = [one.take(identifier, number, policy=policy).claim for number in numbers]
    (claim,) = [claim for claim in claims if claim is not None]
    return identifier, claim


# settled


@pytest.mark.spec("D-DEL-004", "D-DEL-006", versions="all")
@pytest.mark.invariant("I5")
def test_a_sequence_is_run_from_its_cursor_in_order_and_by_one(one: Instance, node: Node) -> None:
    _, claim = received(one, 1, 3, 2, 5)
    assert one.to_run(claim) == [1, 2, 3]
    assert node.start().claim(claim.lane) is None
    for number in (1, 2, 3):
        one.settle(claim, number)
    assert one.to_run(claim) == []
    assert one.run(lambda tx: give_back(tx, claim))
    assert one.outcomes(claim.lane) == {1: "delivered", 2: "delivered", 3: "delivered", 5: None}


def test_a_settlement_says_where_to_go_on_or_gives_the_sequence_back(one: Instance) -> None:
    identifier, claim = received(one, 1, 2)
    first = one.settle(claim, 1, release=True)
    assert (first.released, first.next_number) == (False, 2)
    assert one.settle(claim, 2, release=True).released
    assert one.record(identifier).owner is None


def test_a_message_that_comes_while_its_sequence_is_run_is_seen_by_who_runs_it(one: Instance) -> None:
    identifier, claim = received(one, 1)
    assert one.take(identifier, 2).claim is None
    assert not one.settle(claim, 1, release=True).released
    assert one.to_run(claim) == [2]


@pytest.mark.invariant("I6")
def test_a_number_is_settled_at_most_once(one: Instance, node: Node) -> None:
    _, claim = received(one, 1, 2)
    one.settle(claim, 1)
    settled_at = one.entry(claim.lane, 1)["settled_at"]
    node.clock.advance(50)
    one.settle(claim, 1)
    entry = one.entry(claim.lane, 1)
    assert (entry["settled_at"], entry["deliveries"]) == (settled_at, 1)
    assert one.to_run(claim) == [2]


@pytest.mark.spec("D-DEL-020", "D-DUR-006", versions="all")
def test_a_reply_is_stored_with_its_settlement_and_read_again(one: Instance, node: Node) -> None:
    identifier, claim = received(one, 1)
    position = one.entry(claim.lane, 1)["id"]
    assert settlement(one.db, position) is None
    reply = ServiceReply("200 OK", (("Content-Type", "text/xml"), ("X-Ö", "ü")), b"<reply/>")
    one.settle(claim, 1, reply=reply)
    found = settlement(node.start().db, position)
    assert found is not None
    assert (found.outcome, found.reply, found.acknowledgement.identifier) == ("delivered", reply, identifier)
    assert settlement(one.db, 10**6) is None


def test_a_settlement_tells_the_room_that_is_left_to_whom_it_is_told(one: Instance) -> None:
    def told(policy: QueuePolicy | None) -> int | None:
        found = settlement(one.db, position, policy)
        assert found is not None
        return found.acknowledgement.buffer_remaining

    _, claim = received(one, 1, 3)
    one.settle(claim, 1)
    position = one.entry(claim.lane, 1)["id"]
    window = Bounds(window=8)
    assert told(None) is None
    assert told(QueuePolicy(bounds=window)) is None
    assert told(QueuePolicy(bounds=window, tells_room=True)) == 6
    assert told(QueuePolicy(bounds=window, tells_room=True, room=Room(max_store=1))) == 0
    assert told(QueuePolicy(bounds=window, tells_room=True, room=Room(max_store=2**40))) == 6


def test_a_settlement_says_where_a_request_waits_for_it(one: Instance, node: Node) -> None:
    elsewhere = node.start()
    identifier, claim = received(one, 1)
    elsewhere.take(identifier, 1, waits=True)
    assert one.settle(claim, 1, waited_for=True).waiter == elsewhere.name


# the fence


@pytest.mark.invariant("I3")
def test_the_fence_grows_with_every_owner_and_an_old_one_settles_nothing(one: Instance, node: Node) -> None:
    two = node.start()
    identifier, old = received(one, 1)
    two.run(lambda tx: take_over(tx, one.key, lambda _partner: TWICE))
    new = two.claim(old.lane)
    assert new is not None
    assert new.fence > old.fence
    for late in (lambda: one.settle(old, 1), lambda: one.fail(old, 1, TWICE)):
        with pytest.raises(FenceLost):
            late()
    with pytest.raises(FenceLost):
        one.run(lambda tx: give_back(tx, old))
    assert one.outcomes(old.lane) == {1: None}
    two.settle(new, 1, release=True)
    assert two.outcomes(old.lane) == {1: "delivered"}
    assert two.record(identifier).fence == new.fence


@pytest.mark.invariant("I3")
def test_an_older_claim_of_the_same_owner_settles_nothing(one: Instance) -> None:
    _, old = received(one, 1, 2)
    one.run(lambda tx: give_back(tx, old, stopping=True))
    new = one.claim(old.lane)
    assert new is not None
    with pytest.raises(FenceLost):
        one.settle(old, 1)
    one.settle(new, 1)


# failed


@pytest.mark.spec("D-DEL-002", "D-DEL-022", versions="all")
@pytest.mark.invariant("I12")
def test_a_failure_waits_for_its_step_of_the_ladder_over_a_restart(one: Instance, node: Node) -> None:
    identifier, claim = received(one, 1, 2)
    failed = one.fail(claim, 1, TWICE, "refused")
    assert (failed.aftermath, failed.released) == (Aftermath.RETRY, True)
    assert one.entry(claim.lane, 1)["failures"] == 1
    assert failed.retry_at == node.clock() + 1_000
    one.close()
    again = node.start()
    assert again.runnable() == []
    assert again.take(identifier, 3).claim is None, "what follows waits for the head"
    node.clock.advance(999)
    assert again.runnable() == []
    node.clock.advance(1)
    (claim,) = again.runnable()
    assert again.to_run(claim) == [1, 2, 3]
    assert again.fail(claim, 1, TWICE).retry_at == node.clock() + 5_000
    entry = again.entry(claim.lane, 1)
    assert (entry["failures"], entry["deliveries"], entry["last_error"]) == (2, 2, "no answer")
    assert [row["attempt"] for row in again.ledger("failed")] == [1, 2]


@pytest.mark.spec("D-DEL-006", versions="all")
def test_a_clock_that_goes_back_neither_freezes_a_retry_nor_lets_others_pass_the_head(
    one: Instance, node: Node
) -> None:
    identifier, claim = received(one, 1, 2)
    one.fail(claim, 1, TWICE)
    node.clock.advance(-3_600_000)
    (again,) = one.runnable()
    assert one.to_run(again) == [1, 2]
    assert one.record(identifier).value.due_at is not None


def test_a_success_after_failures_leaves_its_counters(one: Instance, node: Node) -> None:
    _, claim = received(one, 1)
    one.fail(claim, 1, TWICE)
    node.clock.advance(1_000)
    (again,) = one.runnable()
    one.settle(again, 1, release=True)
    entry = one.entry(claim.lane, 1)
    assert (entry["failures"], entry["deliveries"], entry["outcome"]) == (1, 2, "delivered")


@pytest.mark.invariant("I11")
def test_block_stops_the_sequence_there_and_only_there(one: Instance) -> None:
    policy = ONCE_THEN[OnPoison.BLOCK]
    identifier, claim = received(one, 1, 2, policy=policy)
    failed = one.fail(claim, 1, policy, "broken")
    assert (failed.aftermath, failed.released) == (Aftermath.BLOCKED, True)
    assert one.record(identifier).blocked == one.entry(claim.lane, 1)["id"]
    assert one.runnable() == []
    assert one.take(identifier, 3).claim is None
    assert one.outcomes(claim.lane) == dict.fromkeys((1, 2, 3))
    assert [(row["number"], row["reason"]) for row in one.ledger("blocked")] == [(1, "broken")]
    other, _ = received(one, 1, policy=policy)
    assert other != identifier, "another sequence is not stopped"


@pytest.mark.invariant("I8", "I11")
def test_dead_letter_moves_the_message_aside_and_goes_on(one: Instance) -> None:
    policy = ONCE_THEN[OnPoison.DEAD_LETTER]
    _, claim = received(one, 1, 2, policy=policy)
    position = one.entry(claim.lane, 1)["id"]
    failed = one.fail(claim, 1, policy)
    assert (failed.aftermath, failed.released) == (Aftermath.BURIED, False)
    assert one.to_run(claim) == [2]
    entry = one.entry(claim.lane, 1)
    assert (entry["id"], entry["outcome"], entry["reason"]) == (position, "dead", "max_failures")
    homes = "SELECT q.kind, o.name FROM queue q, queue o WHERE q.id = ? AND o.id = ?"
    (home,) = one.rows(homes, entry["queue"], entry["origin"])
    assert home == {"kind": "dead_letter", "name": "/orders"}
    assert [row["position"] for row in one.ledger("dead")] == [position]
    one.settle(claim, 2, release=True)


@pytest.mark.invariant("I8")
def test_a_dead_letter_move_and_its_ledger_row_are_one_transaction(one: Instance, node: Node) -> None:
    policy = ONCE_THEN[OnPoison.DEAD_LETTER]
    _, claim = received(one, 1, policy=policy)
    position = one.entry(claim.lane, 1)["id"]
    one.db.execute(
        """CREATE TEMP TRIGGER no_ledger BEFORE INSERT ON main.ledger WHEN NEW.event = 'dead'
        BEGIN SELECT RAISE(ABORT, 'no ledger'); END"""
    )
    with pytest.raises(Exception, match="no ledger"):
        one.fail(claim, 1, policy)
    entry = node.start().rows("SELECT outcome, failures FROM entry WHERE id = ?", position)
    assert entry == [{"outcome": None, "failures": 0}]


def test_a_dead_letter_is_named_in_acknowledgements(one: Instance) -> None:
    policy = ONCE_THEN[OnPoison.DEAD_LETTER]
    identifier = one.create(policy).terms.identifier
    claim = one.take(identifier, 1, policy=policy, named=False).claim
    assert claim is not None
    one.fail(claim, 1, policy)
    assert one.record(identifier).value.acknowledgement().ranges == ((1, 1),)


@pytest.mark.invariant("I11")
def test_terminate_ends_the_sequence_and_everything_unsettled_follows_to_the_dead_letters(one: Instance) -> None:
    policy = ONCE_THEN[OnPoison.TERMINATE]
    identifier, claim = received(one, 1, 2, 4, policy=policy)
    one.settle(claim, 1)
    failed = one.fail(claim, 2, policy)
    assert failed.aftermath is Aftermath.ENDED
    assert one.runnable() == []
    fault = one.take(identifier, 5).fault
    assert fault is not None
    assert (fault.name, fault.ours) == ("SequenceTerminated", True)
    assert not one.run(bury_tails)
    assert one.outcomes(claim.lane) == {1: "delivered", 2: "dead", 4: "dead"}
    dead = [(row["number"], row["reason"]) for row in one.ledger("dead")]
    assert dead == [(2, "sequence_failed"), (4, "sequence_failed")]


@pytest.mark.invariant("I11")
def test_terminate_gives_up_what_a_sequence_left_when_its_source_had_ended_it(one: Instance) -> None:
    """What was accepted is delivered after TerminateSequence too; that it fails must not be tried for ever."""
    policy = ONCE_THEN[OnPoison.TERMINATE]
    identifier, claim = received(one, 1, 2, policy=policy)
    one.end(TerminateSequence(identifier))
    one.fail(claim, 1, policy)
    assert one.runnable() == []
    one.run(bury_tails)
    assert one.outcomes(claim.lane) == {1: "dead", 2: "dead"}
    assert one.record(identifier).value.state == "terminated"


# without order


def test_without_order_a_waiting_retry_stops_nothing_else(one: Instance, node: Node) -> None:
    identifier, claim = received(one, 1, 2, policy=UNORDERED)
    assert not one.fail(claim, 1, UNORDERED).released
    assert one.to_run(claim) == [2]
    assert one.settle(claim, 2, release=True).released
    later = one.take(identifier, 3, policy=UNORDERED).claim
    assert later is not None, "a new message need not wait for another one's retry"
    assert one.to_run(later) == [3]
    assert one.settle(later, 3, release=True).released
    assert one.runnable() == []
    node.clock.advance(1_000)
    (again,) = one.runnable()
    assert one.to_run(again) == [1]
    assert one.settle(again, 1, release=True).released


def test_without_order_a_dead_letter_does_not_take_the_waiting_one_with_it(one: Instance, node: Node) -> None:
    _, claim = received(one, 1, 2, policy=UNORDERED)
    one.fail(claim, 1, UNORDERED)
    buried = one.fail(claim, 2, QueuePolicy(retry=(), on_poison=OnPoison.DEAD_LETTER, ordered=False))
    assert buried.aftermath is Aftermath.BURIED
    assert buried.released
    node.clock.advance(1_000)
    (again,) = one.runnable()
    assert one.to_run(again) == [1]


def test_without_order_a_late_number_is_run_when_it_comes(one: Instance) -> None:
    identifier, claim = received(one, 5, policy=UNORDERED)
    one.settle(claim, 5, release=True)
    late = one.take(identifier, 2, policy=UNORDERED)
    assert late.claim is not None
    assert late.runs_here
    assert one.settle(late.claim, 2, release=True).released


# giving back


def test_a_sequence_is_kept_while_something_is_deliverable_and_given_back_when_stopping(one: Instance) -> None:
    identifier, claim = received(one, 1)
    assert not one.run(lambda tx: give_back(tx, claim))
    assert one.run(lambda tx: give_back(tx, claim, stopping=True))
    assert one.record(identifier).owner is None
    assert [found.lane for found in one.runnable()] == [claim.lane]


def test_stored_headers_are_json(one: Instance) -> None:
    _, claim = received(one, 1)
    one.settle(claim, 1, reply=ServiceReply("200 OK", (("A", "b"),), b""))
    assert json.loads(one.rows("SELECT headers FROM reply")[0]["headers"]) == [["A", "b"]]
