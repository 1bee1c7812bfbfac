"""Statements on lanes, the numbers that they have and lack, and the sequences that rule them. Parameters are named."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Select, and_, case, delete, exists, func, or_, select

from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.store.applications import IS_OURS
from wsrm_mq.store.outbound import OUTBOUND_COLUMNS
from wsrm_mq.store.running import delivery_is
from wsrm_mq.store.sql import adding, compiled, given, of, p
from wsrm_mq.store.tables import channel, entry, lane, ledger, message, outbound_sequence, plan, queue, range_, sequence
from wsrm_mq.versions import UNSEQUENCED

STEADY_COLUMNS: Final = ("active_at", "cursor", "limit", "fence", "running_since")
"""Columns that every message changes. No index has one of them: SQLite writes the entries of each index that has a
column of an UPDATE, changed or not."""
PROGRESS_COLUMNS: Final = (*STEADY_COLUMNS, "owner", "held", "held_bytes")
"""Columns that change, beside those, when a lane begins or ceases to run, or holds messages; see ``Lane.saved``."""
SAVED_COLUMNS: Final = (
    *PROGRESS_COLUMNS,
    *("ended", "ended_at", "due_at", "discard_from", "discard_reason", "discarding"),
    *("retry_from", "retry_at", "blocked", "redelivery_below", "on_hold_since"),
)
LEASED: Final = ("leased_below", "leased_until", "lessee")
"""Columns that only a lane has that is leased; see ``queue.leasing``."""
PROTOCOL_COLUMNS: Final = ("state", "last_number", "duplicates", "late", "ack_due_at", "ack_waits")
"""Columns of ``sequence`` that the protocol changes."""
ADD_LANE: Final = compiled(adding(lane, "id", "pruned", *LEASED).returning(lane.c.id))
ADD_SEQUENCE: Final = compiled(adding(sequence))
_LANE: Final = (
    select(lane, *(column.label(f"sequence_{column.name}") for column in sequence.columns), *OUTBOUND_COLUMNS)
    .outerjoin(sequence, sequence.c.lane == lane.c.id)
    .outerjoin(outbound_sequence, outbound_sequence.c.answers == lane.c.id)
)
LANE_COLUMNS: Final = tuple(_LANE.selected_columns.keys())
LANE_BY_IDENTIFIER: Final = compiled(_LANE.where(given(lane, "identifier")))
LANE_BY_ID: Final = compiled(_LANE.where(lane.c.id == p("key")))
SEQUENCE_BY_CREATE_ID: Final = compiled(
    select(lane.c.id)
    .join(sequence, sequence.c.lane == lane.c.id)
    .where(given(sequence, "create_id"), given(lane, "queue"))
    .order_by(sequence.c.lane.desc())
    .limit(1)
)
OPEN_OF_CONNECTION: Final = compiled(
    select(lane.c.id).where(given(lane, "connection, queue"), lane.c.ended_at.is_(None))
)
OPEN_OF_CONNECTIONS: Final = compiled(select(lane.c.id).where(given(lane, "connection"), lane.c.ended_at.is_(None)))


def _open_of(*who: ColumnElement[bool]) -> Select[tuple[int]]:
    is_open = select(sequence.c.lane).where(sequence.c.lane == lane.c.id, sequence.c.state == "created").exists()
    return select(lane.c.id).where(and_(lane.c.ended_at.is_(None), lane.c.kind == "rm", is_open, *who))


def _more_than_most(of_peer: Select[tuple[int]]) -> str:
    return compiled(of_peer.limit(1).offset(p("most")))


def _unused(of_peer: Select[tuple[int]]) -> str:
    is_used = select(range_.c.lane).where(range_.c.lane == lane.c.id).exists()
    unused = of_peer.where(lane.c.active_at <= p("before"), ~is_used)
    return compiled(unused.where(lane.c.id - p("after") > 0).with_only_columns(func.min(lane.c.id)))


_OF_PRINCIPAL: Final = _open_of(lane.c.principal == p("who"))
_OF_ADDRESS: Final = _open_of(lane.c.principal.is_(None), lane.c.peer.is_not_distinct_from(p("who")))
OPEN_OF_PRINCIPAL: Final = _more_than_most(_OF_PRINCIPAL)
OPEN_OF_ADDRESS: Final = _more_than_most(_OF_ADDRESS)
"""A row if a peer has more than ``:most`` open sequences."""
UNUSED_OF_PRINCIPAL: Final = _unused(_OF_PRINCIPAL)
UNUSED_OF_ADDRESS: Final = _unused(_OF_ADDRESS)
"""The oldest sequence behind ``:after`` that is open, received nothing and had no traffic since ``:before``; null."""
HELD_IN_ALL: Final = compiled(
    select(func.coalesce(func.sum(lane.c.held), 0), func.coalesce(func.sum(lane.c.held_bytes), 0)).where(
        lane.c.held > 0
    )
)
STOPS: Final = compiled(select(lane.c.on_hold_since, lane.c.discard_from).where(lane.c.id == p("key")))
_IS_RUN: Final = lane.c.leased_until.is_(None)
"""Its owner runs it; else a consumer has leased it."""
CLAIMS_OF: Final = compiled(
    select(lane.c.id, lane.c.fence, lane.c.kind == "outgoing").where(given(lane, "owner"), _IS_RUN)
)
OWNED: Final = compiled(select(lane.c.id).where(lane.c.owner.is_not(None), _IS_RUN))
_OURS: Final = and_(lane.c.served_at.is_(None), IS_OURS)
_DELIVERABLE: Final = (
    select(lane.c.id)
    .where(delivery_is(DeliveryState.READY, now=p("now")), lane.c.id + 0 > p("after"))
    .limit(p("count"))  # the sum keeps the search in the partial index
)
_RUNNABLE: Final = _DELIVERABLE.where(_OURS)
RUNNABLE: Final = compiled(_RUNNABLE)
_NEXT: Final = (
    select(entry.c.wants_reply)
    .where(entry.c.outcome.is_(None), entry.c.number >= lane.c.cursor, entry.c.lane == lane.c.id)
    .order_by(entry.c.number)
    .limit(1)
    .correlate(lane)
    .scalar_subquery()
)
RUNNABLE_CALLS: Final = compiled(_DELIVERABLE.where(lane.c.served_at.is_not(None), IS_OURS, _NEXT == 1))
"""Lanes that consumers lease, but whose next message an application is called with: its sender waits for the answer."""
CALLS_NEXT: Final = compiled(select(_NEXT).where(lane.c.id == p("key")))
"""Whether that is the next message of a lane, as far as its cursor is written."""
_SENDS: Final = select(queue.c.id).where(queue.c.kind == "outgoing")
RUNNABLE_SENDS: Final = compiled(_RUNNABLE.where(lane.c.queue.in_(_SENDS)))
"""Lanes to run that send, those of replays included."""
NEXT_RETRY: Final = compiled(
    select(func.min(lane.c.retry_at)).where(
        delivery_is(DeliveryState.RETRYING, DeliveryState.READY, now=p("now")), _OURS, lane.c.retry_at.is_not(None)
    )
)
DISCARDING: Final = compiled(
    select(lane.c.id)
    .where(
        *(lane.c.discarding == 1, lane.c.on_hold_since.is_(None)),
        or_(lane.c.owner.is_(None), lane.c.cursor < lane.c.discard_from, lane.c.cursor >= lane.c.limit),
    )
    .limit(p("count"))
)
"""See ``Lane.keeps_tail``."""
DUE: Final = compiled(select(lane.c.id).where(lane.c.due_at <= p("now")).limit(p("count")))
DROP_LANE: Final = compiled(delete(lane).where(lane.c.id == p("key")))
DROP_SEQUENCE: Final = compiled(delete(sequence).where(sequence.c.lane == p("key")))
_SOURCE: Final = func.coalesce(lane.c.replay_of, lane.c.id)
"""A replay is told in the words of the sequence that is replayed."""
RUN_BOUNDS: Final = compiled(  # in a lane that consumers lease, one message: what follows may be for them
    select(
        lane.c.cursor,
        case((lane.c.served_at.is_(None), lane.c.limit), else_=func.least(lane.c.limit, lane.c.cursor + 1)),
        *of(lane, "discard_from, redelivery_below, identifier, partner, ordered, assurance"),
        func.coalesce(sequence.c.rm, UNSEQUENCED.label),
        *of(lane, "soap, addressing, kind"),
        func.coalesce(case((plan.c.as_new == 1, plan.c.id)), ""),
        *of(channel, "answers, outbound, address, parameters, is_numbered"),
    )
    .join_from(lane, plan, plan.c.id == lane.c.plan, isouter=True)
    .outerjoin(channel, channel.c.lane == _SOURCE)
    .outerjoin(sequence, sequence.c.lane == func.coalesce(channel.c.answers, _SOURCE))
    .where(lane.c.id == p("key"))
)
RANGES: Final = compiled(select(*of(range_, "lower, upper")).where(given(range_, "lane")).order_by(range_.c.lower))
DROP_RANGES: Final = compiled(delete(range_).where(given(range_, "lane")))
DROP_RANGE: Final = compiled(delete(range_).where(given(range_, "lane"), range_.c.lower == p("key")))
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
_is_told: Final = exists().where(
    ledger.c.sequence == lane.c.id,
    ledger.c.event == GAP_OPEN,
    or_(ledger.c.number == _first_missing, ledger.c.at > p("before")),
)
"""The ledger tells of this gap, or it told of the sequence a short time ago: a source that fills a large gap slowly is
told of now and then."""
OLD_GAPS: Final = compiled(
    select(lane.c.id)
    .join(sequence, sequence.c.lane == lane.c.id)
    .where(
        *(lane.c.held > 0, lane.c.ended_at.is_(None), sequence.c.state == "created", IS_OURS),
        *(_held_since <= p("before"), ~_is_told),
    )
    .limit(p("count"))
)
"""The keys of open sequences that hold messages behind a gap since ``before`` a time, and of which the ledger does not
tell."""
