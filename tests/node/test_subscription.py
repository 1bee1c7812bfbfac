"""Subscriptions: a backlog, acknowledgements in batches, leases that are kept and given back."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.node.conftest import Connect, Rows
from wsrm_mq.errors import LeaseLost, QueueBusy, SubscriptionClosed, UnknownQueue
from wsrm_mq.node import Node
from wsrm_mq.node.message import Message
from wsrm_mq.node.subscription import Subscription
from wsrm_mq.queue.settling import Settlement

Program = Callable[[str], subprocess.Popen[str]]


def leased(node: Node, queue: str = "orders") -> int:
    return node.stats(queue).leased


def here(subscription: Subscription) -> int:
    """How many messages have come that are not settled."""
    return sum(part.flow._backlog.unsettled for part in subscription.parts)


def until(happened: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def taken(subscription: Subscription, count: int, seconds: float = 10.0) -> list[Message]:
    """Messages that are not acknowledged."""
    found = [subscription.take(seconds) for _ in range(count)]
    assert None not in found
    return [one for one in found if one is not None]


def bodies(messages: list[Message]) -> list[object]:
    return [one.json() for one in messages]


@pytest.mark.scenario("Q-055")
def test_without_a_backlog_one_message_comes_before_an_acknowledgement(node: Node) -> None:
    node.put_many("orders", range(3))
    with node.subscribe("orders") as subscription:
        assert subscription.max_backlog == 1
        (first,) = taken(subscription, 1)
        assert subscription.take(0.3) is None
        assert leased(node) == 1
        assert first.ack() is Settlement.SETTLED
        assert bodies(taken(subscription, 1)) == [1]


@pytest.mark.scenario("Q-056")
@pytest.mark.invariant("I9")
def test_a_queue_grants_less_than_was_asked_for(node: Node) -> None:
    node.declare("orders", max_backlog=4)
    node.put_many("orders", range(20))
    with node.subscribe("orders", max_backlog=10) as subscription:
        assert subscription.max_backlog == 4
        seen = []
        for message in subscription:
            seen.append(message.json())
            assert leased(node) <= 4
            if len(seen) == 20:
                break
        assert seen == list(range(20))


@pytest.mark.scenario("Q-057")
def test_the_next_message_is_there_when_the_one_before_is_through(node: Node) -> None:
    node.put_many("orders", range(60))
    with node.subscribe("orders", max_backlog=10) as subscription:
        taken(subscription, 1)[0].ack()
        was_there = []
        for _ in range(59):
            time.sleep(0.01)
            message = subscription.take(0)
            was_there.append(message is not None)
            (message or taken(subscription, 1)[0]).ack()
        assert was_there.count(False) == 0


@pytest.mark.scenario("Q-058")
@pytest.mark.local("counts the commits of the local node")
def test_acknowledgements_travel_in_tens_under_a_backlog_of_thirty(node: Node) -> None:
    node.put_many("orders", range(40))
    with node.subscribe("orders", max_backlog=30, ack_timeout=60) as subscription:
        for message in taken(subscription, 9):
            message.ack()
        time.sleep(0.3)
        assert node.stats("orders").leased == 30
        commits = node.store.writer.commits
        taken(subscription, 1)[0].ack()
        until(lambda: node.stats("orders").ready == 0)
        assert node.store.writer.commits == commits + 1
        assert node.stats("orders").leased == 30


@pytest.mark.scenario("Q-059")
def test_acknowledgements_that_are_not_enough_are_sent_when_the_oldest_is_old(node: Node) -> None:
    node.put_many("orders", range(30))
    with node.subscribe("orders", max_backlog=30, ack_batch=10, ack_timeout=1.0) as subscription:
        for message in taken(subscription, 4):
            message.ack()
        at = time.monotonic()
        time.sleep(0.4)
        assert leased(node) == 30
        until(lambda: leased(node) == 26)
        assert 0.5 < time.monotonic() - at < 5


@pytest.mark.scenario("Q-060")
def test_a_batch_above_the_backlog_never_stalls(node: Node) -> None:
    node.put_many("orders", range(35))
    with pytest.warns(UserWarning, match="batches have 10"):
        subscription = node.subscribe("orders", max_backlog=10, ack_batch=50, ack_timeout=60)
    seen = []
    for message in subscription:
        seen.append(message.json())
        if len(seen) == 35:
            break
    subscription.close()
    assert seen == list(range(35))


@pytest.mark.scenario("Q-060")
def test_a_consumer_that_waits_without_room_has_its_acknowledgements_sent(node: Node) -> None:
    node.put_many("orders", range(12))
    with node.subscribe("orders", max_backlog=10, ack_batch=5, ack_timeout=60) as subscription:
        for message in taken(subscription, 10)[:2]:
            message.ack()
        assert bodies(taken(subscription, 2)) == [10, 11]


@pytest.mark.scenario("Q-061")
def test_what_waits_is_sent_when_the_subscription_is_closed(node: Node) -> None:
    node.put_many("orders", range(30))
    with node.subscribe("orders", max_backlog=30, ack_timeout=60) as subscription:
        for message in taken(subscription, 7):
            message.ack()
        assert leased(node) == 30
    stats = node.stats("orders")
    assert (stats.leased, stats.ready) == (0, 23)
    assert bodies(list(node.receive("orders", 30))) == list(range(7, 30))


@pytest.mark.scenario("Q-061", "Q-071")
def test_what_waits_when_its_process_is_killed_is_delivered_again_oldest_first(node: Node, program: Program) -> None:
    node.put_many("orders", range(30))
    consumer = program(
        "subscription = node.subscribe('orders', max_backlog=30, ack_timeout=60)\n"
        "for _ in range(7): subscription.take().ack()\n"
        "print('acknowledged', flush=True)\n"
        "time.sleep(60)\n"
    )
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "acknowledged\n"
    assert leased(node) == 30
    consumer.send_signal(signal.SIGKILL)
    consumer.wait()
    with node.subscribe("orders", max_backlog=30) as subscription:
        again = taken(subscription, 30, seconds=20)
    assert bodies(again) == list(range(30))
    assert all(one.redelivered for one in again)


@pytest.mark.scenario("Q-063")
def test_a_message_is_acknowledged_when_the_next_is_asked_for_and_not_earlier(node: Node) -> None:
    node.put_many("orders", range(2))
    with node.subscribe("orders") as subscription:
        first = next(subscription)
        time.sleep(0.2)
        assert (first.json(), leased(node), node.stats("orders").ready) == (0, 1, 1)
        second = next(subscription)
        assert (second.json(), leased(node), node.stats("orders").ready) == (1, 1, 0)


@pytest.mark.scenario("Q-064")
def test_what_is_cancelled_goes_to_the_next_and_pending_acknowledgements_stay(
    node: Node, connect: Connect, rows: Rows
) -> None:
    node.put_many("orders", range(10))
    with node.subscribe("orders", max_backlog=10, ack_timeout=60) as subscription:
        first, second = taken(subscription, 2)
        first.ack()
        assert second.ack("cancel") is Settlement.SETTLED
        assert leased(node) >= 9
        assert rows("SELECT cancels, failures FROM entry WHERE id = ?", second.position) == [(1, 0)]
        assert rows("SELECT outcome FROM entry WHERE id = ?", first.position) == [(None,)]
    with connect().subscribe("orders") as other:
        assert bodies(taken(other, 1)) == [1]


@pytest.mark.scenario("Q-066")
def test_what_is_expired_bypasses_the_batch(node: Node) -> None:
    node.put_many("orders", range(10))
    with node.subscribe("orders", max_backlog=10, ack_timeout=60) as subscription:
        first, second = taken(subscription, 2)
        first.ack()
        assert second.ack("expire") is Settlement.SETTLED
        assert [one.reason for one in node.dead("orders").peek()] == ["forced_expire"]
        assert first.ack() is Settlement.ALREADY_SETTLED


@pytest.mark.scenario("Q-067", "Q-068")
def test_an_acknowledgement_after_the_lease_is_refused_and_the_others_counts(node: Node, connect: Connect) -> None:
    node.declare("orders", lease=0.3, retry=[0])
    node.put_many("orders", range(1))
    with node.subscribe("orders") as subscription, connect().subscribe("orders") as other:
        (first,) = taken(subscription, 1)
        subscription.replace("priority > 8")
        (again,) = taken(other, 1)
        assert (again.position, again.deliveries) == (first.position, 2)
        with pytest.raises(LeaseLost):
            first.ack()
        again.renew(30)
        assert again.ack() is Settlement.SETTLED


@pytest.mark.scenario("Q-070")
def test_leases_of_what_waits_for_its_turn_are_renewed(node: Node, connect: Connect) -> None:
    node.declare("orders", lease=0.5)
    node.put_many("orders", range(4))
    other = connect()
    with node.subscribe("orders", max_backlog=4) as subscription:
        for message in subscription:
            for _ in range(4):
                time.sleep(0.25)
                message.renew()
            assert (message.deliveries, other.receive("orders")) == (1, [])
            if message.json() == 3:
                break
        assert subscription.lost == 0


def test_a_message_whose_lease_was_renewed_while_it_waited_says_how_long_that_lasts(node: Node) -> None:
    node.declare("orders", lease=1)
    node.put_many("orders", range(2))
    with node.subscribe("orders", max_backlog=2) as subscription:
        (first,) = taken(subscription, 1)
        backlog = subscription.flow._backlog
        until(lambda: backlog.waiting)
        came = backlog.waiting[0]
        before = came.leased_until
        until(lambda: came.leased_until != before)
        (second,) = taken(subscription, 1)
        assert first.leased_until is not None
        assert second.leased_until is not None
        assert second.leased_until > first.leased_until + 0.1


@pytest.mark.local("ends a lease in the memory of the local node")
def test_a_subscription_that_is_dropped_without_close_keeps_nothing(node: Node) -> None:
    node.declare("orders", lease=0.5)
    node.put_many("orders", range(5))
    for first in node.subscribe("orders", max_backlog=5):
        assert first.json() == 0
        break
    with node.subscribe("orders", max_backlog=5) as another:
        assert sorted(message.json() for message in taken(another, 5)) == list(range(5))


def test_a_lease_that_ended_at_the_consumer_is_not_handed_over(node: Node) -> None:
    node.declare("orders", lease=30)
    node.put_many("orders", range(2))
    with node.subscribe("orders", max_backlog=2) as subscription:
        taken(subscription, 1)
        until(lambda: leased(node) == 2)
        held = subscription.flow._backlog._waiting[0]
        held.leased_until = subscription.flow._clock()
        assert subscription.take(0.2) is None


def test_what_is_kept_for_the_next_is_handed_over_while_it_is_leased_alone(node: Node) -> None:
    node.declare("orders", lease=60)
    node.put_many("orders", range(4))
    with node.subscribe("orders", max_backlog=4) as subscription:
        first, second, third = taken(subscription, 3)
        for one in (first, second, third):
            subscription.keep_ahead(one)
        held = subscription.flow._backlog.handed(first.position)
        assert held is not None
        held.leased_until = subscription.flow._clock()
        assert [one.json() for one in taken(subscription, 2)] == [1, 2]
        subscription.keep_ahead(third)
    with pytest.raises(SubscriptionClosed):
        subscription.take(0)


@pytest.mark.scenario("Q-081")
def test_a_filter_is_replaced_and_leases_stay(node: Node) -> None:
    for number in range(6):
        node.put("orders", number, properties={"region": "eu" if number % 2 else "us"})
    with node.subscribe("orders", max_backlog=2, filter="region = 'eu'") as subscription:
        first, second = taken(subscription, 2)
        assert bodies([first, second]) == [1, 3]
        subscription.replace("region = 'us'")
        assert leased(node) == 2
        first.ack()
        second.ack()
        assert bodies(taken(subscription, 2)) == [0, 2]


@pytest.mark.scenario("Q-086")
def test_several_queues_are_consumed_fairly(node: Node) -> None:
    names = ["one", "two", "three"]
    node.declare("one", access="exclusive")
    for name in names:
        node.put_many(name, [name] * 10)
    with node.subscribe(names, max_backlog=6) as subscription:
        first = [next(subscription).queue for _ in range(12)]
        counts = [first.count(name) for name in names]
        assert max(counts) - min(counts) <= 2


@pytest.mark.scenario("Q-085")
def test_a_second_subscription_of_an_exclusive_queue_is_refused_until_the_first_is_closed(
    node: Node, connect: Connect
) -> None:
    node.declare("orders", access="exclusive")
    with node.subscribe("orders"), pytest.raises(QueueBusy):
        node.subscribe("orders")
    with connect().subscribe("orders"), pytest.raises(QueueBusy):
        node.subscribe("orders")


@pytest.mark.scenario("Q-076")
def test_messages_go_to_the_subscription_that_is_least_busy(node: Node) -> None:
    node.declare("orders")
    busy = [node.subscribe("orders", max_backlog=granted) for granted in (2, 4, 10)]
    node.put_many("orders", range(8))
    until(lambda: leased(node) == 8)
    assert [sum(one.take(0.1) is not None for _ in range(6)) for one in busy] == [1, 2, 5]
    for one in busy:
        one.close()


def test_a_consumer_that_waits_is_told_that_its_queue_is_gone(node: Node) -> None:
    node.declare("orders")
    subscription = node.subscribe("orders")
    node.delete("orders")
    with pytest.raises(UnknownQueue):
        subscription.take(10)
    subscription.close()


def test_who_waits_when_a_subscription_is_closed_is_told_so_and_by_whom(connect: Connect) -> None:
    node = connect()
    node.declare("orders")
    found: list[list[Message]] = []
    for close in (False, True):
        with node.subscribe("orders") as subscription:
            waits = threading.Thread(target=lambda one=subscription: found.append(list(one)))
            waits.start()
            until(lambda one=subscription: bool(one.flow._waiters))  # type: ignore[misc]
            assert subscription.next(timeout=0) is None, "nothing is there"
            assert not subscription.closed_by
            (node if close else subscription).close()
            waits.join(10)
            by = "the node's `close` in the thread MainThread" if close else "its `close` in the thread MainThread"
            assert found.pop() == []
            assert subscription.closed_by == by
            for ask in (subscription.next, subscription.take, lambda one=subscription: list(one)):
                with pytest.raises(SubscriptionClosed, match=f"is closed, by {by}: more messages may be there"):
                    ask()
            subscription.close()  # once more


def test_a_queue_that_is_deleted_under_its_consumer_says_so(node: Node) -> None:
    queue = node.subscribe_durable("db/#", "thanks")
    with node.subscribe(queue) as subscription:
        node.unsubscribe("thanks")
        with pytest.raises(UnknownQueue, match="It was deleted, or unsubscribed, while it was consumed"):
            subscription.next(10)
        assert subscription.closed_by is None


@pytest.mark.local("looks at the flow of a subscription")
def test_a_queue_that_is_deleted_takes_nothing_with_it_that_its_consumer_has_taken_or_has_of_another_queue(
    node: Node, rows: Rows
) -> None:
    for queue in ("orders", "gone"):
        node.declare(queue, lease=None)
        node.put_many(queue, range(3), type=queue)
    with node.subscribe(["orders", "gone"], max_backlog=8, ack_batch=8, ack_timeout=60) as subscription:
        until(lambda: node.stats("orders").leased + node.stats("gone").leased == 6)
        for message in taken(subscription, 6):
            if message.json() < 2:
                subscription.acknowledge(message)
        assert node.delete("gone", force=True).settled == 1
        until(lambda: not subscription.flow.is_open)
        until(lambda: (node.stats("orders").leased, node.stats("orders").ready) == (0, 1))
        with pytest.raises(UnknownQueue):
            subscription.next(10)
    assert rows("SELECT action, outcome, count(*) FROM entry JOIN message ON message.id = message GROUP BY 1, 2") == [
        ("gone", "delivered", 2),
        ("gone", "purged", 1),
        ("orders", None, 1),
        ("orders", "delivered", 2),
    ]


@pytest.mark.scenario("Q-071")
@pytest.mark.parametrize("group", [None, "a"])
def test_closing_gives_back_uncounted_what_was_not_begun(node: Node, rows: Rows, group: str | None) -> None:
    node.put_many("orders", range(5), group=group)
    subscription = node.subscribe("orders", max_backlog=5)
    taken(subscription, 1)
    until(lambda: leased(node) == 5)
    subscription.close()
    assert leased(node) == 0
    assert rows("SELECT sum(failures), sum(cancels) FROM entry") == [(0, 0)]
    again = node.receive("orders", 5)
    assert [one.deliveries for one in again] == [2, 1, 1, 1, 1], "the consumer had got the first alone"
    assert rows("SELECT count(*) FROM subscription WHERE ended_at IS NULL") == [(0,)]


@pytest.mark.local("waits as a consumer of the local node does")
def test_what_comes_for_a_consumer_that_has_waited_for_longer_than_a_lease_is_not_taken_back(node: Node) -> None:
    node.declare("orders", lease=0.2)
    with node.subscribe("orders") as subscription:
        assert subscription.hand_over(lambda: None) is None
        time.sleep(0.3)
        node.put("orders", 1)
        until(lambda: leased(node) == 1)
        time.sleep(0.05)
        assert leased(node) == 1
        assert subscription.take(0) is not None


@pytest.mark.local("counts the transactions of the local node")
def test_consumers_that_wait_cost_no_transaction(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.put("others", 0)
    idle = [node.subscribe("orders") for _ in range(3)]
    turns: list[object] = []
    monkeypatch.setattr(node.supply, "_turn", lambda *arguments: turns.append(arguments))
    assert [one.take(0.05) for one in idle] == [None] * 3
    node.doorbell.ring()
    node.supply.look()
    assert turns == []


@pytest.mark.scenario("Q-016")
def test_a_consumer_that_waits_is_woken_by_a_put_of_another_process(node: Node, program: Program) -> None:
    node.declare("orders")
    with node.subscribe("orders") as subscription:
        program("for n in range(5): time.sleep(0.35); node.put('orders', time.time())")
        took = []
        for _ in range(5):
            (message,) = taken(subscription, 1, seconds=20)
            took.append(time.time() - message.json())
            message.ack()
        assert sorted(took)[2] < 0.15, "a consumer that looks once a second finds it later"


@pytest.mark.scenario("Q-116")
@pytest.mark.local("counts the commits of the local node")
def test_puts_that_are_not_waited_for_share_commits(node: Node) -> None:
    node.declare("orders")
    before = node.store.writer.commits
    confirmations = [node.put("orders", number, wait=False) for number in range(1_000)]
    positions = [one.result(30) for one in confirmations]
    assert positions == sorted(set(positions))
    assert node.store.writer.commits - before < 250
    assert node.stats("orders").ready == 1_000


def test_a_program_that_ends_without_close_has_what_it_put_without_waiting(node: Node, program: Program) -> None:
    node.declare("orders")
    producer = program("for number in range(1_000): node.put('orders', number, wait=False)")
    assert producer.wait() == 0
    assert node.stats("orders").ready == 1_000


def test_a_program_that_ends_without_close_has_what_it_acknowledged_sent(node: Node, program: Program) -> None:
    node.put_many("orders", range(9))
    consumer = program(
        "its = iter(node.subscribe('orders', max_backlog=9, ack_batch=4, ack_timeout=60))\n"
        "for _ in range(4): message = next(its)"
    )
    assert consumer.wait() == 0
    assert node.stats("orders").messages == 6


@pytest.mark.scenario("Q-075")
def test_what_is_delivered_at_most_once_is_not_delivered_again_when_its_consumer_is_killed(
    node: Node, program: Program, rows: Rows
) -> None:
    node.declare("orders", delivery="at_most_once")
    node.put_many("orders", range(2))
    consumer = program("print(next(node.subscribe('orders')).json(), flush=True); time.sleep(60)")
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "0\n"
    consumer.send_signal(signal.SIGKILL)
    consumer.wait()
    until(lambda: rows("SELECT count(*) FROM ledger WHERE event = 'lost_after_delivery'") == [(1,)])
    with node.subscribe("orders") as subscription:
        assert bodies(taken(subscription, 1)) == [1]
        assert subscription.take(0.3) is None


@pytest.mark.scenario("Q-006")
def test_consumers_of_several_processes_settle_each_message_once(node: Node, program: Program) -> None:
    node.declare("orders")
    consumers = [
        program(
            "subscription = node.subscribe('orders', max_backlog=9)\n"
            "while (message := subscription.next(3)) is not None: print(message.json(), flush=True)\n"
            "node.close()\n"
        )
        for _ in range(3)
    ]
    node.put_many("orders", range(600))
    seen: list[int] = []
    for one in consumers:
        assert one.stdout is not None
        seen += [int(line) for line in one.stdout]
        one.wait()
    assert sorted(seen) == list(range(600))
    stats = node.stats("orders")
    assert (stats.ready, stats.leased) == (0, 0)


@pytest.mark.invariant("I6", "I17")
@pytest.mark.parametrize("action", ["ack", "expire"])
@pytest.mark.parametrize("options", [{}, {"durability": "express"}, {"group": "a"}], ids=["alone", "express", "group"])
def test_what_a_filter_settles_that_waits_for_a_consumer_does_not_come_any_more(
    node: Node, action: str, options: dict[str, str]
) -> None:
    for number in range(6):
        node.put("orders", number, properties={"kind": "x" if number < 3 else "y"}, **options)
    with node.subscribe("orders", max_backlog=4) as subscription:
        (first,) = taken(subscription, 1)
        until(lambda: here(subscription) == 4)
        assert node.settle("orders", "kind = 'x'", action) == (3, 0)
        if action == "ack":
            assert first.ack() is Settlement.ALREADY_SETTLED
        else:
            with pytest.raises(LeaseLost):
                first.ack()
        for number in range(3, 6):
            (one,) = taken(subscription, 1)
            assert one.json() == number
            one.ack()
    assert not node.peek("orders")


@pytest.mark.local("holds up the writer of the local node")
@pytest.mark.invariant("I6", "I17")
def test_what_a_filter_settles_while_acknowledgements_are_sent_before_it_is_not_handed_over(node: Node) -> None:
    node.put_many("orders", [0, 1])
    go_on = threading.Event()
    with node.subscribe("orders", max_backlog=9, ack_timeout=60) as subscription, ThreadPoolExecutor(1) as pool:
        again, other = taken(subscription, 2)
        again.release()
        until(lambda: here(subscription) == 2)
        other.ack()
        node.store.submit(lambda _tx: go_on.wait(10), lambda _done, _error: None)
        settling = pool.submit(node.settle, "orders", f"position = {again.position}")
        threading.Timer(0.4, go_on.set).start()
        time.sleep(0.2)  # it waits for its commit
        assert subscription.take(1) is None
        assert settling.result(10) == (1, 0)


@pytest.mark.invariant("I6", "I17")
def test_what_is_on_its_way_to_a_consumer_when_a_filter_settles_it_does_not_arrive(node: Node) -> None:
    with node.subscribe("orders", max_backlog=8) as subscription:
        for _ in range(40):
            node.put_many("orders", range(3))
            node.settle("orders", "position > 0")
            while (message := subscription.take(0)) is not None:
                assert node.get("orders", message.position) is not None
                message.ack()


def test_what_a_filter_settles_that_was_kept_for_the_next_does_not_come_any_more(node: Node) -> None:
    with node.subscribe("orders", max_backlog=2) as subscription:
        node.put("orders", "missed")
        for _missed in subscription.catch_up():
            node.put("orders", "since")
            until(lambda: here(subscription) == 2)
        assert len(subscription._ahead) == 1
        assert node.settle("orders", "position > 0", "reject").settled >= 1
        assert subscription.take(0.2) is None


@pytest.mark.scenario("Q-069")
def test_the_acknowledgement_of_what_another_process_has_settled_by_a_filter_says_so(
    node: Node, connect: Connect
) -> None:
    node.declare("orders", leasing="sublet")
    node.put_many("orders", range(2))
    with connect().subscribe("orders", max_backlog=2) as subscription:
        until(lambda: leased(node) == 2)
        assert node.settle("orders", "position > 0") == (2, 0)
        assert [one.ack() for one in taken(subscription, 2)] == [Settlement.ALREADY_SETTLED] * 2
