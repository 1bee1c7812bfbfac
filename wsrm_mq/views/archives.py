"""The archives that were confirmed to hold what a store has."""

from __future__ import annotations

import os
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


def find_archive(db: Database, named: str) -> ArchiveView:
    """The one whose id begins with what is ``named``, or that was confirmed at that path. Raises ``NotFound`` where
    there is none, or more than one."""
    path = os.path.abspath(named)
    found = [one for one in archives(db) if one.archive.startswith(named) or one.place == path]
    if len(found) != 1:
        what = "more than one archive" if found else "no archive was confirmed that"
        raise NotFound(f"{what} begins with or is at {named!r}; `wsrm-mq archive list` shows them.")
    return found[0]
