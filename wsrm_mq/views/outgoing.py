"""Outgoing messages: the sequences that replies go out in, and what their sources have acknowledged of them; the
requests of an RM Source; and what waits for the next nodes of a node.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

from sqlalchemy import ColumnElement, Integer, and_, bindparam, case, func, select

from wsrm_mq.acts import Step, others
from wsrm_mq.errors import QueryError
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.store import published as views
from wsrm_mq.store import routing
from wsrm_mq.store.applications import HOP, INTAKE, SENT, SIGNED, Serving, hop_queue, sent_queue, served, source_queue
from wsrm_mq.store.driver import file_of, instances_of
from wsrm_mq.store.outbound import HAS_ENDED
from wsrm_mq.store.port import Database
from wsrm_mq.store.running import delivery_is
from wsrm_mq.store.sql import bound, compiled
from wsrm_mq.store.tables import channel, entry, hop, lane, message, outbound_sequence, queue, routed, sequence
from wsrm_mq.views.naming import refuse_unknown
from wsrm_mq.views.query import Query, conditions
from wsrm_mq.views.words import counted, moment, span

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


# The requests of an RM Source, by the sequence that they go out in: what waits, since when, and why.


REQUESTS_STUCK_FOR: Final = 300_000
"""Requests that have waited for less, in ms, need no attention."""


NO_SIGNER: Final = "it waits for a client that can sign"


class Requests(NamedTuple):
    """The requests of one sequence. Times in ms since the epoch."""

    key: int
    to: str
    sequence: str
    """Its name; until the destination has created it, that of the request that asks for it."""
    rm: str
    state: str
    sent: int
    """The highest number that was given."""
    acknowledged: str
    waiting: int
    """Requests that are not acknowledged, or not replied to."""
    dead: int
    """Requests that were given up, and no operator has confirmed it."""
    since: int | None
    """When the oldest of those that wait was stored."""
    error: str | None
    """Why the last attempt was in vain."""
    next_at: int | None
    on_hold_since: int | None
    offered: str | None
    """The sequence that it offers for the replies to them."""
    replied: str
    """The numbers of the replies that have come there."""
    acks_to: str | None
    """The address of this side at which they are acknowledged and replied to; ``None``: the responses."""
    signed: bool
    """They leave signed, by a program that has a signer for ``to``."""

    @classmethod
    def load(cls, row: tuple[Any, ...], live: Sequence[Serving]) -> Self:
        """``live``: what the processes that live serve."""
        one = cls(*row)._replace(signed=bool(row[-1]))
        is_unsigned = one.signed and one.waiting and not is_sent(one, live)
        return one._replace(error=NO_SIGNER) if is_unsigned else one


class WaitingRequest(NamedTuple):
    """A request that waits."""

    position: int
    number: int
    message_id: str
    action: str | None
    stored_at: int
    tries: int
    error: str | None


_o: Final = outbound_sequence.c
_of_sequence: Final = channel.alias()
_lane: Final = select(channel.c.lane).where(channel.c.outbound == _o.id, channel.c.is_numbered == 1)
_lanes: Final = select(_of_sequence.c.lane).where(_of_sequence.c.outbound == _o.id)
_is_waiting: Final = and_(
    entry.c.lane.in_(_lane.correlate(outbound_sequence)), entry.c.outcome.is_(None), entry.c.number >= 1
)
_WAITING: Final = select(func.count()).where(_is_waiting).correlate(outbound_sequence).scalar_subquery()
_DEAD: Final = (
    select(func.count())
    .where(
        entry.c.lane.in_(_lane.correlate(outbound_sequence)), entry.c.outcome == "dead", entry.c.confirmed_at.is_(None)
    )
    .correlate(outbound_sequence)
    .scalar_subquery()
)
_SINCE: Final = (
    select(func.min(message.c.received_at))
    .join(entry, entry.c.message == message.c.id)
    .where(_is_waiting)
    .correlate(outbound_sequence)
    .scalar_subquery()
)
_ERROR: Final = (
    select(entry.c.last_error)
    .where(
        entry.c.lane.in_(_lanes.correlate(outbound_sequence)),
        *(entry.c.outcome.is_(None), entry.c.last_error.is_not(None)),
    )
    .order_by(entry.c.number, entry.c.id)
    .limit(1)
    .correlate(outbound_sequence)
    .scalar_subquery()
)


def _of_lanes(column: str) -> ColumnElement[int]:
    lanes = lane.c.id.in_(_lanes.correlate(outbound_sequence))
    highest: ColumnElement[int] = func.max(lane.c[column])
    return select(highest).where(lanes).correlate(outbound_sequence).scalar_subquery()


_ALL: Final = (
    select(
        *(_o.id, _o.peer, _o.identifier, _o.rm, case((HAS_ENDED, "ended"), else_=_o.state), _o.given, _o.acknowledged),
        *(_WAITING, _DEAD, _SINCE, _ERROR, _of_lanes("retry_at"), _of_lanes("on_hold_since")),
        *(func.nullif(_o.offered, ""), _o.replied, _o.principal),
        func.coalesce(queue.c.application == SIGNED, False),
    )
    .join(queue, queue.c.id == _o.queue)
    .where(_o.answers.is_(None))
    .order_by(_o.id)
)
_TO_NODE: Final = _o.queue.in_(select(queue.c.id).where(queue.c.name.startswith(HOP)))
_TO_PARTNERS: Final = _ALL.where(~_TO_NODE)
_EVERY: Final = compiled(_TO_PARTNERS)
_TO_NODES: Final = compiled(_ALL.where(_TO_NODE))
_REQUESTS: Final = compiled(
    select(
        *(entry.c.id, entry.c.number, message.c.message_id, message.c.action, message.c.received_at),
        *(entry.c.deliveries, entry.c.last_error),
    )
    .join(message, message.c.id == entry.c.message)
    .join(channel, and_(channel.c.lane == entry.c.lane, channel.c.is_numbered == 1))
    .where(channel.c.outbound == bindparam("key"), entry.c.outcome.is_(None), entry.c.number >= 1)
    .order_by(entry.c.number)
    .limit(bindparam("limit"))
)


def all_requests(db: Database, to: str | None = None, query: Query | None = None) -> list[Requests]:
    """The requests of each sequence that has not ended, or has something that waits or was given up. ``to``: to that
    destination only, or of the sequence of that name, or whose replies come in it, also where it has ended.
    ``query``: where it or one of its requests fits."""
    text, values = _EVERY, dict[str, object]()
    if query is not None and query.terms:
        refuse_unknown(db, query, views.messages)
        if any(term.key == "verdict" for term in query.terms):
            raise QueryError("verdict: requests have none; see `wsrm-mq source explain`.")
        text, values = bound(_TO_PARTNERS.where(*conditions(query, outbound_sequence)))
    live = served(db)
    found = [Requests.load(row, live) for row in db.execute(text, values).fetchall()]
    if to is not None:
        return [one for one in found if to in (one.to, one.sequence, one.offered)]
    return [one for one in found if one.state != "ended" or one.waiting or one.dead]


def requests_to_nodes(db: Database) -> list[Requests]:
    """Messages on their way to next nodes, which go as requests do."""
    found = [Requests.load(row, []) for row in db.execute(_TO_NODES).fetchall()]
    return [one for one in found if one.state != "ended" or one.waiting or one.dead]


def waiting_of(db: Database, one: Requests, limit: int) -> list[WaitingRequest]:
    """The requests of a sequence that wait, the first ``limit`` of them."""
    return [WaitingRequest(*row) for row in db.execute(_REQUESTS, {"key": one.key, "limit": limit}).fetchall()]


def is_sent(one: Requests, live: Sequence[Serving]) -> bool:
    """Whether a program lives that sends them, and signs them where they are to be."""
    leave = sent_queue(source_queue(one.to)), SIGNED if one.signed else None
    return any(serving._replace(sends=True).may_run(*leave) for serving in live)


def is_stuck(one: Requests, now: int) -> bool:
    """Whether its requests have waited for so long that an operator has to know."""
    return bool(one.waiting) and one.since is not None and now - one.since >= REQUESTS_STUCK_FOR


def told_of_requests(one: Requests, now: int, *, is_sent: bool) -> str:
    """The state of the requests of one sequence, as a sentence. ``is_sent``: a program that sends them lives."""
    if not one.waiting:
        gone = f"{counted(one.dead, 'was', 'were')} given up" if one.dead else "all are acknowledged"
        return f"Nothing waits for {one.to}: of {counted(one.sent, 'request')} {gone}."
    since = "" if one.since is None else f" for {span(now - one.since)}"
    waits = f"{counted(one.waiting, 'request')} to {one.to} {'waits' if one.waiting == 1 else 'wait'}{since}"
    if one.on_hold_since is not None:
        return f"{waits}: held by an operator since {moment(one.on_hold_since)}."
    if not is_sent and one.signed:
        return (
            f"{waits} for a client that can sign: none that lives has a signer for it, and no key is stored. Start the "
            "program that sends there with its wsse; where nothing is to be signed any more: RMSource.sign(to, None)."
        )
    if not is_sent:
        return f"{waits}, and no program that sends from this store lives: start it."
    if one.error is not None:
        again = "" if one.next_at is None or one.next_at <= now else f" The next attempt is at {moment(one.next_at)}."
        return f"{waits}. The last attempt: {one.error}.{again}"
    if one.state == "closed" or AckRanges.parse(one.acknowledged).count() == one.sent:
        where = "" if one.acks_to is None else f" at {one.acks_to}"
        return f"{waits} to be replied to{where}; all are acknowledged."
    if one.acks_to is not None:
        return (
            f"{waits} to be acknowledged at {one.acks_to}; it is sent again until then. A program with that acks_to "
            "has to run, and the destination to reach it there."
        )
    return f"{waits} to be acknowledged; it is sent again until then."


def steps_for_requests(one: Requests, *, is_sent: bool) -> tuple[Step, ...]:
    """The commands that an operator may choose from for the requests of one sequence."""
    steps = []
    if one.waiting and one.on_hold_since is not None:
        steps.append(others.RESUME_SOURCE.step("they are sent again", one.to))
    elif one.waiting and is_sent:
        steps.append(others.RESEND.step("they are tried now", one.to))
    elif one.waiting:
        steps.append(others.REQUESTS_SHOWN.step("which they are; the program that sent them goes on with them", one.to))
    if one.waiting:
        steps.append(others.TERMINATE_SOURCE.step("what waits is given up, as dead letters", one.to))
    if one.dead:
        steps.append(others.LETTERS.step("what was given up, and why", f"queue:{sent_queue(source_queue(one.to))}"))
    return tuple(steps)


# The next nodes of a node: what waits for each, since when, and what failed.


NODE_STUCK_FOR: Final = 60_000
"""Messages that have waited for less, in ms, need no attention, nor does a node that is away for less."""


_TOLD_FOR: Final = 86_400_000
"""Milliseconds for which it is told that a next node has forgotten something."""


class NextNode(NamedTuple):
    """A node that routes lead to, or that something waits for. Times in ms since the epoch."""

    next_hop: str
    """Its URL."""
    patterns: list[str]
    """The patterns of the routes to it."""
    away_since: int | None
    """It does not answer since then."""
    asked_next_at: int | None
    """When it is asked again, or something that waits is tried again, whichever comes first."""
    error: str | None
    """Why it is away, or why the last attempt was in vain."""
    sent: int
    """Messages that were stored for it in sequences that are shown yet."""
    waiting: int
    since: int | None
    """When the oldest of those that wait was stored."""
    dead: int
    """Messages that were given up on the way to it, and no operator has confirmed it."""
    forgot: str | None
    """The numbers that it had acknowledged and lacks since, and when that was seen."""
    forgot_at: int | None


class WaitingMessage(NamedTuple):
    """A message that waits for a next node."""

    position: int
    target: str
    stored_at: int
    tries: int
    error: str | None


_FOR_NODE: Final = compiled(
    routing.WAITS.join(message, message.c.id == entry.c.message)
    .with_only_columns(entry.c.id, routed.c.target, message.c.received_at, entry.c.deliveries, entry.c.last_error)
    .where(outbound_sequence.c.peer == bindparam("next_hop"))
    .order_by(entry.c.id)
    .limit(bindparam("limit"))
)
_KNOWN: Final = compiled(
    select(*(hop.c[name] for name in ("address", "away_since", "tried_next_at", "last_error", "forgot", "forgot_at")))
)
_SERVERS: Final = compiled(
    select(views.instances.c.instance).where(
        views.instances.c.ended_at.is_(None), views.instances.c.paths.startswith(f'["{HOP}')
    )
)
_IN_INTAKE: Final = compiled(
    select(message.c.received_at)
    .join(entry, entry.c.message == message.c.id)
    .join(queue, queue.c.id == entry.c.queue)
    .where(queue.c.name == INTAKE, entry.c.outcome.is_(None), entry.c.priority.is_not(None))
    .order_by(entry.c.id)
    .limit(1)
)


def next_nodes(db: Database) -> list[NextNode]:
    """All of them, in the order of their URLs."""
    known = {row[0]: row[1:] for row in db.execute(_KNOWN).fetchall()}
    patterns: dict[str, list[str]] = defaultdict(list)
    for _key, pattern, next_hop, *_ in db.execute(routing.ROUTES).fetchall():
        patterns[next_hop].append(pattern)
    sent: dict[str, list[Requests]] = defaultdict(list)
    for one in requests_to_nodes(db):
        sent[one.to].append(one)
    return [
        _next_node(address, patterns[address], known.get(address, (None,) * 5), sent[address])
        for address in sorted({*patterns, *sent})
    ]


def _next_node(
    address: str,
    patterns: list[str],
    known: tuple[Any, ...],
    sent: list[Requests],
) -> NextNode:
    away_since, asked_next_at, why, *forgot = known
    tried = [one.next_at for one in sent if one.waiting]  # what waits for it is tried by itself too
    return NextNode(
        address,
        patterns,
        away_since,
        min((at for at in (asked_next_at, *tried) if at is not None), default=None),
        why if away_since is not None else next((one.error for one in sent if one.error is not None), None),
        sum(one.sent for one in sent),
        sum(one.waiting for one in sent),
        min((one.since for one in sent if one.since is not None), default=None),
        sum(one.dead for one in sent),
        *forgot,
    )


def waiting_for(db: Database, next_hop: str, limit: int) -> list[WaitingMessage]:
    """The first ``limit`` messages that wait for a next node."""
    rows = db.execute(_FOR_NODE, {"next_hop": next_hop, "limit": limit}).fetchall()
    return [WaitingMessage(*row) for row in rows]


def is_forwarding(db: Database) -> bool:
    """Whether a process that lives sends to other nodes from the store, and places what they have handed over."""
    there = instances_of(file_of(db))
    return any(there.lives(name) for (name,) in db.execute(_SERVERS).fetchall())


def unplaced_since(db: Database) -> int | None:
    """When the oldest message came that another node has handed over and that waits for its place."""
    return next((at for (at,) in db.execute(_IN_INTAKE)), None)


def _is_lately(at: int | None, now: int) -> bool:
    return at is not None and now - at < _TOLD_FOR


def needs_attention(one: NextNode, now: int, *, is_sent: bool) -> bool:
    since = one.away_since if is_sent or one.since is None else one.since
    return _is_lately(one.forgot_at, now) or (since is not None and now - since >= NODE_STUCK_FOR)


def told_of_node(one: NextNode, now: int, *, is_sent: bool) -> str:
    """The state of a next node, in sentences. ``is_sent``: a process that sends to it lives."""
    state = _state(one, now, is_sent=is_sent)
    if one.forgot_at is None or not _is_lately(one.forgot_at, now):
        return state
    return (
        f"{state} It lacks {one.forgot}, which it had acknowledged, as was seen at {moment(one.forgot_at)}: it was put "
        "back from an old copy. Unless it had handed them on before, these messages are lost."
    )


def _state(one: NextNode, now: int, *, is_sent: bool) -> str:
    waits = f"{counted(one.waiting, 'message waits', 'messages wait')} for {one.next_hop}"
    waits += "" if one.since is None else f" for {span(now - one.since)}"
    if one.waiting and not is_sent:
        return f"{waits}, and no process sends them: start `wsrm-mq queue-server`."
    if one.away_since is not None:
        again = "" if one.asked_next_at is None else f" It is asked again at {moment(one.asked_next_at)}."
        return f"{one.next_hop} is away since {moment(one.away_since)}: {one.error}. {waits}.{again}"
    if one.waiting:
        return f"{waits}." if one.error is None else f"{waits}. The last attempt: {one.error}."
    return f"Nothing waits for {one.next_hop}."


def steps_for_node(one: NextNode) -> tuple[Step, ...]:
    """The commands that an operator may choose from for what waits for a next node."""
    steps = [others.NODE.step("what waits for it, and what failed", one.next_hop)]
    if one.patterns:
        steps.append(others.ROUTE_TEST.step("ask it now, as a message would", one.patterns[0].replace("*", "x")))
    if one.dead:
        steps.append(others.LETTERS.step("what was given up, and why", f"queue:{sent_queue(hop_queue(one.next_hop))}"))
    return tuple(steps)
