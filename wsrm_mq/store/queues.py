"""Statements on queues, on the instances that serve them or keep their express messages, and on the ledger.
Parameters are named."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, and_, case, exists, func, literal_column, or_, select, update

from wsrm_mq.store import applications
from wsrm_mq.store.sql import adding, changed, changing, compiled, given, listed, of, p
from wsrm_mq.store.tables import entry, instance, lane, ledger, loose, message, queue, route

DECLARED: Final = (
    *("policy", "mode", "messages", "bytes", "last_position", "last_put_at", "counted_at", "came", "went"),
    *("owner", "holder", "keeper"),
)
"""Columns that only a declared queue has; see ``consuming``."""
ADD_QUEUE: Final = compiled(adding(queue, "id", *DECLARED).returning(queue.c.id))
QUEUE_COLUMNS: Final = of(queue, "id, name, kind, parent, policy, mode")


class QueueRow(NamedTuple):
    """A queue, as ``QUEUE_ROW`` finds it."""

    key: int
    name: str
    kind: str
    parent: int | None
    stored_policy: str | None
    mode: str | None

    @property
    def is_declared(self) -> bool:
        """It counts what is not settled in it."""
        return self.stored_policy is not None


_ROW: Final = select(*QUEUE_COLUMNS)
QUEUE_ROW: Final = compiled(_ROW.where(given(queue, "name")))
EVERY_QUEUE: Final = compiled(_ROW.order_by(queue.c.name))
SET_MODE: Final = changed(queue, mode=p("mode"), policy=func.coalesce(queue.c.policy, p("policy")))
SET_POLICY: Final = changed(queue, policy=p("policy"))
POLICY: Final = compiled(select(queue.c.policy).where(queue.c.id == p("key")))
TAKE_NAME: Final = changed(queue, name=p("name"), owner=None, holder=None, keeper=None)
UNDECLARE: Final = changed(queue, policy=None, messages=0, bytes=0)
"""A queue that is deleted has given its name to the next one of that name, and ends with ``#`` and its key. It is
declared as long as it has something, and then stays for what was settled in it."""
IS_DELETED: Final = queue.c.name.like(literal_column("'%#'").op("||")(queue.c.id))
UNSETTLED_IN_ALL: Final = compiled(
    select(func.coalesce(func.sum(queue.c.messages), 0), func.coalesce(func.sum(queue.c.bytes), 0)).where(
        queue.c.policy.is_not(None), or_(queue.c.kind == "app", queue.c.kind == "subscription")
    )
)
_NO_SERVICE: Final = (applications.CONSUMES, applications.HOP, applications.ROUTES)
IS_SERVED: Final = compiled(
    select(
        or_(
            exists().where(
                queue.c.kind == "app",
                or_(queue.c.policy.is_(None), queue.c.mode == "pull"),
                queue.c.name.not_like("%#%"),
                queue.c.name != applications.INTAKE,
            ),
            exists().where(
                or_(instance.c.paths.is_(None), and_(*(instance.c.paths.not_like(f'["{own}%') for own in _NO_SERVICE)))
            ),
        )
    )
)
"""Whether an endpoint has its queue in the store, or an instance is known that is no program which only consumes, nor a
part of a node that sends to others or takes from them."""
UNSETTLED: Final = compiled(select(queue.c.messages, queue.c.bytes).where(queue.c.id == p("key")))


def lately(count: ColumnElement[float], now: ColumnElement[int]) -> ColumnElement[float]:
    """The part of a ``count`` of messages that is left at ``now``: it fades within a minute, and so is about that of
    the last one."""
    passed = func.abs(now - queue.c.counted_at) / literal_column("60000.0")
    return count * func.greatest(literal_column("0.0"), literal_column("1.0") - passed)


COUNT_UNSETTLED: Final = changed(
    queue,
    messages=queue.c.messages + p("came") - p("went"),
    bytes=queue.c.bytes + p("bytes"),
    came=lately(queue.c.came, p("now")) + p("came"),
    went=lately(queue.c.went, p("now")) + p("went"),
    counted_at=p("now"),
    last_position=func.coalesce(p("last"), queue.c.last_position),
    last_put_at=case((p("last").is_not(None), p("now")), else_=queue.c.last_put_at),
)
PACE: Final = compiled(
    select(
        *(queue.c.last_position, queue.c.last_put_at), *(lately(queue.c.came, p("now")), lately(queue.c.went, p("now")))
    ).where(queue.c.id == p("key"))
)
"""The position that was put last into a queue, when that was, and how many messages came and went within about the last
minute."""
HOLDER: Final = compiled(
    select(queue.c.owner, queue.c.holder, instance.c.name, instance.c.pid)
    .outerjoin(instance, instance.c.id == queue.c.owner)
    .where(queue.c.id == p("key"))
)
HOLD_QUEUE: Final = changed(queue, owner=p("owner"), holder=p("holder"))
LET_GO_OF_QUEUES: Final = compiled(update(queue).where(queue.c.owner == p("key")).values(owner=None, holder=None))
QUEUE: Final = compiled(select(queue.c.name, queue.c.application).where(queue.c.id == p("key")))
PARENT: Final = compiled(select(queue.c.parent).where(queue.c.id == p("key"), queue.c.kind == "outgoing"))
APPLICATION: Final = compiled(select(queue.c.application).where(given(queue, "name")))
SET_PARENT: Final = changed(queue, parent=p("parent"))
HAS_ROUTE: Final = compiled(select(route.c.id).limit(1))
SET_APPLICATION: Final = changed(queue, application=p("application"))
DEAD_LETTERS: Final = compiled(select(queue.c.id).where(queue.c.kind == "dead_letter", given(queue, "parent")))
ADD_INSTANCE: Final = compiled(adding(instance, "id", "ended_at").returning(instance.c.id))
END_INSTANCE: Final = compiled(changing(instance, ended_at=p("now")).where(instance.c.ended_at.is_(None)))
LEAVE: Final = compiled(changing(instance, ended_at=p("now")).where(~exists().where(lane.c.owner == p("key"))))
ENDED_OWNERS: Final = compiled(
    select(lane.c.owner, func.coalesce(instance.c.name, ""))
    .select_from(lane.outerjoin(instance, instance.c.id == lane.c.owner))
    .where(
        lane.c.owner.is_not(None),
        lane.c.leased_until.is_(None),
        or_(instance.c.id.is_(None), instance.c.ended_at.is_not(None)),
    )
)
"""Owners of lanes that have ended, each with its name, once for each lane. An owner without a row has no name: it
claimed after its row was deleted as that of a dead instance."""
REVIVE_INSTANCE: Final = changed(instance, ended_at=None)
ADD_INSTANCE_AGAIN: Final = compiled(adding(instance, "ended_at"))
END_INSTANCES: Final = compiled(update(instance).where(instance.c.ended_at.is_(None)).values(ended_at=p("now")))
INSTANCE: Final = compiled(
    select(*of(instance, "name, pid, host"), instance.c.ended_at.is_not(None)).where(instance.c.id == p("key"))
)
"""Its name and process, and whether it has ended."""
SERVE: Final = changed(instance, paths=p("paths"))
LIVE_INSTANCES: Final = compiled(select(instance.c.id, instance.c.name).where(instance.c.ended_at.is_(None)))
_LAST_TIMES: Final = tuple(
    select(at).where(key == select(func.max(key)).scalar_subquery()).scalar_subquery()
    for key, at in (
        (ledger.c.id, ledger.c.at),
        (message.c.id, message.c.received_at),
        (instance.c.id, func.coalesce(instance.c.ended_at, instance.c.started_at)),
    )
)
LAST_KNOWN: Final = compiled(select(func.nullif(func.greatest(*(func.coalesce(last, 0) for last in _LAST_TIMES)), 0)))
"""The last time that was written down; ms since the epoch."""
ADD_LEDGER: Final = compiled(adding(ledger, "id"))
FAILED_AS: Final = compiled(select(func.count()).where(given(ledger, "position, fault"), ledger.c.event == "failed"))
"""How many attempts at one position have failed with ``:fault``."""
IN_LEDGER: Final = compiled(select(ledger.c.id).where(given(ledger, "sequence, event, reason")))
"""A row for each time that something was written down about a sequence for one reason."""
LAST_TOLD: Final = compiled(select(func.coalesce(func.max(ledger.c.id), 0)))
TOLD_SINCE: Final = compiled(
    select(*of(ledger, "id, event"), queue.c.name)
    .outerjoin(queue, queue.c.id == ledger.c.queue)
    .where(ledger.c.id > p("after"))
    .order_by(ledger.c.id)
)
"""The key, event and queue of each row of the ledger behind ``:after``."""
KEEP: Final = changed(queue, keeper=p("keeper"))
_KEPT: Final = select(queue.c.name, queue.c.keeper, instance.c.name, instance.c.pid).outerjoin(
    instance, instance.c.id == queue.c.keeper
)
KEEPERS: Final = compiled(_KEPT.where(queue.c.keeper.is_not(None)).order_by(queue.c.id))
KEEPER: Final = compiled(_KEPT.where(queue.c.id == p("key"), queue.c.keeper.is_not(None)))
KEPT_BY: Final = compiled(select(queue.c.id, queue.c.name).where(given(queue, "keeper")).order_by(queue.c.id))


# what waits for an application and is to be consumed, or the other way; ``:consumed`` is which of both it is now

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
SERVE_LANE: Final = changed(lane, served_at=p("served_at"))
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
