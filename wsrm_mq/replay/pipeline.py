"""Settlements in flight: a run may be ahead of its last settled commit, but not far."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final

from wsrm_mq.queue.ownership import RUN_AHEAD

__all__ = ["Pipeline"]

_AHEAD_SECONDS: Final = 0.020


class Pipeline:
    """Counts settlements that are submitted and not yet committed; they commit in the order they were submitted."""

    def __init__(self) -> None:
        self._submitted: deque[float] = deque()
        self._changed = threading.Condition()
        self.lost = False
        """A settlement was refused: the sequence is no longer ours."""

    def enter(self) -> None:
        """Wait until one more may be under way."""
        with self._changed:
            while len(self._submitted) >= RUN_AHEAD or (
                self._submitted and time.monotonic() - self._submitted[0] > _AHEAD_SECONDS
            ):
                self._changed.wait()
            self._submitted.append(time.monotonic())

    def leave(self, error: BaseException | None) -> None:
        with self._changed:
            self._submitted.popleft()
            self.lost = self.lost or error is not None
            self._changed.notify_all()

    def drain(self) -> None:
        with self._changed:
            while self._submitted:
                self._changed.wait()
