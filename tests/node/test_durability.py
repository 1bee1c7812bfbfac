"""A message survives what its put says, or its queue."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.node import Node

from .conftest import Connect, Rows

Program = Callable[[str], subprocess.Popen[str]]

SYNC = re.compile(r"\b(?:fsync|fdatasync|sync_file_range|msync)\(")
MARK = re.compile(r'write\(1, "(\w+)')

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="counts system calls with strace")


def syncs(path: Path, lines: str) -> dict[str, int]:
    """Run lines of Python in a process of its own, in which ``mark(name)`` begins a part of them; answers how many
    syncs each part has asked the system for."""
    text = (
        f"import os, time, wsrm_mq\nnode = wsrm_mq.connect({str(path)!r})\n"
        f"def mark(name): os.write(1, name.encode())\n{lines}\nmark('end')\nnode.close()"
    )
    traced = path.with_name("trace")
    command = ["strace", "-f", "-o", str(traced), "-e", "trace=write,fsync,fdatasync,sync_file_range,msync"]
    subprocess.run([*command, sys.executable, "-u", "-c", text], check=True, capture_output=True, timeout=60)
    counts: dict[str, int] = {}
    part = ""
    for line in traced.read_text().splitlines():
        if found := MARK.search(line):
            part = found[1]
            counts[part] = 0
        elif part and SYNC.search(line):
            counts[part] += 1
    return counts


@needs_strace
@pytest.mark.scenario("Q-105")
@pytest.mark.local("counts what the process of the node asks of the system")
def test_a_recoverable_put_is_synced_when_it_returns_and_a_relaxed_one_is_not(path: Path) -> None:
    counts = syncs(
        path,
        "node.declare('orders')\n"
        "node.declare('ticks', durability='relaxed')\n"
        "mark('recoverable')\n"
        "for number in range(20): node.put('orders', str(number))\n"
        "mark('relaxed')\n"
        "for number in range(20): node.put('orders', str(number), durability='relaxed')\n"
        "mark('by_queue')\n"
        "for number in range(20): node.put('ticks', str(number))\n"
        "mark('stronger')\n"
        "for number in range(20): node.put('ticks', str(number), durability='recoverable')\n"
        "mark('together')\n"
        "with node.transaction():\n"
        "    node.put('ticks', 'one')\n"
        "    node.put('orders', 'other', durability='relaxed')\n"
        "node.bind('soft/#', 'ticks')\n"
        "node.bind('both/#', 'ticks'); node.bind('both/#', 'orders')\n"
        "mark('published')\n"
        "for number in range(20): node.publish('soft/x', str(number))\n"
        "mark('to_both')\n"
        "for number in range(20): node.publish('both/x', str(number))\n"
        "mark('to_both_relaxed')\n"
        "for number in range(20): node.publish('both/x', str(number), durability='relaxed')\n"
        "mark('acknowledged')\n"
        "for one in node.receive('ticks', 20): one.ack()\n",
    )
    assert counts["recoverable"] >= 20
    assert counts["stronger"] >= 20
    assert (counts["relaxed"], counts["by_queue"]) == (0, 0)
    assert counts["together"] >= 1
    assert (counts["published"], counts["to_both_relaxed"]) == (0, 0)
    assert counts["to_both"] >= 20, "it is as safe as the safest of its queues"
    assert counts["acknowledged"] >= 20, "what is settled stays so, whatever the message would have survived"


def test_relaxed_messages_survive_the_death_of_their_process(node: Node, program: Program) -> None:
    one = program(
        "for number in range(100): node.put('orders', str(number), durability='relaxed')\nprint('put')\ntime.sleep(60)"
    )
    assert one.stdout is not None
    assert one.stdout.readline() == "put\n"
    one.kill()
    one.wait()
    assert [message.body for message in node.receive("orders", 200)] == [str(n).encode() for n in range(100)]


@pytest.mark.local("a server puts again by itself")
def test_a_queue_that_is_declared_otherwise_by_another_node_is_put_to_as_it_says_now(
    node: Node, connect: Connect
) -> None:
    node.declare("orders", durability="relaxed")
    other = connect()
    other.put("orders", "1")
    node.declare("orders", durability="recoverable")
    assert other.put("orders", "2") > 0
    node.declare("orders", durability="relaxed")
    assert other.put("orders", "3", wait=False).exception() is not None  # nothing waits for another try
    assert other.put("orders", "3", wait=False).result() > 0
    assert [message.body for message in node.peek("orders")] == [b"1", b"2", b"3"]


def test_a_topic_that_leads_elsewhere_meanwhile_is_published_to_as_its_queues_say_now(
    node: Node, connect: Connect, rows: Rows
) -> None:
    node.declare("ticks", durability="express")
    node.bind("t/#", "ticks")
    other = connect()
    assert other.publish("t/a", "1").queues == ("ticks",)
    node.bind("t/*", "orders")
    assert set(other.publish("t/a", "2").queues) == {"ticks", "orders"}
    assert rows("SELECT count(*) FROM entry") == [(2,)]


def test_what_is_no_durability_is_refused_in_words(node: Node) -> None:
    for put, body in ((node.put, "1"), (node.put_many, ["1"]), (node.publish, "1")):
        with pytest.raises(ConfigurationError, match="`durability` is 'soft'"):
            cast(Any, put)("orders", body, durability="soft")
    with pytest.raises(ConfigurationError, match="durability"):
        node.declare("orders", durability="soft")
