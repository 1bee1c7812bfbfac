"""Statements on messages that are put and consumed. Parameters are named; ``:keys`` is a JSON list of positions."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, delete, func, not_, or_, select, union_all, update
from sqlalchemy.dialects.sqlite import insert

from wsrm_mq.store.compiling import bound, compiled
from wsrm_mq.store.running import entry_reason, entry_state, is_paused
from wsrm_mq.store.tables import dedupe, entry, header, instance, lane, message, queue

p = bindparam

DEFAULT_PRIORITY: Final = 4

# putting

_DEDUPE: Final = insert(dedupe).values({column.name: p(column.name) for column in dedupe.columns})
ADD_DEDUPE: Final = compiled(
    _DEDUPE.on_conflict_do_update(
        index_elements=["queue", "message_id"],
        set_={"message": _DEDUPE.excluded.message, "until": _DEDUPE.excluded.until},
    )
)
PUT_BEFORE: Final = compiled(
    select(dedupe.c.message, dedupe.c.until).where(dedupe.c.queue == p("queue"), dedupe.c.message_id == p("message_id"))
)
FORGET_PUT: Final = compiled(delete(dedupe).where(dedupe.c.queue == p("queue"), dedupe.c.message_id == p("message_id")))
POSITION_IN: Final = compiled(
    select(entry.c.id).where(
        entry.c.message == p("message"), func.coalesce(entry.c.origin, entry.c.queue) == p("queue")
    )
)
"""The entry that a message has in a queue, or had before it was a dead letter."""

# what may be leased


def _seen(fence: ColumnElement[int], deliveries: ColumnElement[int]) -> Select[Any]:
    return select(
        *(entry.c.id, entry.c.queue, fence.label("entry_fence")),
        func.coalesce(entry.c.priority, DEFAULT_PRIORITY).label("entry_priority"),
        *(deliveries.label("entry_deliveries"), entry.c.failures, entry.c.expires_at),
        *(entry.c.lane, entry.c.number, message.c.id, message.c.message_id, message.c.action, message.c.received_at),
        *(message.c.body_size, message.c.body, message.c.environ),
        *(header.c.topic, header.c.properties, header.c.content_type),
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
        *(entry.c.priority.is_not(None), entry.c.lane.is_(None), entry.c.outcome.is_(None)),
        *(entry.c.owner.is_(None), entry.c.hold.is_(None)),
        or_(entry.c.expires_at.is_(None), entry.c.expires_at > now),
    )


_IS_READY: Final = is_ready(p("now"))
_LEASED: Final = _seen(entry.c.fence + 1, entry.c.deliveries + 1)
"""The entry as a lease that begins now makes it."""
_IS_LETTER: Final = and_(entry.c.outcome == "dead", entry.c.owner.is_(None))
_READY: Final = (
    _LEASED.where(entry.c.queue == p("queue"), _IS_READY)
    .order_by(entry.c.priority.desc(), entry.c.id)
    .limit(p("count", required=True))
)
_LETTERS: Final = (
    _LEASED.where(entry.c.queue == p("queue"), _IS_LETTER).order_by(entry.c.id).limit(p("count", required=True))
)
READY: Final = compiled(_READY)
LETTERS: Final = compiled(_LETTERS)
"""Dead letters are ready in their queue."""
_COUNTED: Final = select(entry.c.id).where(entry.c.queue == p("queue")).limit(p("count", required=True))


def _count(*where: ColumnElement[bool]) -> Select[int]:
    return select(func.count()).select_from(_COUNTED.where(*where).subquery())


COUNT_READY: Final = compiled(_count(_IS_READY))
COUNT_LETTERS: Final = compiled(_count(_IS_LETTER))
_IN_FREE_LANE: Final = and_(
    lane.c.queue == p("queue"),
    lane.c.served_at.is_not(None),
    *(lane.c.on_hold_since.is_(None), lane.c.owner.is_(None), lane.c.blocked.is_(None), lane.c.cursor < lane.c.limit),
    or_(lane.c.discard_from.is_(None), lane.c.cursor < lane.c.discard_from),
)
_IS_LEASABLE: Final = and_(_IN_FREE_LANE, not_(is_paused(lane.c.retry_from, lane.c.retry_at, p("now"))))
COUNT_GROUPED: Final = compiled(select(func.coalesce(func.sum(lane.c.limit - lane.c.cursor), 0)).where(_IS_LEASABLE))
"""Messages of groups that may be leased, those included that were settled out of their turn."""
LEASABLE: Final = compiled(
    select(lane.c.id).where(_IS_LEASABLE).order_by(lane.c.served_at, lane.c.id).limit(p("count", required=True))
)
_RUN_OF_LANE: Final = (
    _LEASED.where(
        *(entry.c.lane == p("lane"), entry.c.number >= p("lower"), entry.c.number < p("upper")),
        entry.c.outcome.is_(None),
    )
    .order_by(entry.c.number)
    .limit(p("count", required=True))
)
RUN_OF_LANE: Final = compiled(_RUN_OF_LANE.add_columns(entry.c.wants_reply))
"""The last column: a run of this consumer ends before it."""
SEEN_AT: Final = compiled(SEEN.where(entry.c.id == p("key")))


def ready(wanted: ColumnElement[bool], *, letters: bool = False) -> tuple[str, dict[str, Any]]:
    """``READY``, or ``LETTERS``, of what a filter wants (``filtering.fits``); with the values of its parameters."""
    return bound((_LETTERS if letters else _READY).where(wanted))


def run_of_lane(wanted: ColumnElement[bool]) -> tuple[str, dict[str, Any]]:
    """``RUN_OF_LANE`` of what a filter wants: a run ends before what does not fit; with the values of its
    parameters."""
    return bound(_RUN_OF_LANE.add_columns(case((wanted, entry.c.wants_reply), else_=1)))


def count_ready(wanted: ColumnElement[bool], *, letters: bool = False) -> tuple[str, dict[str, Any]]:
    """``COUNT_READY``, or ``COUNT_LETTERS``, of what a filter wants; with the values of its parameters."""
    return bound(_count(_IS_LETTER if letters else _IS_READY, wanted))


# leasing and settling

_KEYS: Final = select(func.keys_in(p("keys")).table_valued("value").c.value)
_THESE: Final = entry.c.id.in_(_KEYS)
_LEASE: Final = {
    "owner": p("owner"),
    "lessee": p("lessee"),
    "leased_until": p("until"),
    "running_since": p("now"),
    "fence": entry.c.fence + 1,
    "deliveries": entry.c.deliveries + 1,
}
_FREE: Final[dict[str, Any]] = {"owner": None, "lessee": None, "leased_until": None, "running_since": None}
LEASE: Final = compiled(update(entry).where(_THESE).values(_LEASE))
HAND_OUT: Final = compiled(
    update(entry)
    .where(_THESE)
    .values({**_LEASE, "outcome": "delivered", "settled_at": p("now")})
    .returning(entry.c.id, entry.c.message, entry.c.asks)
)
"""At most once: it is settled before it is seen."""
LEASE_LANE: Final = compiled(
    update(lane)
    .where(lane.c.id == p("key"))
    .values(
        leased_below=p("below"),
        leased_until=p("until"),
        lessee=p("lessee"),
        served_at=p("now"),
    )
)
SHORTEN_LANE: Final = compiled(update(lane).where(lane.c.id == p("key")).values(leased_below=p("below")))
FREE_LANE: Final = compiled(
    update(lane).where(lane.c.id == p("key")).values(leased_below=None, leased_until=None, lessee=None)
)
LANE_LEASE: Final = compiled(
    select(lane.c.leased_below, lane.c.leased_until, lane.c.lessee).where(lane.c.id == p("key"))
)
STANDING: Final = compiled(
    select(
        *(entry.c.id, entry.c.queue, queue.c.name, entry.c.message, entry.c.lane, entry.c.number),
        *(entry.c.outcome, entry.c.owner, entry.c.fence, entry.c.lessee, entry.c.expires_at, entry.c.priority),
        *(entry.c.deliveries, entry.c.failures, entry.c.cancels, entry.c.asks, message.c.body_size),
        *(queue.c.policy, lane.c.leased_below),
    )
    .join(message, message.c.id == entry.c.message)
    .join(queue, queue.c.id == entry.c.queue)
    .outerjoin(lane, lane.c.id == entry.c.lane)
    .where(_THESE)
)
"""Columns of ``queue.settling.Standing``."""
ACKNOWLEDGE: Final = compiled(
    update(entry).where(_THESE).values({**_FREE, "outcome": "delivered", "settled_at": p("now"), "hold": None})
)
TAKE_LETTERS: Final = compiled(
    update(entry).where(_THESE).values({**_FREE, "outcome": "discarded", "reason": p("reason"), "settled_at": p("now")})
)
GIVE_BACK: Final = compiled(update(entry).where(_THESE).values(_FREE))
NEVER_DELIVERED: Final = compiled(
    update(entry)
    .where(_THESE)
    .values({**_FREE, "deliveries": entry.c.deliveries - case((entry.c.outcome == "delivered", 0), else_=1)})
)
"""A message that is delivered at most once was settled by its lease, and stays as it is."""
RELEASE: Final = compiled(update(entry).where(_THESE).values({**_FREE, "cancels": entry.c.cancels + 1}))
FAIL: Final = compiled(
    update(entry)
    .where(entry.c.id == p("key"))
    .values({**_FREE, "failures": entry.c.failures + 1, "deaths": 0, "last_error": p("error")})
)
DIE: Final = compiled(
    update(entry)
    .where(entry.c.id == p("key"))
    .values(
        {
            **_FREE,
            "deaths": entry.c.deaths + 1,
            "failures": entry.c.failures + case((entry.c.deaths >= 2, 1), else_=0),
            "last_error": p("error"),
        }
    )
)
SAY_WHY: Final = compiled(update(entry).where(entry.c.id == p("key")).values(last_error=p("error")))
HOLD: Final = compiled(update(entry).where(entry.c.id == p("key")).values(hold=p("hold")))
RENEW: Final = compiled(update(entry).where(_THESE).values(leased_until=p("until")))
RENEW_LANE: Final = compiled(update(lane).where(lane.c.id == p("key")).values(leased_until=p("until")))
COUNT_RUN: Final = compiled(
    update(entry)
    .where(
        *(entry.c.lane == p("lane"), entry.c.number >= p("lower"), entry.c.number < p("upper")),
        entry.c.outcome.is_(None),
    )
    .values(deliveries=entry.c.deliveries + 1)
)
"""Count a delivery of each entry that was handed out of a lane, which is given back."""
MARK_RUN: Final = compiled(update(entry).where(_THESE).values(fence=p("fence")))
"""Mark what is leased of a sequence with the fence of that: numbers that come later may lie among it."""
LEFT_OF_RUN: Final = compiled(
    select(entry.c.id)
    .where(
        *(entry.c.lane == p("lane"), entry.c.number < p("below"), entry.c.fence == p("fence")),
        entry.c.outcome.is_(None),
    )
    .limit(1)
)

# what comes of time and of deaths

DUE_WAITS: Final = compiled(
    select(entry.c.id)
    .where(entry.c.hold == p("hold"), entry.c.outcome.is_(None), entry.c.retry_at <= p("now"))
    .order_by(entry.c.retry_at)
    .limit(p("count", required=True))
)
TURNED_BACK: Final = compiled(
    select(entry.c.id)
    .where(entry.c.hold == "backoff", entry.c.outcome.is_(None), entry.c.retry_from > p("now"))
    .limit(p("count", required=True))
)
"""Entries whose wait begins in the future: the clock was stepped back."""
END_WAITS: Final = compiled(update(entry).where(_THESE).values(hold=None, retry_from=None, retry_at=None))
_DEADLINES: Final = (
    select(entry.c.id, entry.c.expires_at)
    .outerjoin(lane, lane.c.id == entry.c.lane)
    .where(
        *(entry.c.expires_at.is_not(None), entry.c.outcome.is_(None), entry.c.owner.is_(None)),
        or_(lane.c.leased_below.is_(None), entry.c.number >= lane.c.leased_below),
    )
    .order_by(entry.c.expires_at)
)
"""Entries that have a deadline and are not leased."""
EXPIRED: Final = compiled(
    _DEADLINES.with_only_columns(entry.c.id).where(entry.c.expires_at <= p("now")).limit(p("count", required=True))
)


def _first_end(of: Any) -> ColumnElement[int | None]:
    leases = select(func.min(of.c.leased_until)).where(of.c.owner == instance.c.id, of.c.leased_until.is_not(None))
    return leases.scalar_subquery()


def _leased_by(of: Any) -> str:
    leases = select(of.c.id).where(
        *(of.c.owner == p("owner"), of.c.leased_until.is_not(None), of.c.leased_until <= p("until"))
    )
    return compiled(leases.order_by(of.c.leased_until).limit(p("count", required=True)))


FIRST_ENDS: Final = compiled(
    select(instance.c.id, instance.c.name, _first_end(entry), _first_end(lane)).where(instance.c.ended_at.is_(None))
)
"""Each instance that has not ended: its key, its name, and the times at which the first of its leases of entries ends,
and of lanes."""
LEASED_BY: Final = _leased_by(entry)
LANES_LEASED_BY: Final = _leased_by(lane)
"""Leases of an instance that end up to a time."""


def _next_wait(hold: str) -> Select[Any]:
    return select(func.min(entry.c.retry_at)).where(entry.c.hold == hold, entry.c.outcome.is_(None))


def _next_lease_end(of: Any) -> Select[Any]:
    return select(func.min(_first_end(of))).where(instance.c.ended_at.is_(None))


_NEXT_EXPIRY: Final = _DEADLINES.with_only_columns(entry.c.expires_at).limit(1)
_NEXT_LANE_WAIT: Final = select(func.min(lane.c.retry_at)).where(
    lane.c.served_at.is_not(None),
    *(lane.c.on_hold_since.is_(None), lane.c.owner.is_(None), lane.c.blocked.is_(None)),
    lane.c.cursor < lane.c.limit,
    or_(lane.c.discard_from.is_(None), lane.c.cursor < lane.c.discard_from),
    lane.c.retry_at > p("now"),
)
NEXT_ENDS: Final = compiled(
    select(
        *(_next_wait("scheduled").scalar_subquery(), _next_wait("backoff").scalar_subquery()),
        *(_NEXT_LANE_WAIT.scalar_subquery(), _NEXT_EXPIRY.scalar_subquery()),
        *(_next_lease_end(entry).scalar_subquery(), _next_lease_end(lane).scalar_subquery()),
    )
)
"""When the next wait ends of an entry that was scheduled, of one that has failed and of a group, the next deadline, and
the next lease of an entry and of a group. ``now``: waits of groups are looked for that end later."""


def _has_lease(of: Any) -> ColumnElement[bool]:
    return select(of.c.id).where(of.c.owner == instance.c.id, of.c.leased_until.is_not(None)).exists()


HOLDERS: Final = compiled(
    select(instance.c.id, instance.c.name, instance.c.pid, instance.c.ended_at.is_not(None)).where(
        or_(_has_lease(entry), _has_lease(lane))
    )
)
"""Instances that have leases: key, name, process, whether they have ended."""


_ITS_HEAD: Final = and_(entry.c.lane == lane.c.id, entry.c.number == lane.c.cursor)
_LEFT: Final = select(queue.c.name, func.min(message.c.received_at))
_MESSAGE_OF: Final = message.c.id == entry.c.message
LEFT_BEHIND: Final = compiled(
    union_all(
        _LEFT.select_from(entry.join(queue, queue.c.id == entry.c.queue).join(message, _MESSAGE_OF))
        .where(entry.c.owner == p("owner"), entry.c.leased_until.is_not(None))
        .group_by(queue.c.name),
        _LEFT.select_from(
            lane.join(queue, queue.c.id == lane.c.queue).join(entry, _ITS_HEAD).join(message, _MESSAGE_OF)
        )
        .where(lane.c.owner == p("owner"), lane.c.leased_until.is_not(None))
        .group_by(queue.c.name),
    )
)
"""The queues in which a holder has leases, each with when the first of these messages was received."""

# looking at queues

_IN_QUEUE: Final = and_(entry.c.queue == p("queue"), entry.c.priority.is_not(None), entry.c.outcome.is_(None))
_STATE: Final = entry_state(p("now"))
_REASON: Final = func.coalesce(entry_reason(p("now")), "")
_PEEKED: Final = SEEN.add_columns(
    *(case((entry.c.outcome.is_not(None), entry.c.outcome), else_=_STATE), _REASON, entry.c.last_error),
    *(func.coalesce(entry.c.reason, ""), entry.c.settled_at, entry.c.leased_until),
).outerjoin(lane, lane.c.id == entry.c.lane)
_PEEK: Final = _PEEKED.where(entry.c.id > p("after"), _IN_QUEUE).order_by(entry.c.id).limit(p("count", required=True))
_PEEK_LETTERS: Final = (
    _PEEKED.where(entry.c.id > p("after"), entry.c.queue == p("queue"), entry.c.outcome == "dead")
    .order_by(entry.c.id)
    .limit(p("count", required=True))
)
PEEK: Final = compiled(_PEEK)
PEEK_LETTERS: Final = compiled(_PEEK_LETTERS)
PEEK_AT: Final = compiled(
    _PEEKED.where(
        entry.c.id == p("key"),
        entry.c.queue == p("queue"),
        or_(entry.c.outcome.is_(None), entry.c.outcome == "dead"),
    )
)


def peek(wanted: ColumnElement[bool], *, letters: bool = False) -> tuple[str, dict[str, Any]]:
    """``PEEK``, or ``PEEK_LETTERS``, of what a filter wants (``filtering.fits``); with the values of its parameters."""
    return bound((_PEEK_LETTERS if letters else _PEEK).where(wanted))


UNSETTLED_IN: Final = compiled(
    select(entry.c.id)
    .where(_IN_QUEUE, entry.c.id >= p("lower"), entry.c.id <= p("upper"))
    .order_by(entry.c.id)
    .limit(p("count", required=True))
)


def unsettled_in(wanted: ColumnElement[bool]) -> tuple[str, dict[str, Any]]:
    """``UNSETTLED_IN`` of what a filter wants (``filtering.fits``); with the values of its parameters."""
    chosen = select(entry.c.id).where(_IN_QUEUE, entry.c.id >= p("lower"), entry.c.id <= p("upper"), wanted)
    return bound(chosen.order_by(entry.c.id).limit(p("count", required=True)))


LAST_UNSETTLED: Final = compiled(select(func.max(entry.c.id)).where(_IN_QUEUE))
_TO_COME: Final = (
    select(entry.c.id)
    .select_from(entry.outerjoin(lane, lane.c.id == entry.c.lane))
    .where(
        *(_IN_QUEUE, entry.c.id <= p("upto"), entry.c.id.not_in(_KEYS)),
        or_(
            _STATE == "ready",
            and_(_STATE == "leased", func.coalesce(lane.c.lessee, entry.c.lessee) == p("lessee")),
        ),
    )
    .limit(1)
)
TO_COME: Final = compiled(_TO_COME)
"""A message that a subscription may have yet: one up to a position that is ready or leased by it, and not among
``:keys``."""


def to_come(wanted: ColumnElement[bool]) -> tuple[str, dict[str, Any]]:
    """``TO_COME`` of what a filter wants (``filtering.fits``), which has nothing of groups; with the values of its
    parameters."""
    return bound(_TO_COME.where(wanted, entry.c.lane.is_(None)))


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
    select(queue.c.name).where(queue.c.policy.is_not(None), queue.c.kind != "journal").order_by(queue.c.name)
)
LEASED_IN: Final = compiled(
    select(
        instance.c.name,
        instance.c.pid,
        select(func.count())
        .where(entry.c.owner == instance.c.id, entry.c.leased_until.is_not(None), entry.c.queue == p("queue"))
        .scalar_subquery()
        + select(func.count())
        .where(lane.c.owner == instance.c.id, lane.c.leased_until.is_not(None), lane.c.queue == p("queue"))
        .scalar_subquery(),
    )
)
"""Who has leased something of a queue: name and process of an instance, and how many messages and groups."""
REDRIVE: Final = compiled(
    update(entry)
    .where(_THESE, entry.c.outcome == "dead")
    .values(
        **_FREE,
        queue=p("queue"),
        origin=None,
        outcome=None,
        reason=None,
        settled_at=None,
        confirmed_at=None,
        expires_at=None,
        hold=None,
        retry_from=None,
        retry_at=None,
        failures=0,
        cancels=0,
        deaths=0,
    )
)
FREE_LETTERS: Final = compiled(
    select(entry.c.id)
    .where(entry.c.queue == p("queue"), entry.c.outcome == "dead", entry.c.owner.is_(None), entry.c.id > p("after"))
    .order_by(entry.c.id)
    .limit(p("count", required=True))
)
PURGE: Final = compiled(
    update(entry)
    .where(_THESE)
    .values({**_FREE, "outcome": "purged", "reason": p("reason"), "settled_at": p("now"), "named": 1})
)
FORGET_DEDUPE: Final = compiled(delete(dedupe).where(dedupe.c.queue == p("queue")))
"""Forget the ids of messages in a queue that is deleted."""
_OLD: Final = (
    select(dedupe.c.queue, dedupe.c.message_id)
    .outerjoin(entry, and_(entry.c.message == dedupe.c.message, entry.c.queue == dedupe.c.queue))
    .where(dedupe.c.until <= p("now"), or_(entry.c.id.is_(None), entry.c.outcome.is_not(None)))
    .order_by(dedupe.c.until)
)
DUE_TO_BE_FORGOTTEN: Final = compiled(_OLD.limit(1))
FORGOTTEN: Final = compiled(_OLD.limit(p("count", required=True)))
"""Settled messages that were put under an id, whose id need not be known any more."""
