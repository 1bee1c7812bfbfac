from __future__ import annotations

import pytest

from tests.queue.build import Instance, Node
from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue.operate import resume, skip
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import CloseSequence

BLOCKS = QueuePolicy(retry=())
WAITS = QueuePolicy(retry=(60_000, 60_000))


def stopped(one: Instance, *numbers: int, policy: QueuePolicy = BLOCKS) -> tuple[str, int]:
    """A sequence whose first number has failed: (identifier, key)."""
    identifier = one.create(policy).terms.identifier
    claims = [one.take(identifier, number, policy=policy).claim for number in numbers]
    assert claims[0] is not None
    one.fail(claims[0], numbers[0], policy)
    return identifier, claims[0].lane


def do_skip(one: Instance, identifier: str, number: int) -> int:
    return one.run(lambda tx: skip(tx, identifier, number, actor="alice", reason="spoiled"))


def do_resume(one: Instance, identifier: str) -> int:
    return one.run(lambda tx: resume(tx, identifier, actor="alice", reason="repaired"))


@pytest.mark.invariant("I8", "I11")
def test_skip_buries_what_stops_a_sequence_and_the_rest_goes_on(one: Instance) -> None:
    identifier, key = stopped(one, 1, 2, 3)
    position = do_skip(one, identifier, 1)
    assert position == one.entry(key, 1)["id"]
    assert one.outcomes(key) == {1: "dead", 2: None, 3: None}
    (claim,) = one.runnable()
    assert one.to_run(claim) == [2, 3]
    (row,) = one.ledger("skipped")
    assert (row["actor"], row["reason"], row["number"], row["position"]) == ("alice", "spoiled", 1, position)
    assert [row["actor"] for row in one.ledger("dead")] == ["alice"]


def test_resume_tries_again_now_from_the_first_step(one: Instance) -> None:
    identifier, key = stopped(one, 1, 2)
    assert do_resume(one, identifier) == 1
    entry = one.entry(key, 1)
    assert (entry["failures"], entry["retry_at"], entry["deliveries"]) == (0, None, 1)
    (claim,) = one.runnable()
    assert one.to_run(claim) == [1, 2]
    assert [row["actor"] for row in one.ledger("resumed")] == ["alice"]


def test_resume_shortens_a_wait(one: Instance) -> None:
    identifier, _ = stopped(one, 1, policy=WAITS)
    assert one.runnable() == []
    assert do_resume(one, identifier) == 1
    assert len(one.runnable()) == 1


def test_skip_ends_a_wait_too(one: Instance) -> None:
    identifier, _ = stopped(one, 1, 2, policy=WAITS)
    do_skip(one, identifier, 1)
    (claim,) = one.runnable()
    assert one.to_run(claim) == [2]


@pytest.mark.parametrize(
    ("number", "why"),
    [(9, "never received"), (2, "not what stops it; that is number 1"), (4, "not what stops it")],
)
def test_only_what_stops_a_sequence_can_be_skipped(one: Instance, number: int, why: str) -> None:
    identifier, key = stopped(one, 1, 2, 4)
    with pytest.raises(NotAllowed, match=why):
        do_skip(one, identifier, number)
    assert set(one.outcomes(key).values()) == {None}
    assert one.ledger("skipped") == []


@pytest.mark.parametrize("act", [lambda one, name: do_skip(one, name, 1), do_resume], ids=["skip", "resume"])
def test_a_sequence_that_is_run_is_left_to_who_runs_it(one: Instance, act: object) -> None:
    identifier = one.create().terms.identifier
    one.take(identifier, 1)
    with pytest.raises(NotAllowed, match="being run"):
        act(one, identifier)  # type: ignore[operator]


@pytest.mark.parametrize("act", [lambda one, name: do_skip(one, name, 1), do_resume], ids=["skip", "resume"])
def test_what_does_not_exist_is_not_found(one: Instance, act: object) -> None:
    with pytest.raises(NotFound, match="urn:uuid:unknown"):
        act(one, "urn:uuid:unknown")  # type: ignore[operator]


def test_what_waits_for_a_gap_can_neither_be_skipped_nor_resumed(one: Instance) -> None:
    identifier = one.create().terms.identifier
    one.take(identifier, 2)
    with pytest.raises(NotAllowed, match="nothing to deliver"):
        do_resume(one, identifier)
    with pytest.raises(NotAllowed, match="nothing to deliver"):
        do_skip(one, identifier, 2)


def test_what_nothing_stops_is_not_resumed(one: Instance, node: Node) -> None:
    identifier, _ = stopped(one, 1, policy=QueuePolicy(retry=(0,)))
    (claim,) = one.runnable()
    one.settle(claim, 1, release=True)
    with pytest.raises(NotAllowed, match="nothing to deliver"):
        do_resume(one, identifier)


@pytest.mark.parametrize("act", ["skip", "resume"])
def test_without_order_the_message_that_blocks_is_meant_and_not_the_lowest(one: Instance, act: str) -> None:
    """Number 1 waits for its retry, number 2 has failed for good."""
    waits = QueuePolicy(retry=(60_000,), ordered=False)
    identifier = one.create(waits).terms.identifier
    claim = one.take(identifier, 1, policy=waits).claim
    assert claim is not None
    one.take(identifier, 2, policy=waits)
    one.fail(claim, 1, waits)
    one.fail(claim, 2, QueuePolicy(retry=(), ordered=False))
    assert one.runnable() == []
    if act == "skip":
        do_skip(one, identifier, 2)
        assert one.outcomes(claim.lane) == {1: None, 2: "dead"}
        assert [one.to_run(again) for again in one.runnable()] in ([], [[]]), "number 1 still waits"
    else:
        assert do_resume(one, identifier) == 2
        (again,) = one.runnable()
        assert one.to_run(again) == [2]


def test_a_blocked_sequence_can_be_resumed_after_its_end(one: Instance) -> None:
    identifier, _ = stopped(one, 1, 3)
    one.end(CloseSequence(identifier))
    assert one.runnable() == []
    assert do_resume(one, identifier) == 1
    (claim,) = one.runnable()
    assert one.to_run(claim) == [1, 3]
