"""The dead letters of a queue, as a program has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wsrm_mq.node.message import Message
from wsrm_mq.queue import clearing, declaring

if TYPE_CHECKING:
    from wsrm_mq.node.node import Node, Received


class DeadLetters:
    """The dead letters of a queue. They lie in a queue of their own, ``name``, which is received from and looked into
    as any other."""

    def __init__(self, node: Node, queue: str) -> None:
        self._node = node
        self._queue = queue
        self.name = node.call(lambda tx: declaring.dead_letters(tx, queue))

    def peek(self, *, after: int = 0, limit: int = 50) -> list[Message]:
        """See ``Node.peek``."""
        return self._node.peek(self.name, after=after, limit=limit)

    def receive(self, max: int = 1, **options: Any) -> Received:
        """See ``Node.receive``."""
        return self._node.receive(self.name, max, **options)

    def redrive(self, positions: Sequence[int] | None = None, *, to: str | None = None) -> int:
        """Put dead letters back into the queue that they came from, or another, as if they had never been tried; all of
        them where no ``positions`` are given. Answers how many."""
        return self._node.call(lambda tx: clearing.redrive_letters(tx, self.name, positions, to), wakes=True)

    def discard(self, positions: Sequence[int] | None = None) -> int:
        """Give dead letters up; all of them where no ``positions`` are given. Answers how many."""
        return self._node.call(lambda tx: clearing.discard_letters(tx, self.name, positions))
