"""Clocks that are set, disks that are full, and many processes that write."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

import wsrm_mq
from tests.conftest import Mount
from tests.node.conftest import Connect, Rows, assert_sound
from tests.node.test_subscription import until
from tests.support.disk import MIB, Disk
from wsrm_mq.errors import StoreFull
from wsrm_mq.node import Node

Program = Callable[[str], subprocess.Popen[str]]
HOUR = 3_600


@pytest.mark.scenario("Q-110")
@pytest.mark.parametrize("step", [-HOUR, HOUR])
@pytest.mark.local("sets the clock of the process that has the store")
def test_a_step_of_the_clock_neither_ends_a_lease_nor_keeps_one(
    node: Node, connect: Connect, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    node.declare("orders", lease=1.0)
    node.put("orders", b"one", ttl=600)
    assert len(node.receive("orders")) == 1
    began = time.monotonic()
    told = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: told() + step * 10**9)
    other = connect()
    assert other.receive("orders", wait=0.3) == []
    (again,) = other.receive("orders", wait=10)
    assert 0.9 < time.monotonic() - began < 5
    assert again.ack() == "settled"
    assert node.dead("orders").peek() == []


@pytest.mark.scenario("Q-110")
@pytest.mark.parametrize("step", [-HOUR, HOUR])
@pytest.mark.local("sets the clock of one of the processes that have the store")
def test_a_process_whose_clock_is_set_ends_no_lease_of_another_one_before_its_time(
    node: Node, program: Program, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    node.declare("orders", lease=2.0)
    node.put("orders", b"one", ttl=600)
    one = program(
        "(message,) = node.receive('orders')\nprint(time.time_ns())\nprint(sys.stdin.readline(), message.ack())"
    )
    assert one.stdout is not None
    leased_at = int(one.stdout.readline())
    told = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: told() + step * 10**9)
    assert node.receive("orders", wait=0.5) == []
    (again,) = node.receive("orders", wait=20)
    assert told() - leased_at > 1.9 * 10**9, "it had ended before its time"
    assert node.dead("orders").peek() == []
    assert again.ack() == "settled"


@pytest.mark.scenario("Q-111")
@pytest.mark.local("opens a store on a disk of its own")
def test_on_a_full_disk_a_put_is_refused_and_what_is_leased_can_be_settled(mount: Mount) -> None:
    disk = Disk(mount("-t", "tmpfs", "-o", "size=16m", "tmpfs"))
    with wsrm_mq.connect(disk.point / "store.db") as node:
        node.put_many("orders", [b"x" * 1000] * 5)
        batch = node.receive("orders", 2)
        disk.fill()
        with pytest.raises(StoreFull):
            node.put_many("orders", [b"x" * MIB] * 14)
        assert node.ack(batch) == ["settled", "settled"]
        kept = node.stats("orders").messages
        disk.make_room()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                node.put("orders", b"again")
                break
            except StoreFull:
                time.sleep(0.1)
        assert node.stats("orders").messages == kept + 1
        assert_sound(disk.point / "store.db")


@pytest.mark.scenario("Q-109")
def test_eight_processes_put_and_none_finds_the_store_locked(node: Node, program: Program) -> None:
    node.declare("orders")
    put = """
took = []
for n in range(60):
    began = time.perf_counter()
    node.put('orders', b'x' * 200)
    took.append(time.perf_counter() - began)
print(sorted(took)[-2])
"""
    begun = [program(put) for _ in range(8)]
    slow = [float(one.communicate(timeout=120)[0]) for one in begun]
    assert [one.returncode for one in begun] == [0] * 8
    assert node.stats("orders").messages == 480
    assert min(slow) < 2.5  # how long it takes on a quiet machine the bench says


def test_what_was_put_under_an_id_is_forgotten_when_it_is_settled_and_its_window_over(node: Node, rows: Rows) -> None:
    node.declare("orders", dedupe_window=0.1)
    node.put("orders", b"one", message_id="a")
    node.put("orders", b"two", message_id="b")
    node.receive("orders")[0].ack()
    until(lambda: rows("SELECT message_id FROM dedupe") == [("b",)])
