"""Large bodies: written and read piece by piece, never whole in memory."""

from __future__ import annotations

import shutil
import sqlite3
from typing import BinaryIO, Final, cast

from wsrm_mq.errors import NotFound
from wsrm_mq.store.port import Database

_PIECE: Final = 1024 * 1024
_BODY_OF: Final = (
    "SELECT message.id, body IS NOT NULL FROM entry JOIN message ON message.id = message WHERE entry.id = ?"
)
_ALLOCATE: Final = "UPDATE message SET body = zeroblob(?) WHERE id = ?"


def write_body(db: Database, message: int, size: int, body: BinaryIO) -> None:
    """Give the row of ``message`` its body, which has ``size`` bytes."""
    db.execute(_ALLOCATE, (size, message))
    with cast(sqlite3.Connection, db).blobopen("message", "body", message) as blob:
        shutil.copyfileobj(body, cast(BinaryIO, blob), _PIECE)


def open_body(db: Database, message: int) -> BinaryIO:
    """The stored body of ``message``, while ``db`` is open."""
    return cast(BinaryIO, cast(sqlite3.Connection, db).blobopen("message", "body", message, readonly=True))


def body_at(db: Database, position: int) -> BinaryIO:
    """The envelope of the message at ``position``, as received. While it is open it holds up checkpoints. Raises
    ``NotFound``."""
    found = db.execute(_BODY_OF, (position,)).fetchone()
    if found is None:
        raise NotFound(f"There is no message at position {position}.")
    message, has_body = found
    if not has_body:
        raise NotFound(f"The body of the message at position {position} was freed by retention.")
    return open_body(db, message)
