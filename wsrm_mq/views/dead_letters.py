"""Dead letters: what they are, why they are dead, and under which key the service knows them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, select

from wsrm_mq.errors import NotFound
from wsrm_mq.store import published as views
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.port import Database
from wsrm_mq.views import reading
from wsrm_mq.views.query import Query

PIECE: Final = 500
"""Positions in one statement."""


class Letter(NamedTuple):
    """A dead letter. ``sequence`` and ``number`` are those that the message came under; times in ms since the epoch."""

    position: int
    queue: str
    """The queue that it comes from."""
    sequence: str
    number: int
    message_id: str | None
    action: str | None
    reason: str
    """Why it is dead: ``skipped``, ``max_failures``, …"""
    received_at: int
    died_at: int
    confirmed_at: int | None
    deliveries: int
    failures: int
    last_error: str | None
    replay_of: int | None
    """The position that it replayed, where it died again."""
    body_size: int
    has_body: bool


class Original(NamedTuple):
    """The key that a message came under, and its position now."""

    sequence: str
    number: int
    position: int


_NAMES: Final = {
    "queue": "origin",
    "sequence": "original_sequence",
    "number": "original_number",
    "died_at": "settled_at",
}
_message: Final = views.messages.c
_is_listed: Final = _message.position.in_(select(func.json_each(bindparam("positions")).table_valued("value").c.value))
_LETTERS: Final = compiled(
    select(*(_message[_NAMES.get(field, field)] for field in Letter._fields))
    .where(_is_listed, _message.outcome == "dead")
    .order_by(_message.position)
)
_ORIGINALS: Final = compiled(
    select(_message.original_sequence, _message.original_number, _message.position).where(_is_listed)
)


def letters(db: Database, query: Query, *, after: int = 0, limit: int = 50) -> list[Letter]:
    """Dead letters that fit, in the order of their positions."""
    found = reading.messages(db, query.having(outcome="dead"), after=after, limit=limit)
    return _read(db, [one.position for one in found])


def letter(db: Database, position: int) -> Letter:
    """The dead letter at ``position``, or ``NotFound``."""
    found = _read(db, [position])
    if not found:
        raise NotFound(f"There is no dead letter at position {position}: `wsrm-mq message show {position}` says more.")
    return found[0]


def _read(db: Database, positions: Sequence[int]) -> list[Letter]:
    rows = db.execute(_LETTERS, {"positions": json.dumps(positions)}).fetchall()
    return [Letter._make((*row[:-1], bool(row[-1]))) for row in rows]


def originals(db: Database, positions: Sequence[int]) -> Iterator[Original]:
    """The key that each message came under; in no order."""
    for start in range(0, len(positions), PIECE):
        yield from map(
            Original._make, db.execute(_ORIGINALS, {"positions": json.dumps(positions[start : start + PIECE])})
        )
