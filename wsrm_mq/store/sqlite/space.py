"""What of a store's file is in use."""

from __future__ import annotations

from typing import Final, NamedTuple

from wsrm_mq.store.port import Database

SLACK: Final = 1024 * 1024


class Space(NamedTuple):
    """Bytes of a store's file."""

    size: int
    reclaimable: int
    """Free pages: used for what comes next, or given back by ``vacuum``."""

    @property
    def used(self) -> int:
        return self.size - self.reclaimable

    @property
    def needed(self) -> int:
        """Free space for ``vacuum``: all that is in use is written twice, to a temporary file and to the log."""
        return 2 * self.used + SLACK


def space(db: Database) -> Space:
    """The sizes of a store's file, in bytes: all of it, and what of it is free."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    (page_size,) = db.execute("PRAGMA page_size").fetchone()
    return Space(pages * page_size, free * page_size)
