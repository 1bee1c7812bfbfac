"""What operators did: the rows of the ledger that name one. Times are ms since the epoch."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, select

from wsrm_mq.store import published as views
from wsrm_mq.store.compiling import bound
from wsrm_mq.store.port import Database
from wsrm_mq.views.filters import conditions
from wsrm_mq.views.query import Query
from wsrm_mq.views.reading import LAST, having_verdict, resolved


class Act(NamedTuple):
    key: int
    """Grows with each row of the ledger."""
    at: int
    actor: str
    event: str
    """What was done, a word of the ledger."""
    queue: str | None
    sequence: str | None
    number: int | None
    position: int | None
    reason: str | None


_event: Final = views.ledger_events.c
_ACTS: Final = select(*(_event[name] for name in Act._fields)).where(_event.actor.is_not(None))


def acts(db: Database, query: Query, *, before: int | None = None, limit: int = 50) -> list[Act]:
    """The last ``limit`` acts that fit, of those with a key below ``before``; the newest is the last."""
    named = having_verdict(db, query)
    wanted = conditions(resolved(db, query, views.ledger_events), views.ledger_events)
    if named is not None:
        wanted += (_event.sequence.in_(named),)
    listed = _ACTS.where(_event.key < bindparam("before"), *wanted).order_by(_event.key.desc()).limit(limit)
    text, values = bound(listed)
    rows = db.execute(text, {**values, "before": LAST if before is None else before}).fetchall()
    return [Act._make(row) for row in reversed(rows)]
