from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from tests.queue.build import Instance, Node
from wsrm_mq.queue.adopt import adopt
from wsrm_mq.queue.broken_run import let_go, take_over
from wsrm_mq.queue.ownership import RUN_AHEAD, Claim, give_back, leave, runnable
from wsrm_mq.queue.policy import OnPoison, QueuePolicy
from wsrm_mq.store.transaction import Transaction

POLICY = QueuePolicy(retry=(1_000,))


def dies(survivor: Instance, victim: Instance, policy: QueuePolicy = POLICY) -> int:
    return survivor.run(lambda tx: take_over(tx, victim.key, lambda _partner: policy))


def received(instance: Instance, count: int, policy: QueuePolicy = POLICY) -> tuple[str, Claim]:
    identifier = instance.create(policy).terms.identifier
    claims = [instance.take(identifier, number, policy=policy).claim for number in range(1, count + 1)]
    assert claims[0] is not None
    return identifier, claims[0]


@pytest.mark.spec("D-DUR-001", versions="all")
def test_what_a_dead_instance_ran_is_free_at_once_and_marked_as_perhaps_seen(one: Instance, node: Node) -> None:
    survivor = node.start()
    identifier, claim = received(one, 3)
    one.settle(claim, 1)
    assert dies(survivor, one) == 1
    (again,) = survivor.runnable()
    assert survivor.to_run(again) == [2, 3]
    record = survivor.record(identifier)
    assert record.redelivery_below == 4
    assert [row["number"] for row in survivor.ledger("holder_died")] == [2]
    assert survivor.rows("SELECT ended_at FROM instance WHERE id = ?", one.key) == [{"ended_at": node.clock()}]


def test_only_what_may_have_run_ahead_is_marked(one: Instance, node: Node) -> None:
    survivor = node.start()
    identifier, _ = received(one, RUN_AHEAD + 10)
    dies(survivor, one)
    assert survivor.record(identifier).redelivery_below == RUN_AHEAD + 2


@pytest.mark.peer("P-55")
def test_what_a_run_that_broke_off_may_have_called_is_marked(one: Instance) -> None:
    identifier, claim = received(one, 3)
    one.settle(claim, 1)
    one.run(lambda tx: let_go(tx, claim, lambda _partner: POLICY, None))
    assert one.record(identifier).redelivery_below == 4
    (again,) = one.runnable()
    assert one.to_run(again) == [2, 3]


@pytest.mark.peer("P-55")
def test_a_death_takes_no_mark_away_that_was_there_before(one: Instance, node: Node) -> None:
    """All that a copy of an older store has may have been called, before it runs here."""
    identifier, _ = received(one, RUN_AHEAD + 10)
    one.run(leave)
    one.run(lambda tx: adopt(tx, actor="operator", reason="a copy", deliver=True))
    heir, survivor = node.start(), node.start()
    assert len(heir.runnable()) == 1
    dies(survivor, heir)
    assert survivor.record(identifier).redelivery_below == RUN_AHEAD + 11


def test_a_second_look_at_the_same_death_changes_nothing(one: Instance, node: Node) -> None:
    survivor = node.start()
    _, claim = received(one, 1)
    assert dies(survivor, one) == 1
    assert dies(survivor, one) == 0
    assert survivor.entry(claim.lane, 1)["deaths"] == 1
    assert len(survivor.ledger("instance_gone")) == 1


@pytest.mark.invariant("I12")
def test_from_the_third_death_in_a_row_a_death_counts_as_a_failure(node: Node) -> None:
    survivor = node.start()
    identifier = survivor.create(POLICY).terms.identifier
    claim = None
    seen = []
    for death in (1, 2, 3):
        victim = node.start()
        if death == 1:
            claim = victim.take(identifier, 1, policy=POLICY).claim
        else:
            (claim,) = victim.runnable()
        assert claim is not None
        dies(survivor, victim)
        entry = survivor.entry(claim.lane, 1)
        seen.append((entry["deaths"], entry["deliveries"], entry["failures"]))
    assert seen == [(1, 1, 0), (2, 2, 0), (3, 3, 1)]
    assert survivor.runnable() == [], "the third waits for the first step of the ladder"
    node.clock.advance(1_000)
    victim = node.start()
    assert len(victim.runnable()) == 1
    dies(survivor, victim)
    assert survivor.record(identifier).blocked is not None, "a ladder of one step is at its end"


def test_a_failure_between_deaths_begins_their_row_anew(node: Node) -> None:
    survivor = node.start()
    policy = QueuePolicy(retry=(0, 0, 0))
    identifier = survivor.create(policy).terms.identifier
    victim = node.start()
    claim = victim.take(identifier, 1, policy=policy).claim
    assert claim is not None
    dies(survivor, victim, policy)
    (again,) = survivor.runnable()
    survivor.fail(again, 1, policy)
    entry = survivor.entry(claim.lane, 1)
    assert (entry["deaths"], entry["failures"]) == (0, 1)


@pytest.mark.parametrize("on_poison", OnPoison)
def test_what_kills_every_holder_ends_as_the_queue_says(node: Node, on_poison: OnPoison) -> None:
    policy = QueuePolicy(retry=(), on_poison=on_poison)
    survivor = node.start()
    identifier = survivor.create(policy).terms.identifier
    for number in (1, 2):
        survivor.take(identifier, number, policy=policy)
    first = survivor.record(identifier)
    dies(survivor, survivor, policy)
    for _ in range(2):
        victim = node.start()
        assert len(victim.runnable()) == 1
        dies(survivor, victim, policy)
    runs = {OnPoison.BLOCK: [], OnPoison.TERMINATE: [], OnPoison.DEAD_LETTER: [2]}[on_poison]
    claims = node.start().runnable()
    assert [survivor.to_run(claim) for claim in claims] == ([runs] if runs else [])
    assert first.id > 0


def test_a_death_without_order_leaves_a_waiting_retry_alone(one: Instance, node: Node) -> None:
    policy = QueuePolicy(retry=(1_000, 1_000), ordered=False)
    survivor = node.start()
    _, claim = received(one, 3, policy)
    one.fail(claim, 1, policy)
    dies(survivor, one, policy)
    (again,) = survivor.runnable()
    assert survivor.to_run(again) == [2, 3]


def test_a_sequence_that_is_free_blocked_or_waits_is_not_touched(one: Instance, node: Node) -> None:
    survivor = node.start()
    identifier, claim = received(one, 1)
    one.fail(claim, 1, POLICY)
    before = survivor.record(identifier)
    assert dies(survivor, one) == 0
    assert asdict(survivor.record(identifier)) == asdict(before)


@pytest.mark.invariant("I5")
def test_two_instances_never_get_the_same_sequence(one: Instance, node: Node) -> None:
    two = node.start()
    for _ in range(5):
        identifier = one.create(POLICY).terms.identifier
        one.take(identifier, 2)
        receipt = one.take(identifier, 1)
        assert receipt.claim is not None
    dies(two, one)
    first, second = one.run(lambda tx: runnable(tx, 3)), two.runnable()
    assert (len(first), len(second)) == (3, 2)
    assert not {claim.lane for claim in first} & {claim.lane for claim in second}


@pytest.mark.invariant("I12")
def test_of_an_unordered_sequence_everything_unsettled_is_marked(one: Instance, node: Node) -> None:
    survivor = node.start()
    identifier, _ = received(one, RUN_AHEAD + 9, replace(POLICY, ordered=False))
    dies(survivor, one)
    assert survivor.record(identifier).redelivery_below == RUN_AHEAD + 10


def test_a_sequence_that_was_given_back_in_the_same_commit_is_found(one: Instance) -> None:
    _identifier, claim = received(one, 2)

    def both(tx: Transaction) -> list[Claim]:
        give_back(tx, claim, stopping=True)
        return runnable(tx, 1)

    (again,) = one.run(both)
    assert again == Claim(claim.lane, claim.fence + 1)
