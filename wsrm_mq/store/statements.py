"""Every hot statement, compiled to text once per process. Parameters are named."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)

from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.running import delivery_is, is_paused
from wsrm_mq.store.tables import (
    channel,
    connection_message,
    entry,
    instance,
    ledger,
    message,
    outgoing,
    plan,
    queue,
    range_,
    sequence,
    sequence_entry,
    watermark,
)

INLINE_BODY: Final = 65_536
"""Bodies up to this many bytes are read with their row; larger ones are streamed."""


def _values(table: Table, *left_out: str) -> dict[str, Any]:
    return {c.name: bindparam(c.name) for c in table.columns if c.name not in left_out}


p = bindparam


# queues and instances

ADD_QUEUE: Final = compiled(insert(queue).values(_values(queue, "id")))
QUEUE: Final = compiled(select(queue.c.name, queue.c.application).where(queue.c.id == p("key")))
PARENT: Final = compiled(select(queue.c.parent).where(queue.c.id == p("key"), queue.c.kind == "outgoing"))
QUEUE_ID: Final = compiled(select(queue.c.id).where(queue.c.name == p("name")))
DEAD_LETTERS: Final = compiled(select(queue.c.id).where(queue.c.kind == "dead_letter", queue.c.parent == p("parent")))
ADD_INSTANCE: Final = compiled(insert(instance).values(_values(instance, "id", "ended_at")))
END_INSTANCE: Final = compiled(
    update(instance).where(instance.c.id == p("key"), instance.c.ended_at.is_(None)).values(ended_at=p("now"))
)
LEAVE: Final = compiled(
    update(instance)
    .where(instance.c.id == p("key"), ~select(sequence.c.id).where(sequence.c.owner == p("key")).exists())
    .values(ended_at=p("now"))
)
ENDED_OWNERS: Final = compiled(
    select(instance.c.id, instance.c.name).where(
        instance.c.id.in_(select(sequence.c.owner).where(sequence.c.owner.is_not(None))),
        instance.c.ended_at.is_not(None),
    )
)
REVIVE_INSTANCE: Final = compiled(
    update(instance).where(instance.c.id == p("key"), instance.c.ended_at.is_not(None)).values(ended_at=None)
)
END_INSTANCES: Final = compiled(update(instance).where(instance.c.ended_at.is_(None)).values(ended_at=p("now")))
INSTANCE: Final = compiled(select(instance.c.name, instance.c.ended_at.is_not(None)).where(instance.c.id == p("key")))
LIVE_INSTANCES: Final = compiled(select(instance.c.id, instance.c.name).where(instance.c.ended_at.is_(None)))

# messages and entries

# Which entries a sequence has, live or settled, is in the index up to the watermark, and behind it only in the entries
# themselves: a look for one that is settled asks both parts. See ``late_index``.
_IS_NUMBER: Final = and_(entry.c.sequence == p("sequence"), entry.c.number == p("number"))
_INDEXED: Final = select(sequence_entry.c.entry).where(
    sequence_entry.c.sequence == p("sequence"), sequence_entry.c.number == p("number")
)
ENTRIES_UP_TO: Final = select(watermark.c.upto).where(watermark.c.name == "sequence_entry")
ENTRY_BY_NUMBER: Final = compiled(
    select(entry.c.id, entry.c.outcome, entry.c.wants_reply, entry.c.named, entry.c.settled_at).where(
        entry.c.id
        == func.coalesce(
            select(entry.c.id).where(_IS_NUMBER, entry.c.outcome.is_(None)).correlate(None).scalar_subquery(),
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
SET_WAITER: Final = compiled(
    update(entry).where(entry.c.id == p("key"), entry.c.outcome.is_(None)).values(waiter=p("waiter"))
)
_RUN: Final = (
    select(
        entry.c.id,
        entry.c.number,
        entry.c.deliveries,
        entry.c.failures,
        entry.c.wants_reply,
        entry.c.late,
        entry.c.waiter,
        message.c.id,
        message.c.action,
        message.c.message_id,
        message.c.environ,
        message.c.principal,
        message.c.connection,
        message.c.body_size,
        case((message.c.body_size <= INLINE_BODY, message.c.body)),
    )
    .join(message, message.c.id == entry.c.message)
    .where(
        entry.c.sequence == p("sequence"),
        entry.c.number >= p("lower"),
        entry.c.number < p("upper"),
        entry.c.outcome.is_(None),
        # In order, the head's wait is the sequence's: passing it over would deliver what follows it.
        or_(p("ordered") == 1, not_(is_paused(entry.c.retry_from, entry.c.retry_at, p("now")))),
    )
    .order_by(entry.c.number)
    .limit(p("count"))
)
RUN: Final = compiled(_RUN)
# A message has the position of the entry that it came with: what replays it is delivered under that one's key.
_arrived: Final = entry.alias("arrived")
_source: Final = sequence.alias("source")
RUN_REPLAYS: Final = compiled(
    _RUN.add_columns(_source.c.identifier, _arrived.c.number)
    .join(_arrived, _arrived.c.id == entry.c.message)
    .join(_source, _source.c.id == _arrived.c.sequence)
)
# What a connection has is in the index up to the watermark, and behind it only in the messages themselves: every
# question has both parts. See ``late_index``.
_WATERMARK: Final = select(watermark.c.upto).where(watermark.c.name == "connection_message")
_LAST_INDEXED: Final = select(func.max(connection_message.c.message)).where(
    connection_message.c.connection == p("connection")
)
_LAST_BEHIND: Final = (
    select(func.max(message.c.id))
    .where(message.c.id > watermark.c.upto, message.c.connection == p("connection"))
    .correlate(watermark)
)
NOT_INDEXED: Final = compiled(
    _WATERMARK.with_only_columns(func.coalesce(select(func.max(message.c.id)).scalar_subquery(), 0) - watermark.c.upto)
)
LAST_OF_CONNECTION: Final = compiled(
    _WATERMARK.with_only_columns(func.coalesce(_LAST_BEHIND.scalar_subquery(), _LAST_INDEXED.scalar_subquery(), 0))
)
UNSETTLED_INDEXED: Final = compiled(
    select(connection_message.c.message)
    .join(entry, entry.c.id == connection_message.c.message)
    .where(
        connection_message.c.connection == p("connection"),
        connection_message.c.message > p("after"),
        entry.c.outcome.is_(None),
    )
    .order_by(connection_message.c.message)
    .limit(p("count"))
)
UNSETTLED_BEHIND: Final = compiled(
    select(message.c.id)
    .join(entry, entry.c.id == message.c.id)
    .where(
        message.c.id > func.max(p("after"), _WATERMARK.scalar_subquery()),
        message.c.connection == p("connection"),
        entry.c.outcome.is_(None),
    )
    .order_by(message.c.id)
    .limit(p("count"))
)
SETTLE: Final = compiled(
    update(entry)
    .where(entry.c.id == p("key"), entry.c.outcome.is_(None))
    .values(
        outcome=p("outcome"),
        reason=p("reason"),
        settled_at=p("now"),
        named=1,
        deliveries=entry.c.deliveries + p("delivered"),
        retry_at=None,
    )
    .returning(entry.c.waiter)
)
FAIL: Final = compiled(
    update(entry)
    .where(entry.c.id == p("key"), entry.c.outcome.is_(None))
    .values(
        failures=entry.c.failures + 1,
        deliveries=entry.c.deliveries + p("delivered"),
        deaths=0,
        last_error=p("error"),
        retry_at=p("retry_at"),
    )
)
COUNT_DEATH: Final = compiled(
    update(entry)
    .where(entry.c.id == p("key"), entry.c.outcome.is_(None))
    .values(
        deliveries=entry.c.deliveries + 1,
        deaths=entry.c.deaths + 1,
        failures=entry.c.failures + case((entry.c.deaths >= 2, 1), else_=0),
        last_error=p("error"),
    )
)
ENTRY_COUNTERS: Final = compiled(select(entry.c.failures, entry.c.deaths, entry.c.number).where(entry.c.id == p("key")))
BURY: Final = compiled(
    update(entry)
    .where(entry.c.id == p("key"), entry.c.outcome.is_(None))
    .values(
        queue=p("dead_letters"),
        origin=p("origin"),
        outcome="dead",
        reason=p("reason"),
        settled_at=p("now"),
        named=1,
        retry_at=None,
    )
)
DOOMED: Final = compiled(
    select(entry.c.id, entry.c.number)
    .where(
        entry.c.sequence == p("sequence"),
        entry.c.number >= p("lower"),
        entry.c.outcome.is_(None),
    )
    .order_by(entry.c.number)
    .limit(p("count"))
)
NEXT_LIVE: Final = compiled(
    select(func.min(entry.c.number)).where(
        entry.c.sequence == p("sequence"),
        entry.c.number >= p("lower"),
        entry.c.number < p("upper"),
        entry.c.outcome.is_(None),
    )
)
NTH_LIVE: Final = compiled(
    select(entry.c.number)
    .where(
        entry.c.sequence == p("sequence"),
        entry.c.number >= p("lower"),
        entry.c.number < p("upper"),
        entry.c.outcome.is_(None),
    )
    .order_by(entry.c.number)
    .limit(1)
    .offset(p("skip"))
)
RETRIES: Final = compiled(
    select(func.min(entry.c.retry_at), func.count()).where(
        entry.c.sequence == p("sequence"),
        entry.c.number >= p("lower"),
        entry.c.number < p("upper"),
        entry.c.outcome.is_(None),
        entry.c.retry_at > p("now"),
    )
)
FREE_RETRY: Final = compiled(
    update(entry).where(entry.c.id == p("key"), entry.c.outcome.is_(None)).values(retry_at=None, deaths=0)
)
BEGIN_LADDER: Final = compiled(
    update(entry).where(entry.c.id == p("key"), entry.c.outcome.is_(None)).values(retry_at=None, deaths=0, failures=0)
)
RETRY_LATER: Final = compiled(
    update(entry).where(entry.c.id == p("key")).values(retry_from=p("now"), retry_at=p("retry_at"))
)
REMARK: Final = compiled(update(entry).where(entry.c.id == p("key")).values(reason=p("reason")))
MARK_LATE: Final = compiled(update(entry).where(entry.c.id == p("key")).values(late=1))
COUNT_UNSETTLED: Final = compiled(
    select(func.count()).where(
        entry.c.sequence == p("sequence"), entry.c.number >= p("lower"), entry.c.outcome.is_(None)
    )
)
UNNAMED: Final = compiled(
    select(entry.c.number).where(entry.c.sequence == p("sequence"), entry.c.named == 0).order_by(entry.c.number)
)

# sequences

TERMS_COLUMNS: Final = (
    "identifier",
    "rm",
    "soap",
    "addressing",
    "behavior",
    "assurance",
    "ordered",
    "incomplete_reason",
    "created_at",
    "expires_at",
    "inactivity",
)
STEADY_COLUMNS: Final = (
    "active_at",
    "expected",
    "cursor",
    "limit",
    "fence",
    "running_since",
)
"""What every message changes. They are columns of no index: SQLite writes the entries of each that has a column of an
UPDATE, changed or not."""
PROGRESS_COLUMNS: Final = (
    *STEADY_COLUMNS,
    "owner",
    "held",
    "held_bytes",
)
"""What else changes where a sequence begins or ceases to run, or holds messages; see ``SequenceRecord.saved``."""
STANDING_COLUMNS: Final = (
    "state",
    "ended",
    "ended_at",
    "due_at",
    "last_number",
    "discard_from",
    "discard_reason",
    "discarding",
    "retry_from",
    "retry_at",
    "blocked",
    "redelivery_below",
    "duplicates",
    "on_hold_since",
    "late",
    "ack_due_at",
    "ack_waits",
)
SAVED_COLUMNS: Final = (*PROGRESS_COLUMNS, *STANDING_COLUMNS)
ADD_SEQUENCE: Final = compiled(
    insert(sequence).values(
        {
            name: p(name)
            for name in (
                *("queue", "create_id", "principal", "peer", "partner"),
                *("kind", "connection", "replay_of", "plan", "acks_to", "acks_fetched_by"),
                *TERMS_COLUMNS,
                *SAVED_COLUMNS,
            )
        }
    )
)
_SEQUENCE: Final = select(
    sequence, *(column.label(f"outgoing_{column.name}") for column in outgoing.columns)
).outerjoin(outgoing, outgoing.c.sequence == sequence.c.id)
SEQUENCE_COLUMNS: Final = tuple(_SEQUENCE.selected_columns.keys())
SEQUENCE_BY_IDENTIFIER: Final = compiled(_SEQUENCE.where(sequence.c.identifier == p("identifier")))
SEQUENCE_BY_ID: Final = compiled(_SEQUENCE.where(sequence.c.id == p("key")))
SEQUENCE_BY_CREATE_ID: Final = compiled(
    select(sequence.c.identifier)
    .where(sequence.c.create_id == p("create_id"), sequence.c.queue == p("queue"))
    .order_by(sequence.c.id.desc())
    .limit(1)
)
OPEN_OF_CONNECTION: Final = compiled(
    select(sequence.c.id).where(
        sequence.c.connection == p("connection"), sequence.c.queue == p("queue"), sequence.c.ended_at.is_(None)
    )
)
OPEN_OF_CONNECTIONS: Final = compiled(
    select(sequence.c.id).where(sequence.c.connection == p("connection"), sequence.c.ended_at.is_(None))
)


def _open_of(*who: ColumnElement[bool]) -> Select[tuple[int]]:
    return select(sequence.c.id).where(and_(sequence.c.state == "created", sequence.c.kind == "rm", *who))


def _more_than_most(of_peer: Select[tuple[int]]) -> str:
    return compiled(of_peer.limit(1).offset(p("most")))


def _unused(of_peer: Select[tuple[int]]) -> str:
    is_used = select(range_.c.sequence).where(range_.c.sequence == sequence.c.id).exists()
    unused = of_peer.where(sequence.c.expected == 1, sequence.c.active_at <= p("before"), ~is_used)
    return compiled(unused.where(sequence.c.id - p("after") > 0).with_only_columns(func.min(sequence.c.id)))


_OF_PRINCIPAL: Final = _open_of(sequence.c.principal == p("who"))
_OF_ADDRESS: Final = _open_of(sequence.c.principal.is_(None), sequence.c.peer.is_not_distinct_from(p("who")))
OPEN_OF_PRINCIPAL: Final = _more_than_most(_OF_PRINCIPAL)
OPEN_OF_ADDRESS: Final = _more_than_most(_OF_ADDRESS)
"""A row if a peer has more than ``:most`` open sequences."""
UNUSED_OF_PRINCIPAL: Final = _unused(_OF_PRINCIPAL)
UNUSED_OF_ADDRESS: Final = _unused(_OF_ADDRESS)
"""The oldest sequence behind ``:after`` that is open, received nothing and had no traffic since ``:before``; null."""
IN_LEDGER: Final = compiled(
    select(ledger.c.id).where(
        ledger.c.sequence == p("sequence"), ledger.c.event == p("event"), ledger.c.reason == p("reason")
    )
)
"""A row for each time that something was written down about a sequence for one reason."""
HELD_IN_ALL: Final = compiled(
    select(func.coalesce(func.sum(sequence.c.held), 0), func.coalesce(func.sum(sequence.c.held_bytes), 0)).where(
        sequence.c.held > 0
    )
)
HELD_BYTES: Final = compiled(
    select(func.coalesce(func.sum(message.c.body_size), 0))
    .select_from(entry)
    .join(message, message.c.id == entry.c.message)
    .where(entry.c.sequence == p("sequence"), entry.c.number >= p("limit"), entry.c.outcome.is_(None))
)
STOPS: Final = compiled(select(sequence.c.on_hold_since, sequence.c.discard_from).where(sequence.c.id == p("key")))
CLAIMS_OF: Final = compiled(
    select(sequence.c.id, sequence.c.fence, sequence.c.kind == "outgoing").where(sequence.c.owner == p("owner"))
)
OWNED: Final = compiled(select(sequence.c.id).where(sequence.c.owner.is_not(None)))
OWNED_BY: Final = compiled(select(sequence.c.id).where(sequence.c.owner == p("owner")))
_FOREIGN: Final = func.json_each(p("foreign")).table_valued("value")
_OURS: Final = sequence.c.queue.not_in(select(_FOREIGN.c.value))
"""``:foreign`` is a JSON list of the keys of queues whose messages are for others; see ``applications``."""
RUNNABLE: Final = compiled(
    select(sequence.c.id)
    .where(delivery_is(DeliveryState.READY, now=p("now")), _OURS, sequence.c.id + 0 > p("after"))
    .limit(p("count"))  # the sum keeps the search in the partial index
)
NEXT_RETRY: Final = compiled(
    select(func.min(sequence.c.retry_at)).where(
        delivery_is(DeliveryState.RETRYING, DeliveryState.READY, now=p("now")), _OURS, sequence.c.retry_at.is_not(None)
    )
)
DISCARDING: Final = compiled(
    select(sequence.c.id)
    .where(
        sequence.c.discarding == 1,
        sequence.c.on_hold_since.is_(None),
        or_(
            sequence.c.owner.is_(None),
            sequence.c.cursor < sequence.c.discard_from,
            sequence.c.cursor >= sequence.c.limit,
        ),
    )
    .limit(p("count"))
)
"""See ``SequenceRecord.keeps_tail``."""
DUE: Final = compiled(select(sequence.c.id).where(sequence.c.due_at <= p("now")).limit(p("count")))
DROP_SEQUENCE: Final = compiled(delete(sequence).where(sequence.c.id == p("key")))
RUN_BOUNDS: Final = compiled(
    select(
        sequence.c.cursor,
        sequence.c.limit,
        sequence.c.discard_from,
        sequence.c.redelivery_below,
        sequence.c.identifier,
        sequence.c.partner,
        sequence.c.ordered,
        sequence.c.assurance,
        sequence.c.rm,
        sequence.c.soap,
        sequence.c.addressing,
        sequence.c.kind,
        func.coalesce(case((plan.c.as_new == 1, plan.c.id)), ""),
        *(channel.c.answers, channel.c.address, channel.c.parameters, channel.c.is_numbered),
    )
    .join_from(sequence, plan, plan.c.id == sequence.c.plan, isouter=True)
    .outerjoin(channel, channel.c.sequence == func.coalesce(sequence.c.replay_of, sequence.c.id))
    .where(sequence.c.id == p("key"))
)

# ranges

RANGES: Final = compiled(
    select(range_.c.lower, range_.c.upper).where(range_.c.sequence == p("sequence")).order_by(range_.c.lower)
)
DROP_RANGES: Final = compiled(delete(range_).where(range_.c.sequence == p("sequence")))
DROP_RANGE: Final = compiled(delete(range_).where(range_.c.sequence == p("sequence"), range_.c.lower == p("key")))

# ledger

ADD_LEDGER: Final = compiled(insert(ledger).values(_values(ledger, "id")))
