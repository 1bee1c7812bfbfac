"""A plan for a service whose messages are pulled: consumers get what is delivered again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wsrm_mq
from tests.replay.build import House, counted, read
from tests.support.in_process import FACTORY, TWO_WAY, until
from wsrm_mq.node import Node
from wsrm_mq.node.message import Message
from wsrm_mq.replay import Progress, cancel_plan, redrive
from wsrm_mq.store.invariants import all_findings

ALL = 99
OPTIONS: dict[str, Any] = {"mode": "pull", "one_way": ("urn:example:orders/put",)}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path, **OPTIONS)
    yield made
    with wsrm_mq.connect(made.path) as node, node.store.reader() as db:
        assert list(all_findings(db)) == []
    made.close()


@pytest.fixture
def node(house: House) -> Iterator[Node]:
    with wsrm_mq.connect(house.path, "warehouse") as node:
        yield node


def consumed(node: Node, most: int) -> list[Message]:
    """Take messages and acknowledge them, one after the other."""
    got: list[Message] = []
    while len(got) < most and (some := node.receive("/orders", wait=5)):
        assert node.ack(some) == ["settled"]
        got += some
    return got


def test_consumers_get_the_messages_again_in_order_under_new_positions(house: House, node: Node) -> None:
    identifier = house.rm.create()
    for number in (1, 3, 2):
        house.rm.put(identifier, number)
    first = consumed(node, 3)
    file = house.plan("queue:/orders", target="app")
    running = threading.Thread(target=house.run_to_service, args=(file,))
    running.start()
    again = consumed(node, 3)
    running.join(10)
    assert [(one.body, one.message_id) for one in again] == [(one.body, one.message_id) for one in first]
    assert not {one.position for one in again} & {one.position for one in first}
    assert house.service.calls == []
    assert (house.state_of(file), counted(house, file)) == ("done", {"delivered": 3})


def test_what_is_to_be_answered_goes_to_the_application_again_in_its_turn(house: House, node: Node) -> None:
    identifier = house.rm.create()
    house.rm.put(identifier, 1)
    consumed(node, 1)
    ask = FACTORY.message(identifier, 2, "<ask/>", action="urn:example:orders/ask", reply_to=TWO_WAY)
    house.rm.post(ask)
    house.rm.put(identifier, 3)
    consumed(node, 1)
    assert house.service.numbers == [2]
    file = house.plan("queue:/orders", target="app")
    running = threading.Thread(target=house.run_to_service, args=(file,))
    running.start()
    (first,) = node.receive("/orders", ALL, wait=5)
    assert house.service.numbers == [2]
    first.ack()
    assert len(consumed(node, 1)) == 1
    running.join(10)
    assert house.service.numbers == [2, 2]
    assert counted(house, file) == {"delivered": 3}


def test_what_is_entered_and_not_consumed_is_taken_back_with_its_plan(house: House, node: Node) -> None:
    identifier = house.rm.create()
    for number in (1, 2, 3):
        house.rm.put(identifier, number)
    consumed(node, 2)
    file = house.plan("queue:/orders", target="app")

    def stop(progress: Progress) -> None:
        if progress.waiting == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        house.run_to_service(file, on_progress=stop)
    done = cancel_plan(house.path, read(file)[0].id, actor="ann", reason="enough")
    assert done == (3, 0)


@pytest.mark.parametrize("mode", ["pull", "dispatch"])
def test_what_came_under_another_mode_goes_where_the_mode_says_now(tmp_path: Path, mode: str) -> None:
    before, after = ("dispatch", "pull") if mode == "pull" else ("pull", "dispatch")
    house = House(tmp_path, **OPTIONS | {"mode": before})
    identifier = house.rm.create()
    house.rm.put(identifier, 1)
    house.rm.put(identifier, 2)
    with wsrm_mq.connect(house.path, "warehouse") as node:
        if before == "pull":
            first, second = node.receive("/orders", ALL)
            first.ack()
            second.reject("no good")
        else:
            house.settled()
        house.rm.post(FACTORY.terminate(identifier))
        house.close()
        later = House(tmp_path, **OPTIONS | {"mode": after})
        later.rm.middleware.start()
        later.rm.put(later.rm.create(), 1)
        if after == "pull":
            consumed(node, 1)
            file = later.plan(f"seq:{identifier}", target="app")
            running = threading.Thread(target=later.run_to_service, args=(file,))
            running.start()
            assert [identifier.encode() in one.body for one in consumed(node, 2)] == [True, True]
            running.join(10)
            assert later.service.calls == []
        else:
            assert until(lambda: later.service.numbers == [1])
            redrive(later.path, [second.position], actor="ann", reason="now it is good")
            assert until(lambda: later.service.numbers == [1, 2])
        later.close()
