"""Refusals as operators read them: the store's counters, and what its processes have not written there yet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sqlalchemy import select

from wsrm_mq.store import published as views
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.port import Database
from wsrm_mq.store.refusals import ACK_NOT_SENT, Refusal, in_files

__all__ = ["ACK_NOT_SENT", "NO_SEQUENCE", "REFUSED", "Refusal", "in_files", "key_of", "option_named", "refusals"]

NO_SEQUENCE: Final = "CreateSequenceRefused"
"""The reason of a refusal that keeps a partner from beginning."""
REFUSED: Final = "refused_before_storing"
"""The event of what left no row, only a count."""
_OPTION: Final = re.compile(r"\b(decoupled|max_\w+|window|application|require_rm)\b")

_STORED: Final = compiled(select(*(views.refusals.c[name] for name in Refusal._fields)))


def key_of(refusal: Refusal) -> str:
    """The key that ``failure show`` takes: ``CreateSequenceRefused@acme``."""
    return "@".join(filter(None, (refusal.reason, refusal.partner)))


def option_named(said: str) -> str | None:
    """The option that the sentence of a refusal names: another value would allow what was refused."""
    found = _OPTION.search(said)
    return found[1] if found is not None else None


def refusals(db: Database | None, store: Path) -> list[Refusal]:
    """The refusals by reason and partner, the newest first. ``db``: ``None`` where the store cannot be read; then what
    its processes have not written is all there is."""
    found: dict[tuple[str, str], Refusal] = {}
    stored = [] if db is None else db.execute(_STORED).fetchall()
    for row in [*map(Refusal._make, stored), *in_files(store)]:
        known = found.get(row[:2])
        found[row[:2]] = row if known is None else row.after(known)
    return sorted(found.values(), key=lambda row: row.last_at, reverse=True)
