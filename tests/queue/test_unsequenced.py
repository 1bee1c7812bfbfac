"""One-way messages without WS-RM: each connection's are one sequence, numbered here in order of receipt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue.build import Instance, Node, arrival, sender
from wsrm_mq.queue.arrival import MessageReceipt
from wsrm_mq.queue.broken_run import take_over
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import OnPoison, QueuePolicy
from wsrm_mq.queue.unsequenced import accept_unsequenced, end_connections
from wsrm_mq.sequence.faults import UnknownSequence
from wsrm_mq.versions import UNSEQUENCED, WSRM_1_0, WSRM_1_1

IDLE = 10_000
POLICY = QueuePolicy(connection_idle=IDLE, retry=())


def take(instance: Instance, connection: str | None, **changes: Any) -> MessageReceipt:
    changes = {"sender": sender(UNSEQUENCED), "policy": POLICY, **changes}
    return instance.run(lambda tx: accept_unsequenced(tx, arrival("", 0, connection=connection, **changes)))


def sequences(instance: Instance) -> list[dict[str, Any]]:
    return instance.rows(
        "SELECT sequences.*, lane.due_at, identifier FROM sequences JOIN lane ON lane.id = key ORDER BY key"
    )


def claim_of(receipt: MessageReceipt) -> Claim:
    assert receipt.claim is not None
    return receipt.claim


def test_the_messages_of_a_connection_are_one_sequence_in_order_of_receipt(one: Instance) -> None:
    receipts = [take(one, connection) for connection in ("a", "b", "a", "a", "b")]
    assert [receipt.given.number for receipt in receipts if receipt.given] == [1, 1, 2, 3, 2]
    assert [(row["kind"], row["connection"], row["rm"], row["expected"]) for row in sequences(one)] == [
        ("connection", "a", "none", 4),
        ("connection", "b", "none", 3),
    ]
    assert all(row["identifier"].startswith("urn:uuid:") for row in sequences(one))
    assert [receipt.claim is not None for receipt in receipts] == [True, True, False, False, False]
    assert receipts[0].runs_here
    assert receipts[2].runs_here
    assert one.to_run(claim_of(receipts[0])) == [1, 2, 3]


def test_another_process_goes_on_with_the_numbers(node: Node) -> None:
    first, second = node.start(), node.start()
    given = [take(instance, "a").given for instance in (first, second, first, second)]
    assert [header.number for header in given if header] == [1, 2, 3, 4]
    assert len(sequences(first)) == 1


def test_a_connection_that_sends_to_two_queues_has_a_sequence_in_each(one: Instance) -> None:
    take(one, "a")
    take(one, "a", sender=sender(UNSEQUENCED, queue="/other"))
    take(one, "a")
    assert [row["expected"] for row in sequences(one)] == [3, 2]


def test_the_end_of_a_connection_ends_its_sequence_and_what_it_has_is_delivered(one: Instance) -> None:
    held = claim_of(take(one, "a"))
    take(one, "a")
    take(one, "b")
    assert one.run(lambda tx: end_connections(tx, ["a", "stranger"])) == 1
    assert [(row["connection"], row["ended"]) for row in sequences(one)] == [("a", "terminated"), ("b", None)]
    assert one.to_run(held) == [1, 2]
    assert [row["event"] for row in one.ledger()] == ["created", "created", "ended"]
    assert one.run(lambda tx: end_connections(tx, ["a"])) == 0
    again = take(one, "a")
    assert again.given
    assert again.given.number == 1


@pytest.mark.parametrize("silence", [IDLE - 1, IDLE])
def test_a_name_that_comes_back_after_the_idle_limit_is_another_connection(one: Instance, silence: int) -> None:
    take(one, "a")
    one.clock.advance(silence)
    take(one, "a")
    assert [row["ended"] for row in sequences(one)] == ([None] if silence < IDLE else ["terminated", None])


@pytest.mark.parametrize("step", [-3_600_000, 3_600_000])
def test_a_clock_that_is_stepped_loses_nothing(one: Instance, step: int) -> None:
    held = claim_of(take(one, "a"))
    one.clock.advance(step)
    receipt = take(one, "a")
    assert receipt.given
    assert receipt.position == 2
    delivered = one.to_run(held) + (one.to_run(receipt.claim) if receipt.claim else [])
    assert delivered == ([1, 2] if step < 0 else [1, 1])


def test_no_sender_can_name_the_sequence_of_a_connection(one: Instance) -> None:
    given = take(one, "a").given
    assert given is not None
    for rm in (WSRM_1_0, WSRM_1_1):
        assert isinstance(one.take(given.identifier, 2, rm=rm).fault, UnknownSequence)


@pytest.mark.parametrize(
    ("on_poison", "after"),
    [(OnPoison.DEAD_LETTER, ["dead", None]), (OnPoison.BLOCK, [None, None]), (OnPoison.TERMINATE, [None, None])],
)
def test_poison_of_a_connection_has_a_rule_of_its_own(one: Instance, on_poison: OnPoison, after: list[Any]) -> None:
    held = claim_of(take(one, "a"))
    take(one, "a")
    policy = QueuePolicy(retry=(), on_poison=OnPoison.BLOCK, connection_on_poison=on_poison)
    failed = one.fail(held, 1, policy)
    assert list(one.outcomes(held.lane).values()) == after
    assert failed.released is (on_poison is not OnPoison.DEAD_LETTER)
    assert (one.to_run(held) == [2]) is (on_poison is OnPoison.DEAD_LETTER)


def test_poison_of_a_connection_goes_to_the_dead_letters_by_default() -> None:
    assert QueuePolicy().connection_on_poison is OnPoison.DEAD_LETTER


def test_what_a_connection_sends_is_delivered_before_what_comes_later_on_it_after_a_crash(node: Node) -> None:
    doomed, heir = node.start(), node.start()
    take(doomed, "a")
    take(doomed, "a")
    heir.run(lambda tx: take_over(tx, doomed.key, lambda _partner: POLICY))
    (held,) = heir.runnable()
    take(heir, "a")
    assert heir.to_run(held) == [1, 2, 3]
