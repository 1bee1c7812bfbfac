"""Queues that are in trouble, in real stores: each is a finding, and what it proposes can be typed."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Service
from tests.cli.test_offered import typed
from tests.support.commands import Wsrm, document
from wsrm_mq.node import Node, connect
from wsrm_mq.queue.policy import Mode, QueuePolicy

HOUR = 3_600_000
ROOM = ("-w", "disk_free=", "-c", "disk_free=")


@pytest.fixture
def node(path: Path) -> Iterator[Node]:
    with connect(path, "shop") as node:
        node.declare("orders")
        yield node


def attention(wsrm: Wsrm) -> dict[str, dict[str, Any]]:
    """What needs attention, by kind, but the room on the disk of the machine that tests run on."""
    found = document(wsrm("status", "--json"))["attention"]
    return {one["kind"]: one for one in found if one["kind"] != "disk_free"}


def age(path: Path, ms: int) -> None:
    """All that was received was received so long ago."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE message SET received_at = received_at - ?", (ms,))


def typed_all(wsrm: Wsrm, found: dict[str, Any]) -> None:
    assert found["next_steps"]
    for step in found["next_steps"]:
        typed(wsrm, step["command"])


def test_nothing_is_told_of_a_queue_that_is_consumed(node: Node, wsrm: Wsrm) -> None:
    node.put("orders", b"1")
    assert attention(wsrm) == {}
    assert wsrm("check", *ROOM).exit_code == 0
    assert document(wsrm("status", "--json"))["queues"][0]["messages"] == 1
    assert "orders: 1 message waits" in wsrm("status").stdout


def test_a_queue_that_grows_is_told_with_its_pace(node: Node, path: Path, wsrm: Wsrm) -> None:
    node.put_many("orders", [b"x"] * 1_200)
    assert attention(wsrm) == {}, "it came all at once, just now"
    age(path, 90_000)
    found = attention(wsrm)["growing"]
    assert found["sentence"].startswith("orders grows: 1200 messages wait; it does not get less: 1")
    assert (found["queue"], found["messages"], found["severity"]) == ("orders", 1_200, "warning")
    assert "queues of 1,000 messages and more that get more than is consumed: 1" in wsrm("check", *ROOM).stdout
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE queue SET came = 0, went = 700, counted_at = ?", (time.time_ns() // 1_000_000,))
    assert "growing" not in attention(wsrm)
    shown = document(wsrm("queue", "show", "orders", "--json"))["pace"]
    seconds = int(shown.removeprefix("it is empty in ").partition(" ")[0])
    assert 100 < seconds < 115, shown
    typed_all(wsrm, found)


def test_the_pace_is_what_was_put_and_settled_within_the_last_minute(node: Node, wsrm: Wsrm) -> None:
    node.put_many("orders", [b"x"] * 20)
    for one in node.receive("orders", 12):
        one.ack()
    (queue,) = document(wsrm("status", "--json"))["queues"]
    assert (queue["messages"], queue["came"], queue["went"]) == (8, 20, 12)


def test_a_queue_that_takes_nothing_is_told(node: Node, wsrm: Wsrm) -> None:
    node.declare("small", max_messages=2)
    node.declare("dropping", max_messages=1, overflow="drop_head")
    node.put_many("small", [b"1", b"2"])
    node.put("dropping", b"1")
    found = attention(wsrm)
    assert set(found) == {"full"}
    assert found["full"]["sentence"].startswith("small is full, and takes no message: 2 messages wait")
    assert wsrm("check", *ROOM).exit_code == 1
    typed_all(wsrm, found["full"])
    assert attention(wsrm) == {}, "what it proposes makes room"


def test_a_subscription_whose_consumer_is_gone_is_told_until_it_is_back(node: Node, path: Path, wsrm: Wsrm) -> None:
    node.subscribe(topic="orders/#", name="thanks", client="shop").close()
    node.publish("orders/placed", b"1")
    assert attention(wsrm) == {}, "it may be restarted just now"
    age(path, 400_000)
    found = attention(wsrm)["absent"]
    assert found["sentence"].startswith("Nothing consumes the durable subscription shop/thanks since ")
    back = node.subscribe(topic="orders/#", name="thanks", client="shop")
    assert "absent" not in attention(wsrm)
    back.close()
    assert wsrm("check", *ROOM).exit_code == 1
    typed_all(wsrm, found)
    assert document(wsrm("subscription", "list", "--json"))["subscriptions"] == []


def test_a_queue_of_express_messages_that_no_process_keeps_is_told(node: Node, path: Path, wsrm: Wsrm) -> None:
    other = connect(path)
    other.declare("ticks", durability="express", journal=True)
    node.put("ticks", b"1")
    assert attention(wsrm) == {}
    other.close()
    found = attention(wsrm)
    assert found["unkept"]["sentence"].startswith("No process keeps the express messages of ticks: ")
    assert found["dead_letters"]["sentence"].startswith("1 dead letter of ticks")
    assert "No process keeps" in wsrm("doctor").output
    typed_all(wsrm, found["unkept"])
    assert "unkept" not in attention(wsrm)


KILLED_BETWEEN_TWO_PARTS = """
import os
from wsrm_mq.cli import main
from wsrm_mq.queue import clearing
rest, parts = clearing.purge_deleted, []
def purge_deleted(key, tx):
    parts.append(key)
    if len(parts) == 2:
        os.kill(os.getpid(), 9)
    return rest(key, tx)
clearing.purge_deleted = purge_deleted
main()
"""


def test_a_queue_that_was_deleted_by_half_is_told_and_its_deletion_is_gone_on_with(
    node: Node, path: Path, wsrm: Wsrm
) -> None:
    node.put_many("orders", range(700))
    command = ("queue", "delete", "orders", "--reason", "moved", "--yes")
    killed = subprocess.run([sys.executable, "-c", KILLED_BETWEEN_TWO_PARTS, *command], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert attention(wsrm) == {}, "it may go on just now"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE queue SET counted_at = counted_at - 60000")
        ((name,),) = db.execute("SELECT name FROM queue WHERE name LIKE 'orders#%'").fetchall()
    found = attention(wsrm)["half_deleted"]
    assert found["sentence"].startswith(f"{name} is deleted, and the process that gave up what it had has ended: 200 ")
    typed_all(wsrm, found)
    assert attention(wsrm) == {}
    assert wsrm("queue", "show", "orders").exit_code == 3


def test_a_lease_that_is_lost_again_and_again_is_told(node: Node, path: Path, wsrm: Wsrm) -> None:
    node.declare("orders", lease=0.05, retry=[0])
    position = node.put("orders", b"1")
    for _ in range(2):
        (one,) = node.receive("orders", wait=5)
        assert "lost_leases" not in attention(wsrm)
    assert one.position == position
    deadline = time.monotonic() + 10
    while "lost_leases" not in attention(wsrm):
        assert time.monotonic() < deadline
        node.receive("orders")
    found = attention(wsrm)["lost_leases"]
    vain = rf"The message at position {position} of orders was leased in vain ([3-9]|\d\d) times"
    assert re.match(vain, found["sentence"])
    assert "its lease ended before it was acknowledged" in found["sentence"]
    typed_all(wsrm, found)


def test_one_consumer_that_loses_the_leases_of_many_messages_is_told(node: Node, wsrm: Wsrm) -> None:
    node.declare("orders", lease=0.05, retry=[60])
    node.put_many("orders", [b"1", b"2", b"3"])
    deadline = time.monotonic() + 10
    while "lost_leases" not in attention(wsrm):
        assert time.monotonic() < deadline
        node.receive("orders")
        time.sleep(0.1)
    assert attention(wsrm)["lost_leases"]["sentence"].startswith("One consumer of orders lost its leases 3 times")


HOLDS = """
import os, signal, sys
from wsrm_mq.node import connect
node = connect(sys.argv[1], "worker")
held = node.receive("orders", 5) + node.receive("grouped", 5)
print(len(held))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_the_dead_have_leased_waits_too(path: Path, wsrm: Wsrm) -> None:
    with connect(path) as node:
        node.declare("orders", lease=None)
        node.declare("grouped", lease=None)
        node.put("orders", b"1")
        position = node.put("grouped", b"2", group="acme")
    killed = subprocess.run(
        [sys.executable, "-u", "-c", HOLDS, str(path)], capture_output=True, check=False, env=os.environ
    )
    assert (killed.stdout, killed.returncode) == (b"2\n", -signal.SIGKILL)
    age(path, HOUR + 1_000)
    found = attention(wsrm)["unconsumed"]
    assert "Does a program consume it?" in found["sentence"]
    assert wsrm("check", *ROOM).exit_code == 1
    (told,) = document(wsrm("message", "explain", position, "--json"))["messages"]
    assert told["state"] == "leased"
    assert "whose process is gone: the next program that opens the store gives it back" in told["sentence"]
    with connect(path) as node:
        assert len(node.receive(["orders", "grouped"], 2, wait=5)) > 0
    assert (
        "is delivered next" in document(wsrm("message", "explain", position - 1, "--json"))["messages"][0]["sentence"]
    )


def test_a_group_that_a_message_has_stopped_is_repaired_as_it_says(node: Node, wsrm: Wsrm) -> None:
    node.declare("orders", max_failures=1)
    first = node.put("orders", b"1", group="acme", message_id="poison")
    node.put("orders", b"2", group="acme")
    node.receive("orders")[0].nack("no such product")
    found = attention(wsrm)["blocked"]
    assert (
        "Number 1 stopped the group: it failed once, with 'no such product', and 1 message is held" in found["sentence"]
    )
    assert "source" not in wsrm("sequence", "explain", found["sequence"]).stdout
    for which in ("poison", str(first + 1)):
        (told,) = document(wsrm("message", "explain", which, "--json"))["messages"]
        assert "stopped the group" in told["sentence"]
    assert wsrm("sequence", "skip", found["sequence"], 1, "--yes", "--reason", "no such product").exit_code == 0
    assert node.receive("orders")[0].body == b"2"
    assert set(attention(wsrm)) == {"dead_letters"}
    assert wsrm("dead-letter", "redrive", first, "--yes", "--reason", "it is there now").exit_code == 0


def test_a_message_is_explained_in_each_state(node: Node, wsrm: Wsrm) -> None:
    def sentence(which: object) -> str:
        (told,) = document(wsrm("message", "explain", which, "--json"))["messages"]
        for step in told["next_steps"]:
            if "--reason" not in step["command"]:
                typed(wsrm, step["command"])
        return str(told["sentence"])

    node.declare("orders", retry=[600], max_failures=2)
    later = node.put("orders", b"1", delay=600)
    first, second, third, fourth = node.put_many("orders", [b"1"] * 4)
    assert "Its producer wants it delivered later: it is held until" in sentence(later)
    assert "it is delivered next" in sentence(first)
    assert "2 messages are delivered before it" in sentence(third)
    assert "no program subscribes to orders now" in sentence(third)
    reader = node.subscribe("orders", client="reader")
    one = reader.next(timeout=5)
    assert one is not None
    assert sentence(first).startswith("It is leased by reader (instance ")
    one.nack("no stock")
    assert "It failed 1 time, last with 'no stock', and is tried again later" in sentence(first)
    reader.close()
    node.receive("orders")[0].ack()
    assert sentence(second).startswith("A consumer acknowledged it at")
    node.receive("orders")[0].reject("bad")
    assert "It is a dead letter of orders" in sentence(third)
    assert wsrm("message", "discard", fourth, "--yes", "--reason", "no").exit_code == 0
    assert "It was discarded" in sentence(fourth)
    node.purge("orders")
    assert "It was purged" in sentence(later)
    assert wsrm("message", "explain", "never").exit_code == 3


def test_a_sequence_that_programs_consume_is_told_in_their_words(service: Service, path: Path, wsrm: Wsrm) -> None:
    pulled = service.sequence(1, 2, policy=QueuePolicy(mode=Mode.PULL)).terms.identifier
    service.close()
    first = document(wsrm("sequence", "explain", pulled, "--json"))
    assert first["verdict"] == "ok"
    assert first["sentence"] == "2 messages are ready, number 1 first, for the next consumer of /orders."
    with connect(path) as node:
        (one,) = node.receive("/orders")
        running = document(wsrm("sequence", "explain", pulled, "--json"))
        assert (running["verdict"], "is leased since" in running["sentence"]) == ("running", True)
        one.ack()


def test_what_waits_for_a_program_is_not_said_to_wait_for_the_service(service: Service, path: Path, wsrm: Wsrm) -> None:
    service.sequence(1, 2, policy=QueuePolicy(mode=Mode.PULL))
    service.close()
    age(path, 7_200_000)
    found = attention(wsrm)
    assert "unconsumed" in found
    assert "oldest" not in found
    assert "for it" not in json.dumps(found["instances"])
