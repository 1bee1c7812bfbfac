"""A bad line: it loses requests and answers, repeats messages, and takes its time."""

from __future__ import annotations

import enum
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from wsrm_mq.testing.wire import Answer, Wire

__all__ = ["Fate", "Line", "LossyWire", "Traffic"]

_NUMBER: Final = re.compile(rb"MessageNumber>(\d+)<")


class Fate(enum.Enum):
    ARRIVES = enum.auto()
    REQUEST_LOST = enum.auto()
    """Half of it arrives and the connection breaks."""
    ANSWER_LOST = enum.auto()
    """The service has it, and the source does not know."""


@dataclass(slots=True)
class Traffic:
    """What went over a line."""

    transmissions: int = 0
    requests_lost: int = 0
    answers_lost: int = 0
    duplicates: int = 0
    """Repeated by the line; what a source sends again is no duplicate in this sense."""


class Line:
    """What the wires over it have in common. ``loss`` and ``duplicates`` are chances from 0 to 1, ``delay`` is the most
    seconds that a transmission takes longer. A seed does the same to the same transmission of a message, whatever
    thread sends it."""

    def __init__(self, loss: float = 0.0, duplicates: float = 0.0, *, delay: float = 0.0, seed: int = 0) -> None:
        self.loss, self.duplicates, self.delay, self.seed = loss, duplicates, delay, seed
        self.traffic = Traffic()
        self._transmissions: Counter[int] = Counter()
        self._lock = threading.Lock()

    def fate(self, number: int, transmission: int) -> Fate:
        random = self._random("loss", number, transmission)
        if random.random() >= self.loss:
            return Fate.ARRIVES
        return random.choice((Fate.REQUEST_LOST, Fate.ANSWER_LOST))

    def repeats(self, number: int, transmission: int) -> bool:
        return self._random("duplicate", number, transmission).random() < self.duplicates

    def wait(self, number: int, transmission: int) -> float:
        """Seconds."""
        return self._random("delay", number, transmission).random() * self.delay

    def transmitted(self, number: int) -> int:
        """Count a transmission of a message; answers which of its transmissions this is, from 1."""
        with self._lock:
            self._transmissions[number] += 1
            transmission = self._transmissions[number]
            self.traffic.transmissions += 1
            self.traffic.duplicates += self.repeats(number, transmission)
            fate = self.fate(number, transmission)
            self.traffic.requests_lost += fate is Fate.REQUEST_LOST
            self.traffic.answers_lost += fate is Fate.ANSWER_LOST
        return transmission

    def _random(self, *parts: object) -> Random:
        return Random(f"{self.seed} {parts}")


class LossyWire:
    """A wire over a line. What has no message number, CreateSequence and the like, always arrives."""

    def __init__(self, wire: Wire, line: Line) -> None:
        self._wire = wire
        self._line = line

    def post(self, body: bytes, fields: Mapping[str, str]) -> Answer:
        found = _NUMBER.search(body)
        if found is None:
            return self._wire.post(body, fields)
        number = int(found[1])
        transmission = self._line.transmitted(number)
        time.sleep(self._line.wait(number, transmission))
        fate = self._line.fate(number, transmission)
        if fate is Fate.REQUEST_LOST:
            self._wire.post_half(body, fields)
            raise ConnectionError("the line lost the request")
        if self._line.repeats(number, transmission):
            self._wire.post(body, fields)
        answer = self._wire.post(body, fields)
        if fate is Fate.ANSWER_LOST:
            raise ConnectionError("the line lost the answer")
        return answer

    def post_half(self, body: bytes, fields: Mapping[str, str]) -> None:
        self._wire.post_half(body, fields)

    def close(self) -> None:
        self._wire.close()
