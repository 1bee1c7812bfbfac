"""Gaps that stay open for longer than ``hold_timeout`` are told, and asked for where the source has an address."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from wsrm_mq.queue.acknowledgement import DueAcknowledgement
from wsrm_mq.queue.gaps import tell_gaps
from wsrm_mq.store.gaps import OLD_GAPS
from wsrm_mq.store.store import Store

_BATCH: Final = 200
_LOOKS: Final = 10
"""In the time that a gap may stay open."""


class Gaps:
    """Looks for gaps that stay open, for one process. ``look`` is a chore of its watch. ``timeout``: ms that a gap may
    stay open."""

    def __init__(self, store: Store, timeout: int, ask: Callable[[DueAcknowledgement], None] | None) -> None:
        """``ask`` posts a request for missing messages; without it no source is asked."""
        self._store = store
        self._timeout = timeout
        self._ask = ask
        self._next_look = 0.0

    def look(self) -> None:
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + self._timeout / 1000 / _LOOKS
        with self._store.reader() as db:
            look = {"before": self._store.clock() - self._timeout, "count": _BATCH, "foreign": self._store.foreign(db)}
            old = [key for (key,) in db.execute(OLD_GAPS, look).fetchall()]
        if old:
            for nack in self._store.call(lambda tx: tell_gaps(tx, old)):
                if self._ask is not None:
                    self._ask(nack)
