"""A node keeps house: settled messages go, where no service says how long they are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node.conftest import Rows, assert_sound
from tests.node.test_subscription import until
from wsrm_mq.delivery import janitor
from wsrm_mq.node import Node
from wsrm_mq.queue import retention
from wsrm_mq.queue.retention import Pruned
from wsrm_mq.testing import ManualClock

pytestmark = pytest.mark.local("sets the clock of the node that prunes")

HOUR = 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_767_225_600_123)


@pytest.fixture
def count(rows: Rows) -> Callable[[str], int]:
    return lambda what: int(rows(f"SELECT count(*) FROM {what}")[0][0])


def test_settled_messages_go_after_an_hour_and_where_their_queue_says_so_later(
    path: Path, clock: ManualClock, count: Callable[[str], int]
) -> None:
    with Node(path, clock=clock) as node, Node(path, clock=clock) as other:
        node.declare("kept", retain=24 * 3_600)
        for queue in ("orders", "kept"):
            node.put_many(queue, [b"taken", b"given up", b"waits"], type="Order")
            taken, given_up = node.receive(queue, 2)
            taken.ack()
            given_up.reject("bad")
        clock.advance(HOUR - 1)
        assert node.upkeep.sweep() == Pruned()
        assert count("message WHERE body IS NULL") == 1, "a body goes with its acknowledgement"
        clock.advance(1)
        assert [node.upkeep.sweep().messages, other.upkeep.sweep().messages] == [1, 0]
        assert count("ledger WHERE event = 'pruned'") == 1
        assert [one.body for one in node.peek("orders")] == [b"waits"]
        assert [one.body for one in node.dead("orders").peek()] == [b"given up"]
        clock.advance(23 * HOUR)
        assert other.upkeep.sweep().messages == 1
        assert count("message") == count("entry") == 4
        assert_sound(path)


def test_an_id_is_known_for_as_long_as_its_queue_says_though_its_message_was_settled(
    path: Path, clock: ManualClock
) -> None:
    with Node(path, clock=clock) as node:
        node.declare("orders", dedupe_window=2 * 3_600)
        first = node.put("orders", b"one", message_id="a")
        node.receive("orders")[0].ack()
        clock.advance(2 * HOUR - 1)
        node.upkeep.sweep()
        assert node.put("orders", b"again", message_id="a") == first


def test_a_store_of_a_service_is_left_to_it(path: Path, clock: ManualClock) -> None:
    with Node(path, clock=clock) as node:
        node.put("orders", b"one")
        node.receive("orders")[0].ack()
        node.store.call(lambda tx: tx.queue("/orders"))
        clock.advance(HOUR)
        assert node.upkeep.sweep() == Pruned()
        node.store.call(lambda tx: tx.execute("DELETE FROM queue WHERE name = '/orders'"))
        assert node.upkeep.sweep().messages == 1


def test_ended_subscriptions_and_their_clients_are_forgotten_after_a_day(
    path: Path, clock: ManualClock, count: Callable[[str], int]
) -> None:
    with Node(path, "shop", clock=clock) as node:
        durable = node.subscribe_durable("db/#", "mine", client="away")
        open_one = node.subscribe("orders", client="open")
        for number in range(retention.BATCH + 1):
            node.subscribe("orders", client=f"c{number}").close()
        with Node(path, "gone", clock=clock) as gone:
            key = gone.subscribe("orders").key
        node.call(
            lambda tx: tx.execute("UPDATE subscription SET ended_at = NULL WHERE id = ?", (key,))
        )  # it was killed
        clock.advance(24 * HOUR)
        node.upkeep.sweep()
        assert count("subscription") == retention.BATCH + 4
        clock.advance(1)
        node.upkeep.sweep()
        assert count("subscription") == count("client") == 2
        assert [one.name for one in node.clients()] == ["away", "open"]
        node.publish("db/add", b"1")
        assert node.stats(durable).ready == 1
        open_one.close()
        assert_sound(path)


def test_it_works_by_itself(
    path: Path, clock: ManualClock, count: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        janitor.Janitor.__init__, "__kwdefaults__", {"prunes": True, "witness_seconds": 0.01, "sweep_seconds": 0.02}
    )
    with Node(path, clock=clock) as node:
        node.put_many("orders", [b"one"] * 10)
        node.ack(node.receive("orders", 10))
        clock.advance(HOUR)
        until(lambda: count("message") == 0)
