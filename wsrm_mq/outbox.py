"""Calls that wait in an application's own database, written in the transaction of its work: the mirror of the inbox.

``add`` writes a call beside the work: both are committed or neither, so there is no call without its work, and no
work without its call. A relay (``source.relay``) takes the calls in their order and deletes those that its store has.

One store alone takes the calls of a database, the first that did: the table ``wsrm_relay`` has its name. Else no
relay could tell whether one that died has stored what it took, and two stores would send in no common order. Its row is
written first in each transaction that takes calls, so the relays of that store take turns, at whatever isolation level.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from wsrm_mq.databases import Database, Table, database_of
from wsrm_mq.errors import OutboxError

__all__ = ["Call", "Taking", "add"]

_LOSES: Final = "it forgets calls, whose work is done"
_CALLS: Final = Table(
    "wsrm_outbox",
    "enqueue()",
    OutboxError,
    _LOSES,
    """
  id {growing},
  message_id VARCHAR(255) NOT NULL UNIQUE,
  destination TEXT NOT NULL,
  action TEXT NOT NULL,
  rm VARCHAR(8) NOT NULL,
  soap VARCHAR(8) NOT NULL,
  addressing VARCHAR(8) NOT NULL,
  content_type TEXT NOT NULL,
  wants_reply SMALLINT NOT NULL,
  envelope {bytes} NOT NULL
""",
    key="message_id",
)
_RELAY: Final = Table(
    "wsrm_relay",
    "relay()",
    OutboxError,
    _LOSES,
    """
  id SMALLINT NOT NULL PRIMARY KEY,
  store VARCHAR(255) NOT NULL,
  turns BIGINT NOT NULL
""",
    key="id",
)
_WAITING: Final = "SELECT count(*) FROM (SELECT id FROM wsrm_outbox LIMIT 1) one"
_TURN: Final = "UPDATE wsrm_relay SET turns = turns + 1 WHERE store = :store"
_STORE: Final = "SELECT store FROM wsrm_relay"
_NEXT: Final = """\
SELECT message_id, destination, action, rm, soap, addressing, content_type, wants_reply, envelope
FROM wsrm_outbox ORDER BY id LIMIT :most"""
_DELETE: Final = "DELETE FROM wsrm_outbox WHERE message_id = :message_id"


class Call(NamedTuple):
    """A request that waits. ``rm``, ``soap`` and ``addressing`` are labels of versions."""

    message_id: str
    destination: str
    action: str
    rm: str
    soap: str
    addressing: str
    content_type: str
    wants_reply: int
    """1 where it does; and 2 where its sequence offers another one for replies, though it may want none itself."""
    envelope: bytes


def add(connection: object, call: Call) -> None:
    """Write a call by the application's connection: see ``inbox.once`` for those that can be used."""
    if not database_of(connection, _CALLS).insert(call._asdict()):
        raise OutboxError(f"{call.message_id}: a call of this MessageID waits there already.")


class Taking:
    """Calls are taken out of a database by a connection that nothing else uses. ``store``: the name of the store that
    has them then."""

    def __init__(self, connection: Any, store: str) -> None:
        if hasattr(connection, "set_autocommit"):  # psycopg's and Django's
            connection.set_autocommit(False)
        self._connection = connection
        self._store = store
        for table in (_CALLS, _RELAY):
            database_of(connection, table).create_table()
        database_of(connection, _RELAY).insert({"id": 1, "store": store, "turns": 0})
        connection.commit()

    def take(self, most: int) -> list[Call]:
        """The next calls, which no other relay takes until ``done``; where there are none, nothing is begun. Raises
        ``OutboxError`` where another store takes them."""
        has_some = self._database().run(_WAITING, {}).fetchone()[0]
        self._connection.rollback()
        if not has_some:
            return []
        database = self._database()
        if database.run(_TURN, {"store": self._store}).rowcount != 1:
            found = database.run(_STORE, {}).fetchone()
            raise OutboxError(
                f"The calls of this database go into the store {'' if found is None else found[0]}, and this is"
                f" {self._store}. Have its relay move them. If that store is lost: DELETE FROM wsrm_relay; what it has"
                " taken and not deleted may be sent twice."
            )
        rows = database.run(_NEXT, {"most": most}).fetchall()
        if not rows:
            self._connection.rollback()
        return [Call._make((*row[:-1], bytes(row[-1]))) for row in rows]

    def done(self, calls: list[Call]) -> None:
        """The store has these calls: delete them, and end the turn."""
        database = self._database()
        for call in calls:
            database.run(_DELETE, {"message_id": call.message_id})
        self._connection.commit()

    def _database(self) -> Database:
        return database_of(self._connection, _CALLS)
