"""The read views: what the store shows to everything that only looks, in this package or a stranger's SQL.

The views are the promise, the tables behind them may change; ``docs/views.md`` says what each column means and what may
change. Times are ms since the epoch. A sequence goes by its identifier, a message by its position, a queue and an
instance by its name. Every upgrade makes the views anew, so they always fit the tables; a changed definition needs a
revision of its own, or a store that is up to date keeps the old one.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Integer,
    MetaData,
    Table,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    union_all,
)
from sqlalchemy.sql.selectable import FromClause, SelectBase

from wsrm_mq.store.consuming import is_ready
from wsrm_mq.store.entries import LOOSE_NUMBER
from wsrm_mq.store.outbound import HAS_ENDED
from wsrm_mq.store.queues import lately
from wsrm_mq.store.running import delivery_state, entry_reason, entry_state
from wsrm_mq.store.sql import absent, of, standard, written
from wsrm_mq.store.tables import (
    archive,
    archived,
    binding,
    channel,
    client,
    connection_message,
    counter,
    entry,
    header,
    instance,
    lane,
    lane_entry,
    ledger,
    loose,
    message,
    outbound_sequence,
    plan,
    queue,
    range_,
    refusal,
    reply,
    routed,
    sequence,
    subscription,
    watermark,
)
from wsrm_mq.store.words import ANSWERED_WITH_FAULT, ATTEMPTS
from wsrm_mq.versions import UNSEQUENCED

VERSION: Final = 1
"""Grows when a column goes or changes its meaning; a view or a column more leaves it as it is."""

LOOKED_AT: Final = 1_000
"""The number of unsettled messages of a sequence that are looked at for the oldest: a look at a million held ones stays
short."""

NOW: Final = literal_column("now_ms()", Integer())

_DEFINED: Final[dict[str, SelectBase]] = {}

_published: Final = MetaData()


def _view(name: str, definition: SelectBase) -> Table:
    """Publish a view; answers it for statements that read it."""
    _DEFINED[name] = definition
    return Table(name, _published, *(Column(one.name, one.type) for one in definition.selected_columns))


def texts() -> dict[str, str]:
    """The statement that makes each view, by its name."""
    return {name: written(f"CREATE VIEW {name} AS {standard(definition)}") for name, definition in _DEFINED.items()}


def _name_of(key: ColumnElement[int | None]) -> ColumnElement[str | None]:
    """The name of the queue with this key."""
    other = queue.alias("other")
    return select(other.c.name).where(other.c.id == key).scalar_subquery()


def _upto(late_index: Table) -> ColumnElement[int]:
    """The last key that an index which is filled later has; what came behind it is in the indexed table only."""
    return select(watermark.c.upto).where(watermark.c.name == late_index.name).scalar_subquery()


_view("read_views", select(literal(VERSION).label("version")))


# queues and instances

_letters: Final = queue.alias("letters")


def _dead_letters(*where: ColumnElement[bool]) -> ColumnElement[int]:
    return (
        select(func.count())
        .select_from(_letters.join(entry, entry.c.queue == _letters.c.id))
        .where(_letters.c.parent == queue.c.id, _letters.c.kind == "dead_letter", entry.c.outcome == "dead", *where)
        .scalar_subquery()
    )


def _loose(asked: ColumnElement[int], found: FromClause) -> ColumnElement[int]:
    """A sum over the unsettled messages of a queue that are in no lane, and that an application is called with."""
    return (
        select(asked)
        .select_from(found)
        .where(entry.c.queue == queue.c.id, absent(entry, "lane, outcome, priority"))
        .correlate(queue)
        .scalar_subquery()
    )


_is_declared: Final = queue.c.policy.is_not(None)
_next: Final = (
    select(entry.c.message)
    .where(entry.c.queue == queue.c.id, is_ready(NOW))
    .order_by(entry.c.priority.desc(), entry.c.id)
    .limit(1)
    .correlate(queue)
    .scalar_subquery()
)


def _lately(count: ColumnElement[float]) -> ColumnElement[int]:
    return case((_is_declared, cast(func.round(lately(count, NOW)), Integer)))


queues: Final = _view(
    "queues",
    select(
        *of(queue, "id as key, name as queue, kind"),
        *(_name_of(queue.c.parent).label("parent"), queue.c.application, queue.c.created_at),
        _dead_letters().label("dead_letters"),
        _dead_letters(entry.c.confirmed_at.is_(None)).label("unconfirmed"),
        _loose(func.count(), entry).label("loose"),
        _loose(func.min(message.c.received_at), entry.join(message, message.c.id == entry.c.message)).label(
            "loose_oldest_at"
        ),
        queue.c.policy,
        case((_is_declared, queue.c.messages)).label("messages"),
        case((_is_declared, queue.c.bytes)).label("bytes"),
        queue.c.last_put_at,
        *(_lately(queue.c.came).label("came_lately"), _lately(queue.c.went).label("went_lately")),
        select(message.c.received_at).where(message.c.id == _next).scalar_subquery().label("next_at"),
    ),
)

instances: Final = _view(
    "instances",
    select(*of(instance, "id as key, name as instance, host, pid, started_at, ended_at, application, paths")),
)

# who consumes

bindings: Final = _view(
    "bindings",
    select(*of(binding, "id as key, pattern, filter"), *of(queue, "name as queue, kind"), binding.c.created_at).join(
        queue, queue.c.id == binding.c.queue
    ),
)

_other: Final = queue.alias("other")
_OTHERS: Final = select(func.keys_in(subscription.c.beside).table_valued("value").c.value)

subscriptions: Final = _view(
    "subscriptions",
    select(
        *(subscription.c.id.label("key"), subscription.c.name.label("subscription"), client.c.name.label("client")),
        *(instance.c.name.label("instance"), instance.c.pid, queue.c.name.label("queue"), subscription.c.pattern),
        *of(subscription, "filter, asked, granted, lease, created_at, seen_at"),
        # A durable one outlives its process.
        case(
            (subscription.c.pattern.is_not(None), subscription.c.ended_at),
            else_=func.coalesce(subscription.c.ended_at, client.c.ended_at, instance.c.ended_at),
        ).label("ended_at"),
        case(
            (
                subscription.c.beside.is_not(None),
                select(func.list_of(_other.c.name)).where(_other.c.id.in_(_OTHERS)).scalar_subquery(),
            )
        ).label("beside"),
    )
    .select_from(subscription)
    .join(queue, queue.c.id == subscription.c.queue)
    .outerjoin(client, client.c.id == subscription.c.client)
    .outerjoin(instance, instance.c.id == client.c.instance),
)

clients: Final = _view(
    "clients",
    select(
        *(*of(client, "id as key, name as client"), *of(instance, "name as instance, host, pid")),
        *of(client, "started_at, seen_at"),
        func.coalesce(client.c.ended_at, instance.c.ended_at).label("ended_at"),
    )
    .select_from(client)
    .outerjoin(instance, instance.c.id == client.c.instance),
)

# sequences


def _in_ranges(count: ColumnElement[int], *where: ColumnElement[bool]) -> ColumnElement[int]:
    """A sum over the received ranges of a sequence."""
    return (
        select(func.coalesce(func.sum(count), 0))
        .where(range_.c.lane == lane.c.id, *where)
        .correlate(lane)
        .scalar_subquery()
    )


_ready: Final = _in_ranges(
    func.least(range_.c.upper, lane.c.limit - 1) - func.greatest(range_.c.lower, lane.c.cursor) + 1,
    range_.c.upper >= lane.c.cursor,
    range_.c.lower < lane.c.limit,
)
_unsettled: Final = (
    select(entry.c.message)
    .where(entry.c.lane == lane.c.id, entry.c.number >= lane.c.cursor, entry.c.outcome.is_(None))
    .order_by(entry.c.number)
    .limit(LOOKED_AT)
    .correlate(lane)
    .subquery("unsettled")
)
_oldest_at: Final = (
    select(message.c.received_at)
    .where(message.c.id == select(func.min(_unsettled.c.message)).scalar_subquery())
    .scalar_subquery()
)
_is_unsettled: Final = lane.c.cursor < lane.c.limit
_replayed: Final = lane.alias("replayed")
_answered: Final = lane.alias("answered")
_ruling: Final = sequence.alias("ruling")
"""The sequence whose versions a lane has that replays it, or sends messages about it."""
_idle_at: Final = lane.c.active_at + lane.c.inactivity
_expected: Final = (
    select(range_.c.upper + 1).where(range_.c.lane == lane.c.id, range_.c.lower == 1).correlate(lane).scalar_subquery()
)
_state: Final = case((lane.c.ended.is_not(None), "ended"), else_=func.coalesce(sequence.c.state, "created"))

sequences: Final = _view(
    "sequences",
    select(
        *(*of(lane, "id as key, identifier as sequence"), queue.c.name.label("queue")),
        *of(lane, "principal, peer, partner"),
        func.coalesce(_ruling.c.rm, UNSEQUENCED.label).label("rm"),
        *(lane.c.soap, lane.c.addressing),
        func.coalesce(sequence.c.behavior, "NoDiscard").label("behavior"),
        *(*of(lane, "assurance, ordered, created_at"), sequence.c.expires_at, lane.c.inactivity),
        *(_state.label("state"), lane.c.ended, lane.c.ended_at, lane.c.active_at),
        case(
            (
                lane.c.ended.is_(None),
                func.least(
                    func.coalesce(sequence.c.expires_at, _idle_at), func.coalesce(_idle_at, sequence.c.expires_at)
                ),
            )
        ).label("due_at"),
        sequence.c.last_number,
        func.coalesce(_expected, 1).label("expected"),
        *of(lane, "cursor, limit, discard_from, discard_reason, discarding"),
        select(instance.c.name).where(instance.c.id == lane.c.owner).scalar_subquery().label("owner"),
        *of(lane, "running_since, retry_from, retry_at, blocked, redelivery_below"),
        func.coalesce(sequence.c.duplicates, 0).label("duplicates"),
        *(*of(lane, "kind, connection, on_hold_since"), sequence.c.late),
        _in_ranges(range_.c.upper - range_.c.lower + 1).label("received"),
        *(lane.c.held, _ready.label("ready"), lane.c.pruned),
        # A message that is replayed may have been received long ago: it waits since the replay began.
        case((and_(lane.c.kind == "replay", _is_unsettled), lane.c.active_at), else_=_oldest_at).label("oldest_at"),
        *(_replayed.c.identifier.label("replay_of"), lane.c.plan),
        *(channel.c.address.label("sends_to"), _answered.c.identifier.label("answers")),
        delivery_state(NOW).label("delivery"),
        case((lane.c.served_at.is_not(None), 1), else_=0).label("consumed"),
    )
    .select_from(lane)
    .join(queue, queue.c.id == lane.c.queue)
    .outerjoin(sequence, sequence.c.lane == lane.c.id)
    .outerjoin(_replayed, _replayed.c.id == lane.c.replay_of)
    .outerjoin(channel, channel.c.lane == lane.c.id)
    .outerjoin(_answered, _answered.c.id == channel.c.answers)
    .outerjoin(_ruling, _ruling.c.lane == func.coalesce(channel.c.answers, lane.c.replay_of, lane.c.id)),
)

ranges: Final = _view(
    "ranges",
    select(range_.c.lane.label("key"), lane.c.identifier.label("sequence"), range_.c.lower, range_.c.upper).join(
        lane, lane.c.id == range_.c.lane
    ),
)

# messages

# A message has the position of the entry that it came with.
_arrived: Final = entry.alias("arrived")
_source: Final = lane.alias("source")
_is_settled: Final = entry.c.outcome.is_not(None)

_is_of_run: Final = entry.c.number < lane.c.leased_below
"""It is leased with its group."""
_owner: Final = case((_is_of_run, lane.c.owner), else_=entry.c.owner)
_leased_until: Final = case((_is_of_run, lane.c.leased_until), else_=entry.c.leased_until)
_is_leased: Final = and_(_leased_until.is_not(None), or_(entry.c.outcome.is_(None), entry.c.outcome == "dead"))
_consumer: Final = (
    select(client.c.name)
    .select_from(subscription.join(client, client.c.id == subscription.c.client))
    .where(subscription.c.id == case((_is_of_run, lane.c.lessee), else_=entry.c.lessee))
    .correlate(entry, lane)
    .scalar_subquery()
)

messages: Final = _view(
    "messages",
    select(
        *(entry.c.id.label("position"), entry.c.message),
        *(queue.c.name.label("queue"), lane.c.identifier.label("sequence")),
        *(entry.c.number, message.c.message_id, message.c.action),
        case((_is_settled, entry.c.outcome), else_=entry_state(NOW)).label("state"),
        case((_is_settled, entry.c.reason), else_=entry_reason(NOW)).label("reason"),
        *(entry.c.outcome, message.c.received_at, entry.c.settled_at),
        *of(entry, "deliveries, failures, deaths, retry_at, last_error"),
        *(message.c.principal, message.c.connection, func.peer_in(message.c.environ).label("peer")),
        *(message.c.body_size, message.c.body.is_not(None).label("has_body"), message.c.environ.label("request")),
        *(entry.c.wants_reply, entry.c.named, entry.c.late),
        _name_of(entry.c.origin).label("origin"),
        *(entry.c.replay_of, entry.c.journal_of, entry.c.confirmed_at),
        func.coalesce(_source.c.identifier, loose.c.identifier).label("original_sequence"),
        case((loose.c.entry.is_not(None), LOOSE_NUMBER), else_=_arrived.c.number).label("original_number"),
        func.coalesce(lane.c.partner, loose.c.partner).label("partner"),
        *(entry.c.priority, entry.c.cancels, entry.c.expires_at),
        case((_is_leased, _leased_until)).label("leased_until"),
        case((_is_leased, select(instance.c.name).where(instance.c.id == _owner).scalar_subquery())).label("holder"),
        case((_is_leased, _consumer)).label("consumer"),
        *(header.c.topic, header.c.properties, header.c.content_type, header.c.client.label("producer")),
        (routed.c.node + "/" + routed.c.incarnation + "/" + cast(routed.c.position, Text)).label("trace"),
        # The first node of its way is in the list when it leaves there.
        (func.length_of(routed.c.via) - case((routed.c.sent_as.is_not(None), 1), else_=0)).label("hop"),
        routed.c.target,
    )
    # Outer joins, which SQLite leaves out where no column of theirs is asked for.
    .select_from(entry)
    .outerjoin(lane, lane.c.id == entry.c.lane)
    .outerjoin(queue, queue.c.id == entry.c.queue)
    .outerjoin(message, message.c.id == entry.c.message)
    .outerjoin(_arrived, _arrived.c.id == entry.c.message)
    .outerjoin(_source, _source.c.id == _arrived.c.lane)
    .outerjoin(loose, loose.c.entry == entry.c.message)
    .outerjoin(header, header.c.message == entry.c.message)
    .outerjoin(routed, routed.c.message == entry.c.message),
)

bodies: Final = _view(
    "bodies", select(entry.c.id.label("position"), message.c.body).join(message, message.c.id == entry.c.message)
)

replies: Final = _view(
    "replies",
    select(
        *of(reply, "entry as position, status, headers, stored_at, body"),
        outbound_sequence.c.identifier.label("sequence"),
        reply.c.number,
    ).outerjoin(outbound_sequence, outbound_sequence.c.id == reply.c.outbound),
)

_outbound: Final = outbound_sequence.c

outgoing_sequences: Final = _view(
    "outgoing_sequences",
    select(
        *of(outbound_sequence, "answers as key, identifier as sequence"),
        *(lane.c.identifier.label("answers"), queue.c.name.label("queue")),
        case((HAS_ENDED, "ended"), else_=_outbound.state).label("state"),
        case((HAS_ENDED, _outbound.state)).label("ended"),
        *of(outbound_sequence, "expires_at, given as sent, last_number, acknowledged, unacknowledged, waiting_since"),
        *(lane.c.created_at, lane.c.active_at),
    )
    .select_from(outbound_sequence)
    .join(lane, lane.c.id == _outbound.answers)
    .join(queue, queue.c.id == lane.c.queue),
)

_waiting_in: Final = lane.alias("waiting_in")

request_sequences: Final = _view(
    "request_sequences",
    select(
        *(_outbound.id.label("key"), _outbound.identifier.label("sequence"), queue.c.name.label("queue")),
        *(_outbound.peer.label("sends_to"), _outbound.rm, _outbound.soap, _outbound.addressing),
        case((HAS_ENDED, "ended"), else_=_outbound.state).label("state"),
        case((HAS_ENDED, _outbound.state)).label("ended"),
        *(_outbound.expires_at, _outbound.given.label("sent"), _outbound.last_number),
        *(_outbound.acknowledged, _outbound.unacknowledged, _outbound.waiting_since),
        _outbound.principal.label("acks_to"),
        *(func.nullif(_outbound.offered, "").label("offered"), _outbound.replied),
        *(_waiting_in.c.identifier.label("lane"), _waiting_in.c.created_at, _waiting_in.c.active_at),
    )
    .select_from(outbound_sequence)
    .join(queue, queue.c.id == _outbound.queue)
    .outerjoin(channel, and_(channel.c.outbound == _outbound.id, channel.c.is_numbered == 1))
    .outerjoin(_waiting_in, _waiting_in.c.id == channel.c.lane)
    .where(_outbound.answers.is_(None)),
)

sequence_messages: Final = _view(
    "sequence_messages",
    union_all(
        select(lane.c.identifier.label("sequence"), lane_entry.c.number, lane_entry.c.entry.label("position")).join(
            lane, lane.c.id == lane_entry.c.lane
        ),
        select(lane.c.identifier, entry.c.number, entry.c.id)
        .join(lane, lane.c.id == entry.c.lane)
        .where(entry.c.id > _upto(lane_entry)),
    ),
)

faulted: Final = _view(
    "faulted",
    # Without joins, so that counting them reads the index only.
    select(
        entry.c.id.label("position"),
        _name_of(entry.c.queue).label("queue"),
        select(lane.c.identifier).where(lane.c.id == entry.c.lane).scalar_subquery().label("sequence"),
        *of(entry, "number, settled_at, outcome, confirmed_at"),
    ).where(entry.c.reason == ANSWERED_WITH_FAULT),
)

_again: Final = entry.alias("again")


def _of_its_message(*where: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether its message has such an entry: itself, or one that replays it."""
    return select(_again.c.id).where(_again.c.message == entry.c.message, *where).exists()


_NOT_OWED: Final = ("empty_last_message", "not_told", "not_fetched")
"""Reasons of messages that have nothing to deliver, or that this side had to tell and no other side needs any more."""
_is_written_off: Final = or_(
    and_(_again.c.outcome == "dead", _again.c.confirmed_at.is_not(None)),
    and_(_again.c.outcome == "discarded", _again.c.reason == "by_operator"),
)

undelivered: Final = _view(
    "undelivered",
    # Without joins: whether a sequence has one is asked with every look at it.
    select(
        *of(entry, "lane as key, number, id as position, outcome, reason, settled_at"),
        case((_of_its_message(_is_written_off), 1), else_=0).label("confirmed"),
    ).where(
        # In the words of the index that has them.
        literal_column("entry.outcome IN ('dead', 'discarded')"),
        *(entry.c.reason.is_distinct_from(reason) for reason in _NOT_OWED),
        not_(_of_its_message(_again.c.outcome == "delivered")),
        # A replay that is gone was delivered: retention takes no other.
        or_(entry.c.reason.is_distinct_from("replayed"), _of_its_message(_again.c.id > entry.c.id)),
    ),
)

# connections

_is_behind: Final = and_(message.c.id > _upto(connection_message), message.c.connection.is_not(None))

connection_messages: Final = _view(
    "connection_messages",
    union_all(
        select(connection_message.c.connection, connection_message.c.message.label("position")),
        select(message.c.connection, message.c.id).where(_is_behind),
    ),
)


def _connections() -> SelectBase:
    """From one name to the next along the index, however many messages each has. A connection in both parts has its
    last message behind the watermark."""
    following = connection_message.alias("following")
    named = select(func.min(connection_message.c.connection).label("name")).cte("named", recursive=True)
    after = select(func.min(following.c.connection)).where(following.c.connection > named.c.name).scalar_subquery()
    named = named.union_all(select(after).where(named.c.name.is_not(None)))
    last = (
        select(func.max(connection_message.c.message))
        .where(connection_message.c.connection == named.c.name)
        .scalar_subquery()
    )
    each = union_all(
        select(named.c.name.label("connection"), last.label("last_position")).where(named.c.name.is_not(None)),
        select(message.c.connection, func.max(message.c.id)).where(_is_behind).group_by(message.c.connection),
    ).subquery("each")
    return select(each.c.connection, func.max(each.c.last_position).label("last_position")).group_by(each.c.connection)


connections: Final = _view("connections", _connections())

# plans

plans: Final = _view(
    "plans",
    select(
        *of(plan, "id as plan, digest, file, made_at, actor, reason, query, target, as_new, messages, state"),
        *(instance.c.name.label("runner"), instance.c.pid),
        *of(plan, "line, skipped, missing, begun_at, ended_at"),
    )
    .select_from(plan)
    .outerjoin(instance, and_(instance.c.id == plan.c.owner, instance.c.ended_at.is_(None))),
)

# archives


def _archived(kind: str) -> ColumnElement[int]:
    return (
        select(func.coalesce(func.sum(archived.c.upper - archived.c.lower + 1), 0))
        .where(archived.c.archive == archive.c.id, archived.c.kind == kind)
        .scalar_subquery()
    )


archives: Final = _view(
    "archives",
    select(
        *of(archive, "id as archive, place, number, read_at, confirmed_at, actor, ledger"),
        *(_archived("messages").label("positions"), _archived("sequences").label("sequences")),
    ),
)

# the ledger, and what is counted

_event: Final = (
    select(
        *of(ledger, "id as key, at, event"),
        _name_of(ledger.c.queue).label("queue"),
        lane.c.identifier.label("sequence"),
        *of(ledger, "number, position, instance, attempt, reason, actor, fault, exception, place"),
    )
    .select_from(ledger)
    .outerjoin(lane, lane.c.id == ledger.c.sequence)
)
ledger_events: Final = _view("ledger_events", _event)

attempts: Final = _view("attempts", _event.where(or_(*(ledger.c.event == event for event in ATTEMPTS))))

counters: Final = _view(
    "counters",
    select(
        counter.c.name,
        case((counter.c.queue == 0, ""), else_=_name_of(counter.c.queue)).label("queue"),
        *(counter.c.label, counter.c.value),
    ),
)

refusals: Final = _view("refusals", select(*of(refusal, "reason, partner, times, last_at, said")))
