"""The messages that one subscription has leased."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from wsrm_mq.events.telling import Events
from wsrm_mq.node.backlog import Backlog
from wsrm_mq.node.batching import Batch
from wsrm_mq.node.flow import Flow
from wsrm_mq.queue.subscribing import Granted

pytestmark = pytest.mark.local("tests a part of the local node by itself")


@dataclass
class Message:
    position: int
    leased_until: int | None = 30_000
    lane: int | None = None
    fence: int = 1
    is_renewed: bool = False
    is_acknowledged: bool = False


def backlog(*messages: Any) -> Backlog:
    made = Backlog()
    made.arrive(messages)
    return made


@pytest.mark.scenario("Q-055", "Q-056")
@pytest.mark.invariant("I9")
def test_what_waits_and_what_is_at_the_consumer_counts_until_it_is_settled() -> None:
    queue = backlog(Message(1), Message(2))
    assert queue.unsettled == 2
    first = queue.hand_over(0)
    assert first is not None
    assert (first.position, queue.unsettled, len(queue.waiting)) == (1, 2, 1)
    queue.settled(1)
    queue.settled(1)
    assert queue.unsettled == 1


@pytest.mark.invariant("I9")
@pytest.mark.parametrize("verb", ["hand_over", "hand_over_all"])
def test_at_no_moment_of_being_handed_over_does_a_message_count_for_none(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    queue = backlog(Message(1), Message(2))
    counts: list[int] = []

    class Watched(dict[int, Message]):
        def __setitem__(self, position: int, message: Message) -> None:
            counts.append(queue.unsettled)
            super().__setitem__(position, message)

        def update(self, pairs: Any) -> None:
            for position, message in pairs:
                self[position] = message

    monkeypatch.setattr(queue, "_handed", Watched())
    queue.hand_over(0) if verb == "hand_over" else queue.hand_over_all()
    assert min(counts) >= 2, "another thread leases as many as there seems to be room for"


def test_a_message_whose_lease_is_over_is_not_handed_over() -> None:
    queue = backlog(Message(1, 100), Message(2, 101), Message(3, None))
    second = queue.hand_over(100)
    assert second is not None
    assert second.position == 2
    third = queue.hand_over(1_000_000)
    assert third is not None
    assert third.position == 3
    assert queue.hand_over(0) is None
    assert queue.unsettled == 2


def test_leases_of_what_waits_are_renewed_when_half_of_them_is_over_and_others_are_not() -> None:
    queue = backlog(Message(1, 300), Message(2, 300), Message(3, 500))
    queue.hand_over(0)
    assert queue.renewed_at(300) == 150
    assert queue.to_renew(149, 300) == []
    (second,) = queue.to_renew(150, 300)
    assert second.position == 2
    second.leased_until = 450
    assert queue.renewed_at(300) == 300


def test_a_lease_that_lasts_until_its_holder_goes_is_never_renewed() -> None:
    queue = backlog(Message(1, None))
    assert queue.renewed_at(None) is None
    assert queue.to_renew(10**12, None) == []


def test_a_group_that_was_given_back_waits_here_no_longer() -> None:
    queue = backlog(Message(1, lane=7), Message(2), Message(3, lane=7), Message(1, lane=7, fence=2))
    queue.hand_over(0)
    queue.group_returned(7, 1)
    queue.group_returned(None, 1)
    assert [one.position for _ in range(3) if (one := queue.hand_over(0)) is not None] == [2, 1], "it was leased again"


def test_what_is_left_is_told_apart_by_whether_the_consumer_has_it() -> None:
    queue = backlog(Message(1), Message(2), Message(3))
    queue.hand_over(0)
    waiting, handed = queue.leave()
    assert [one.position for one in waiting] == [2, 3]
    assert [one.position for one in handed] == [1]
    assert queue.unsettled == 0


def test_leases_of_a_subscription_that_was_begun_anew_are_renewed_by_its_new_terms() -> None:
    flow = Flow(["orders"], Granted(1, 10, None, "web"), Batch(1, 1_000), None, lambda: 0, Events())
    flow.begun_anew(Granted(2, 10, 300, "web"))
    flow.arrive([cast(Any, Message(1, 300))])
    assert flow.due_at() == 150
