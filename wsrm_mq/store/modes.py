"""Statements on what waits for an application and is to be consumed, or the other way. Parameters are named;
``:consumed`` is which of both it is now."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, and_, case, func, or_, select, update

from wsrm_mq.store.sql import changed, changing, compiled, given, listed, p
from wsrm_mq.store.tables import entry, lane, loose, message, queue

ENDPOINTS: Final = compiled(select(queue.c.id, queue.c.mode).where(queue.c.mode.is_not(None)))
"""Endpoints' queues that are consumed, or were."""


def _is_now(marks_consumed: ColumnElement[Any]) -> ColumnElement[bool]:
    return case((marks_consumed.is_(None), 0), else_=1) == p("consumed")


_GOES_ON: Final = or_(lane.c.ended_at.is_(None), lane.c.cursor < lane.c.limit, lane.c.held > 0)
_OF_ENDPOINT: Final = and_(lane.c.kind != "group", lane.c.kind != "outgoing", lane.c.plan.is_(None), _GOES_ON)
LANES_BY_PARTNER: Final = compiled(
    select(lane.c.queue, lane.c.partner, lane.c.served_at.is_not(None)).where(_OF_ENDPOINT).distinct()
)
"""Queue and partner of lanes that go on, and whether they are consumed."""
LANES_OF: Final = compiled(
    select(lane.c.id).where(
        *(_OF_ENDPOINT, given(lane, "queue"), lane.c.partner.is_not_distinct_from(p("partner"))),
        _is_now(lane.c.served_at),
    )
)
SERVE: Final = changed(lane, served_at=p("served_at"))
_IS_ONE_WAY: Final = and_(entry.c.outcome.is_(None), entry.c.wants_reply == 0)
_GOES: Final[dict[str, Any]] = {
    "priority": p("priority"),
    **dict.fromkeys(("expires_at", "hold", "retry_from", "retry_at")),
}
"""The changes of an entry that goes to the other mode: it had its deadline from the queue, and waited for others."""
MOVE_ENTRIES: Final = compiled(
    update(entry).where(given(entry, "lane"), entry.c.number >= 1, _IS_ONE_WAY).values(_GOES)
)
_LOOSE: Final = select(entry.c.queue).join(loose, loose.c.entry == entry.c.id).where(entry.c.outcome.is_(None))
LOOSE_BY_PARTNER: Final = compiled(
    _LOOSE.with_only_columns(
        entry.c.queue, loose.c.partner, entry.c.priority.is_not(None), maintain_column_froms=True
    ).distinct()
)
LOOSE_OF: Final = compiled(
    _LOOSE.with_only_columns(entry.c.id, entry.c.owner, maintain_column_froms=True).where(
        *(given(entry, "queue"), loose.c.partner.is_not_distinct_from(p("partner"))),
        *(entry.c.wants_reply == 0, _is_now(entry.c.priority)),
    )
)
MOVE_LOOSE: Final = compiled(update(entry).where(entry.c.id.in_(listed("keys"))).values(_GOES))


def _over_consumed(of: ColumnElement[int]) -> ColumnElement[int]:
    return (
        select(of)
        .select_from(entry.join(message, message.c.id == entry.c.message))
        .where(entry.c.queue == queue.c.id, entry.c.priority.is_not(None), entry.c.outcome.is_(None))
        .correlate(queue)
        .scalar_subquery()
    )


_SIZE: Final = func.coalesce(func.sum(message.c.body_size), 0)
RECOUNT: Final = compiled(
    changing(queue, messages=_over_consumed(func.count()), bytes=_over_consumed(_SIZE)).returning(queue.c.messages)
)
"""Count what is consumed in a queue; answers how many messages that are."""
