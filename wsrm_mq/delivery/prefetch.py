"""Messages in memory since their commit, for the run that comes to them: the store has them all. Reading them back
would cost about a quarter of the CPU of a message whose sequence is being run when it comes."""

from __future__ import annotations

import threading
from typing import Final

from wsrm_mq.delivery.delivery import Delivery

_MESSAGES: Final = 1_000
_BYTES: Final = 16 * 1024 * 1024


class Prefetch:
    """Messages by lane and number. They are bounded in messages and bytes; a body in a file is not kept, it would keep
    the file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, dict[int, Delivery]] = {}
        self._messages = 0
        self._bytes = 0

    def keep(self, sequence: int, delivery: Delivery) -> None:
        size = delivery.body.size
        with self._lock:
            if delivery.body.content is None or self._messages >= _MESSAGES or self._bytes + size > _BYTES:
                return
            self._kept.setdefault(sequence, {})[delivery.number] = delivery
            self._messages += 1
            self._bytes += size

    def take(self, sequence: int, number: int) -> Delivery | None:
        if sequence not in self._kept:
            return None
        with self._lock:
            delivery = self._kept.get(sequence, {}).pop(number, None)
            if delivery is not None:
                self._messages -= 1
                self._bytes -= delivery.body.size
            return delivery

    def drop(self, sequence: int) -> None:
        """Forget the messages of a lane: what follows is run from the store, or by another process."""
        if sequence not in self._kept:
            return
        with self._lock:
            for delivery in self._kept.pop(sequence, {}).values():
                self._messages -= 1
                self._bytes -= delivery.body.size
