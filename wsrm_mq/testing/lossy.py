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

from wsrm_mq.testing.wire import HTTPAnswer, Wire

_NUMBER: Final = re.compile(rb"MessageNumber>(\d+)<")


class Fate(enum.Enum):
    """The fate of an exchange on a bad line."""

    ARRIVES = enum.auto()
    REQUEST_LOST = enum.auto()
    """Half of it arrives and the connection breaks."""
    ANSWER_LOST = enum.auto()
    """The service has it, and the source does not know."""


@dataclass(slots=True)
class Traffic:
    """Counts of a line."""

    transmissions: int = 0
    requests_lost: int = 0
    answers_lost: int = 0
    duplicates: int = 0
    """Messages that the line repeated. Messages that a source sends again do not count."""


class Line:
    """A bad line, shared by the wires over it. ``loss`` and ``duplicates`` are chances from 0 to 1, ``delay`` is the
    most seconds that a transmission takes longer. A seed does the same to the same transmission of a message, whatever
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

    def transmit(self, number: int) -> tuple[Fate, bool, float]:
        """Count the next transmission of a message, and answer its fate, whether it is repeated, and its delay in
        seconds."""
        with self._lock:
            self._transmissions[number] += 1
            transmission = self._transmissions[number]
            fate = self.fate(number, transmission)
            repeats = fate is not Fate.REQUEST_LOST and self.repeats(number, transmission)
            self.traffic.transmissions += 1
            self.traffic.requests_lost += fate is Fate.REQUEST_LOST
            self.traffic.answers_lost += fate is Fate.ANSWER_LOST
            self.traffic.duplicates += repeats
        return fate, repeats, self._random("delay", number, transmission).random() * self.delay

    def _random(self, *parts: object) -> Random:
        return Random(f"{self.seed} {parts}")


class LossyWire:
    """A wire over a line. Requests without a message number, such as CreateSequence, always arrive."""

    def __init__(self, wire: Wire, line: Line) -> None:
        self._wire = wire
        self._line = line

    def post(self, body: bytes, fields: Mapping[str, str]) -> HTTPAnswer:
        found = _NUMBER.search(body)
        if found is None:
            return self._wire.post(body, fields)
        fate, repeats, seconds = self._line.transmit(int(found[1]))
        time.sleep(seconds)
        if fate is Fate.REQUEST_LOST:
            self._wire.post_half(body, fields)
            raise ConnectionError("the line lost the request")
        if repeats:
            self._wire.post(body, fields)
        answer = self._wire.post(body, fields)
        if fate is Fate.ANSWER_LOST:
            raise ConnectionError("the line lost the answer")
        return answer

    def post_half(self, body: bytes, fields: Mapping[str, str]) -> None:
        self._wire.post_half(body, fields)

    def close(self) -> None:
        self._wire.close()
