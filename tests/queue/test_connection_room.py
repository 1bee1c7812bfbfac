"""How many unsettled messages a connection may have in the store."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.queue.build import Instance, Node, arrival, sender
from wsrm_mq.queue.accept import accept
from wsrm_mq.queue.arrival import MessageReceipt
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.room import Room
from wsrm_mq.queue.settle import settle
from wsrm_mq.queue.unsequenced import accept_unsequenced
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import UNSEQUENCED

THREE = QueuePolicy(room=Room(max_per_connection=3))


def send(instance: Instance, identifier: str, number: int, connection: str | None = "a") -> MessageReceipt:
    return instance.take(identifier, number, connection=connection, policy=THREE)


def stored(instance: Instance) -> list[int]:
    return [row["number"] for row in instance.rows("SELECT number FROM entry ORDER BY id")]


@contextmanager
def statements(instance: Instance) -> Iterator[list[str]]:
    """The statements that are run meanwhile."""
    seen: list[str] = []
    instance.db.set_trace_callback(seen.append)
    yield seen
    instance.db.set_trace_callback(None)


def test_at_the_bound_a_message_is_refused_and_leaves_no_trace(one: Instance) -> None:
    identifier = one.create().terms.identifier
    for number in (1, 2, 3):
        assert not send(one, identifier, number).no_room
    before = one.rows('SELECT expected, cursor, "limit" FROM sequences')
    refused = send(one, identifier, 4)
    assert refused.no_room == "3 messages of connection a are undelivered, max_per_connection is 3"
    assert refused.position is None
    assert stored(one) == [1, 2, 3]
    assert one.rows('SELECT expected, cursor, "limit" FROM sequences') == before
    assert refused.acknowledgement is not None
    assert refused.acknowledgement.ranges == ((1, 3),)
    assert not send(one, identifier, 4, connection="b").no_room
    assert not send(one, identifier, 5, connection=None).no_room


def test_a_settled_message_makes_room(one: Instance) -> None:
    identifier = one.create().terms.identifier
    held = send(one, identifier, 1).claim
    assert held is not None
    send(one, identifier, 2)
    send(one, identifier, 3)
    assert send(one, identifier, 4).no_room
    one.settle(held, 1)
    one.clock.advance(1)
    assert not send(one, identifier, 4).no_room
    one.clock.advance(1)
    assert send(one, identifier, 5).no_room


def test_a_duplicate_needs_no_room(one: Instance) -> None:
    identifier = one.create().terms.identifier
    for number in (1, 2, 3, 3, 1):
        assert not send(one, identifier, number).no_room


def test_what_fills_the_gap_is_never_refused(one: Instance) -> None:
    identifier = one.create().terms.identifier
    for number in (2, 4, 5):
        assert not send(one, identifier, number).no_room
    assert send(one, identifier, 6).no_room
    assert send(one, identifier, 3).no_room, "1 is missing before it"
    assert not send(one, identifier, 1).no_room
    assert not send(one, identifier, 3).no_room
    assert send(one, identifier, 6).no_room


def test_another_sequence_may_begin_on_a_full_connection(one: Instance) -> None:
    first, second = (one.create().terms.identifier for _ in range(2))
    for number in (2, 3, 4):
        send(one, first, number)
    assert not send(one, second, 1).no_room
    assert send(one, second, 2).no_room


def test_what_completes_a_sequence_that_waits_for_all_of_it_is_never_refused(one: Instance) -> None:
    policy = QueuePolicy(room=Room(max_per_connection=3), behavior=IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE)
    identifier = one.create(policy).terms.identifier
    for number in range(1, 8):
        assert not one.take(identifier, number, connection="a", policy=policy).no_room


def test_messages_without_wsrm_are_counted_with_the_others(one: Instance) -> None:
    identifier = one.create().terms.identifier
    send(one, identifier, 1)
    send(one, identifier, 2)

    def take() -> MessageReceipt:
        made = arrival("", 0, connection="a", policy=THREE, sender=sender(UNSEQUENCED))
        return one.run(lambda tx: accept_unsequenced(tx, made))

    assert not take().no_room
    before = one.rows("SELECT * FROM lane ORDER BY id")
    assert take().no_room
    assert one.rows("SELECT * FROM lane ORDER BY id") == before


def test_the_bound_holds_over_processes(node: Node) -> None:
    """Behind a proxy a connection's requests may go to any of them."""
    first, second = node.start(), node.start()
    identifier = first.create().terms.identifier
    for instance, number in zip(itertools.cycle((first, second)), (1, 2, 3), strict=False):
        assert not send(instance, identifier, number).no_room
    assert send(first, identifier, 4).no_room
    assert send(second, identifier, 4).no_room


def test_a_message_that_was_rolled_back_takes_no_room(one: Instance) -> None:
    identifier = one.create().terms.identifier

    def fails(tx: Transaction) -> None:
        for number in (1, 2, 3):
            accept(tx, arrival(identifier, number, connection="a", policy=THREE))
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - which it is does not matter
        one.run(fails)
    for number in (1, 2, 3):
        assert not send(one, identifier, number).no_room


def test_the_store_is_not_asked_for_every_message(one: Instance) -> None:
    policy = QueuePolicy(room=Room(max_per_connection=100))
    identifier = one.create().terms.identifier
    held = one.take(identifier, 1, connection="a", policy=policy).claim
    assert held is not None
    asked = 0
    for number in range(2, 1_001):
        one.clock.advance(1)
        with statements(one) as seen:
            receipt = one.take(identifier, number, connection="a", policy=policy)
        assert not receipt.no_room
        assert receipt.position is not None
        asked += sum("max(connection_message.message)" in statement for statement in seen)
        position = receipt.position
        one.run(lambda tx, number=number, position=position: settle(tx, held, position - 1, number - 1))  # type: ignore[misc]
    assert 1 <= asked <= 11


def test_without_a_bound_nothing_is_asked_at_all(one: Instance) -> None:
    identifier = one.create().terms.identifier
    with statements(one) as seen:
        one.take(identifier, 1, connection="a")
    assert not [
        statement for statement in seen if "connection_message" in statement or "message.connection" in statement
    ]
