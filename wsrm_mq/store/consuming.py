"""Statements on messages that are put and consumed. Parameters are named; ``:keys`` is a JSON list of positions."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    Update,
    and_,
    case,
    delete,
    func,
    not_,
    or_,
    select,
    union_all,
    update,
)

from wsrm_mq.store.entries import IN_RANGE, IS_LIVE, ONE_DEATH_MORE
from wsrm_mq.store.filtering import Filtered
from wsrm_mq.store.queues import IS_DELETED
from wsrm_mq.store.running import HAS_UNSETTLED, entry_reason, entry_state, is_paused
from wsrm_mq.store.sql import absent, changed, compiled, given, listed, of, p, upserted
from wsrm_mq.store.tables import dedupe, entry, header, instance, lane, message, queue
from wsrm_mq.store.words import DEFAULT_PRIORITY

# putting

ADD_DEDUPE: Final = upserted(dedupe, "queue, message_id", "message, until")
PUT_BEFORE: Final = compiled(select(dedupe.c.message, dedupe.c.until).where(given(dedupe, "queue, message_id")))
FORGET_PUT: Final = compiled(delete(dedupe).where(given(dedupe, "queue, message_id")))
POSITION_IN: Final = compiled(
    select(entry.c.id).where(given(entry, "message"), func.coalesce(entry.c.origin, entry.c.queue) == p("queue"))
)
"""The entry that a message has in a queue, or had before it was a dead letter."""

# what may be leased


def _seen(fence: ColumnElement[int], deliveries: ColumnElement[int]) -> Select[Any]:
    return select(
        *(entry.c.id, fence.label("entry_fence")),
        func.coalesce(entry.c.priority, DEFAULT_PRIORITY).label("entry_priority"),
        deliveries.label("entry_deliveries"),
        *of(entry, "failures, expires_at, lane, number"),
        *of(message, "id, message_id, action, received_at, body_size, body, environ"),
        *of(header, "topic, properties, content_type"),
        select(lane.c.identifier)
        .where(lane.c.id == entry.c.lane, lane.c.kind != "group")
        .correlate(entry)
        .scalar_subquery()
        .label("sequence"),
        entry.c.asks,
    ).select_from(
        entry.join(message, message.c.id == entry.c.message).outerjoin(header, header.c.message == message.c.id)
    )


SEEN: Final = _seen(entry.c.fence, entry.c.deliveries)
"""The columns of ``queue.leasing.Seen``: an entry as a consumer sees it."""


def is_ready(now: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether an entry that is in no lane is ready."""
    return and_(
        entry.c.priority.is_not(None),
        absent(entry, "lane, outcome, owner, hold"),
        or_(entry.c.expires_at.is_(None), entry.c.expires_at > now),
    )


_IS_READY: Final = is_ready(p("now"))
_LEASED: Final = _seen(entry.c.fence + 1, entry.c.deliveries + 1)
"""The entry as a lease that begins now makes it."""
_IS_LETTER: Final = and_(entry.c.outcome == "dead", entry.c.owner.is_(None))
_FIRST: Final = _LEASED.where(given(entry, "queue")).limit(p("count"))
READY: Final = Filtered(lambda *fits: _FIRST.where(_IS_READY, *fits).order_by(entry.c.priority.desc(), entry.c.id))
LETTERS: Final = Filtered(lambda *fits: _FIRST.where(_IS_LETTER, *fits).order_by(entry.c.id))
"""Dead letters are ready in their queue."""
_COUNTED: Final = select(entry.c.id).where(given(entry, "queue")).limit(p("count"))


def _count(*where: ColumnElement[bool]) -> Select[Any]:
    return select(func.count()).select_from(_COUNTED.where(*where).subquery())


COUNT_READY: Final = Filtered(lambda *fits: _count(_IS_READY, *fits))
COUNT_LETTERS: Final = Filtered(lambda *fits: _count(_IS_LETTER, *fits))
_IS_FREE_LANE: Final = and_(lane.c.served_at.is_not(None), absent(lane, "on_hold_since, owner, blocked"), HAS_UNSETTLED)
_WAITS: Final = is_paused(lane.c.retry_from, lane.c.retry_at, p("now"))
_IS_LEASABLE: Final = and_(given(lane, "queue"), _IS_FREE_LANE, not_(_WAITS))
COUNT_GROUPED: Final = compiled(select(func.coalesce(func.sum(lane.c.limit - lane.c.cursor), 0)).where(_IS_LEASABLE))
"""Messages of groups that may be leased, those included that were settled out of their turn."""
LEASABLE: Final = compiled(
    select(lane.c.id).where(_IS_LEASABLE).order_by(lane.c.served_at, lane.c.id).limit(p("count"))
)
_RUN_OF_LANE: Final = _LEASED.where(IN_RANGE).order_by(entry.c.number).limit(p("count"))
RUN_OF_LANE: Final = Filtered(
    lambda *fits: _RUN_OF_LANE.add_columns(
        case((and_(*fits), entry.c.wants_reply), else_=1) if fits else entry.c.wants_reply
    )
)
"""The last column: a run of this consumer ends before it, as before what does not fit."""
SEEN_AT: Final = compiled(SEEN.where(entry.c.id == p("key")))


# leasing and settling

_KEYS: Final = listed("keys")
_THESE: Final = entry.c.id.in_(_KEYS)


def _these(**values: Any) -> Update:
    return update(entry).where(_THESE).values(values)


_LEASE: Final = {
    **{"owner": p("owner"), "lessee": p("lessee"), "leased_until": p("until"), "running_since": p("now")},
    **{"fence": entry.c.fence + 1, "deliveries": entry.c.deliveries + 1},
}
_FREE: Final[dict[str, Any]] = dict.fromkeys(("owner", "lessee", "leased_until", "running_since"))
_IS_DELIVERED: Final = {"outcome": "delivered", "settled_at": p("now")}
LEASE: Final = compiled(_these(**_LEASE))
HAND_OUT: Final = compiled(_these(**_LEASE, **_IS_DELIVERED).returning(*of(entry, "id, message, asks")))
"""At most once: it is settled before it is seen."""
LEASE_LANE: Final = changed(
    lane, leased_below=p("below"), leased_until=p("until"), lessee=p("lessee"), served_at=p("now")
)
SHORTEN_LANE: Final = changed(lane, leased_below=p("below"))
FREE_LANE: Final = changed(lane, leased_below=None, leased_until=None, lessee=None)
LANE_LEASE: Final = compiled(select(lane.c.leased_below).where(lane.c.id == p("key")))
STANDING: Final = compiled(
    select(
        *of(entry, "id, queue, message, lane, number, outcome, owner, fence, lessee, expires_at, priority"),
        *of(entry, "deliveries, failures, cancels, asks"),
        message.c.body_size,
        *(queue.c.policy, lane.c.leased_below),
    )
    .join(message, message.c.id == entry.c.message)
    .join(queue, queue.c.id == entry.c.queue)
    .outerjoin(lane, lane.c.id == entry.c.lane)
    .where(_THESE)
)
"""Columns of ``queue.settling.Standing``."""
ACKNOWLEDGE: Final = compiled(_these(**_FREE, **_IS_DELIVERED, hold=None))
TAKE_LETTERS: Final = compiled(_these(**_FREE, outcome="discarded", reason=p("reason"), settled_at=p("now")))
GIVE_BACK: Final = compiled(_these(**_FREE))
NEVER_DELIVERED: Final = compiled(
    _these(**_FREE, deliveries=entry.c.deliveries - case((entry.c.outcome == "delivered", 0), else_=1))
)
"""A message that is delivered at most once was settled by its lease, and stays as it is."""
RELEASE: Final = compiled(_these(**_FREE, cancels=entry.c.cancels + 1))
FAIL: Final = changed(entry, **_FREE, failures=entry.c.failures + 1, deaths=0, last_error=p("error"))
DIE: Final = changed(entry, **_FREE, **ONE_DEATH_MORE, last_error=p("error"))
SAY_WHY: Final = changed(entry, last_error=p("error"))
HOLD: Final = changed(entry, hold=p("hold"))
RENEW: Final = compiled(_these(leased_until=p("until")))
RENEW_LANE: Final = changed(lane, leased_until=p("until"))
COUNT_RUN: Final = compiled(update(entry).where(IN_RANGE).values(deliveries=entry.c.deliveries + 1))
"""Count a delivery of each entry that was handed out of a lane, which is given back."""
MARK_RUN: Final = compiled(_these(fence=p("fence")))
"""Mark what is leased of a sequence with the fence of that: numbers that come later may lie among it."""
LEFT_OF_RUN: Final = compiled(
    select(entry.c.id).where(given(entry, "lane, fence"), entry.c.number < p("below"), IS_LIVE).limit(1)
)

# what comes of time and of deaths

DUE_WAITS: Final = compiled(
    select(entry.c.id)
    .where(given(entry, "hold"), IS_LIVE, entry.c.retry_at <= p("now"))
    .order_by(entry.c.retry_at)
    .limit(p("count"))
)
TURNED_BACK: Final = compiled(
    select(entry.c.id).where(entry.c.hold == "backoff", IS_LIVE, entry.c.retry_from > p("now")).limit(p("count"))
)
"""Entries whose wait begins in the future: the clock was stepped back."""
END_WAITS: Final = compiled(_these(hold=None, retry_from=None, retry_at=None))
_DEADLINES: Final = (
    select(entry.c.id, entry.c.expires_at)
    .outerjoin(lane, lane.c.id == entry.c.lane)
    .where(
        entry.c.expires_at.is_not(None),
        absent(entry, "outcome, owner"),
        or_(lane.c.leased_below.is_(None), entry.c.number >= lane.c.leased_below),
    )
    .order_by(entry.c.expires_at)
)
"""Entries that have a deadline and are not leased."""
EXPIRED: Final = compiled(
    _DEADLINES.with_only_columns(entry.c.id).where(entry.c.expires_at <= p("now")).limit(p("count"))
)


def _leases(asked: ColumnElement[Any], leased: Table) -> Select[Any]:
    """About the leases that an instance has."""
    return select(asked).where(leased.c.owner == instance.c.id, leased.c.leased_until.is_not(None))


def _first_end(leased: Table) -> ColumnElement[int | None]:
    return _leases(func.min(leased.c.leased_until), leased).scalar_subquery()


def _leased_by(leased: Table) -> str:
    until = leased.c.leased_until
    leases = select(leased.c.id).where(given(leased, "owner"), until.is_not(None), until <= p("until"))
    return compiled(leases.order_by(until).limit(p("count")))


FIRST_ENDS: Final = compiled(
    select(instance.c.id, instance.c.name, _first_end(entry), _first_end(lane)).where(instance.c.ended_at.is_(None))
)
"""Each instance that has not ended: its key, its name, and the times at which the first of its leases of entries ends,
and of lanes."""
LEASED_BY: Final = _leased_by(entry)
LANES_LEASED_BY: Final = _leased_by(lane)
"""Leases of an instance that end up to a time."""


def _next_wait(hold: str) -> Select[Any]:
    return select(func.min(entry.c.retry_at)).where(entry.c.hold == hold, IS_LIVE)


def _next_lease_end(of: Any) -> Select[Any]:
    return select(func.min(_first_end(of))).where(instance.c.ended_at.is_(None))


_NEXT_EXPIRY: Final = _DEADLINES.with_only_columns(entry.c.expires_at).limit(1)
_NEXT_LANE_WAIT: Final = select(func.min(lane.c.retry_at)).where(_IS_FREE_LANE, lane.c.retry_at > p("now"))
NEXT_ENDS: Final = compiled(
    select(
        *(_next_wait("scheduled").scalar_subquery(), _next_wait("backoff").scalar_subquery()),
        *(_NEXT_LANE_WAIT.scalar_subquery(), _NEXT_EXPIRY.scalar_subquery()),
        *(_next_lease_end(entry).scalar_subquery(), _next_lease_end(lane).scalar_subquery()),
    )
)
"""When the next wait ends of an entry that was scheduled, of one that has failed and of a group, the next deadline, and
the next lease of an entry and of a group. ``now``: waits of groups are looked for that end later."""


def _count_leased(leased: Table) -> ColumnElement[int]:
    return _leases(func.count(), leased).where(given(leased, "queue")).scalar_subquery()


HOLDERS: Final = compiled(
    select(*of(instance, "id, name, pid"), instance.c.ended_at.is_not(None)).where(
        or_(*(_leases(leased.c.id, leased).exists() for leased in (entry, lane)))
    )
)
"""Instances that have leases: key, name, process, whether they have ended."""


_ITS_HEAD: Final = and_(entry.c.lane == lane.c.id, entry.c.number == lane.c.cursor)
_LEFT: Final = select(queue.c.name, func.min(message.c.received_at))
_MESSAGE_OF: Final = message.c.id == entry.c.message
LEFT_BEHIND: Final = compiled(
    union_all(
        _LEFT.select_from(entry.join(queue, queue.c.id == entry.c.queue).join(message, _MESSAGE_OF))
        .where(given(entry, "owner"), entry.c.leased_until.is_not(None))
        .group_by(queue.c.name),
        _LEFT.select_from(
            lane.join(queue, queue.c.id == lane.c.queue).join(entry, _ITS_HEAD).join(message, _MESSAGE_OF)
        )
        .where(given(lane, "owner"), lane.c.leased_until.is_not(None))
        .group_by(queue.c.name),
    )
)
"""The queues in which a holder has leases, each with when the first of these messages was received."""

# looking at queues

_IN_QUEUE: Final = and_(given(entry, "queue"), entry.c.priority.is_not(None), IS_LIVE)
_STATE: Final = entry_state(p("now"))
_REASON: Final = func.coalesce(entry_reason(p("now")), "")
_PEEKED: Final = SEEN.add_columns(
    *(case((entry.c.outcome.is_not(None), entry.c.outcome), else_=_STATE), _REASON, entry.c.last_error),
    *(func.coalesce(entry.c.reason, ""), entry.c.settled_at, entry.c.leased_until),
).outerjoin(lane, lane.c.id == entry.c.lane)
_NEXT_PEEKED: Final = _PEEKED.where(entry.c.id > p("after")).order_by(entry.c.id).limit(p("count"))
_IS_PUT_ASIDE: Final = and_(given(entry, "queue"), entry.c.outcome == "dead")
PEEK: Final = Filtered(lambda *fits: _NEXT_PEEKED.where(_IN_QUEUE, *fits))
PEEK_LETTERS: Final = Filtered(lambda *fits: _NEXT_PEEKED.where(_IS_PUT_ASIDE, *fits))
PEEK_AT: Final = compiled(
    _PEEKED.where(*(entry.c.id == p("key"), given(entry, "queue")), or_(IS_LIVE, entry.c.outcome == "dead"))
)
UNSETTLED_IN: Final = Filtered(
    lambda *fits: (
        select(entry.c.id)
        .where(_IN_QUEUE, entry.c.id >= p("lower"), entry.c.id <= p("upper"), *fits)
        .order_by(entry.c.id)
        .limit(p("count"))
    )
)
LAST_UNSETTLED: Final = compiled(select(func.max(entry.c.id)).where(_IN_QUEUE))
_IS_LEASED_BY_IT: Final = and_(_STATE == "leased", func.coalesce(lane.c.lessee, entry.c.lessee) == p("lessee"))
TO_COME: Final = Filtered(
    lambda *fits: (
        select(entry.c.id)
        .select_from(entry.outerjoin(lane, lane.c.id == entry.c.lane))
        .where(
            *(_IN_QUEUE, entry.c.id <= p("upto"), entry.c.id.not_in(_KEYS)),
            or_(_STATE == "ready", _IS_LEASED_BY_IT),
            *(and_(one, entry.c.lane.is_(None)) for one in fits),
        )
        .limit(1)
    )
)
"""A message that a subscription may have yet: one up to a position that is ready or leased by it, and not among
``:keys``. A filter has nothing of groups."""
STATES: Final = compiled(
    select(_STATE, _REASON, func.count(), func.sum(message.c.body_size), func.min(message.c.received_at))
    .select_from(entry)
    .join(message, message.c.id == entry.c.message)
    .outerjoin(lane, lane.c.id == entry.c.lane)
    .where(_IN_QUEUE)
    .group_by(_STATE, _REASON)
)
"""The unsettled messages of a queue by state and reason: their number, their bytes, and the time of the oldest."""
TALLY: Final = compiled(
    select(func.count(), func.coalesce(func.sum(case((_STATE == "leased", 1), else_=0)), 0))
    .select_from(entry.outerjoin(lane, lane.c.id == entry.c.lane))
    .where(_IN_QUEUE, entry.c.id >= p("lower"), entry.c.id <= p("upper"))
)
"""How many messages of a queue are not settled between two positions, and how many of them are leased."""
LETTERS_OF: Final = compiled(
    select(func.count())
    .select_from(entry.join(queue, queue.c.id == entry.c.queue))
    .where(queue.c.parent == p("queue"), queue.c.kind == "dead_letter", entry.c.outcome == "dead")
)
DECLARED_QUEUES: Final = compiled(
    select(queue.c.name)
    .where(queue.c.policy.is_not(None), queue.c.kind != "journal", not_(IS_DELETED))
    .order_by(queue.c.name)
)
LEASED_IN: Final = compiled(select(*(instance.c.name, instance.c.pid), _count_leased(entry) + _count_leased(lane)))
"""Who has leased something of a queue: name and process of an instance, and how many messages and groups."""
_AS_IT_WAS_PUT: Final = {
    **dict.fromkeys(("origin", "outcome", "reason", "settled_at", "confirmed_at", "expires_at")),
    **dict.fromkeys(("hold", "retry_from", "retry_at")),
    **dict.fromkeys(("failures", "cancels", "deaths"), 0),
}
REDRIVE: Final = compiled(_these(**_FREE, **_AS_IT_WAS_PUT, queue=p("queue")).where(entry.c.outcome == "dead"))
FREE_LETTERS: Final = compiled(
    select(entry.c.id)
    .where(given(entry, "queue"), _IS_LETTER, entry.c.id > p("after"))
    .order_by(entry.c.id)
    .limit(p("count"))
)
PURGE: Final = compiled(_these(**_FREE, outcome="purged", reason=p("reason"), settled_at=p("now"), named=1))
FORGET_DEDUPE: Final = compiled(delete(dedupe).where(given(dedupe, "queue")))
"""Forget the ids of messages in a queue that is deleted."""
_OLD: Final = (
    select(dedupe.c.queue, dedupe.c.message_id)
    .outerjoin(entry, and_(entry.c.message == dedupe.c.message, entry.c.queue == dedupe.c.queue))
    .where(dedupe.c.until <= p("now"), or_(entry.c.id.is_(None), entry.c.outcome.is_not(None)))
    .order_by(dedupe.c.until)
)
DUE_TO_BE_FORGOTTEN: Final = compiled(_OLD.limit(1))
FORGOTTEN: Final = compiled(_OLD.limit(p("count")))
"""Settled messages that were put under an id, whose id need not be known any more."""
