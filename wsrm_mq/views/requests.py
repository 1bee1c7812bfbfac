"""The newest requests, as far as they are stored: what an examination of proxies and of the clock looks at."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, func, not_, or_, select

from wsrm_mq.store import published as views
from wsrm_mq.store.applications import FETCHED, SENT
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.port import Database


class StoredRequest(NamedTuple):
    """What the store keeps of the HTTP request that brought a message."""

    position: int
    received_at: int
    """ms since the epoch."""
    environ: dict[str, Any]
    """The part that is stored, in the words of WSGI."""


_m: Final = views.messages.c
_NEWEST: Final = compiled(
    select(_m.position, _m.received_at, _m.request)
    .where(_m.replay_of.is_(None), not_(or_(_m.queue.startswith(SENT), _m.queue.startswith(FETCHED))))
    .order_by(_m.position.desc())
    .limit(bindparam("count"))
)
_LAST_EVENT: Final = compiled(select(func.max(views.ledger_events.c.key)))
_TOLD_AT: Final = compiled(select(views.ledger_events.c.at).where(views.ledger_events.c.key == bindparam("key")))


_OVERDUE: Final = compiled(
    select(func.count(), func.min(views.sequences.c.due_at)).where(views.sequences.c.due_at < bindparam("before"))
)


def overdue(db: Database, before: int) -> tuple[int, int | None]:
    """How many sequences have not ended that were to before that, and when the first was; ms since the epoch."""
    count, first = db.execute(_OVERDUE, {"before": before}).fetchone()
    return count, first


def newest_requests(db: Database, count: int) -> list[StoredRequest]:
    """The newest first."""
    rows = db.execute(_NEWEST, {"count": count})
    return [StoredRequest(position, at, json.loads(request)) for position, at, request in rows]


def last_told(db: Database) -> int | None:
    """When the last event of the ledger was written."""
    (key,) = db.execute(_LAST_EVENT).fetchone()
    row = db.execute(_TOLD_AT, {"key": key}).fetchone()
    return row[0] if row is not None else None
