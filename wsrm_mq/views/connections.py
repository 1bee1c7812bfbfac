"""Connections as the store knows them: by the messages that came on them.

Only reads the published views. Times are ms since the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, func, not_, or_, select

from wsrm_mq.errors import NotFound
from wsrm_mq.store import published as views
from wsrm_mq.store.applications import FETCHED, SENT
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.port import Database
from wsrm_mq.views.naming import ELLIPSIS


class ConnectionView(NamedTuple):
    """A connection's inbound queue."""

    name: str
    peer: str | None
    """The address that its last message came from."""
    principal: str | None
    """The principal of its last message."""
    messages: int
    unsettled: int
    first_seen: int
    last_seen: int


p = bindparam
_each: Final = views.connections.c
_its: Final = views.connection_messages.c
_message: Final = views.messages.c
_ITS_POSITIONS: Final = select(_its.position).where(_its.connection == p("connection"))
# The newest requests, as far as they are stored: an examination of proxies and of the clock looks at them.

_NEWEST: Final = compiled(select(_each.connection).order_by(_each.last_position.desc()).limit(p("count")))
_NEXT_NAME: Final = compiled(
    select(_its.connection).where(_its.connection > p("after")).order_by(_its.connection).limit(1)
)
_ONE: Final = compiled(_ITS_POSITIONS.limit(1))
_MESSAGES: Final = compiled(
    _ITS_POSITIONS.with_only_columns(func.count(), func.min(_its.position), func.max(_its.position))
)
_UNSETTLED: Final = compiled(
    select(func.count()).where(_message.position.in_(_ITS_POSITIONS), _message.outcome.is_(None))
)
_MESSAGE: Final = compiled(
    select(_message.peer, _message.principal, _message.received_at).where(_message.position == p("position"))
)


def connections(db: Database, *, limit: int = 50) -> list[ConnectionView]:
    """The connections that sent something last, newest first."""
    return [connection(db, name) for (name,) in db.execute(_NEWEST, {"count": limit}).fetchall()]


def connection(db: Database, name: str) -> ConnectionView:
    """The connection with this name, or ``NotFound``."""
    count, first, last = db.execute(_MESSAGES, {"connection": name}).fetchone()
    if not count:
        raise NotFound(f"There is no connection {name}, or its messages were pruned.")
    (unsettled,) = db.execute(_UNSETTLED, {"connection": name}).fetchone()
    _peer, _principal, first_seen = db.execute(_MESSAGE, {"position": first}).fetchone()
    peer, principal, last_seen = db.execute(_MESSAGE, {"position": last}).fetchone()
    return ConnectionView(name, peer, principal, count, unsettled, first_seen, last_seen)


def find_connection(db: Database, text: str) -> str:
    """The name that ``text`` means: itself, or the only one that begins with it. Raises ``NotFound``."""
    part = text.strip(ELLIPSIS)
    if db.execute(_ONE, {"connection": part}).fetchone() is not None:
        return part
    found = list(islice(names_from(db, part), 3))
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"There is no connection {text}; `wsrm-mq connection list` shows those there are.")
    several = ", ".join(found[:2]) + (", …" if len(found) > 2 else "")
    raise NotFound(f"{text} fits several connections: {several}. Write more of it.")


def names_from(db: Database, part: str) -> Iterator[str]:
    """The names that begin with ``part``, in their order; read one by one."""
    name = part
    while (row := db.execute(_NEXT_NAME, {"after": name}).fetchone()) is not None and row[0].startswith(part):
        name = row[0]
        yield name


class StoredRequest(NamedTuple):
    """The HTTP request that brought a message, as far as the store keeps it."""

    position: int
    received_at: int
    """ms since the epoch."""
    environ: dict[str, Any]
    """The part that is stored, in the words of WSGI."""


_m: Final = views.messages.c
_NEWEST_REQUESTS: Final = compiled(
    select(_m.position, _m.received_at, _m.request)
    .where(_m.replay_of.is_(None), not_(or_(_m.queue.startswith(SENT), _m.queue.startswith(FETCHED))))
    .order_by(_m.position.desc())
    .limit(bindparam("count"))
)
_LAST_EVENT: Final = compiled(select(func.max(views.ledger_events.c.key)))
_TOLD_AT: Final = compiled(select(views.ledger_events.c.at).where(views.ledger_events.c.key == bindparam("key")))


_OVERDUE: Final = compiled(
    select(func.count(), func.min(views.sequences.c.due_at)).where(views.sequences.c.due_at < bindparam("before"))
)


def overdue(db: Database, before: int) -> tuple[int, int | None]:
    """How many sequences have not ended that were to before that, and when the first was; ms since the epoch."""
    count, first = db.execute(_OVERDUE, {"before": before}).fetchone()
    return count, first


def newest_requests(db: Database, count: int) -> list[StoredRequest]:
    """The newest first."""
    rows = db.execute(_NEWEST_REQUESTS, {"count": count})
    return [StoredRequest(position, at, json.loads(request)) for position, at, request in rows]


def last_told(db: Database) -> int | None:
    """When the last event of the ledger was written."""
    (key,) = db.execute(_LAST_EVENT).fetchone()
    row = db.execute(_TOLD_AT, {"key": key}).fetchone()
    return row[0] if row is not None else None
