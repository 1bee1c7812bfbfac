"""Ordered groups: whatever is settled out of turn, the rest comes, in order, and no group keeps another one waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from tests.node.conftest import Connect, Rows
from tests.node.test_subscription import taken
from wsrm_mq.errors import ConfigurationError, LeaseLost
from wsrm_mq.node import Node
from wsrm_mq.node.message import Message
from wsrm_mq.queue.operate import skip

ALL = 9


def numbers(messages: Sequence[Message]) -> list[int | None]:
    return [one.number for one in messages]


@pytest.mark.invariant("I4")
@pytest.mark.parametrize("verb", ["reject", "expire"])
def test_what_is_given_up_out_of_turn_takes_none_before_it_along(node: Node, verb: str) -> None:
    node.put_many("orders", range(4), group="a")
    one, two, three, four = node.receive("orders", ALL)
    getattr(node, verb)([two, four])
    assert [one.ack(), three.ack()] == ["settled"] * 2
    node.put("orders", 4, group="a")
    assert numbers(node.receive("orders", ALL)) == [5], "the group is free when all that was leased is settled"


@pytest.mark.invariant("I4")
def test_what_is_purged_out_of_the_middle_takes_none_before_it_along(node: Node) -> None:
    positions = node.put_many("orders", range(5), group="a")
    assert node.purge("orders", positions[2], positions[3]).settled == 2
    batch = node.receive("orders", ALL)
    assert numbers(batch) == [1, 2, 5]
    assert node.ack(batch) == ["settled"] * 3


@pytest.mark.invariant("I4")
def test_a_deadline_in_the_middle_takes_none_before_it_along(node: Node) -> None:
    node.put("orders", 0, group="a")
    node.put("orders", 1, group="a", ttl=0.05)
    node.put("orders", 2, group="a")
    time.sleep(0.2)
    assert numbers(node.receive("orders", ALL)) == [1, 3]


def test_a_group_goes_on_when_the_message_that_stops_it_is_purged(node: Node) -> None:
    node.declare("orders", retry=[], max_failures=1)
    first, *_ = node.put_many("orders", range(3), group="a")
    node.receive("orders")[0].nack("no")
    assert node.receive("orders", ALL) == []
    assert node.purge("orders", first, first).settled == 1
    assert numbers(node.receive("orders", ALL)) == [2, 3]


@pytest.mark.local("runs a verb of the store")
@pytest.mark.parametrize("on_poison", ["skip", "block"])
def test_a_group_whose_queue_keeps_no_dead_letters_has_what_failed_for_good_discarded(
    node: Node, on_poison: str, rows: Rows
) -> None:
    node.declare("orders", max_failures=1, on_poison=on_poison, dead_letter=False)
    node.put_many("orders", range(2), group="a", report_to="reports", report="not_delivered")
    node.receive("orders")[0].nack("no")
    if on_poison == "block":
        (group,) = [one for (one,) in rows("SELECT identifier FROM lane WHERE blocked IS NOT NULL")]
        node.call(lambda tx: skip(tx, group, 1, actor="o", reason="it is lost"))
    assert rows("SELECT outcome, body FROM entry JOIN message USING (id) WHERE number = 1") == [("discarded", None)]
    assert (node.stats("orders").dead, node.stats("orders").messages) == (0, 1)
    assert [one.properties["reason"] for one in node.receive("reports", ALL)] == [
        {"skip": "max_failures", "block": "skipped"}[on_poison]
    ]
    assert numbers(node.receive("orders")) == [2]


@pytest.mark.parametrize("stop", ["a failure", "what was settled out of its turn"])
def test_a_group_that_has_nothing_now_keeps_no_other_one_waiting(node: Node, stop: str) -> None:
    node.declare("orders", retry=[60])
    _, second = node.put_many("orders", range(2), group="a")
    node.put_many("orders", range(10, 12), group="b")
    if stop == "a failure":
        node.receive("orders")[0].nack("not now")
    else:
        node.purge("orders", second, second)
        assert node.receive("orders")[0].ack() == "settled"
    for body in (10, 11):
        (one,) = node.receive("orders")
        assert one.json() == body
        assert one.ack() == "settled"


@pytest.mark.local("sets the clock of the process that has the store")
def test_a_group_waits_no_longer_when_the_clock_is_stepped_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.declare("orders", retry=[0.2])
    node.put("orders", 0, group="a")
    node.receive("orders")[0].nack("not now")
    told: Callable[[], int] = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: told() - 3_600 * 10**9)
    assert numbers(node.receive("orders", wait=5)) == [1]


@pytest.mark.local("counts the commits of the local node")
def test_a_deadline_that_passes_while_its_group_is_leased_is_no_work_until_then(node: Node) -> None:
    node.put("orders", 0, group="a", ttl=0.05)
    (one,) = node.receive("orders")
    before = node.store.writer.commits
    time.sleep(1.5)  # the watch looks once a second
    assert node.store.writer.commits - before < 10
    assert one.ack() == "settled"


def test_dead_letters_of_a_group_are_leased_and_settled_by_themselves(node: Node, connect: Connect) -> None:
    node.put_many("orders", range(4), group="a")
    node.reject(node.receive("orders", 3))
    letters = node.dead("orders")
    one, two = letters.receive(2)
    assert numbers(connect().dead("orders").receive(ALL)) == [3], "each is leased once"
    assert numbers(connect().receive("orders", ALL)) == [4], "and the group is not"
    assert node.ack([one, two]) == ["settled"] * 2
    assert numbers(letters.peek()) == [3]


def test_what_was_given_back_with_one_before_it_is_settled_by_its_old_lease_no_more(node: Node) -> None:
    node.put_many("orders", range(3), group="a")
    one, two, three = node.receive("orders", ALL)
    two.release()
    for message in (two, three):
        with pytest.raises(LeaseLost):
            message.reject()
    assert one.ack() == "settled"
    assert numbers(node.receive("orders", ALL)) == [2, 3]


@pytest.mark.parametrize(
    "verb", ["release", "nack", pytest.param("hand_back", marks=pytest.mark.local("is a verb of the local node"))]
)
def test_messages_of_a_group_go_back_together(node: Node, verb: str) -> None:
    node.declare("orders", retry=[0])
    node.put_many("orders", range(3), group="a")
    assert getattr(node, verb)(node.receive("orders", ALL)) == ["settled"] * 3
    again = node.receive("orders", ALL)
    assert numbers(again) == [1, 2, 3]
    assert [one.failures for one in again] == [int(verb == "nack"), 0, 0], "only the first was begun"


@pytest.mark.invariant("I17")
@pytest.mark.parametrize("action", ["ack", "expire"])
def test_a_filter_settles_what_a_group_has_ready_and_what_this_node_has_leased_of_it(
    node: Node, connect: Connect, action: str
) -> None:
    node.put_many("orders", range(5), group="a", properties={"kind": "x"})
    node.put_many("orders", range(2), group="b", properties={"kind": "x"})
    node.receive("orders", 2)
    connect().receive("orders", 1)  # the first of the other group
    done = node.settle("orders", "kind = 'x'", action)
    assert (done.settled, done.skipped) == ((5, 2) if action == "ack" else (6, 1))
    assert numbers(node.peek("orders")) == ([1, 2] if action == "ack" else [1])


@pytest.mark.parametrize("way", ["release", "nack", "its lease ends"])
def test_a_message_of_a_group_is_delivered_no_more_often_than_its_queue_allows(node: Node, way: str) -> None:
    node.declare("orders", max_deliveries=2, retry=[0], lease=0.1)
    node.put_many("orders", range(2), group="a")
    for _ in range(2):
        (one,) = node.receive("orders", wait=5)
        assert one.number == 1
        if way == "its lease ends":
            time.sleep(0.2)
        else:
            getattr(one, way)()
    assert numbers(node.receive("orders", wait=5)) == [2]
    assert [one.reason for one in node.dead("orders").peek()] == ["max_deliveries"]


def test_a_queue_that_delivers_at_most_once_takes_no_group(node: Node) -> None:
    node.declare("orders", delivery="at_most_once")
    with pytest.raises(ConfigurationError, match="leave out `group`"):
        node.put("orders", 0, group="a")
    assert node.stats("orders").messages == 0


@pytest.mark.invariant("I3")
def test_a_group_is_settled_by_its_last_lease_alone(node: Node, connect: Connect) -> None:
    node.declare("orders", lease=0.1, retry=[0])
    node.put_many("orders", range(2), group="a")
    old = node.receive("orders", ALL)
    time.sleep(0.2)
    new = connect().receive("orders", ALL, lease=30, wait=5)
    for verb in (node.ack, node.release, node.nack, node.expire):
        with pytest.raises(LeaseLost):
            verb(old)
    assert [one.ack() for one in new] == ["settled"] * 2


@pytest.mark.invariant("I4", "I9")
def test_what_is_acknowledged_out_of_turn_is_settled_with_what_was_before_it(node: Node) -> None:
    node.put_many("orders", range(6), group="a")
    with node.subscribe("orders", max_backlog=4, ack_batch=2, ack_timeout=0.01) as subscription:
        one, two, three, four = taken(subscription, 4)
        assert [four.ack(), three.ack(), two.ack()] == ["settled"] * 3
        time.sleep(0.3)
        assert (node.stats("orders").leased, subscription.take(0)) == (4, None), "no more than the backlog is leased"
        assert one.ack() == "settled"
        rest = taken(subscription, 2)
        assert [(message.number, message.deliveries) for message in rest] == [(5, 1), (6, 1)]
        assert subscription.lost == 0


@pytest.mark.invariant("I4")
@pytest.mark.parametrize(("way", "left"), [("reject", [3]), ("release", [1, 2, 3])])
def test_what_is_acknowledged_out_of_turn_goes_the_way_of_what_was_before_it(
    node: Node, way: str, left: list[int]
) -> None:
    node.put_many("orders", range(3), group="a")
    with node.subscribe("orders", max_backlog=4, ack_batch=2, ack_timeout=0.01) as subscription:
        one, two = taken(subscription, 2)
        two.ack()
        getattr(one, way)()
        for number in left:
            [message] = taken(subscription, 1)
            assert message.number == number
            message.ack()


@pytest.mark.invariant("I4")
def test_what_is_acknowledged_behind_one_that_never_is_comes_again_and_is_told_as_late(node: Node) -> None:
    node.put_many("orders", range(2), group="a")
    subscription = node.subscribe("orders", max_backlog=4, ack_batch=2)
    _one, two = taken(subscription, 2)
    two.ack()
    subscription.close()
    assert subscription.lost == 1
    assert numbers(node.receive("orders", ALL)) == [1, 2]


@pytest.mark.invariant("I9")
def test_what_is_released_after_a_filter_has_settled_it_keeps_the_rest_of_its_group_at_hand(node: Node) -> None:
    node.put_many("orders", range(3), group="a")
    with node.subscribe("orders", max_backlog=6, lease=60) as subscription:
        (one,) = taken(subscription, 1)
        assert node.settle("orders", f"position = {one.position}") == (1, 0)
        assert one.release() == "already_settled"
        assert numbers(taken(subscription, 2)) == [2, 3]
