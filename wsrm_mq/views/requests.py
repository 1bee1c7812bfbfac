"""The requests of an RM Source, by the sequence that they go out in: what waits, since when, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

from sqlalchemy import ColumnElement, Select, and_, bindparam, func, select

from wsrm_mq.acts import Step, others
from wsrm_mq.errors import QueryError
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import published as views
from wsrm_mq.store.applications import HOP, SIGNED, Serving, sent_queue, served, source_queue
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import bound, compiled, of
from wsrm_mq.store.tables import channel, entry, lane, message, queue
from wsrm_mq.views.conditions import conditions
from wsrm_mq.views.naming import refuse_unknown
from wsrm_mq.views.query import Query
from wsrm_mq.views.words import counted, moment, span

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


_R: Final = views.request_sequences
_lanes: Final = select(channel.c.lane).where(channel.c.outbound == _R.c.key).correlate(_R)
_is_in_lane: Final = entry.c.lane.in_(_lanes.where(channel.c.is_numbered == 1))
_is_waiting: Final = and_(_is_in_lane, entry.c.outcome.is_(None), entry.c.number >= 1)
_count: Final = select(func.count()).select_from(entry)


def _its(found: Select[Any]) -> ColumnElement[Any]:
    """The answer of a statement about one sequence."""
    return found.correlate(_R).scalar_subquery()


_ALL: Final = (
    select(
        *of(_R, "key, sends_to, sequence, rm, state, sent, acknowledged"),
        _its(_count.where(_is_waiting)),
        _its(_count.where(_is_in_lane, entry.c.outcome == "dead", entry.c.confirmed_at.is_(None))),
        _its(select(func.min(message.c.received_at)).join(entry, entry.c.message == message.c.id).where(_is_waiting)),
        _its(
            select(entry.c.last_error)
            .where(entry.c.lane.in_(_lanes), entry.c.outcome.is_(None), entry.c.last_error.is_not(None))
            .order_by(entry.c.number, entry.c.id)
            .limit(1)
        ),
        *(_its(select(func.max(lane.c[name])).where(lane.c.id.in_(_lanes))) for name in ("retry_at", "on_hold_since")),
        *of(_R, "offered, replied, acks_to"),
        func.coalesce(queue.c.application == SIGNED, False),
    )
    .join(queue, queue.c.name == _R.c.queue)
    .order_by(_R.c.key)
)
_TO_NODE: Final = _R.c.queue.startswith(HOP)
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
        text, values = bound(_TO_PARTNERS.where(*conditions(query, _R)))
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
