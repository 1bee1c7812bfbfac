"""A large queue that is deleted is gone at once or stays whole, whatever other processes do, and whenever one is
killed."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from tests.node.conftest import ConnectAsync, Program, Rows
from wsrm_mq.errors import NotAllowed, QueueBusy
from wsrm_mq.node import Node
from wsrm_mq.queue import clearing, declaring
from wsrm_mq.queue.settling import Settlement

MANY = 1_200
PURGED = "SELECT count(*) FROM entry WHERE outcome = 'purged' AND reason = 'queue_deleted'"
LEFT = "SELECT count(*) FROM entry JOIN queue ON queue.id = entry.queue WHERE outcome IS NULL AND name LIKE 'orders#%'"
LEASES = """
print("ready")
while True:
    for message in node.receive("orders"):
        time.sleep(0.02)
        message.release()
    time.sleep(0.02)
"""
ASKS = """
for _ in sys.stdin:
    print(len(node.receive("orders")))
    print(node.put("orders", b"new"), *node.keys())
"""
DIES = """
from wsrm_mq.queue import clearing
rest, parts = clearing.purge_deleted, []
def purge_deleted(key, tx):
    parts.append(key)
    if len(parts) == 3:
        os.kill(os.getpid(), 9)
    return rest(key, tx)
clearing.purge_deleted = purge_deleted
"""


@pytest.mark.local("stops the local node between two parts")
@pytest.mark.parametrize("force", [False, True])
def test_a_large_queue_is_gone_for_other_processes_before_its_messages_are(
    node: Node, program: Program, rows: Rows, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    node.put_many("orders", range(MANY))
    last = node.put("orders", 0, group="a")
    taken = [*node.receive("orders"), *node.receive("orders", MANY)][:: MANY - 1] if force else []
    other, told, call = program(ASKS), list[str](), node.call
    assert other.stdin is not None
    assert other.stdout is not None

    def between(verb: Any, **options: Any) -> Any:
        done = call(verb, **options)
        if isinstance(done, clearing.Part) and not told:
            assert rows(PURGED) == [(clearing.PIECE,)]
            other.stdin.write("now\n")
            told.extend((other.stdout.readline(), other.stdout.readline()))
        return done

    monkeypatch.setattr(node, "call", between)
    assert node.delete("orders", force=force).settled == MANY + 1
    assert told == ["0\n", f"{last + 1} orders\n"]
    assert [one.body for one in node.peek("orders")] == [b"new"]
    assert {one.ack() for one in taken} <= {Settlement.ALREADY_SETTLED}


def test_a_large_queue_that_another_process_leases_from_is_deleted_whole_or_not_at_all(
    node: Node, program: Program, rows: Rows
) -> None:
    node.put_many("orders", range(MANY))
    other = program(LEASES)
    assert other.stdout is not None
    other.stdout.readline()
    while True:
        try:
            assert node.delete("orders").settled == MANY
        except QueueBusy:
            assert (rows(PURGED), node.stats("orders").messages) == ([(0,)], MANY)
        else:
            break
    assert rows(PURGED) == [(MANY,)]


@pytest.mark.local("has the local node's process killed between two parts")
@pytest.mark.parametrize("force", [False, True])
def test_a_deletion_that_is_killed_between_two_parts_has_taken_the_queue_and_is_gone_on_with(
    node: Node, program: Program, rows: Rows, force: bool
) -> None:
    node.put_many("orders", range(MANY), priority=6)
    node.receive("orders")[0].reject()
    taken = node.receive("orders") if force else []
    killed = program(f"{DIES}node.delete('orders', force={force})")
    assert killed.wait(60) == -signal.SIGKILL
    assert (rows(PURGED), rows(LEFT)) == ([(2 * clearing.PIECE,)], [(MANY - 1 - 2 * clearing.PIECE,)])
    assert node.keys() == []
    assert node.receive("orders") == []
    ((rest,),) = rows("SELECT name FROM queue WHERE name LIKE 'orders#%' AND policy IS NOT NULL")
    assert node.delete(rest).settled == MANY - 1 - 2 * clearing.PIECE
    assert (rows(PURGED), rows(LEFT), node.keys()) == ([(MANY - 1,)], [(0,)], ["orders"])
    with pytest.raises(NotAllowed):
        node.put(rest, b"lost")
    assert [one.reason for one in node.peek(declaring.letters_named(rest))] == ["rejected"]
    assert {one.ack() for one in taken} <= {Settlement.ALREADY_SETTLED}


@pytest.mark.local("looks between two parts of what the local node does")
def test_what_a_topic_has_retained_is_given_up_in_parts_between_which_others_write(
    node: Node, program: Program, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.declare_topic("db/#", retain=None)
    for number in range(MANY):
        node.publish("db/add", number)
    other, parts, call = program(ASKS), list[int](), node.call
    assert other.stdin is not None
    assert other.stdout is not None

    def between(verb: Any, **options: Any) -> Any:
        done = call(verb, **options)
        if isinstance(done, clearing.Part):
            parts.append(done.cleared.settled)
            other.stdin.write("now\n")
            assert other.stdout.readline() == f"{len(parts) > 1:d}\n", "what it has put before it leases now"
            assert other.stdout.readline().split()[1:] == ["orders"]
            assert list(node.replay("db/#")) == []
        return done

    monkeypatch.setattr(node, "call", between)
    node.declare_topic("db/#", retain=0)
    assert parts == [clearing.PIECE, clearing.PIECE, MANY - 2 * clearing.PIECE]
    assert rows(PURGED) == [(MANY,)]
    monkeypatch.undo()
    node.declare_topic("db/#", retain=60)
    node.publish("db/add", 0)
    assert len(list(node.replay("db/#"))) == 1


def test_a_large_queue_and_a_large_subscription_are_deleted_whole_by_a_node_that_is_awaited(
    node: Node, connect_async: ConnectAsync, rows: Rows
) -> None:
    node.put_many("orders", range(MANY))
    queue = node.subscribe_durable("db/#", "s", client="shop")
    for number in range(600):
        node.publish("db/add", number)

    async def program() -> None:
        async with await connect_async() as node:
            (one,) = await node.receive("orders")
            with pytest.raises(QueueBusy):
                await node.delete("orders")
            assert rows(PURGED) == [(0,)]
            await one.release()
            assert (await node.delete("orders")).settled == MANY
            assert (await node.unsubscribe("s", client="shop")).settled == 600

    asyncio.run(program())
    assert not {"orders", queue} & {*node.keys()}
