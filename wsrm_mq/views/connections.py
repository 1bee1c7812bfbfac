"""Connections as the store knows them: by the messages that came on them.

Only reads, on any read-only connection to the store. Times are ms since the epoch.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from wsrm_mq.errors import NotFound
from wsrm_mq.store.late_index import BY_CONNECTION, CONNECTIONS

__all__ = ["ConnectionView", "connection", "connections", "find_connection"]


class ConnectionView(NamedTuple):
    """A connection's inbound queue."""

    name: str
    peer: str | None
    """The address that its last message came from."""
    principal: str | None
    """That of its last message."""
    messages: int
    unsettled: int
    first_seen: int
    last_seen: int


_NEWEST: Final = f"""
SELECT name, max(last) AS last FROM ({CONNECTIONS}) GROUP BY name ORDER BY last DESC LIMIT :count
"""
_COUNTED: Final = f"""
WITH its (id) AS MATERIALIZED ({BY_CONNECTION.keys})
SELECT count(*), min(id), (SELECT count(*) FROM its JOIN entry e ON e.message = its.id WHERE e.outcome IS NULL) FROM its
"""
_LAST: Final = f"SELECT max(id) FROM ({BY_CONNECTION.keys})"
_NEXT_NAME: Final = f"""
SELECT min(name) FROM (
    SELECT min(connection) AS name FROM connection_message WHERE connection > :after
    UNION ALL
    SELECT min(connection) FROM message WHERE id > {BY_CONNECTION.upto} AND connection > :after
)
"""


def connections(db: sqlite3.Connection, *, limit: int = 50) -> list[ConnectionView]:
    """The connections that sent something last, newest first."""
    return [_view(db, name, last) for name, last in db.execute(_NEWEST, {"count": limit}).fetchall()]


def connection(db: sqlite3.Connection, name: str) -> ConnectionView:
    """The connection with this name, or ``NotFound``."""
    (last,) = db.execute(_LAST, {"connection": name}).fetchone()
    if last is None:
        raise NotFound(f"There is no connection {name}, or its messages were pruned.")
    return _view(db, name, last)


def find_connection(db: sqlite3.Connection, text: str) -> str:
    """The name that ``text`` means: itself, or the only one that begins with it. Raises ``NotFound``."""
    if db.execute(f"SELECT EXISTS ({BY_CONNECTION.keys})", {"connection": text}).fetchone()[0]:
        return text
    found: list[str] = []
    after = text
    while len(found) < 3:
        (name,) = db.execute(_NEXT_NAME, {"after": after}).fetchone()
        if name is None or not name.startswith(text):
            break
        found.append(after := name)
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"There is no connection {text}; `wsrm-mq connection list` shows those there are.")
    several = ", ".join(found[:2]) + (", …" if len(found) > 2 else "")
    raise NotFound(f"{text} fits several connections: {several}. Write more of it.")


def _view(db: sqlite3.Connection, name: str, last: int) -> ConnectionView:
    messages, first, unsettled = db.execute(_COUNTED, {"connection": name}).fetchone()
    (first_seen,) = db.execute("SELECT received_at FROM message WHERE id = ?", (first,)).fetchone()
    peer, principal, last_seen = db.execute(
        "SELECT json_extract(environ, '$.REMOTE_ADDR'), principal, received_at FROM message WHERE id = ?", (last,)
    ).fetchone()
    return ConnectionView(name, peer, principal, messages, unsettled, first_seen, last_seen)
