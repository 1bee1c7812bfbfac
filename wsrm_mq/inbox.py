"""Exactly-once effects: the mark of a message, in the application's own database and transaction.

A crash between the work of an operation and our settlement makes us deliver its message once more. ``once``
writes the message's key into the table ``wsrm_inbox`` beside the work: both are committed or neither::

    if once(connection, environ):
        connection.execute("INSERT INTO orders VALUES (?, ?)", (number, text))
    connection.commit()

and where the operation has an answer::

    mark = once(connection, environ)
    if mark.is_new:
        mark.keep(book(connection, order))
    connection.commit()
    return mark.reply

Call it first in the transaction: SQLite cannot make a transaction that has read into one that writes while
another one writes. Nothing here commits or rolls back. Of two calls at once with one key the second waits for
the end of the first, by the database's own rules (SQLite: the connection's timeout), and is not new if the
first was committed.

The table is made where it is missing, in the same transaction; sqlite3, which begins a transaction by itself
only for rows, may make the empty table a moment before. A database that commits when a table is made (MySQL,
Oracle) has to have it already: the ``InboxError`` shows the statement.

A table of that name that does not outlive the connection (TEMPORARY) or a crash of the server (UNLOGGED in
PostgreSQL) would forget what was done: it is refused on SQLite and PostgreSQL.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from wsrm_mq.databases import Database, Table, Values, database_of
from wsrm_mq.errors import InboxError

__all__ = ["Mark", "forget", "once"]

_TABLE: Final = Table(
    "wsrm_inbox",
    "once()",
    InboxError,
    "it forgets its marks, and the work of a redelivered message would be done again",
    """
  sequence_id VARCHAR(255) NOT NULL,
  number BIGINT NOT NULL,
  replay_id VARCHAR(255) NOT NULL,
  marked_at BIGINT NOT NULL,
  reply {bytes},
  reply_is_text SMALLINT,
  PRIMARY KEY (sequence_id, number, replay_id)
""",
    key="sequence_id, number, replay_id",
)
"""``marked_at``: ms since the epoch. A text is kept as UTF-8."""

_OF_KEY: Final = "WHERE sequence_id = :sequence_id AND number = :number AND replay_id = :replay_id"
_REPLY: Final = f"SELECT reply, reply_is_text FROM wsrm_inbox {_OF_KEY}"
_KEEP: Final = f"UPDATE wsrm_inbox SET reply = :reply, reply_is_text = :is_text {_OF_KEY}"
_FORGET: Final = "DELETE FROM wsrm_inbox WHERE marked_at < :before"


class Mark:
    """The mark of a message. It is true where the message is new."""

    __slots__ = ("_database", "_key", "is_new", "reply")

    def __init__(self, is_new: bool, reply: str | bytes | None, database: Database | None, key: Values):
        self.is_new = is_new
        """The work is not done yet: do it, in this transaction."""
        self.reply = reply
        """The reply that was kept with the mark; ``None`` where none was."""
        self._database = database
        self._key = key

    def __bool__(self) -> bool:
        return self.is_new

    def keep(self, reply: str | bytes) -> None:
        """Keep ``reply`` with the mark, for a redelivery. To be called before the commit.

        Raises ``InboxError`` where the message is not new: its reply was kept the first time.
        """
        if not self.is_new:
            raise InboxError("This message is a redelivery: answer with `reply`, kept the first time.")
        self.reply = reply
        if self._database is not None:
            is_text = isinstance(reply, str)
            stored = reply.encode() if isinstance(reply, str) else reply
            self._database.run(_KEEP, {**self._key, "reply": stored, "is_text": int(is_text)})


def once(connection: object, environ: Mapping[str, Any]) -> Mark:
    """Mark the message of this request in the application's database; tells whether it is the first time.

    ``connection``: a ``sqlite3.Connection``, a psycopg 3 ``Connection`` (in pipeline mode too), a SQLAlchemy
    ``Connection`` or ``Session``, or ``django.db.connection`` inside ``transaction.atomic()``. ``environ``: the
    request's WSGI environ, as the middleware gave it. A redelivery, the redrive of a dead letter and a replay have the
    first delivery's key; only the replay by a plan that says so is a new message. Outside WS-RM every message is new
    and nothing is written.

    Raises ``InboxError`` for a connection that it cannot use, and what the database itself raises.
    """
    key = _key(environ)
    if key is None:
        return Mark(True, None, None, {})
    database = database_of(connection, _TABLE)
    if database.insert({**key, "marked_at": _now()}):
        return Mark(True, None, database, key)
    row = database.run(_REPLY, key).fetchone()
    tell_known = environ.get("wsrm.known")
    if tell_known is not None:  # it is replayed: the run counts what was done before
        tell_known()
    if row is None:
        raise InboxError(
            "Another transaction has marked this message since this one began, and the isolation level hides"
            " it. Roll back and raise: the message will be delivered again."
        )
    reply, is_text = row
    if reply is not None:
        reply = bytes(reply).decode() if is_text else bytes(reply)
    return Mark(False, reply, database, key)


def forget(connection: object, older_than: timedelta) -> int:
    """Delete the marks older than that, in the open transaction; answers how many there were.

    A message whose mark is forgotten would be new again: keep marks for longer than messages can wait
    unsettled or dead letters be redriven.
    """
    database = database_of(connection, _TABLE)
    database.create_table()
    return database.delete(_FORGET, {"before": _now() - int(older_than.total_seconds() * 1000)})


def _now() -> int:
    return time.time_ns() // 1_000_000


def _key(environ: Mapping[str, Any]) -> Values | None:
    """The message's key; ``None`` outside WS-RM."""
    identifier = environ.get("wsrm.sequence_id")
    if not identifier:
        return None
    number = environ.get("wsrm.message_number")
    if not isinstance(number, int):
        raise InboxError(f"wsrm.message_number is {number!r}: WSRMMiddleware did not make this environ.")
    return {"sequence_id": identifier, "number": number, "replay_id": environ.get("wsrm.replay_id") or ""}
