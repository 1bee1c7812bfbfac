"""Outgoing messages: the sequences that replies go out in, and what their sources have acknowledged of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from sqlalchemy import Integer, bindparam, func, select

from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.store import published as views
from wsrm_mq.store.applications import SENT
from wsrm_mq.store.port import Database
from wsrm_mq.store.running import delivery_is
from wsrm_mq.store.sql import compiled
from wsrm_mq.store.tables import channel, entry, lane, queue, sequence

UNACKNOWLEDGED_FOR: Final = 300_000
"""A source that goes on for so long, in ms, and acknowledges no reply, needs attention."""
UNSENT_FOR: Final = 60_000
"""A message that no process takes up for so long, in ms, though it is to be sent, needs attention."""
_LISTED: Final = 1_000


class OutgoingView(NamedTuple):
    """Times in ms since the epoch."""

    sequence: str
    answers: str
    """The sequence whose replies go out in it."""
    queue: str
    state: str
    ended: str | None
    expires_at: int | None
    sent: int
    acknowledged: str
    unacknowledged: int
    waiting_since: int | None
    """Since when replies wait for an acknowledgement and none has come."""
    active_at: int
    """Last traffic of the sequence that is answered."""


_c: Final = views.outgoing_sequences.c
_REPLIES: Final = select(*(_c[field] for field in OutgoingView._fields))
_asked: Final = func.json_each(bindparam("answers")).table_valued("value")
_ANSWERING: Final = compiled(_REPLIES.where(_c.answers.in_(select(_asked.c.value))))
"""``:answers`` is a JSON list."""
_UNACKNOWLEDGED: Final = compiled(
    _REPLIES.where(_c.state == "created", _c.active_at - _c.waiting_since >= UNACKNOWLEDGED_FOR)
    .order_by(_c.waiting_since)
    .limit(_LISTED)
)


def outgoing(db: Database, answers: str) -> OutgoingView | None:
    """The sequence that the replies to ``answers`` go out in; ``None`` where its source has offered none."""
    return outgoing_of(db, [answers]).get(answers)


def outgoing_of(db: Database, answers: Iterable[str]) -> dict[str, OutgoingView]:
    """The sequences that the replies to those go out in, by the sequence that is answered; without those whose source
    has offered none."""
    rows = db.execute(_ANSWERING, {"answers": json.dumps(list(answers))}).fetchall()
    return {view.answers: view for view in (OutgoingView(*row) for row in rows)}


def unacknowledged(db: Database) -> list[OutgoingView]:
    """The sequences whose source has gone on for ``UNACKNOWLEDGED_FOR``, and has acknowledged no reply: the longest
    first, as many as are listed."""
    return [OutgoingView(*row) for row in db.execute(_UNACKNOWLEDGED).fetchall()]


class SentView(NamedTuple):
    """The messages that this side sends to one endpoint about a sequence, or keeps there until they are fetched."""

    sequence: str
    to: str
    waiting: int
    """The number of messages that are not settled."""
    dead: int
    """The number of messages that were given up, where no operator has confirmed it."""
    error: str | None
    """Why the first of those that wait has not left, where that was tried."""


_dead_letters = queue.alias()
_SENT: Final = compiled(
    select(
        lane.c.identifier,
        channel.c.address,
        select(func.count())
        .where(entry.c.lane == channel.c.lane, entry.c.outcome.is_(None))
        .correlate(channel)
        .scalar_subquery(),
        select(func.count())
        .select_from(entry)
        .join(_dead_letters, _dead_letters.c.id == entry.c.queue)
        .where(
            _dead_letters.c.parent == lane.c.queue,
            _dead_letters.c.kind == "dead_letter",
            entry.c.outcome == "dead",
            entry.c.confirmed_at.is_(None),
            entry.c.lane == channel.c.lane,
        )
        .correlate(channel, lane)
        .scalar_subquery(),
        select(entry.c.last_error)
        .where(entry.c.lane == channel.c.lane, entry.c.outcome.is_(None), entry.c.last_error.is_not(None))
        .order_by(entry.c.number)
        .limit(1)
        .correlate(channel)
        .scalar_subquery(),
    )
    .join_from(channel, lane, lane.c.id == channel.c.lane)
    .where(channel.c.answers == bindparam("key"))
    .order_by(channel.c.lane)
    .limit(_LISTED)
)


def sent_about(db: Database, key: int) -> list[SentView]:
    """The messages that leave in requests of this side's own about the sequence with this key, by endpoint."""
    return [SentView(*row) for row in db.execute(_SENT, {"key": key}).fetchall()]


_BEFORE: Final = bindparam("before", type_=Integer)
_SEND_QUEUES: Final = select(queue.c.id).where(queue.c.kind == "outgoing", queue.c.name.startswith(SENT))
_UNSENT: Final = compiled(
    select(func.min(sequence.c.ack_due_at))
    .where(sequence.c.ack_due_at < _BEFORE)
    .union_all(
        select(func.min(lane.c.active_at)).where(
            delivery_is(DeliveryState.READY, now=bindparam("now", type_=Integer)),
            lane.c.queue.in_(_SEND_QUEUES),
            func.max(lane.c.active_at, func.coalesce(lane.c.retry_at, 0)) < _BEFORE,
        )
    )
)


def unsent_since(db: Database, now: int) -> int | None:
    """Since when something waits to be sent that no process takes up, in ms since the epoch; ``None``: nothing does."""
    found = db.execute(_UNSENT, {"now": now, "before": now - UNSENT_FOR}).fetchall()
    return min((since for (since,) in found if since is not None), default=None)
