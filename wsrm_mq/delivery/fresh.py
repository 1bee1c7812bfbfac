"""Messages in memory since their commit, for the run that comes to them: a hint, the store has them all."""

from __future__ import annotations

import threading
from typing import Final

from wsrm_mq.delivery.delivery import Delivery

__all__ = ["Fresh"]

_MESSAGES: Final = 1_000
_BYTES: Final = 16 * 1024 * 1024


class Fresh:
    """By sequence and number. Bounded in messages and bytes; a body in a file is not kept, it would keep the file."""

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

    def has(self, sequence: int, number: int) -> bool:
        kept = self._kept.get(sequence)
        return kept is not None and number in kept

    def pop(self, sequence: int, number: int) -> Delivery | None:
        if sequence not in self._kept:
            return None
        with self._lock:
            kept = self._kept.get(sequence)
            delivery = kept.pop(number, None) if kept else None
            if delivery is not None:
                self._messages -= 1
                self._bytes -= delivery.body.size
            return delivery

    def forget(self, sequence: int) -> None:
        """What follows is run from the store, or by somebody else."""
        if sequence not in self._kept:
            return
        with self._lock:
            for delivery in self._kept.pop(sequence, {}).values():
                self._messages -= 1
                self._bytes -= delivery.body.size
