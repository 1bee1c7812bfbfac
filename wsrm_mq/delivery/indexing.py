"""The filling of the late indexes, about a second behind the rows that come.

No request waits for it, so it lingers: it goes along with a commit that a request waits for, a piece in each until it
has caught up, and no event loop is held for longer than a piece takes. One of several processes does it: each leaves it
to the one that moved a watermark since it looked last, since a write of one process makes the others forget their
caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from wsrm_mq.store.late_index import BATCH, BY_CONNECTION, BY_LANE, LOOK, piece
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

LOOK_SECONDS: Final = 0.5
"""Between two looks, at least."""
FAR_BEHIND: Final = 10 * BATCH
"""The number of rows behind from which on every process indexes: the process that moves a watermark may be one that
only counts."""
_ROW_BYTES: Final = 1024
"""The bytes that a row adds to the write-ahead log, about: few where many rows are of one connection, else most of a
page."""

Watermarks = tuple[int, ...]


class Indexing:
    """Fills the late indexes (``store.late_index``) of a store, a piece a commit; one of its processes at a time."""

    def __init__(self, store: Store, is_stopping: Callable[[], bool], look_seconds: float = LOOK_SECONDS) -> None:
        self._store = store
        self._is_stopping = is_stopping
        self._look_seconds = look_seconds
        self._look_at = 0.0
        self._left_at: Watermarks | None = None
        """The watermarks when this process saw or moved them last."""
        self._is_at_it = False

    def look(self) -> None:
        """Have the next messages indexed, where there are some and no other process is at it. Cheap to ask for."""
        now = time.monotonic()
        if self._is_at_it or now < self._look_at:
            return
        self._look_at = now + self._look_seconds
        with self._store.reader() as db:
            *watermarks, behind = db.execute(LOOK).fetchone()
        left_at, self._left_at = self._left_at, tuple(watermarks)
        is_ours = left_at == self._left_at
        if behind > FAR_BEHIND or (behind and is_ours):
            self._go_on(behind)

    def _go_on(self, behind: int) -> None:
        self._is_at_it = True
        try:
            self._store.submit(_verb, self._told, size=piece(behind) * _ROW_BYTES, lingers=True)
        except BaseException:
            self._is_at_it = False
            raise

    def _told(self, result: tuple[Watermarks, int] | None, _error: BaseException | None) -> None:
        behind = 0
        if result is not None:  # else the store is in trouble: a later look is soon enough
            self._left_at, behind = result
        if behind and not self._is_stopping():
            self._go_on(behind)
        else:
            self._is_at_it = False


def _verb(tx: Transaction) -> tuple[Watermarks, int]:
    """Bring the indexes forward. Answers the watermarks, and the number of rows left to index; 0 too where only rows
    are left that came meanwhile: a later look is soon enough for them."""
    are_more = [index.bring_forward(tx) for index in (BY_CONNECTION, BY_LANE)]
    *watermarks, behind = tx.execute(LOOK).fetchone()
    return tuple(watermarks), behind if any(are_more) else 0
