"""The line between a source and the services that it sends to: requests and answers that are under way.

Each is lost, late, repeated, or arrives, when a step says so, in any order.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from tests.simulator.process import Process
from tests.simulator.tasks import Task, running
from wsrm_mq.errors import NotAnswered
from wsrm_mq.outbound.posting import Answer

TIMEOUT: Final = 60.0
"""Seconds in which a source waits for an answer."""
_NAME: Final = rb"<wsrm:Identifier>([^<]*)</wsrm:Identifier>"
_SEQUENCE: Final = re.compile(rb"<wsrm:Sequence .*?" + _NAME + rb"<wsrm:MessageNumber>(\d+)<")
_ACKNOWLEDGEMENT: Final = re.compile(
    rb"<wsrm:SequenceAcknowledgement .*?" + _NAME + rb"(.*?)</wsrm:SequenceAcknowledgement>"
)
_RANGE: Final = re.compile(rb'<wsrm:AcknowledgementRange Lower="(\d+)" Upper="(\d+)"')

Place = tuple[str, int]
"""The identifier of a sequence, and a number in it."""


class Letter:
    """A request under way. ``sender``: its task waits for the answer, as long as it ``is_awaited``."""

    def __init__(self, process: Process, sender: Task, url: str, headers: Mapping[str, str], body: bytes) -> None:
        self.process = process
        self.sender = sender
        self.url = url
        self.headers = headers
        self.body = body
        self.is_awaited = True
        self.answer: Answer | None = None

    @property
    def place(self) -> Place | None:
        found = _SEQUENCE.search(self.body)
        return None if found is None else (found[1].decode(), int(found[2]))

    def end(self, answer: Answer | None = None) -> None:
        """Its sender goes on, with the answer or without one."""
        if self.is_awaited:
            self.is_awaited, self.answer = False, answer
            self.process.tasks.wake(self.sender)


class Wire:
    def __init__(self, counts: Counter[str], loss: float) -> None:
        """``loss``: how often a request is lost, and how often an answer is."""
        self.requests: list[Letter] = []
        self.answers: list[tuple[Letter, Answer]] = []
        self.left: Counter[Place] = Counter()
        """How often a numbered message has left."""
        self.acknowledged: set[Place] = set()
        """By answers that have arrived."""
        self.heard: list[bytes] = []
        """The answers that have arrived and say more than that."""
        self.loss = loss
        self._counts = counts

    def post(
        self, process: Process, url: str, headers: Mapping[str, str], body: bytes, who: str | None = None
    ) -> Answer:
        """In a task of the process. Raises ``NotAnswered``."""
        letter = Letter(process, running(), url, headers, body)
        if letter.place is not None:
            self.left[letter.place] += 1
        self.requests.append(letter)
        process.tasks.sleep(TIMEOUT)
        letter.is_awaited = False
        if letter.answer is None:
            raise NotAnswered(f"{url}: the line broke")
        return letter.answer

    @property
    def is_busy(self) -> bool:
        return bool(self.requests or self.answers)

    def request(self, draw: random.Random) -> Letter | None:
        """Take a request that arrives now; ``None``: it does not, or not now."""
        letter, way = self.requests.pop(draw.randrange(len(self.requests))), draw.random() / (self.loss or 1e-9)
        if way < 1:
            self._counts["requests lost"] += 1
            letter.end()
            return None
        if way < 1.5:
            self._counts["requests late"] += 1
            self.requests.append(letter)
            letter.end()
            return None
        if way < 2:
            self._counts["requests repeated"] += 1
            again = Letter(letter.process, letter.sender, letter.url, letter.headers, letter.body)
            again.is_awaited = False
            self.requests.append(again)
        return letter

    def answered(self, draw: random.Random) -> None:
        """An answer arrives, or is lost."""
        letter, answer = self.answers.pop(draw.randrange(len(self.answers)))
        if not letter.is_awaited or letter.process.tasks.is_dead:
            return
        if draw.random() < self.loss:
            self._counts["responses lost"] += 1
            letter.end()
            return
        self.acknowledged |= acknowledged_in(answer.content)
        self.heard.append(answer.content)
        letter.end(answer)


def acknowledged_in(content: bytes) -> set[Place]:
    return {
        (found[1].decode(), number)
        for found in _ACKNOWLEDGEMENT.finditer(content)
        for lower, upper in _RANGE.findall(found[2])
        for number in range(int(lower), int(upper) + 1)
    }
