"""The contents of a store: how much it has of what, and the archives that were confirmed to hold it."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from sqlalchemy import func, select

from wsrm_mq.errors import NotFound
from wsrm_mq.store import published as views
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.port import Database
from wsrm_mq.views.rows import LIVE


class Oldest(NamedTuple):
    """A message without an outcome."""

    position: int
    received_at: int


class Contents(NamedTuple):
    queues: int
    sequences: dict[str, int]
    """The number of sequences by protocol state."""
    messages: dict[str, int]
    """The number of messages by outcome; ``LIVE``: without one."""
    pruned: int
    """Messages that were deleted, of the sequences that are there."""
    oldest_undelivered: Oldest | None


_sequence: Final = views.sequences.c
_message: Final = views.messages.c
_QUEUES: Final = compiled(select(func.count()).select_from(views.queues))
_STATES: Final = compiled(select(_sequence.state, func.count()).group_by(_sequence.state).order_by(_sequence.state))
_PRUNED: Final = compiled(select(func.coalesce(func.sum(_sequence.pruned), 0)))
# With a limit, so that the outcomes are read before they are counted: then SQLite reads no page of the messages.
_outcomes: Final = select(func.coalesce(_message.outcome, LIVE).label("outcome")).limit(-1).subquery()
_OUTCOMES: Final = compiled(
    select(_outcomes.c.outcome, func.count()).group_by(_outcomes.c.outcome).order_by(_outcomes.c.outcome)
)
_OLDEST: Final = compiled(
    select(_message.position, _message.received_at)
    .where(_message.outcome.is_(None))
    .order_by(_message.position)
    .limit(1)
)


def contents(db: Database) -> Contents:
    """How much a store has of everything; counted, so a large one takes a moment."""
    oldest = db.execute(_OLDEST).fetchone()
    return Contents(
        queues=db.execute(_QUEUES).fetchone()[0],
        sequences=dict(db.execute(_STATES).fetchall()),
        messages=dict(db.execute(_OUTCOMES).fetchall()),
        pruned=db.execute(_PRUNED).fetchone()[0],
        oldest_undelivered=Oldest(*oldest) if oldest is not None else None,
    )


# The archives that were confirmed to hold what a store has.


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
