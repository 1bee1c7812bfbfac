"""What an operator does with a message: what becomes of it, of its sequence, and what the ledger says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.queue.build import Instance
from tests.queue.test_operate import WAITS, do_skip, stopped
from tests.queue.test_replaying import positions
from tests.queue.test_retention import claim_of, delivered
from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue import dead_letters
from wsrm_mq.queue.operate import hold
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior, TerminateSequence
from wsrm_mq.store.invariants import all_findings


def do(one: Instance, act: dead_letters.Act, position: int) -> None:
    one.run(lambda tx: act(tx, position, actor="alice", reason="looked at it"))
    assert list(all_findings(one.db)) == []


def letter(one: Instance, *behind: int) -> tuple[str, int, int]:
    """A sequence whose number 1 is a dead letter, ``behind`` it others: identifier, key, position."""
    identifier, key = stopped(one, 1, *behind)
    return identifier, key, do_skip(one, identifier, 1)


def entry(one: Instance, position: int) -> dict[str, Any]:
    (row,) = one.rows("SELECT * FROM entry WHERE id = ?", position)
    return row


def faulted(one: Instance) -> int:
    """The position of a message that was taken and answered with a fault."""
    identifier = one.create().terms.identifier
    one.take(identifier, 1)
    one.settle(claim_of(one, identifier), 1, remark="answered with a fault", release=True)
    return positions(one, one.record(identifier).id)[0]


def test_a_dead_letter_is_redriven_once(one: Instance) -> None:
    _, _, position = letter(one)
    do(one, dead_letters.redrive, position)
    (replay,) = one.rows("SELECT * FROM entry WHERE replay_of = ?", position)
    assert (replay["outcome"], entry(one, position)["outcome"], entry(one, position)["reason"]) == (
        None,
        "discarded",
        "replayed",
    )
    (row,) = one.ledger("redriven")
    assert (row["actor"], row["reason"], row["position"], row["number"]) == ("alice", "looked at it", position, 1)
    with pytest.raises(NotAllowed, match=f"is discarded. Its replay is at position {replay['id']}"):
        do(one, dead_letters.redrive, position)
    with pytest.raises(NotAllowed, match="No operator has discarded"):
        do(one, dead_letters.restore, position)


def test_what_is_discarded_comes_back_as_the_dead_letter_that_it_was(one: Instance) -> None:
    _, _, position = letter(one)
    before = entry(one, position)
    do(one, dead_letters.confirm, position)
    one.clock.advance(1_000)
    do(one, dead_letters.discard, position)
    assert (entry(one, position)["outcome"], entry(one, position)["reason"]) == ("discarded", "by_operator")
    do(one, dead_letters.restore, position)
    assert entry(one, position) == before, "its alarm too"
    assert [row["event"] for row in one.ledger("discarded", "restored")] == ["discarded", "restored"]


@pytest.mark.parametrize("make", [lambda one: letter(one)[2], faulted], ids=["dead_letter", "answered_with_a_fault"])
def test_what_alarms_is_confirmed_once_and_stays_as_it_is(one: Instance, make: Callable[[Instance], int]) -> None:
    position = make(one)
    before = entry(one, position)
    do(one, dead_letters.confirm, position)
    assert entry(one, position) == before | {"confirmed_at": one.clock()}
    with pytest.raises(NotAllowed, match="confirmed already"):
        do(one, dead_letters.confirm, position)
    assert [row["actor"] for row in one.ledger("message_confirmed")] == ["alice"]


def test_what_stops_a_sequence_is_discarded_and_the_rest_goes_on(one: Instance) -> None:
    identifier, key = stopped(one, 1, 2)
    first, _ = positions(one, key)
    do(one, dead_letters.discard, first)
    assert one.outcomes(key) == {1: "discarded", 2: None}
    assert one.to_run(claim_of(one, identifier)) == [2]


def test_what_waits_behind_the_head_is_discarded_and_restored_in_its_place(one: Instance) -> None:
    identifier, key = stopped(one, 1, 2, 3)
    _, second, _ = positions(one, key)
    do(one, dead_letters.discard, second)
    do(one, dead_letters.restore, second)
    assert one.outcomes(key) == {1: None, 2: None, 3: None}
    do(one, dead_letters.discard, second)
    do(one, dead_letters.retry, positions(one, key)[0])
    assert one.to_run(claim_of(one, identifier)) == [1, 3]


def test_what_waits_for_its_retry_waits_on_when_what_is_behind_it_is_discarded(one: Instance) -> None:
    identifier, key = stopped(one, 1, 2, 3, policy=WAITS)
    first, second, _ = positions(one, key)
    do(one, dead_letters.discard, second)
    assert one.runnable() == []
    do(one, dead_letters.discard, first)
    assert one.to_run(claim_of(one, identifier)) == [3]


def test_what_is_held_behind_a_gap_is_discarded_and_restored_whatever_runs(one: Instance) -> None:
    identifier = one.create().terms.identifier
    for number in (1, 3, 4):
        one.take(identifier, number)
    key = one.record(identifier).id
    third = one.entry(key, 3)["id"]
    size = one.record(identifier).held_bytes
    do(one, dead_letters.discard, third)
    assert one.record(identifier).held == 1
    do(one, dead_letters.restore, third)
    assert (one.record(identifier).held, one.record(identifier).held_bytes) == (2, size)
    do(one, dead_letters.discard, third)
    one.settle(claim_of(one, identifier), 1)
    one.take(identifier, 2)
    assert one.to_run(claim_of(one, identifier)) == [2, 4]


def test_what_is_held_is_counted_without_what_was_discarded_of_it_at_every_gap(one: Instance) -> None:
    identifier = one.create().terms.identifier
    for number in (1, 3, 4, 6, 7, 9):
        one.take(identifier, number)
    key = one.record(identifier).id
    for number in (4, 7, 9):
        do(one, dead_letters.discard, one.entry(key, number)["id"])
    held = [one.record(identifier).held]
    for number in (2, 5, 8):
        one.take(identifier, number)
        held.append(one.record(identifier).held)
    assert held == [2, 1, 0, 0]
    assert one.record(identifier).held_bytes == 0


def test_what_would_come_late_is_not_put_back_into_its_sequence(one: Instance) -> None:
    identifier, key = stopped(one, 1, 2)
    first, _ = positions(one, key)
    do(one, dead_letters.discard, first)
    one.settle(claim_of(one, identifier), 2, release=True)
    with pytest.raises(NotAllowed, match="would come late"):
        do(one, dead_letters.restore, first)
    assert one.outcomes(key) == {1: "discarded", 2: "delivered"}


def test_without_order_nothing_comes_late(one: Instance) -> None:
    identifier, key = stopped(one, 1, 2, policy=QueuePolicy(ordered=False, retry=(60_000,)))
    first, _ = positions(one, key)
    one.settle(claim_of(one, identifier), 2, release=True)
    do(one, dead_letters.discard, first)
    do(one, dead_letters.restore, first)
    assert one.to_run(claim_of(one, identifier)) == [1]


@pytest.mark.parametrize("policy", [QueuePolicy(retry=()), WAITS], ids=["blocked", "retrying"])
def test_retry_tries_what_stops_a_sequence_now_from_the_first_step(one: Instance, policy: QueuePolicy) -> None:
    identifier, key = stopped(one, 1, 2, policy=policy)
    first, second = positions(one, key)
    with pytest.raises(NotAllowed, match="waits for others before it"):
        do(one, dead_letters.retry, second)
    do(one, dead_letters.retry, first)
    assert one.entry(key, 1)["failures"] == 0
    assert one.to_run(claim_of(one, identifier)) == [1, 2]
    assert [row["position"] for row in one.ledger("retried")] == [first]


def test_what_waits_for_no_retry_is_not_retried(one: Instance) -> None:
    identifier, key, _ = letter(one, 2, 3)
    with pytest.raises(NotAllowed, match="waits for no retry"):
        do(one, dead_letters.retry, one.entry(key, 2)["id"])
    one.take(identifier, 5)
    with pytest.raises(NotAllowed, match="waits for others before it"):
        do(one, dead_letters.retry, one.entry(key, 5)["id"])


def test_what_is_held_or_not_what_stops_its_sequence_is_not_retried(one: Instance) -> None:
    """In a sequence without order nothing else tells the one from the other."""
    policy = QueuePolicy(retry=(), ordered=False)
    identifier, key = stopped(one, 1, 2, policy=policy)
    with pytest.raises(NotAllowed, match=r"Position 1 stops the sequence of the message at position 2"):
        do(one, dead_letters.retry, 2)
    one.run(lambda tx: hold(tx, identifier, actor="bob", reason="the backend moves"))
    with pytest.raises(NotAllowed, match="An operator holds the sequence"):
        do(one, dead_letters.retry, 1)
    entire = IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE
    held = one.create(replace(policy, behavior=entire)).terms.identifier
    one.take(held, 1)
    with pytest.raises(NotAllowed, match="waits for others before it"):
        do(one, dead_letters.retry, 3)
    assert one.ledger("retried") == []
    assert [one.entry(key, number)["failures"] for number in (1, 2)] == [1, 0]


@pytest.mark.parametrize("act", [dead_letters.redrive, dead_letters.retry, dead_letters.discard, dead_letters.restore])
def test_what_was_delivered_is_replayed_by_a_plan_only(one: Instance, act: dead_letters.Act) -> None:
    identifier = delivered(one, 1)
    (position,) = positions(one, one.record(identifier).id)
    with pytest.raises(NotAllowed, match="wsrm-mq replay plan"):
        do(one, act, position)
    with pytest.raises(NotAllowed, match="does not alarm"):
        do(one, dead_letters.confirm, position)
    with pytest.raises(NotFound):
        do(one, act, 99)


def test_what_has_no_body_any_more_stays_as_it_is(one: Instance) -> None:
    _, _, position = letter(one)
    one.db.execute("UPDATE message SET body = NULL")
    before = one.rows("SELECT * FROM lane")
    with pytest.raises(NotAllowed, match="no body any more"):
        do(one, dead_letters.redrive, position)
    assert (entry(one, position)["outcome"], one.rows("SELECT * FROM lane")) == ("dead", before)


def test_letters_of_an_ended_sequence_are_redriven_in_the_order_of_the_acts(one: Instance) -> None:
    identifier, key, first = letter(one, 2, 3)
    one.fail(claim_of(one, identifier), 2, QueuePolicy(retry=()))
    second = do_skip(one, identifier, 2)
    one.settle(claim_of(one, identifier), 3, release=True)
    one.end(TerminateSequence(identifier))
    do(one, dead_letters.redrive, first)
    do(one, dead_letters.redrive, second)
    (replays,) = one.rows("SELECT identifier FROM lane WHERE kind = 'replay'")
    held = claim_of(one, replays["identifier"])
    assert one.to_run(held) == [1, 2]
    one.settle(held, 1)
    one.settle(held, 2, release=True)
    assert one.outcomes(key) == {1: "discarded", 2: "discarded", 3: "delivered"}
