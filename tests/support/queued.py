"""A store that programs alone have used: with queues, topics, a group, dead letters, and each outcome of a message."""

from __future__ import annotations

from pathlib import Path

from wsrm_mq.node import connect
from wsrm_mq.queue.dead_letters import discard
from wsrm_mq.store.outside import run_once

STATES = {"delivered": 5, "dead": 2, "discarded": 1, "purged": 3, "ready": 5, "held": 1}
"""How many entries it has in each state."""


def queued(path: Path) -> None:
    """Make it."""
    with connect(path, "shop") as node:
        node.declare("orders", retry=[0], max_failures=2)
        node.declare("once", delivery="at_most_once")
        node.declare("audit")
        node.bind("orders/#", "audit")
        for number in range(4):
            node.put("orders", f"order {number}", message_id=f"order-{number}", properties={"region": "eu"})
        node.receive("orders")[0].ack()
        for _ in range(2):
            node.receive("orders")[0].nack("no stock")
        node.receive("orders")[0].reject("bad")
        node.receive("orders")[0].expire()
        for number in range(3):
            node.put("grouped", f"part {number}", group="acme", message_id=f"part-{number}")
        first, second, _third = node.receive("grouped", 3)
        first.ack()
        second.release()
        node.put("once", "at most once")
        node.receive("once")
        thanks = node.subscribe(topic="orders/placed", name="thanks", client="shop", max_backlog=5)
        for number in range(2):
            node.publish("orders/placed", {"id": number}, message_id=f"placed-{number}")
        message = thanks.next(timeout=5)
        assert message is not None
        message.ack()
        thanks.close()
        node.publish("nobody/listens", b"lost")
        node.put_many("dropped", [b"1", b"2", b"3"])
        node.purge("dropped")
        node.delete("dropped")
        node.put("orders", b"later", delay=3_600)
        (letter, *_others) = node.dead("orders").peek()
        node.dead("orders").redrive([letter.position])
        node.receive("orders")[0].ack()
        taken = node.put("orders", b"given up")
    run_once(path, lambda tx: discard(tx, taken, actor="ann", reason="test"))
