"""A queue that has filled its disk is drained by its consumers, and then takes messages again."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import wsrm_mq
from tests.conftest import Mount
from tests.node.conftest import assert_sound
from tests.support.disk import Disk
from wsrm_mq.errors import StoreFull
from wsrm_mq.node import Node

pytestmark = pytest.mark.local("opens a store on a disk of its own")

EACH = 20
DRAIN = f"""
import sys, wsrm_mq
with wsrm_mq.connect(sys.argv[1]) as node:
    while node.stats("orders").messages:
        found = node.receive("orders", {EACH}, wait=0.2)
        assert set(node.ack(found)) <= {{"settled"}}
        print(*(one.body.decode().lstrip("0") for one in found), flush=True)
"""


@pytest.fixture
def disk(mount: Mount) -> Disk:
    return Disk(mount("-t", "tmpfs", "-o", "size=32m", "tmpfs"))


@pytest.fixture
def path(disk: Disk) -> Path:
    return disk.point / "store.db"


@pytest.fixture
def node(path: Path) -> Iterator[Node]:
    with wsrm_mq.connect(path) as node:
        yield node


def put_until_full(node: Node, size: int, each: int = 10) -> int:
    for count in range(0, 1_000_000, each):
        try:
            node.put_many("orders", [str(count + n + 1).zfill(size) for n in range(each)])
        except StoreFull:
            return count
    raise AssertionError("it never was full")


def drain(node: Node, each: int = EACH) -> int:
    drained = 0
    while found := node.receive("orders", each):
        assert node.renew(found) == node.ack(found) == ["settled"] * len(found)
        drained += len(found)
    return drained


def assert_puts_again(node: Node, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            node.put("orders", b"again")
            break
        except StoreFull:
            assert time.monotonic() < deadline, "nothing is put any more"
            time.sleep(0.1)
    assert [one.body for one in node.receive("orders", 10)] == [b"again"]


@pytest.mark.parametrize(("size", "each"), [(5_000, 10), (40_000, 30)])
def test_a_queue_that_fills_the_disk_is_drained_and_takes_messages_again_as_often_as_it_does(
    node: Node, path: Path, size: int, each: int
) -> None:
    for _ in range(3):
        count = put_until_full(node, size, each)
        assert count * size > 10_000_000
        assert node.store.is_disk_full
        assert drain(node) == count
        assert_puts_again(node)
        assert drain(node) == 0
    assert_sound(path)


def test_small_messages_make_room_once_they_are_pruned_which_does_not_wait_for_an_hour(
    node: Node, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.queue.retention.GRACE", 0)
    node.declare("orders", dedupe_window=0)
    count = put_until_full(node, 1_000, 100)
    assert drain(node, 200) == count
    with pytest.raises(StoreFull):
        node.put("orders", b"too early")
    assert node.upkeep.sweep().messages > 0.9 * count
    assert_puts_again(node)
    assert_sound(path)


def test_what_consumers_do_not_take_is_released_rejected_expired_or_purged_on_a_full_disk(node: Node) -> None:
    count = put_until_full(node, 5_000)
    assert set(node.release(node.receive("orders", 50))) == {"settled"}
    assert set(node.reject(node.receive("orders", 50), "bad")) == {"settled"}
    assert set(node.expire(node.receive("orders", 50))) == {"settled"}
    assert node.settle("orders", "position > 0 AND position < 50") is not None
    node.purge("orders")
    assert len(node.dead("orders").peek(limit=1000)) == 100
    assert node.stats("orders").ready == 0 < count
    assert_puts_again(node)


def test_other_processes_drain_a_full_disk_and_one_that_is_killed_in_the_middle_settles_nothing_twice(
    node: Node, path: Path
) -> None:
    count = put_until_full(node, 5_000)
    taken: list[str] = []
    for most in (500, count):
        drainer = subprocess.Popen([sys.executable, "-c", DRAIN, str(path)], stdout=subprocess.PIPE, text=True)
        assert drainer.stdout is not None
        for line in drainer.stdout:
            taken += line.split()
            if most <= len(taken) < count:
                drainer.kill()
        assert drainer.wait(30) == (0 if most == count else -9)
    assert len(set(taken)) == len(taken)
    assert count - EACH <= len(taken) <= count, "of what was settled when it was killed it did not tell"
    assert node.stats("orders").messages == 0
    assert_puts_again(node)
    assert_sound(path)
