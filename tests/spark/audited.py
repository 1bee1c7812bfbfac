"""Logs of stores as a service writes them over a bad line, and mistakes that are planted in them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from pyspark.sql import SparkSession

from wsrm_mq.spark.jobs.audit import Tables

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def moment(ms: int | None) -> datetime | None:
    return None if ms is None else EPOCH + timedelta(milliseconds=ms)


def told_at(ms: int | None) -> str:
    return "no time" if ms is None else f"{moment(ms):%Y-%m-%d %H:%M:%S.%f}"[:-3]


class Message(NamedTuple):
    store: str
    sequence: str | None
    number: int | None
    position: int
    received_at: int
    outcome: str | None = None
    reason: str | None = None
    settled_at: int | None = None
    named: bool = True
    late: bool = False
    replay_of: int | None = None


class Sequence(NamedTuple):
    store: str
    sequence: str
    ordered: bool
    active_at: int
    received: int
    pruned: int


class Range(NamedTuple):
    store: str
    sequence: str
    lower: int
    upper: int


class Event(NamedTuple):
    store: str
    key: int
    at: int
    event: str
    position: int | None


@dataclass
class Log:
    """Times are ms."""

    messages: list[Message] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    ledger: list[Event] = field(default_factory=list)
    begun: dict[str, int] = field(default_factory=dict)
    """When the export of a store was begun."""

    def written(self, store: str) -> list[list[int]]:
        """The times of a store, in the order in which they were written: of what arrived, and of the ledger."""
        arrived = sorted(
            (m for m in self.messages if m.store == store and m.replay_of is None), key=lambda m: m.position
        )
        told = sorted((e for e in self.ledger if e.store == store), key=lambda e: e.key)
        return [[m.received_at for m in arrived], [e.at for e in told]]

    def tables(self, spark: SparkSession) -> Tables:
        make = spark.createDataFrame
        return Tables(
            make(
                [
                    (m.store, "node", *m[1:4], moment(m.received_at), m.outcome, m.reason, moment(m.settled_at), *m[8:])
                    for m in self.messages
                ],
                "store string, node string, sequence string, number long, position long, received_at timestamp, "
                "outcome string, reason string, settled_at timestamp, named boolean, late boolean, replay_of long",
            ),
            make(
                [(s.store, "node", s.sequence, s.ordered, moment(s.active_at), *s[4:]) for s in self.sequences],
                "store string, node string, sequence string, ordered boolean, active_at timestamp, received long, "
                "pruned long",
            ),
            make(self.ranges, "store string, sequence string, lower long, upper long"),
            make(
                [(e.store, e.key, moment(e.at), e.event, e.position) for e in self.ledger],
                "store string, key long, at timestamp, event string, position long",
            ),
            make([(store, moment(at)) for store, at in self.begun.items()], "store string, begun_at timestamp"),
        )


_OUTCOMES = (
    *[("delivered", None, None)] * 12,
    ("delivered", "answered_with_fault", "answered_with_fault"),
    ("dead", "max_failures", "dead"),
    ("discarded", "by_operator", "discarded"),
)
"""Outcome, reason, and the event that tells of it."""


class _Service:
    """One store; where its clock ``steps``, it is set back now and then."""

    def __init__(self, log: Log, store: str, chance: random.Random, steps: bool) -> None:
        self.log, self.store, self.chance, self.steps = log, store, chance, steps
        self.now, self.position = 100_000, 0

    def tick(self) -> int:
        self.now += self.chance.choice([0, 0, 1, 50])
        if self.steps and self.chance.random() < 0.01:
            self.now -= self.chance.randrange(1, 3_000)
        return self.now

    def write(self, event: str, position: int | None) -> None:
        self.log.ledger.append(Event(self.store, len(self.log.ledger) + 1, self.now, event, position))

    def serve(self, name: str) -> None:
        """One sequence: numbers are lost and swapped on their way; what is there in order is settled in order."""
        chance, ordered = self.chance, self.chance.random() < 0.8
        self.tick()
        self.write("created", None)
        numbers = [n for n in range(1, chance.randrange(2, 14)) if chance.random() > 0.1]
        coming = sorted(numbers, key=lambda n: n + chance.random() * 4)
        there: dict[int, Message] = {}
        active = self.now
        while coming or chance.random() < 0.9:
            if coming and chance.random() < 0.6:
                self.position, active = self.position + 1, self.tick()
                number = coming.pop(0)
                there[number] = Message(self.store, name, number, self.position, active)
                continue
            due = [n for n in sorted(there) if there[n].outcome is None and (not ordered or _is_next(n, there))]
            if due:
                self.settle(there, due[0] if ordered else chance.choice(due))
        gone = [n for n, m in there.items() if m.outcome == "delivered" and chance.random() < 0.1]
        kept = [m for n, m in there.items() if n not in gone]
        self.log.messages += kept
        pruned = {(self.store, there[n].position) for n in gone}
        self.log.ledger[:] = [e for e in self.log.ledger if (e.store, e.position) not in pruned]
        self.log.sequences.append(Sequence(self.store, name, ordered, active, len(there), len(gone)))
        for _, run in groupby(enumerate(sorted(there)), lambda pair: pair[1] - pair[0]):
            its = [number for _, number in run]
            self.log.ranges.append(Range(self.store, name, its[0], its[-1]))

    def settle(self, there: dict[int, Message], number: int) -> None:
        outcome, reason, event = self.chance.choice(_OUTCOMES)
        self.tick()
        there[number] = there[number]._replace(outcome=outcome, reason=reason, settled_at=self.now)
        if event is not None:
            self.write(event, there[number].position)


def _is_next(number: int, there: dict[int, Message]) -> bool:
    return all(n in there and there[n].outcome is not None for n in range(1, number))


def served(chance: random.Random, *, steps: bool) -> Log:
    log = Log()
    for at in range(3):
        service = _Service(log, f"store{at}", chance, steps)
        for number in range(12):
            service.serve(f"urn:{at}:{number}")
        if chance.random() < 0.3:
            log.begun[service.store] = service.now + 1 if chance.random() < 0.5 else chance.randrange(service.now + 1)
    return log


Plant = Callable[[Log, random.Random], None]


def _some(log: Log, chance: random.Random, outcome: str | None = "delivered") -> int:
    """The place of a message with this outcome, else of any."""
    fitting = [at for at, m in enumerate(log.messages) if m.outcome == outcome]
    return chance.choice(fitting or range(len(log.messages)))


def _lose(log: Log, chance: random.Random) -> None:
    del log.messages[_some(log, chance)]


def _repeat(log: Log, chance: random.Random) -> None:
    log.messages.append(log.messages[_some(log, chance)]._replace(position=10_000 + len(log.messages)))


def _repeat_elsewhere(log: Log, chance: random.Random) -> None:
    one = log.messages[_some(log, chance)]
    log.messages.append(one._replace(store="copy", settled_at=(one.settled_at or 0) + chance.randrange(2)))


def _unreceive(log: Log, chance: random.Random) -> None:
    at = chance.randrange(len(log.ranges))
    log.ranges[at] = log.ranges[at]._replace(upper=log.ranges[at].upper - 1)


def _unsettle(log: Log, chance: random.Random) -> None:
    at = _some(log, chance)
    wrong = chance.choice([{"settled_at": None}, {"named": False}, {"outcome": None}])
    log.messages[at] = log.messages[at]._replace(**wrong)  # type: ignore[arg-type]


def _untell(log: Log, chance: random.Random) -> None:
    at = chance.choice([at for at, e in enumerate(log.ledger) if e.position is not None] or [0])
    del log.ledger[at]


def _replay(log: Log, chance: random.Random) -> None:
    """A dead letter is replayed, or only said to be."""
    at = _some(log, chance, "dead")
    one = log.messages[at] = log.messages[at]._replace(outcome="discarded", reason="replayed", settled_at=200_000)
    if chance.random() < 0.5:
        log.messages.append(Message(one.store, None, None, 20_000 + at, one.received_at, replay_of=one.position))


def _swap(log: Log, chance: random.Random) -> None:
    at = _some(log, chance)
    log.messages[at] = log.messages[at]._replace(
        settled_at=(log.messages[at].settled_at or 0) - chance.randrange(1, 2_000)
    )


def _prune_more(log: Log, chance: random.Random) -> None:
    at = chance.randrange(len(log.sequences))
    log.sequences[at] = log.sequences[at]._replace(pruned=log.sequences[at].pruned + 1)


PLANTS: dict[str, Plant] = {
    one.__name__: one
    for one in (_lose, _repeat, _repeat_elsewhere, _unreceive, _unsettle, _untell, _replay, _swap, _prune_more)
}
