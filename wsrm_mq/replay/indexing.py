"""Bringing the late indexes forward, about a second behind what comes.

Nobody waits for it, so it lingers: it goes along with a commit that somebody waits for, a piece in each until it has
caught up, and no event loop is held for longer than a piece takes. Of several processes one does it: each leaves it to
whoever moved a watermark since it looked last, for what one writes makes the others forget what they know.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from wsrm_mq.queue.connection_index import BY_CONNECTION
from wsrm_mq.queue.late_index import BATCH
from wsrm_mq.queue.sequence_index import BY_SEQUENCE
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

__all__ = ["Indexing"]

LOOK_SECONDS: Final = 0.5
"""Between two looks, at least."""
FAR_BEHIND: Final = 10 * BATCH
"""So many rows behind, it is everybody's business: who moves a watermark may be somebody who only counts."""
_ROW_BYTES: Final = 512
"""What a message adds to the write-ahead log, about: few where many are of one connection, else two pages."""

Watermarks = tuple[int, ...]
_WATERMARKS: Final = f"SELECT {BY_CONNECTION.upto}, {BY_SEQUENCE.upto}"
_LOOK: Final = f"{_WATERMARKS}, max({BY_CONNECTION.behind}, {BY_SEQUENCE.behind})"


class Indexing:
    def __init__(self, store: Store, is_stopping: Callable[[], bool], look_seconds: float = LOOK_SECONDS) -> None:
        self._store = store
        self._is_stopping = is_stopping
        self._look_seconds = look_seconds
        self._look_at = 0.0
        self._left_at: Watermarks | None = None
        """Where the watermarks were when this process saw or moved them last."""
        self._is_at_it = False

    def look(self) -> None:
        """Have the next messages indexed, where there are some and no other process is at it. Cheap to ask for."""
        now = time.monotonic()
        if self._is_at_it or now < self._look_at:
            return
        self._look_at = now + self._look_seconds
        with self._store.reader() as db:
            *watermarks, behind = db.execute(_LOOK).fetchone()
        left_at, self._left_at = self._left_at, tuple(watermarks)
        is_ours = left_at == self._left_at
        if behind > FAR_BEHIND or (behind and is_ours):
            self._go_on()

    def _go_on(self) -> None:
        self._is_at_it = True
        self._store.submit(_verb, self._told, size=BATCH * _ROW_BYTES, lingers=True)

    def _told(self, result: tuple[Watermarks, bool] | None, _error: BaseException | None) -> None:
        is_more = False
        if result is not None:  # else the store is in trouble: a later look is soon enough
            self._left_at, is_more = result
        if is_more and not self._is_stopping():
            self._go_on()
        else:
            self._is_at_it = False


def _verb(tx: Transaction) -> tuple[Watermarks, bool]:
    are_more = [index.bring_forward(tx) for index in (BY_CONNECTION, BY_SEQUENCE)]
    return tx.execute(_WATERMARKS).fetchone(), any(are_more)
