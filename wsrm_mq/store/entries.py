"""Statements on entries, their messages and replies, with named parameters; and the reading of a large body."""

from __future__ import annotations

from typing import Any, BinaryIO, Final

from sqlalchemy import and_, case, func, not_, or_, select, update

from wsrm_mq.errors import NotFound
from wsrm_mq.store.late_index import BY_LANE
from wsrm_mq.store.port import Connection
from wsrm_mq.store.running import is_paused
from wsrm_mq.store.sql import adding, changed, changing, compiled, given, of, p
from wsrm_mq.store.tables import connection_message, entry, lane, lane_entry, loose, message, reply, watermark

IS_LIVE: Final = entry.c.outcome.is_(None)
_KEY: Final = entry.c.id == p("key")
_FROM_LOWER: Final = and_(given(entry, "lane"), entry.c.number >= p("lower"), IS_LIVE)
IN_RANGE: Final = and_(_FROM_LOWER, entry.c.number < p("upper"))
ONE_DEATH_MORE: Final = {
    "deaths": entry.c.deaths + 1,
    "failures": entry.c.failures + case((entry.c.deaths >= 2, 1), else_=0),
}
"""Two deaths in a row are forgiven; each after these is a failure too."""


def changed_if_live(**values: Any) -> str:
    """The statement that gives the entry with ``:key`` these values, unless it is settled."""
    return compiled(changing(entry, **values).where(IS_LIVE))


INLINE_BODY: Final = 65_536
"""Bodies up to this many bytes are read with their row; larger ones are streamed."""
LOOSE_NUMBER: Final = 1
"""The number that a service is told of an entry that is in no lane."""

# The index ``lane_entry`` has the entries of a lane, live or settled, up to the watermark. Behind it only ``entry``
# has them: a search for a settled one asks both. See ``late_index``.
_IS_NUMBER: Final = and_(given(entry, "lane, number"))
_INDEXED: Final = select(lane_entry.c.entry).where(given(lane_entry, "lane, number"))
ENTRIES_UP_TO: Final = select(watermark.c.upto).where(watermark.c.name == "lane_entry")
ENTRY_BY_NUMBER: Final = compiled(
    select(*of(entry, "id, outcome, wants_reply, named, settled_at")).where(
        entry.c.id
        == func.coalesce(
            select(entry.c.id).where(_IS_NUMBER, IS_LIVE).correlate(None).scalar_subquery(),
            _INDEXED.scalar_subquery(),
            select(entry.c.id)
            .where(entry.c.id > ENTRIES_UP_TO.scalar_subquery(), _IS_NUMBER)
            .order_by(entry.c.id.desc())  # what is sent again was mostly sent a moment ago
            .limit(1)
            .correlate(None)
            .scalar_subquery(),
        )
    )
)
SET_WAITER: Final = changed_if_live(waiter=p("waiter"))
TO_RUN: Final = select(
    *of(entry, "id, number, deliveries, failures, wants_reply, late, waiter"),
    *of(message, "id, action, message_id, environ, principal, connection, body_size"),
    case((message.c.body_size <= INLINE_BODY, message.c.body)),
    message.c.received_at,
).join(message, message.c.id == entry.c.message)
_RUN: Final = (
    TO_RUN.where(
        IN_RANGE,
        # In order, the head's wait is the lane's: passing it over would deliver what follows it.
        or_(p("ordered") == 1, not_(is_paused(entry.c.retry_from, entry.c.retry_at, p("now")))),
    )
    .order_by(entry.c.number)
    .limit(p("count"))
)
RUN: Final = compiled(_RUN)
# A message has the position of the entry that it came with: what replays it is delivered under that one's key.
_arrived: Final = entry.alias("arrived")
_source: Final = lane.alias("source")
RUN_REPLAYS: Final = compiled(
    _RUN.add_columns(
        func.coalesce(_source.c.identifier, loose.c.identifier), func.coalesce(_arrived.c.number, LOOSE_NUMBER)
    )
    .join(_arrived, _arrived.c.id == entry.c.message)
    .outerjoin(_source, _source.c.id == _arrived.c.lane)
    .outerjoin(loose, loose.c.entry == _arrived.c.id)
)
# The index ``connection_message`` has the messages of a connection up to the watermark. Behind it only ``message`` has
# them: every question has both parts. See ``late_index``.
_WATERMARK: Final = select(watermark.c.upto).where(watermark.c.name == "connection_message")
_LAST_INDEXED: Final = select(func.max(connection_message.c.message)).where(given(connection_message, "connection"))
_LAST_BEHIND: Final = (
    select(func.max(message.c.id))
    .where(message.c.id > watermark.c.upto, given(message, "connection"))
    .correlate(watermark)
)
LAST_OF_CONNECTION: Final = compiled(
    _WATERMARK.with_only_columns(func.coalesce(_LAST_BEHIND.scalar_subquery(), _LAST_INDEXED.scalar_subquery(), 0))
)
UNSETTLED_INDEXED: Final = compiled(
    select(connection_message.c.message)
    .join(entry, entry.c.id == connection_message.c.message)
    .where(given(connection_message, "connection"), connection_message.c.message > p("after"), IS_LIVE)
    .order_by(connection_message.c.message)
    .limit(p("count"))
)
UNSETTLED_BEHIND: Final = compiled(
    select(message.c.id)
    .join(entry, entry.c.id == message.c.id)
    .where(
        message.c.id > func.greatest(p("after"), _WATERMARK.scalar_subquery()), given(message, "connection"), IS_LIVE
    )
    .order_by(message.c.id)
    .limit(p("count"))
)
_SETTLED: Final = {"reason": p("reason"), "settled_at": p("now"), "named": 1, "owner": None, "retry_at": None}
SETTLE: Final = compiled(
    changing(entry, outcome=p("outcome"), **_SETTLED, deliveries=entry.c.deliveries + p("delivered"))
    .where(IS_LIVE)
    .returning(entry.c.waiter)
)
FAIL: Final = changed_if_live(
    failures=entry.c.failures + 1,
    deliveries=entry.c.deliveries + p("delivered"),
    deaths=0,
    last_error=p("error"),
    retry_at=p("retry_at"),
)
SAY_WHY: Final = changed_if_live(last_error=p("error"))
"""Write down why an entry waits that has not failed."""
COUNT_DEATH: Final = changed_if_live(deliveries=entry.c.deliveries + 1, **ONE_DEATH_MORE, last_error=p("error"))
ENTRY_COUNTERS: Final = compiled(select(*of(entry, "failures, deaths, number")).where(_KEY))
BURY: Final = changed_if_live(queue=p("dead_letters"), origin=p("origin"), outcome="dead", **_SETTLED)
DOOMED: Final = compiled(
    select(entry.c.id, entry.c.number).where(_FROM_LOWER).order_by(entry.c.number).limit(p("count"))
)
NEXT_LIVE: Final = compiled(select(func.min(entry.c.number)).where(IN_RANGE))
NTH_LIVE: Final = compiled(select(entry.c.number).where(IN_RANGE).order_by(entry.c.number).limit(1).offset(p("skip")))
RETRIES: Final = compiled(select(func.min(entry.c.retry_at), func.count()).where(IN_RANGE, entry.c.retry_at > p("now")))
FREE_RETRY: Final = changed_if_live(retry_at=None, deaths=0)
BEGIN_LADDER: Final = changed_if_live(retry_at=None, deaths=0, failures=0)
TRY_NOW: Final = compiled(
    update(entry).where(IN_RANGE, entry.c.retry_at.is_not(None)).values(retry_at=None, deaths=0, failures=0)
)
"""The same for those in a range that wait for their next try."""
RETRY_LATER: Final = changed(entry, retry_from=p("now"), retry_at=p("retry_at"))
REMARK: Final = changed(entry, reason=p("reason"))
MARK_LATE: Final = changed(entry, late=1)
COUNT_UNSETTLED: Final = compiled(select(func.count()).where(_FROM_LOWER))
COUNT_BETWEEN: Final = compiled(select(func.count()).where(IN_RANGE))
UNNAMED: Final = compiled(
    select(entry.c.number).where(given(entry, "lane"), entry.c.named == 0).order_by(entry.c.number)
)
HELD_BYTES: Final = compiled(
    select(func.coalesce(func.sum(message.c.body_size), 0))
    .select_from(entry)
    .join(message, message.c.id == entry.c.message)
    .where(given(entry, "lane"), entry.c.number >= p("limit"), IS_LIVE)
)
LEAVES: Final = compiled(
    select(message.c.id, message.c.body_size, entry.c.asks)
    .join(entry, entry.c.message == message.c.id)
    .where(_KEY, entry.c.priority.is_not(None))
)
"""The columns that are counted and told when an entry that is consumed leaves its queue, or comes back."""
_BODY_OF: Final = (
    "SELECT message.id, body IS NOT NULL FROM entry JOIN message ON message.id = message WHERE entry.id = :key"
)


def body_at(db: Connection, position: int) -> BinaryIO:
    """The envelope of the message at ``position``, as received. While it is open it holds up checkpoints. Raises
    ``NotFound``."""
    found = db.execute(_BODY_OF, {"key": position}).fetchone()
    if found is None:
        raise NotFound(f"There is no message at position {position}.")
    message, has_body = found
    if not has_body:
        raise NotFound(f"The body of the message at position {position} was freed by retention.")
    return db.open_body(int(message))


CANCEL: Final = changed(entry, cancels=entry.c.cancels + 1)
IS_LIVE_AT: Final = compiled(select(entry.c.id).where(_KEY, IS_LIVE))


ADD_REPLY: Final = compiled(adding(reply))
HAS_REPLY: Final = compiled(select(reply.c.entry).where(given(reply, "entry")))
OUTCOME_AND_REPLY: Final = compiled(
    select(*of(entry, "outcome, lane, number"), *of(reply, "status, headers, body, number, outgoing_entry"))
    .join(reply, reply.c.entry == entry.c.id, isouter=True)
    .where(entry.c.id == p("key"))
)

_NUMBERS: Final = func.pairs_in(p("numbers")).table_valued("lower", "upper")
ANSWERED_WITH: Final = compiled(
    select(entry.c.number)
    .select_from(_NUMBERS)
    .join(reply, reply.c.number.between(_NUMBERS.c.lower, _NUMBERS.c.upper))
    .join(entry, entry.c.id == reply.c.entry)
    .where(given(reply, "outbound"), reply.c.outgoing_entry.is_(None))
)
"""The numbers of the requests whose replies have left on a response, with ``:numbers`` of ``:outbound``: a JSON
list of [lower, upper]."""
RUN_IS_AT: Final = f"""
WITH settled(number) AS (
    SELECT e.number FROM lane_entry i JOIN entry e ON e.id = i.entry
    WHERE i.lane = :lane AND e.outcome = 'delivered' AND e.settled_at >= :since
    UNION ALL
    SELECT number FROM entry
    WHERE id > {BY_LANE.upto} AND lane = :lane AND outcome = 'delivered' AND settled_at >= :since
)
SELECT coalesce(
    (SELECT e.number FROM entry e JOIN message m ON m.id = e.message
     WHERE e.lane = :lane AND e.outcome IS NULL AND m.received_at <= :since
         AND e.number > (SELECT coalesce(max(number), 0) FROM settled) AND e.number < :limit ORDER BY e.number LIMIT 1),
    (SELECT e.number FROM entry e JOIN message m ON m.id = e.message
     WHERE e.lane = :lane AND e.outcome IS NULL AND m.received_at <= :since
         AND e.number > 0 AND e.number < :limit ORDER BY e.number LIMIT 1))
"""
"""The number that a run is at which has settled nothing after ``:since``, where numbers come late: upwards from what it
has settled last, then from the lowest, of what was there by then. A run comes back to late ones when it is through."""
