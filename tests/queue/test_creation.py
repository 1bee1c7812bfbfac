"""Sequences that are opened and left empty: they do not keep their client out, and live as long as no other needs the
place."""

from __future__ import annotations

import pytest

from tests.queue.build import Instance, Node, sender
from wsrm_mq.queue import creation
from wsrm_mq.queue.acknowledgement import answer_ack_requested
from wsrm_mq.queue.arrival import CreateReceipt, Receipt
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.room import Room
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import AckRequested, CreateSequence
from wsrm_mq.sequence.states import Act

HOUR = 3_600_000
TWO = QueuePolicy(room=Room(max_sequences=2))


def create(one: Instance, policy: QueuePolicy = TWO, principal: str | None = None) -> CreateReceipt:
    who = sender(principal=principal)
    return one.run(lambda tx: creation.create(tx, who, CreateSequence(None), None, policy))


def opened(one: Instance, policy: QueuePolicy = TWO, principal: str | None = None) -> str:
    receipt = create(one, policy, principal)
    assert receipt.created is not None, receipt
    return receipt.created.terms.identifier


def states(one: Instance) -> list[tuple[str, str | None]]:
    return [(row["state"], row["ended"]) for row in one.rows("SELECT state, ended FROM sequences ORDER BY key")]


@pytest.mark.spec("SEC-009", "SEC-010", versions=("1.1",))
@pytest.mark.parametrize("principal", [None, "acme"])
def test_a_client_that_opens_one_at_each_start_is_not_kept_out_for_days(
    one: Instance, node: Node, principal: str | None
) -> None:
    for _ in range(5):
        opened(one, principal=principal)
        node.clock.advance(HOUR)
    assert states(one) == [("ended", "expired")] * 3 + [("created", None)] * 2
    reasons = [row["reason"] for row in one.rows("SELECT reason FROM ledger WHERE event = 'ended' ORDER BY id")]
    assert reasons == ["unused; max_sequences was reached"] * 3


def test_one_that_is_empty_keeps_what_was_granted_until_its_place_is_needed(one: Instance, node: Node) -> None:
    first, second = opened(one), opened(one)
    node.clock.advance(20 * HOUR)
    assert one.take(first, 1).act is Act.ACCEPT
    third = opened(one)
    assert isinstance(one.take(second, 1).fault, faults.UnknownSequence), "the oldest that is empty made way"
    assert one.take(first, 2).act is Act.ACCEPT
    assert one.take(third, 1).act is Act.ACCEPT


def test_one_that_was_used_within_the_hour_or_holds_a_message_does_not_make_way(one: Instance, node: Node) -> None:
    first, second = opened(one), opened(one)
    assert one.take(first, 5).act is Act.ACCEPT  # held: its first number is still missing
    node.clock.advance(HOUR // 2)
    one.run(lambda tx: answer_ack_requested(tx, sender(), TWO, (AckRequested(second),), Receipt(), None))
    node.clock.advance(HOUR - 1)
    refused = create(one)
    assert isinstance(refused.fault, faults.CreateSequenceRefused)
    node.clock.advance(HOUR // 2)
    assert create(one).created is not None
    assert states(one) == [("created", None), ("ended", "expired"), ("created", None)]


def test_another_peer_s_empty_sequences_stay(one: Instance, node: Node) -> None:
    theirs = [opened(one, principal="other") for _ in range(2)]
    mine = [opened(one, principal="acme") for _ in range(2)]
    node.clock.advance(2 * HOUR)
    opened(one, principal="acme")
    assert states(one)[:3] == [("created", None)] * 2 + [("ended", "expired")]
    assert theirs[0] != mine[0]


def test_requests_of_one_commit_do_not_make_one_sequence_make_way_twice(one: Instance, node: Node) -> None:
    """What a commit has ended, its queries still see as it was."""
    for _ in range(2):
        opened(one)
    node.clock.advance(2 * HOUR)
    with one.transaction() as tx:
        made = [creation.create(tx, sender(), CreateSequence(None), None, TWO) for _ in range(3)]
    assert [each.created is not None for each in made] == [True, True, False]
    assert states(one) == [("ended", "expired")] * 2 + [("created", None)] * 2


def test_a_limit_that_was_lowered_is_reached_step_by_step(one: Instance, node: Node) -> None:
    many = QueuePolicy(room=Room(max_sequences=10))
    for _ in range(6):
        opened(one, many)
    node.clock.advance(2 * HOUR)
    opened(one)
    assert [state for state, _ in states(one)] == ["ended"] * 5 + ["created"] * 2
