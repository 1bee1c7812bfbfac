"""The clock that leases are measured by: it is never set, so no step of the time of day ends one, or keeps one.

Its times are ms since the epoch, near those of the wall clock: what is to be added for that to the seconds since the
machine began is in the store, and is the same for all of its processes. It is taken anew where none of them lives; then
no lease is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wsrm_mq.store.port import Database

_OFFSET: Final = "SELECT clock_offset FROM identity"
_AGREE: Final = "UPDATE identity SET clock_offset = ?"


class Steady:
    """``clock`` shows the time of day; ``passed`` counts seconds and is never set. Without ``passed`` the time of day
    is all there is."""

    def __init__(self, clock: Callable[[], int], passed: Callable[[], float] | None) -> None:
        self._clock = clock
        self._passed = passed
        self._offset: int | None = None

    def __call__(self) -> int:
        if self._passed is None or self._offset is None:
            return self._clock()
        return round(self._passed() * 1000) + self._offset

    def agree(self, db: Database, *, is_first: bool) -> None:
        """Count as the other processes do, or, where this is the first, as the others will; in a transaction."""
        if self._passed is None:
            return
        found = db.execute(_OFFSET).fetchone()
        self._offset = None if found is None else found[0]
        if is_first or self._offset is None:
            self._offset = self._clock() - round(self._passed() * 1000)
            db.execute(_AGREE, (self._offset,))
