"""Statements on sequences and the ranges of what they received. Parameters are named."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, delete, func, insert, or_, select

from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.running import delivery_is
from wsrm_mq.store.tables import channel, outgoing, plan, queue, range_, sequence

p = bindparam

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
HELD_IN_ALL: Final = compiled(
    select(func.coalesce(func.sum(sequence.c.held), 0), func.coalesce(func.sum(sequence.c.held_bytes), 0)).where(
        sequence.c.held > 0
    )
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
_RUNNABLE: Final = (
    select(sequence.c.id)
    .where(delivery_is(DeliveryState.READY, now=p("now")), _OURS, sequence.c.id + 0 > p("after"))
    .limit(p("count"))  # the sum keeps the search in the partial index
)
RUNNABLE: Final = compiled(_RUNNABLE)
_SENDS: Final = select(queue.c.id).where(queue.c.kind == "outgoing")
RUNNABLE_SENDS: Final = compiled(_RUNNABLE.where(sequence.c.queue.in_(_SENDS)))
"""What is sent again by an operator too, which has a sequence of replays."""
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
RANGES: Final = compiled(
    select(range_.c.lower, range_.c.upper).where(range_.c.sequence == p("sequence")).order_by(range_.c.lower)
)
DROP_RANGES: Final = compiled(delete(range_).where(range_.c.sequence == p("sequence")))
DROP_RANGE: Final = compiled(delete(range_).where(range_.c.sequence == p("sequence"), range_.c.lower == p("key")))
