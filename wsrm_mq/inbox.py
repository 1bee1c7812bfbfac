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

import re
import sqlite3
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from wsrm_mq.errors import InboxError

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy

__all__ = ["Mark", "forget", "once"]

_CREATE: Final = """\
CREATE TABLE IF NOT EXISTS wsrm_inbox (
  sequence_id VARCHAR(255) NOT NULL,
  number BIGINT NOT NULL,
  replay_id VARCHAR(255) NOT NULL,
  marked_at BIGINT NOT NULL,
  reply {bytes},
  reply_is_text SMALLINT,
  PRIMARY KEY (sequence_id, number, replay_id)
)"""
"""``marked_at``: ms since the epoch. A text is kept as UTF-8."""

_INSERT: Final = """\
INSERT INTO wsrm_inbox (sequence_id, number, replay_id, marked_at)
VALUES (:sequence_id, :number, :replay_id, :marked_at)"""
_INSERT_OR_NOT: Final = f"{_INSERT} ON CONFLICT (sequence_id, number, replay_id) DO NOTHING"
"""The key is named: a table without it, in which every message would be new, is an error."""

_OF_KEY: Final = "WHERE sequence_id = :sequence_id AND number = :number AND replay_id = :replay_id"
_REPLY: Final = f"SELECT reply, reply_is_text FROM wsrm_inbox {_OF_KEY}"
_KEEP: Final = f"UPDATE wsrm_inbox SET reply = :reply, reply_is_text = :is_text {_OF_KEY}"
_FORGET: Final = "DELETE FROM wsrm_inbox WHERE marked_at < :before"

_TEMPORARY_HERE: Final = "SELECT count(*) FROM sqlite_temp_master WHERE lower(name) = 'wsrm_inbox'"
_PERSISTENCE: Final = "SELECT relpersistence FROM pg_class WHERE oid = to_regclass('wsrm_inbox')"
"""PostgreSQL: ``p`` permanent, ``u`` unlogged, ``t`` temporary; no row where there is no table."""

Values = Mapping[str, str | int | bytes]


class Mark:
    """The mark of a message. It is true where the message is new."""

    __slots__ = ("_database", "_key", "is_new", "reply")

    def __init__(self, is_new: bool, reply: str | bytes | None, database: _Database | None, key: Values):
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
    database = _database(connection)
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
    database = _database(connection)
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


# ---- the databases


class _Result(Protocol):
    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...


class _Database(Protocol):
    """A connection with an open transaction, or one that opens it by itself with the first row written."""

    def run(self, statement: str, values: Values) -> _Result:
        """Execute a statement with ``:name`` parameters."""

    def create_table(self) -> None:
        """Make the table, unless it is there."""

    def insert(self, values: Values) -> bool:
        """Write the mark, in a table that may be missing; ``False`` where it was there before."""

    def delete(self, statement: str, values: Values) -> int:
        """Execute a DELETE; answers how many rows it took."""


class _SQLite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        commits_by_itself = connection.isolation_level is None
        if sys.version_info >= (3, 12) and connection.autocommit != sqlite3.LEGACY_TRANSACTION_CONTROL:
            commits_by_itself = connection.autocommit is True
        if commits_by_itself and not connection.in_transaction:
            raise InboxError(
                "This sqlite3 connection commits each statement by itself, so mark and work would not be one."
                " Execute BEGIN IMMEDIATE first, or connect without isolation_level=None and autocommit=True."
            )
        self._connection = connection
        if self.run(_TEMPORARY_HERE, {}).fetchone() != (0,):
            raise _forgetful("temporary")

    def run(self, statement: str, values: Values) -> _Result:
        cursor = self._connection.cursor()
        cursor.row_factory = None  # the application's own could give anything
        return cursor.execute(statement, values)

    def create_table(self) -> None:
        ours = "SELECT count(*) FROM sqlite_master WHERE name IN ('entry', 'sequence', 'ledger')"
        if self.run(ours, {}).fetchone() == (3,):
            raise InboxError(
                "This is the store of wsrm_mq, which is not for application data: a transaction left open in"
                " it would stop every message. Connect to a database of your own."
            )
        self.run(_CREATE.format(bytes="BLOB"), {})

    def insert(self, values: Values) -> bool:
        # The mark first, without a look whether the table is there: a look would make this a reader.
        try:
            return self.run(_INSERT_OR_NOT, values).rowcount == 1
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
        self.create_table()
        return self.run(_INSERT_OR_NOT, values).rowcount == 1

    def delete(self, statement: str, values: Values) -> int:
        return self.run(statement, values).rowcount


class _Psycopg:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        if connection.autocommit and connection.info.transaction_status.name == "IDLE":
            raise InboxError(
                "This psycopg connection commits each statement by itself, so mark and work would not be one."
                " Use `with connection.transaction():`, or connect without autocommit."
            )
        self._connection = connection

    def run(self, statement: str, values: Values) -> _Result:
        from psycopg.rows import tuple_row

        cursor = self._connection.cursor(row_factory=tuple_row)
        return cursor.execute(re.sub(r":(\w+)", r"%(\1)s", statement).encode(), values)

    def create_table(self) -> None:
        from psycopg import errors

        if _is_permanent(self.run(_PERSISTENCE, {}).fetchone()):
            return
        # Another transaction may be making it. A transaction is open, so this one is a savepoint.
        with suppress(errors.UniqueViolation, errors.DuplicateTable), self._connection.transaction():
            self.run(_CREATE.format(bytes="BYTEA"), {})

    def insert(self, values: Values) -> bool:
        self.create_table()
        # In pipeline mode the count of rows is unknown until the server has answered; a row is waited for.
        return self.run(f"{_INSERT_OR_NOT} RETURNING number", values).fetchone() is not None

    def delete(self, statement: str, values: Values) -> int:
        [count] = self.run(f"WITH gone AS ({statement} RETURNING 1) SELECT count(*) FROM gone", values).fetchone()
        return int(count)


class _SQLAlchemy:
    """Any database with savepoints."""

    def __init__(self, connection: sqlalchemy.Connection) -> None:
        if getattr(connection.connection.driver_connection, "autocommit", False) is True:
            raise InboxError(
                "This SQLAlchemy connection is in AUTOCOMMIT, so mark and work would not be one. Take one"
                " with another isolation level: engine.execution_options(isolation_level=...)."
            )
        self._connection = connection

    def run(self, statement: str, values: Values) -> _Result:
        import sqlalchemy

        return self._connection.execute(sqlalchemy.text(statement), values)

    def create_table(self) -> None:
        import sqlalchemy
        from sqlalchemy import exc

        dialect = self._connection.dialect.name
        if dialect == "postgresql" and _is_permanent(self.run(_PERSISTENCE, {}).fetchone()):
            return
        if dialect != "postgresql" and sqlalchemy.inspect(self._connection).has_table("wsrm_inbox"):
            return
        if dialect != "postgresql":
            raise InboxError(
                f"There is no table wsrm_inbox, and making it here could commit your work on {dialect}. Add"
                f" it to your migrations, with the type for bytes there:\n{_CREATE.format(bytes='BLOB')}"
            )
        try:
            with self._connection.begin_nested():
                self.run(_CREATE.format(bytes="BYTEA"), {})
        except exc.DBAPIError:
            if not sqlalchemy.inspect(self._connection).has_table("wsrm_inbox"):
                raise  # no other transaction made it meanwhile

    def insert(self, values: Values) -> bool:
        from sqlalchemy import exc

        self.create_table()
        try:
            with self._connection.begin_nested():
                self.run(_INSERT, values)
        except exc.IntegrityError:
            return False
        return True

    def delete(self, statement: str, values: Values) -> int:
        return self.run(statement, values).rowcount


def _is_permanent(found: Any) -> bool:
    """Whether there is a table, by the row of ``_PERSISTENCE``. Raises ``InboxError`` for one that forgets."""
    if found is None:
        return False
    persistence = found[0].decode() if isinstance(found[0], bytes) else found[0]
    if persistence != "p":
        raise _forgetful("temporary" if persistence == "t" else "unlogged")
    return True


def _forgetful(kind: str) -> InboxError:
    return InboxError(
        f"The table wsrm_inbox that this connection sees is {kind}: it forgets its marks, and the work of a"
        " redelivered message would be done again. Drop it; once() makes a permanent one."
    )


def _driver_of(django: Any) -> object:
    """The driver's own connection in a transaction of Django's."""
    if not django.in_atomic_block:
        raise InboxError(
            "This Django connection commits each statement by itself, so mark and work would not be one. Call"
            " once() inside `with transaction.atomic():`, or set ATOMIC_REQUESTS for this database."
        )
    return django.connection


def _database(connection: Any) -> _Database:
    if _is_a(connection, "django.utils.connection", "ConnectionProxy") or _is_a(
        connection, "django.db.backends.base.base", "BaseDatabaseWrapper"
    ):
        connection = _driver_of(connection)
    if isinstance(connection, sqlite3.Connection):
        return _SQLite(connection)
    if _is_a(connection, "psycopg", "Connection"):
        return _Psycopg(connection)
    if _is_a(connection, "sqlalchemy.orm", "scoped_session"):
        connection = connection()
    if _is_a(connection, "sqlalchemy.orm", "Session"):
        connection = connection.connection()
    if _is_a(connection, "sqlalchemy", "Connection"):
        if not connection.in_transaction():
            connection.begin()
        if connection.dialect.name != "sqlite":
            return _SQLAlchemy(connection)
        # Its savepoints do not begin a transaction: they would commit the mark alone.
        driver = connection.connection.driver_connection
        if isinstance(driver, sqlite3.Connection):
            return _SQLite(driver)
    raise InboxError(
        f"once() cannot use a {type(connection).__module__}.{type(connection).__qualname__}. Give it a"
        " sqlite3.Connection, a psycopg (3) Connection, a SQLAlchemy Connection or Session"
        " (of an AsyncSession: await session.run_sync(once, environ)), or, on SQLite or psycopg (3),"
        " django.db.connection."
    )


def _is_a(thing: object, module: str, name: str) -> bool:
    """Whether ``thing`` is an instance of the class, without importing a module that the application does not use."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(thing, kind)
