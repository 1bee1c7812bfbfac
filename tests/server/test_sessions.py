"""Sessions of clients on other machines, over a real store; the clock is stood in for where time passes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import wsrm_mq
from wsrm_mq.errors import LeaseLost, LimitReached, NotAllowed, NotFound, QueueBusy, SessionEnded
from wsrm_mq.node import Node
from wsrm_mq.queue.settling import Settlement
from wsrm_mq.server.acts import Action, PutOne, Settle
from wsrm_mq.server.bounds import Bounds
from wsrm_mq.server.sessions import Session, Sessions


class HandClock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(program: Coroutine[Any, Any, Any]) -> None:
    asyncio.run(asyncio.wait_for(program, 30))


def acts(action: Action, *messages: Any, **options: Any) -> list[Settle]:
    return [Settle(position=one.position, lease=one.lease.fence, action=action, **options) for one in messages]


def test_a_session_leases_and_settles(node: Node) -> None:
    async def program() -> None:
        sessions = Sessions(node)
        session = sessions.begin("anna", "w1")
        node.put_many("orders", range(6))
        found = await session.receive(["orders"], 6)
        assert [one.json() for one in found] == list(range(6))
        answers = await session.settle(
            [
                *acts("ack", *found[:2]),
                *acts("release", found[2]),
                *acts("nack", found[3], reason="no three"),
                *acts("reject", found[4], reason="bad"),
                *acts("renew", found[5], seconds=60),
            ]
        )
        assert answers == [Settlement.SETTLED] * 6
        assert session.leased == 1
        assert await session.settle(acts("ack", *found[:3])) == [
            *[Settlement.ALREADY_SETTLED] * 2,
            Settlement.LOST,
        ]
        stats = node.stats("orders")
        assert (stats.ready, stats.leased, stats.dead) == (2, 1, 1)
        (letter,) = node.dead("orders").peek()
        assert (letter.json(), letter.last_error) == (4, "bad")
        await session.end()
        stats = node.stats("orders")
        assert (stats.ready, stats.leased) == (3, 0)

    run(program())


def test_a_session_that_is_silent_ends_and_its_leases_return_at_once_and_uncounted(node: Node) -> None:
    async def program() -> None:
        clock = HandClock()
        sessions = Sessions(node, clock=clock)
        watch = asyncio.create_task(sessions.watch())
        node.declare("orders", lease=3600)
        node.put_many("orders", range(3))
        gone, there = sessions.begin("anna", "w1", 30), sessions.begin("anna", "w2", 30)
        for session in (gone, there):
            await session.receive(["orders"])
        clock.now = 20
        with there.heard():
            clock.now = 100  # its request has run for longer than its silence may
            await asyncio.sleep(0.3)
            assert not gone.is_open
            assert there.is_open
        assert node.stats("orders").ready == 2
        found = node.receive("orders", 2)
        assert [(one.json(), one.deliveries, one.failures) for one in found] == [(0, 2, 0), (2, 1, 0)]
        with pytest.raises(SessionEnded):
            sessions.of("anna", gone.name)
        with pytest.raises(SessionEnded):
            await gone.settle([])
        watch.cancel()
        await sessions.close()
        assert node.stats("orders").leased == 2

    run(program())


@pytest.mark.scenario("Q-078")
@pytest.mark.parametrize("group", [None, "a"])
@pytest.mark.parametrize("subscribes", [True, False])
def test_only_the_message_that_clients_die_of_again_and_again_is_given_up(
    node: Node, subscribes: bool, group: str | None
) -> None:
    async def program() -> None:
        sessions = Sessions(node)
        node.declare("orders", max_failures=1, retry=[], lease=None, on_poison="skip")
        node.put_many("orders", range(4), group=group)
        for death in range(3):
            session = sessions.begin("anna", "w1")
            if subscribes:
                found = await session.take((await session.subscribe(["orders"], max_backlog=4)).key, 4, wait=10)
            else:
                found = await session.receive(["orders"], 4)
            assert [one.json() for one in found] == list(range(4))
            await session.end(has_died=True)
            assert node.stats("orders").ready == 4 - (death == 2)
        [letter] = node.dead("orders").peek()
        assert (letter.json(), letter.reason) == (0, "max_failures")
        assert (letter.last_error or "").startswith("its consumer is gone: w1")
        assert [(one.json(), one.failures) for one in node.peek("orders")] == [(n, 0) for n in range(1, 4)]
        await sessions.close()

    run(program())


@pytest.mark.parametrize("group", [None, "a"])
def test_the_death_of_a_client_counts_no_delivery_of_what_was_not_sent_to_it(node: Node, group: str | None) -> None:
    async def program() -> None:
        sessions = Sessions(node)
        node.declare("orders", lease=None)
        node.put_many("orders", range(4), group=group)
        session = sessions.begin("anna", "w1")
        subscription = await session.subscribe(["orders"], max_backlog=4)
        while subscription.flow.load.unsettled < 4:
            await asyncio.sleep(0.01)
        [first] = await session.take(subscription.key, 1, wait=10)
        await session.end(has_died=True)
        found = node.receive("orders", 4)
        assert [(one.json(), one.deliveries) for one in found] == [(0, 2), (1, 1), (2, 1), (3, 1)]
        assert first.json() == 0
        await sessions.close()

    run(program())


@pytest.mark.parametrize("group", [None, "a"])
def test_messages_that_a_session_has_not_got_are_as_before_the_lease_when_it_ends(
    node: Node, group: str | None
) -> None:
    async def program() -> None:
        sessions = Sessions(node)
        node.declare("orders", lease=None)
        node.put_many("orders", range(4), group=group)
        for _ in range(5):
            session = sessions.begin("anna", "w1")
            subscription = await session.subscribe(["orders"], max_backlog=4)
            while node.stats("orders").leased < 4:
                await asyncio.sleep(0.01)
            await session.end(has_died=True)
            assert not subscription.flow.is_open
        found = node.receive("orders", 4)
        assert [(one.json(), one.deliveries, one.failures) for one in found] == [(n, 1, 0) for n in range(4)]
        await sessions.close()

    run(program())


def test_a_session_is_of_the_principal_that_began_it(node: Node) -> None:
    async def program() -> None:
        sessions = Sessions(node)
        session = sessions.begin("anna")
        assert sessions.of("anna", session.name) is session
        with pytest.raises(SessionEnded):
            sessions.of("boris", session.name)
        node.put("orders", 1)
        (message,) = await session.receive(["orders"])
        assert await sessions.shared("boris").settle(acts("ack", message)) == [Settlement.LOST]
        assert await sessions.shared("anna").settle(acts("ack", message)) == [Settlement.LOST]
        assert node.stats("orders").leased == 1
        await sessions.close()

    run(program())


def test_what_waits_is_woken_by_a_put_of_another_process_and_costs_no_thread(node: Node, path: Path) -> None:
    async def program(other: Node) -> None:
        sessions = Sessions(node)
        node.declare("orders")
        some = [sessions.begin("anna", f"w{number}") for number in range(300)]
        waiting = [asyncio.create_task(one.receive(["orders"], wait=20)) for one in some]
        await asyncio.sleep(0.3)
        before = threading.active_count()
        await asyncio.to_thread(other.put_many, "orders", range(200))
        while sum(one.done() for one in waiting) < 200:
            await asyncio.sleep(0.01)
        assert threading.active_count() <= before + 6
        bodies = [message.json() for one in waiting if one.done() for message in one.result()]
        assert sorted(bodies) == list(range(200))
        left = [one for one in waiting if not one.done()]
        await sessions.close()
        ended = await asyncio.gather(*left, return_exceptions=True)
        assert len(ended) == 100
        assert all(isinstance(one, SessionEnded) for one in ended)

    with wsrm_mq.connect(path) as other:
        run(program(other))


@pytest.mark.parametrize("has_left", [False, True], ids=["waits", "has-left"])
def test_who_does_not_wait_gets_what_is_ready_whoever_waits_or_has_waited_there(node: Node, has_left: bool) -> None:
    async def program() -> None:
        sessions = Sessions(node)
        node.declare("orders")
        session, other = sessions.begin("anna"), sessions.begin("ben")
        waiting = asyncio.create_task(session.receive(["orders"], wait=0.1 if has_left else 20))
        await asyncio.sleep(0.2)
        node.put_many("orders", range(2))
        assert [len(await other.receive(["orders"]))] == [1]
        assert len(await waiting) == (0 if has_left else 1)
        await sessions.close()

    run(program())


def test_a_consumer_that_has_left_leases_nothing(node: Node) -> None:
    async def program() -> None:
        session = Sessions(node).begin("anna")
        node.declare("orders")
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(session.receive(["orders"], wait=20, gone=[left]))
        await asyncio.sleep(0.1)
        left.set_result(None)
        assert await waiting == []
        node.put("orders", 1)
        await asyncio.sleep(0.1)
        assert node.stats("orders").ready == 1
        await session.end()

    run(program())


def test_a_subscription_gets_as_much_as_was_granted_and_ends_with_its_session(node: Node) -> None:
    async def program() -> None:
        sessions = Sessions(node)
        session = sessions.begin("anna", "w1", 30)
        node.declare("orders", max_backlog=4, lease=3600)
        subscription = await session.subscribe(["orders"], max_backlog=10)
        assert subscription.max_backlog == 4
        assert node.clients()[0].name == "w1"
        node.put_many("orders", range(10))
        found = await session.take(subscription.key, 10, wait=5)
        while len(found) < 4:
            found += await session.take(subscription.key, 10, wait=5)
        assert await session.take(subscription.key, 10, wait=0.1) == []
        assert await session.settle(acts("ack", *found[:2])) == [Settlement.SETTLED] * 2
        more = await session.take(subscription.key, 10, wait=5)
        while len(more) < 2:
            more += await session.take(subscription.key, 10, wait=5)
        assert [one.json() for one in found + more] == list(range(6))
        await session.settle(acts("renew", more[0], seconds=100))
        await session.end()
        assert (node.stats("orders").ready, node.stats("orders").leased) == (8, 0)
        assert [one.failures for one in node.receive("orders", 8)] == [0] * 8

    run(program())


def test_what_was_lost_comes_again_though_the_keeper_of_the_express_messages_beside_it_is_gone(
    node: Node, path: Path
) -> None:
    async def program() -> None:
        session = Sessions(node).begin("anna")
        with wsrm_mq.connect(path) as keeper:
            keeper.put("orders", 0, durability="express")
            subscription = await session.subscribe(["orders"], max_backlog=3)
            found = await session.take(subscription.key, 1, wait=5)
            node.put("orders", 1)
            found += await session.take(subscription.key, 1, wait=5)
            assert [one.json() for one in found] == [0, 1]
            session.answered(7, ["orders"], found)
        await asyncio.to_thread(node.express.bury)
        await session.lost([7])
        (again,) = await session.take(subscription.key, 3, wait=5)
        assert (again.json(), session.leased) == (1, 1)
        await session.end()

    run(program())


def test_a_subscription_stays_paused_until_what_was_lost_is_back_though_two_requests_tell_of_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    recalled = Session._recalled
    were_paused: list[bool] = []
    pauses = iter((0.0, 0.3))

    async def slowly(that: Session, subscriptions: Any) -> Any:
        found = await recalled(that, subscriptions)
        await asyncio.sleep(next(pauses))
        were_paused.append(all(one.flow.is_paused for one in subscriptions))
        return found

    monkeypatch.setattr(Session, "_recalled", slowly)

    async def program() -> None:
        session = Sessions(node).begin("anna")
        node.declare("orders", lease=None)
        node.put_many("orders", range(8))
        subscription = await session.subscribe(["orders"], max_backlog=4)
        session.answered(7, [subscription.key], await session.take(subscription.key, 4, wait=5))
        await asyncio.gather(session.lost([7]), session.lost([7]))
        again = await session.take(subscription.key, 4, wait=5)
        assert ([one.json() for one in again], were_paused) == ([0, 1, 2, 3], [True, True])
        await session.end()

    run(program())


def test_what_its_subscription_knows_to_be_leased_is_settled_however_late_it_is(node: Node) -> None:
    async def program() -> None:
        session = Sessions(node, clock=HandClock()).begin("anna")
        node.declare("orders", lease=3600)
        node.put("orders", 1)
        subscription = await session.subscribe(["orders"])
        found = await session.take(subscription.key, 1, wait=5)
        session.forget_ended(4_000)  # as if it had been renewed with its group
        assert await session.settle(acts("ack", *found)) == [Settlement.SETTLED]
        await session.end()

    run(program())


def test_a_subscription_that_is_closed_gives_back_what_it_had(node: Node) -> None:
    async def program() -> None:
        session = Sessions(node).begin("anna")
        node.put_many("orders", range(3))
        subscription = await session.subscribe(["orders"], max_backlog=3)
        await session.take(subscription.key, 1, wait=5)
        await session.unsubscribe(subscription.key)
        assert (node.stats("orders").ready, session.leased) == (3, 0)
        with pytest.raises(NotFound):
            await session.take(subscription.key)
        await session.end()

    run(program())


def test_what_is_put_and_settled_in_a_transaction_is_done_together_or_not_at_all(node: Node) -> None:
    async def program() -> None:
        session = Sessions(node).begin("anna")
        node.bind("db/#", "audit")
        node.put_many("orders", range(2))
        one, two = await session.receive(["orders"], 2)
        settled, renewed = acts("ack", one, two), acts("renew", one)
        work: list[Settle | PutOne] = [
            PutOne("done", None, b"x", {"type": "T"}),
            PutOne(None, "db/add", b"y", {}),
            *settled,
        ]
        node.hand_back([two])
        with pytest.raises(LeaseLost):
            await session.transaction(work)
        assert set(node.keys()) == {"audit", "orders"}
        positions = await session.transaction(work[:3])
        assert [node.get("done", positions[0]), node.get("audit", positions[1])] != [None, None]
        assert node.stats("orders").leased == 0
        with pytest.raises(LeaseLost):
            await session.transaction(renewed)
        await session.end()

    run(program())


@pytest.mark.parametrize("what", ["sessions", "subscriptions", "waiting", "leases"])
def test_a_principal_has_so_much_at_a_time_and_not_more(node: Node, what: str) -> None:
    async def fill(sessions: Sessions, session: Session) -> None:
        if what == "sessions":
            sessions.begin("anna")
        elif what == "subscriptions":
            await session.subscribe(["orders"])
        elif what == "waiting":
            await asyncio.gather(*(session.receive(["empty"], wait=0.2) for _ in range(3)))
        else:
            await session.receive(["orders"], 5)

    async def program() -> None:
        sessions = Sessions(node, Bounds(2, 2, 2, 5))
        node.declare("empty")
        node.put_many("orders", range(9))
        session = sessions.begin("anna")
        await sessions.begin("boris").receive(["orders"], 1)  # it is another one's
        errors = [
            error for _ in range(4) for error in await asyncio.gather(fill(sessions, session), return_exceptions=True)
        ]
        reached = [error for error in errors if error is not None]
        assert reached
        assert all(isinstance(error, LimitReached) and what in str(error) for error in reached)
        await sessions.close()
        assert node.stats("orders").leased == 0
        for _ in range(2):
            again = sessions.begin("anna")  # nothing is counted any more
            await again.subscribe(["orders"])
        await sessions.close()

    run(program())


def test_a_queue_that_one_session_alone_reads_is_let_go_when_that_ends(node: Node) -> None:
    async def program() -> None:
        sessions = Sessions(node)
        node.declare("orders", access="exclusive")
        one, two = sessions.begin("anna"), sessions.begin("anna")
        assert await one.receive(["orders"]) == []
        with pytest.raises(QueueBusy):
            await two.receive(["orders"])
        await one.end()
        assert await two.receive(["orders"]) == []
        await sessions.close()

    run(program())


def test_a_lease_without_an_end_is_of_a_session_alone(node: Node) -> None:
    async def program() -> None:
        sessions = Sessions(node)
        node.declare("orders", lease=None)
        node.put("orders", 1)
        with pytest.raises(NotAllowed, match="session"):
            await sessions.shared("anna").receive(["orders"])
        assert node.stats("orders").ready == 1
        (message,) = await sessions.begin("anna").receive(["orders"])
        assert message.leased_until is None
        await sessions.close()
        assert node.stats("orders").ready == 1

    run(program())


def test_the_session_of_requests_that_name_none_ends_when_it_has_nothing(node: Node) -> None:
    async def program() -> None:
        clock = HandClock()
        sessions = Sessions(node, clock=clock)
        node.declare("orders", lease=10)
        node.put("orders", 1)
        session = sessions.shared("anna")
        with session.heard():
            await session.receive(["orders"])
        clock.now = 65
        session.forget_ended(clock.now)
        assert (session.leased, session.is_silent(clock.now)) == (1, False)
        clock.now = 1000
        session.forget_ended(clock.now)
        assert (session.leased, session.is_silent(clock.now)) == (0, True)
        await sessions.close()
        assert sessions.shared("anna") is not session
        await sessions.close()

    run(program())


def test_a_message_reaches_one_of_many_that_wait_soon(node: Node) -> None:
    async def program() -> None:
        sessions = Sessions(node)
        node.declare("orders")
        session = sessions.begin("anna")
        waiting = {asyncio.create_task(session.receive(["orders"], wait=20)) for _ in range(500)}
        await asyncio.sleep(0.2)
        took = []
        for number in range(5):
            begun = time.perf_counter()
            await asyncio.to_thread(node.put, "orders", number)
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            took.append(time.perf_counter() - begun)
            assert [len(one.result()) for one in done] == [1]
        assert min(took) < 0.1
        await sessions.close()

    run(program())


@pytest.mark.scenario("Q-031")
def test_who_is_there_and_who_is_gone_is_told(node: Node) -> None:
    async def program() -> None:
        sessions = Sessions(node)
        for queue in ("orders", "bills"):
            node.declare(queue)
        one, two, again = (sessions.begin("anna", name) for name in ("w1", "w2", "w1"))
        for session in (one, two, again):
            await session.subscribe(["orders"])
        await two.subscribe(topic="db/#", name="inbox")
        assert [(who.name, who.state, who.queues) for who in node.clients()] == [
            ("w1", "live", ("orders",)),
            ("w2", "live", ("orders", "w2/inbox")),
        ]
        await one.end()
        assert [(who.name, who.state) for who in node.clients()] == [("w1", "live"), ("w2", "live")]
        await again.end()
        await two.end()
        gone = node.clients()
        assert [(who.name, who.state) for who in gone] == [("w1", "gone"), ("w2", "gone")]
        assert gone[1].patterns == ("db/#",)
        back = sessions.begin("anna", "w1")
        await back.subscribe(["bills"])
        assert [(who.state, who.queues) for who in node.clients() if who.name == "w1"] == [("live", ("bills",))]
        await sessions.close()

    run(program())
