"""Sequences that have waited long for a missing message."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, exists, func, or_, select

from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.tables import entry, lane, ledger, message, range_, sequence

GAP_OPEN: Final = "gap_open"
"""The event in the ledger that tells of one; its number is that of the first message that is missing."""

_first_range: Final = (
    select(range_.c.upper).where(range_.c.lane == lane.c.id, range_.c.lower == 1).correlate(lane).scalar_subquery()
)
_first_missing: Final = func.greatest(lane.c.limit, func.coalesce(_first_range, 0) + 1)
_held: Final = entry.alias("held")
_held_since: Final = (
    select(message.c.received_at)
    .join(_held, _held.c.message == message.c.id)
    .where(_held.c.lane == lane.c.id, _held.c.number > _first_missing, _held.c.outcome.is_(None))
    .order_by(_held.c.number)
    .limit(1)
    .scalar_subquery()
)
"""When the lowest number behind the gap came."""
_p: Final = bindparam
_is_told: Final = exists().where(
    ledger.c.sequence == lane.c.id,
    ledger.c.event == GAP_OPEN,
    or_(ledger.c.number == _first_missing, ledger.c.at > _p("before")),
)
"""The ledger tells of this gap, or it told of the sequence a short time ago: a source that fills a large gap slowly is
told of now and then."""
_foreign: Final = func.keys_in(_p("foreign")).table_valued("value")
OLD_GAPS: Final = compiled(
    select(lane.c.id)
    .join(sequence, sequence.c.lane == lane.c.id)
    .where(
        lane.c.held > 0,
        lane.c.ended_at.is_(None),
        sequence.c.state == "created",
        lane.c.queue.not_in(select(_foreign.c.value)),
        _held_since <= _p("before"),
        ~_is_told,
    )
    .limit(_p("count"))
)
"""The keys of open sequences that hold messages behind a gap since ``before`` a time, and of which the ledger does not
tell."""
