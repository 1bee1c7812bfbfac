"""A mirrored queue is read and looked at on every node; one of them has it, and what was read is gone everywhere."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import wsrm_mq
from tests.routes.conftest import Founded
from tests.routes.enterprise import Place, secret
from wsrm_mq.errors import ServerUnavailable, UnknownQueue
from wsrm_mq.node import Node
from wsrm_mq.node.neighbours import Mirrored

SITES = dict.fromkeys(("north", "south", "west"), "site")
QUEUES: dict[str, dict[str, str]] = {"north": {"orders": "site"}, "south": {}, "west": {}}


def until(there: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def bodies(seen: Any) -> list[Any]:
    return [one.json() for one in seen]


def at(place: Place) -> Node:
    return wsrm_mq.connect(place.store, nodes=place.config)


def known(mirror: Mirrored) -> list[Any]:
    """What its copy has."""
    return bodies(mirror._copy.peek(0, 1_000, None))  # type: ignore[attr-defined]


@pytest.mark.scenario("Q-087")
def test_what_is_read_on_one_node_is_gone_on_all_and_what_is_looked_at_stays(found: Founded) -> None:
    places = found(SITES, QUEUES, "north")
    with Node(places["north"].store) as north, at(places["south"]) as south, at(places["west"]) as west:
        north.put_many("orders", range(5), properties={"kind": "big"})
        here, there = south.mirror("orders", of="north"), west.mirror("orders", of="north")
        assert bodies(here.peek()) == bodies(there.peek()) == bodies(north.peek("orders")) == [*range(5)]
        until(lambda: known(here) == known(there) == [*range(5)])
        (taken,) = here.receive()
        assert taken.json() == 0
        assert [one.state for one in there.peek()] == ["leased"] + ["ready"] * 4
        assert bodies(there.receive(2)) == [1, 2], "its node leases each once, whoever asks"
        taken.ack()
        assert bodies(there.peek(filter="kind = 'big'", limit=1)) == bodies(north.peek("orders", limit=1)) == [1]
        until(lambda: known(here) == known(there) == [1, 2, 3, 4])


@pytest.mark.scenario("Q-087")
def test_with_its_node_killed_a_queue_is_looked_at_as_it_was_last_known_and_says_so(found: Founded) -> None:
    places = found(SITES, QUEUES, "north")
    with Node(places["north"].store) as north:
        north.put("orders", {"n": 1}, type="Order", properties={"kind": "big"}, content_type="application/x")
        north.put("orders", {"n": 2}, priority=9)
        north.put("orders", {"n": 3})
    with at(places["south"]) as south:
        mirror = south.mirror("orders", of="north")
        before = mirror.peek()
        assert before.away is None
        (second,) = mirror.receive()
        until(lambda: len(known(mirror)) == 3)
        second.ack()
        places["north"].end()
        seen = mirror.peek()
        assert bodies(seen) == [{"n": 1}, {"n": 3}], "what this node has read is gone at once"
        assert seen.away is not None
        assert seen.as_of <= seen.away.since + 0.1 <= time.time() + 0.1
        assert "cannot be reached" in seen.away.why
        assert {one.state for one in seen} == {"unknown"}
        first = seen[0]
        assert (first.type, first.properties, first.content_type) == ("Order", {"kind": "big"}, "application/x")
        assert [one.position for one in seen] == [before[0].position, before[2].position]
        assert first.ack() is None, "what was looked at is settled by nothing"
        assert bodies(mirror.peek(after=first.position)) == [{"n": 3}]
        assert bodies(mirror.peek(filter="kind = 'big'")) == [{"n": 1}]
    with at(places["south"]) as south:
        assert bodies(south.mirror("orders", of="north").peek()) == [{"n": 1}, {"n": 3}], "so sees the next program"
        places["north"].begin()
        mirror = south.mirror("orders", of="north")
        until(lambda: mirror.peek().away is None)
        assert bodies(mirror.peek()) == [{"n": 1}, {"n": 3}]
        assert bodies(mirror.receive(5)) == [{"n": 1}, {"n": 3}]


def test_where_nothing_is_known_and_its_node_is_away_no_empty_queue_is_shown(found: Founded) -> None:
    places = found(SITES, QUEUES, "west")
    with at(places["south"]) as south:
        with pytest.raises(ServerUnavailable, match="cannot be reached"):
            south.mirror("orders", of="north")
        places["north"].begin()
        assert south.mirror("orders", of="north").peek() == []


def test_what_was_put_back_is_in_the_copy_again(found: Founded) -> None:
    places = found(SITES, QUEUES, "north")
    with Node(places["north"].store) as north, at(places["south"]) as south:
        north.put_many("orders", [0, 1])
        mirror = south.mirror("orders", of="north")
        mirror.receive()[0].reject("no good")
        until(lambda: known(mirror) == [1])
        north.dead("orders").redrive()
        until(lambda: known(mirror) == [0, 1])
        places["north"].end()
        assert bodies(mirror.peek()) == [0, 1]


def test_a_node_that_no_longer_may_see_a_queue_loses_its_copy(found: Founded) -> None:
    places = found(SITES, QUEUES, "north")
    with Node(places["north"].store) as north, at(places["south"]) as south:
        north.put("orders", 1)
        mirror = south.mirror("orders", of="north")
        assert known(mirror) == [1]
        north.declare("orders", scope="node")
        until(lambda: known(mirror) == [])
        with pytest.raises(UnknownQueue):
            mirror.peek()
        with pytest.raises(UnknownQueue):
            mirror.receive()


def test_of_two_programs_of_a_node_one_writes_the_copy_and_both_see_it(found: Founded) -> None:
    places = found(SITES, QUEUES, "north")
    with Node(places["north"].store) as north, at(places["south"]) as other:
        with at(places["south"]) as one:
            mirrors = [node.mirror("orders", of="north") for node in (one, other)]
            north.put_many("orders", range(30))
            until(lambda: known(mirrors[0]) == known(mirrors[1]) == [*range(30)])
        north.put("orders", 30)
        until(lambda: known(mirrors[1]) == [*range(31)])
        places["north"].end()
        assert bodies(mirrors[1].peek()) == [*range(31)]


@pytest.mark.scenario("Q-087")
def test_consumers_on_three_nodes_take_each_message_once_while_the_owner_is_killed_and_begun_again(
    found: Founded,
) -> None:
    places = found(SITES, QUEUES, "north")
    with Node(places["north"].store) as north:
        north.put_many("orders", range(300))
    taken: list[int] = []
    with at(places["south"]) as south, at(places["west"]) as west:
        consumers = [
            node.mirror("orders", of="north").consume(lambda one: taken.append(one.json()), max_backlog=10)
            for node in (south, west)
        ]
        until(lambda: len(taken) > 50)
        places["north"].end()
        places["north"].begin()
        with Node(places["north"].store) as north:
            until(lambda: north.stats("orders").messages == 0, 60)
        for consumer in consumers:
            consumer.stop()
        assert set(taken) == {*range(300)}
        assert len(taken) - 300 <= 20, "what was unacknowledged when it was killed comes again, and no more"


def test_a_consumer_of_asyncio_that_waits_costs_no_thread(found: Founded) -> None:
    places = found(SITES, QUEUES, "north")

    async def waits() -> None:
        async with await wsrm_mq.connect_async(places["south"].store, nodes=places["south"].config) as south:
            mirror = await south.mirror("orders", of="north")
            assert await mirror.receive(wait=0.1) == []
            await asyncio.sleep(1.5)
            before = threading.active_count()
            waiting = [asyncio.create_task(mirror.receive(wait=30)) for _ in range(20)]
            await asyncio.sleep(1.0)
            assert threading.active_count() <= before + 2, "of the loops' pools, which look at copies"
            with Node(places["north"].store) as north:
                north.put_many("orders", range(20))
            got = [message for batch in await asyncio.gather(*waiting) for message in batch]
            assert sorted(one.json() for one in got) == [*range(20)]
            for one in got:
                await one.ack()
            assert await mirror.peek() == []
            subscription = await mirror.subscribe()
            with Node(places["north"].store) as north:
                north.put("orders", 21)
            assert (await anext(aiter(subscription))).json() == 21
            await subscription.close()

    asyncio.run(waits())


def test_a_program_without_a_store_mirrors_too_and_leaves_no_copy(found: Founded) -> None:
    places = found(SITES, QUEUES, "north", "west")
    with Node(places["north"].store) as north:
        north.put("orders", 1)
    nodes = places["south"].config
    with wsrm_mq.connect(places["west"].url, token=secret("west", "south"), nodes=nodes) as program:
        mirror = program.mirror("orders", of="north")
        until(lambda: known(mirror) == [1])
        places["north"].end()
        assert bodies(mirror.peek()) == [1]
        shelf = mirror._copy._stamp.parent  # type: ignore[attr-defined]
        assert shelf.exists()
    assert not shelf.exists()
