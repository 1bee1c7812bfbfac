"""Stores of two nodes where something of everything went wrong, and what a reconciliation has to say of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.queue.build import Instance
from wsrm_mq.queue.arrival import Body
from wsrm_mq.queue.failure import Diagnosis
from wsrm_mq.queue.operate import hold
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import OnPoison, QueuePolicy
from wsrm_mq.sequence.elements import CloseSequence, TerminateSequence
from wsrm_mq.store.identity import rename
from wsrm_mq.store.sqlite import schema
from wsrm_mq.testing import EnvelopeFactory, ManualClock

SPEAK: Final = EnvelopeFactory()
BEGAN: Final = 1_767_225_600_123
HOUR: Final = 3_600_000
EVIL: Final = "</title><script>alert(1)</script>\x1b[31m"
"""What a peer may call itself."""
FAULT: Final = Diagnosis("answered_with_fault", "Client.NoStock")


class Node:
    """A store, its clock, and what is sent to it."""

    def __init__(self, path: Path) -> None:
        schema.ensure(path)
        self.path = path
        self.clock = ManualClock(BEGAN)
        self.instance = Instance(path, self.clock, path.stem)

    def sequence(self, *, partner: str | None = None, expires: int | None = None) -> str:
        return self.instance.create(partner=partner, expires=expires).terms.identifier

    def send(self, identifier: str, *numbers: int, **changes: Any) -> None:
        for number in numbers:
            body = SPEAK.message(identifier, number, changes.get("text", "<put/>"), message_id="urn:m")
            told = {"body": Body(body), "environ": json.dumps({"CONTENT_TYPE": SPEAK.content_type})}
            named = {"message_id": changes.get("message_id", f"urn:{identifier}:{number}")}
            self.instance.take(identifier, number, last=number == changes.get("last"), **told, **named)
            self.clock.advance(5)

    def deliver(self, identifier: str, *numbers: int, took: int = 20, **options: Any) -> None:
        held = self._claim(identifier)
        for number in numbers:
            self.clock.advance(took)
            self.instance.settle(held, number, release=number == numbers[-1], **options)

    def fail(self, identifier: str, number: int, *retry: int, on_poison: OnPoison = OnPoison.BLOCK) -> None:
        held = self._claim(identifier)
        self.instance.fail(held, number, QueuePolicy(retry=retry, on_poison=on_poison), "OSError: no disk")

    def _claim(self, identifier: str) -> Claim:
        """What was taken with the message."""
        record = self.instance.record(identifier)
        return Claim(record.id, record.fence)


def every_verdict(node: Node) -> dict[str, str]:
    """Sequences of all verdicts, by identifier; the clock stands where that is so."""
    silent, expiring = node.sequence(partner="quiet"), node.sequence(expires=26 * HOUR)
    node.send(silent, 1)
    node.deliver(silent, 1)
    node.send(expiring, 1)
    node.deliver(expiring, 1)
    node.clock.advance(25 * HOUR + 59 * HOUR // 60)
    good, gap, blocked, retried, faulted, held, ended = (node.sequence(partner="acme") for _ in range(7))
    node.send(good, 1, 2)
    node.deliver(good, 1, 2)
    node.send(gap, 1, 4)
    node.deliver(gap, 1)
    node.send(blocked, 1, 2)
    node.fail(blocked, 1)
    node.send(retried, 1)
    node.fail(retried, 1, 400 * 24 * HOUR)  # a view knows the time that it is
    node.send(faulted, 1)
    node.deliver(faulted, 1, remark="no such article", diagnosis=FAULT)
    node.send(held, 1)
    node.instance.run(lambda tx: hold(tx, held, actor="ada", reason="the backend moves"))
    node.send(ended, 1)
    node.deliver(ended, 1)
    node.instance.end(TerminateSequence(ended, 1))
    words = ("silent", "expiring", "ok", "waiting", "blocked", "blocked", "faulted", "held", "ended")
    return dict(zip((silent, expiring, good, gap, blocked, retried, faulted, held, ended), words, strict=True))


class Nodes(NamedTuple):
    north: Path
    south: Path
    at: int
    """What time it is there: ms since the epoch."""
    restored: Path
    """Put back from a copy of north, and a store of its own since: what north got later it lacks."""


def three_nodes(directory: Path) -> Nodes:
    """What ``FOUND`` says of them."""
    north, south = Node(directory / "north.db"), Node(directory / "south.db")
    every_verdict(north)
    south.clock.advance(north.clock() - south.clock())
    lossy = north.sequence(partner=EVIL)
    north.send(lossy, 3, 2, 5)
    north.instance.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    restored = Node(Path(shutil.copy(north.path, directory / "restored.db")))
    restored.instance.run(rename)
    north.send(lossy, 6, 7)
    north.instance.end(CloseSequence(lossy, 9))
    again, first = north.sequence(partner="acme"), south.sequence(partner="acme")
    for node, identifier in ((north, again), (south, first)):
        node.send(identifier, 1, message_id="urn:same")
        node.send(identifier, 2, message_id="urn:another", text=f"<put at='{node.path.stem}'/>")
        node.send(identifier, 3, message_id="urn:unknown")
        node.deliver(identifier, 1, 2, 3, took=1_500)
    south.instance.db.execute("UPDATE message SET body = NULL WHERE message_id = 'urn:unknown'")
    for number in (1, 3, 2):
        south.send(first, number)  # duplicates of what it has
    poison = south.sequence()
    south.send(poison, 1)
    south.fail(poison, 1, on_poison=OnPoison.DEAD_LETTER)
    for node in (north, south, restored):
        node.instance.close()
    return Nodes(north.path, south.path, north.clock(), restored.path)


FOUND: Final = {
    "stores": 3,
    "messages": 39,
    "delivered": 20,
    "dead": 1,
    "unsettled": 18,
    "sequences": 23,
    "gaps": 2 + 2 + 3,
    "missing": 4 + 2 + 4,  # 2 and 3 of one sequence at two stores; 1 and 4 at one, 1, 4, 8 and 9 at the other
    "lacking": 2,
    "repeated": 0,
    "duplicates": 3,
    "twice": 3,
    "twice_same": 1,
    "twice_another": 1,
    "twice_unknown": 1,
    "late": 2,
    "deepest": 1,
    "faults": 2,
    "faults_unconfirmed": 2,
    "dead_letters": 1,
    "dead_letters_unconfirmed": 1,
    "standing": 15,
    "findings": ["lacking", "missing", "twice", "standing", "dead_letters_unconfirmed", "faults_unconfirmed"],
}
"""Of the summary, at the time of ``Nodes.at``."""
