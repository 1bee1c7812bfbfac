"""A source's endpoint of its own: what a destination sends there, in requests of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.orders_server import within
from tests.support.target import Target, serving
from wsrm_mq.testing import Reply

ALLOWED = ("127.0.0.0/8",)
"""For the option ``decoupled``: this machine."""


class Endpoint(Target):
    """It answers 202 without a body, unless ``answers`` or ``says`` says otherwise, and not before it may ``go_on``."""

    def __init__(self) -> None:
        super().__init__()
        self.says: Callable[[Reply], tuple[int, bytes] | None] = lambda _received: None
        """What it answers to what it has received; ``None``: as ever."""
        self.go_on = threading.Event()
        self.go_on.set()
        self.most_at_a_time = 0
        self._at_a_time = 0

    def answer_to(self, number: int, body: bytes) -> tuple[int, bytes]:
        said = self.says(Reply.parse(body)) or super().answer_to(number, body)
        self._at_a_time += 1
        self.most_at_a_time = max(self.most_at_a_time, self._at_a_time)
        return said

    def arrived(self) -> None:
        self.go_on.wait(30)
        with self.lock:
            self._at_a_time -= 1

    def hang(self) -> None:
        """From now on it answers nothing until it may ``go_on``; what was received before is answered."""
        within(5, lambda: self._at_a_time, lambda count: count == 0)
        self.go_on.clear()

    @property
    def received(self) -> list[Reply]:
        with self.lock:
            return [Reply.parse(body) for _fields, body in self.requests]

    def saying(self, local: str) -> list[Reply]:
        """What came under the Action that ends so."""
        return [one for one in self.received if (one.action or "").rpartition("/")[2] == local]

    def soon(self, look: Callable[[], list[Reply]], count: int = 1, seconds: float = 10) -> list[Reply]:
        """What ``look`` finds, as soon as it is as much as ``count``, or at the latest after ``seconds``."""
        return within(seconds, look, lambda found: len(found) >= count)

    def one(self, local: str) -> Reply:
        """The first that came under the Action that ends so, waited for."""
        found = self.soon(lambda: self.saying(local))
        assert found, [one.action for one in self.received]
        return found[0]

    def acknowledged(self, identifier: str, *ranges: tuple[int, int], seconds: float = 10) -> bool:
        """Whether an acknowledgement says so by then."""

        def said() -> bool:
            acks = (ack for one in self.received for ack in one.acks)
            return any(ack.identifier == identifier and ack.ranges == ranges for ack in acks)

        return within(seconds, said, bool)


@contextmanager
def listening() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    with serving(endpoint):
        yield endpoint
