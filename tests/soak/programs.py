"""Programs of the soak of queues: each puts, publishes or consumes until it is killed, and writes down what it did.

``python -m tests.soak.programs ROLE DIRECTORY``. There are the store, the notes, and the database of the service. An
effect is committed to the notes, of what came over SOAP to that database, before its message is acknowledged, and a put
to the notes after it is confirmed.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import wsrm_mq
from tests.soak.run import PULLED
from wsrm_mq.errors import KeeperGone, LeaseLost, StoreBusy
from wsrm_mq.node import Node
from wsrm_mq.node.message import Message
from wsrm_mq.queue.policies import Durability

QUEUE: Final = "soak"
TICKS: Final = "ticks"
"""Express messages and recoverable ones in one queue, which one program keeps."""
EXPRESS: Final = "express"
"""Under this is written down what was put as express messages: they may be lost."""
TOPIC: Final = "soak/event"
CLIENT: Final = "soaked"
PACES: Final = {"fast": 0.0, "slow": 0.01}
"""Seconds that a subscription takes for a message."""
TABLES: Final = """
CREATE TABLE IF NOT EXISTS put (topic TEXT, who TEXT, number INTEGER);
CREATE TABLE IF NOT EXISTS call (at TEXT, who TEXT, number INTEGER, redelivered INTEGER);
CREATE TABLE IF NOT EXISTS effect (at TEXT, who TEXT, number INTEGER, PRIMARY KEY (at, who, number));
"""


def notes(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=60)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = OFF")  # a process dies here, not the machine
    return db


class Testimony:
    """The records that the programs write."""

    def __init__(self, directory: Path) -> None:
        self._notes, self._service = notes(directory / "notes.db"), notes(directory / "service.db")

    def told(self, topic: str, who: str, numbers: Iterable[int]) -> None:
        with self._notes as db:
            db.executemany("INSERT INTO put VALUES (?, ?, ?)", [(topic, who, one) for one in numbers])

    def taken(self, at: str, message: Message) -> None:
        if message.sequence is not None:
            self._served(message.sequence, message)
            return
        who, _, number = message.body.decode().rpartition("/")
        with self._notes as db:
            db.execute("INSERT INTO call VALUES (?, ?, ?, ?)", (at, who, int(number), message.redelivered))
            db.execute("INSERT OR IGNORE INTO effect VALUES (?, ?, ?)", (at, who, int(number)))

    def _served(self, sequence: str, message: Message) -> None:
        """As the service does with what it is called with."""
        with self._service as db:
            db.execute(
                "INSERT INTO calls VALUES (?, ?, ?, ?, ?)", (*(sequence, message.number, message.redelivered), 0, 0)
            )
            known = "SELECT 1 FROM effects WHERE sequence = ? AND n = ?"
            if db.execute(known, (sequence, message.number)).fetchone() is None:
                db.execute("INSERT INTO effects VALUES (?, ?, ?)", (sequence, message.number, time.time()))


def name_of(role: str) -> str:
    """The name that it has this time that it begins."""
    return f"{role} {uuid.uuid4().hex[:8]}"


def produce(node: Node, testimony: Testimony) -> None:
    """Put messages by themselves and in order, in transactions and without waiting."""
    who, number, chance = name_of("producer"), 0, random.Random(os.getpid())
    while True:
        count = chance.choice([1, 1, 5, 20])
        is_ordered = chance.random() < 0.5
        name = f"{who} {'in order' if is_ordered else 'loose'}"
        group = name if is_ordered else None
        numbers = range(number, number + count)
        number += count
        if chance.random() < 0.2:
            done = [node.put(QUEUE, f"{name}/{one}", group=group, wait=False) for one in numbers]
            for one in done:
                one.result()
        else:
            node.put_many(QUEUE, [f"{name}/{one}" for one in numbers], group=group)
        testimony.told(QUEUE, name, numbers)
        time.sleep(chance.random() / 20)


def publish(node: Node, testimony: Testimony) -> None:
    who, number = f"{name_of('publisher')} in order", 0
    while True:
        node.publish(TOPIC, f"{who}/{number}", group=who)
        testimony.told(TOPIC, who, [number])
        number += 1
        time.sleep(0.01)


def keep(node: Node, _testimony: Testimony) -> None:
    while True:
        with suppress(KeeperGone):  # it was killed a moment ago, and its lock is not free yet
            node.declare(TICKS, durability="express", max_failures=None, retry=[0])
            threading.Event().wait()
        time.sleep(0.1)


def tick(node: Node, testimony: Testimony) -> None:
    """Put express messages and recoverable ones, in order, into one queue, whichever process keeps it meanwhile."""
    who, number, chance = f"{name_of('ticker')} in order", 0, random.Random(os.getpid())
    while True:
        durability: Durability = chance.choice(["express", "recoverable"])
        name = who if durability == "recoverable" else f"{who} {EXPRESS}"
        with suppress(KeeperGone):  # an express message is put again by none
            node.put(TICKS, f"{name}/{number}", group=who, durability=durability)
            testimony.told(TICKS if durability == "recoverable" else EXPRESS, name, [number])
        number += 1
        time.sleep(0.01)


def consume(node: Node, testimony: Testimony, queues: Sequence[str], backlog: int) -> None:
    """Take what comes; give back some of it."""
    chance = random.Random(os.getpid())
    for message in node.subscribe(queues, max_backlog=backlog):
        answer = chance.random()
        with suppress(LeaseLost, KeeperGone):  # it comes again, or is gone with who kept it
            if answer < 0.02:
                message.nack("not now")
            elif answer < 0.04:
                message.release()
        if answer >= 0.04:
            testimony.taken(message.queue, message)


def subscribe(node: Node, testimony: Testimony, name: str) -> None:
    for message in node.subscribe(topic="soak/#", name=name, client=CLIENT, max_backlog=10):
        testimony.taken(name, message)
        time.sleep(PACES[name])


ROLES: Final[dict[str, Callable[[Node, Testimony], None]]] = {
    "producer": produce,
    "publisher": publish,
    **{f"consumer of {backlog}": partial(consume, queues=[QUEUE, PULLED], backlog=backlog) for backlog in (1, 10, 30)},
    "keeper": keep,
    "ticker": tick,
    "consumer of ticks": partial(consume, queues=[TICKS], backlog=5),
    "fast": lambda node, testimony: subscribe(node, testimony, "fast"),
    "slow": lambda node, testimony: subscribe(node, testimony, "slow"),
}

if __name__ == "__main__":
    role, home = sys.argv[1], Path(sys.argv[2])
    with wsrm_mq.connect(home / "store.db", role) as node:
        while True:
            with suppress(StoreBusy):  # on a machine that has much else to do: what was refused is not put
                ROLES[role](node, Testimony(home))
