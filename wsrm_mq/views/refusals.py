"""What was refused, as operators read it: the store's counters, and what its processes have not written there yet."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import select

from wsrm_mq.store import published as views
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.port import Database
from wsrm_mq.store.refusals import ACK_NOT_SENT, Refusal, in_files

__all__ = ["ACK_NOT_SENT", "Refusal", "in_files", "refusals"]

_STORED: Final = compiled(select(*(views.refusals.c[name] for name in Refusal._fields)))


def refusals(db: Database | None, store: Path) -> list[Refusal]:
    """By reason and partner, the newest first. ``db``: ``None`` where the store cannot be read; then what its
    processes have not written is all there is."""
    found: dict[tuple[str, str], Refusal] = {}
    stored = [] if db is None else db.execute(_STORED).fetchall()
    for row in [*map(Refusal._make, stored), *in_files(store)]:
        known = found.get(row[:2])
        if known is not None:
            row = row._replace(times=row.times + known.times, last_at=max(row.last_at, known.last_at))
        found[row[:2]] = row
    return sorted(found.values(), key=lambda row: row.last_at, reverse=True)
