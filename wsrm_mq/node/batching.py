"""Acknowledgements that wait to be sent together: until there are enough, or the oldest has waited for long enough."""

from __future__ import annotations

import warnings
from typing import Final

from wsrm_mq.node.backlog import Held

_PART: Final = 3
"""A batch is this part of the backlog: the rest is at hand while it is sent."""


def batch_size(asked: int | None, granted: int) -> int:
    """The number of acknowledgements that are sent together under a backlog of ``granted``. ``asked``: as many as the
    consumer wants; ``None``: a third of the backlog. More than the half is told by a ``UserWarning``, and more than the
    whole is never waited for."""
    if asked is None:
        return max(1, granted // _PART)
    if asked > 1 and 2 * asked > granted:
        size = min(asked, granted)
        warnings.warn(
            f"`ack_batch` is {asked} and the granted backlog {granted}: batches have {size}. Above one half of it a "
            f"consumer runs out of messages while a batch is sent; {max(1, granted // _PART)} is a good size.",
            stacklevel=4,
        )
        return size
    return max(asked, 1)


class Batch:
    """Acknowledgements of one subscription. Times are in ms. ``timeout``: so long the oldest waits at most; half of
    what is left of a lease, where that is less."""

    def __init__(self, size: int, timeout: int) -> None:
        self.size = size
        self.due_at: int | None = None
        """When what waits is sent though it is not enough; ``None``: nothing waits."""
        self._timeout = timeout
        self.waiting: list[Held] = []

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, message: Held, now: int) -> None:
        due_at = now + self._timeout
        if message.leased_until is not None:
            due_at = min(due_at, now + max(message.leased_until - now, 0) // 2)
        self.due_at = due_at if self.due_at is None else min(self.due_at, due_at)
        self.waiting.append(message)

    def is_due(self, now: int) -> bool:
        return len(self.waiting) >= self.size or (self.due_at is not None and self.due_at <= now)

    def take(self) -> list[Held]:
        """Empty the batch; answers the acknowledgements that waited."""
        taken, self.waiting, self.due_at = self.waiting, [], None
        return taken
