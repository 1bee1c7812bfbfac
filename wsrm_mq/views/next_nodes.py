"""The next nodes of a node: what waits for each, since when, and what failed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, select

from wsrm_mq.acts import Step, others
from wsrm_mq.store import published as views
from wsrm_mq.store import routing
from wsrm_mq.store.applications import HOP, INTAKE, hop_queue, sent_queue, served
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import compiled
from wsrm_mq.store.tables import entry, hop, message, outbound_sequence, routed
from wsrm_mq.views.requests import Requests, requests_to_nodes
from wsrm_mq.views.words import counted, moment, span

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
_m: Final = views.messages.c
_IN_INTAKE: Final = compiled(
    select(_m.received_at)
    .where(_m.queue == INTAKE, _m.outcome.is_(None), _m.priority.is_not(None))
    .order_by(_m.position)
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
    return any(HOP in (one.paths or ()) for one in served(db))


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
