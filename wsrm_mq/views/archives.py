"""The archives that were confirmed to hold what a store has."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import select

from wsrm_mq.errors import NotFound
from wsrm_mq.store import published as views
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.port import Database


class ArchiveView(NamedTuple):
    """A row of the view ``archives``; times in ms since the epoch."""

    archive: str
    place: str
    number: int
    read_at: int
    confirmed_at: int
    actor: str
    ledger: int
    positions: int
    sequences: int


_ARCHIVES: Final = compiled(
    select(*(views.archives.c[name] for name in ArchiveView._fields)).order_by(views.archives.c.confirmed_at)
)


def archives(db: Database) -> list[ArchiveView]:
    """The one that was confirmed last comes last."""
    return [ArchiveView._make(row) for row in db.execute(_ARCHIVES)]


def find_archive(db: Database, beginning: str) -> ArchiveView:
    """The one whose id has this ``beginning``. Raises ``NotFound`` where there is none, or more than one."""
    found = [one for one in archives(db) if one.archive.startswith(beginning)]
    if len(found) != 1:
        what = "more than one archive begins with" if found else "no archive was confirmed that begins with"
        raise NotFound(f"{what} {beginning!r}; `wsrm-mq archive list` shows them.")
    return found[0]
