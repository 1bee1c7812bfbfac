"""Large bodies: written and read piece by piece, never whole in memory."""

from __future__ import annotations

import shutil
import sqlite3
from typing import BinaryIO, Final, cast

from wsrm_mq.store.port import Database

__all__ = ["open_body", "write_body"]

_PIECE: Final = 1024 * 1024
_ALLOCATE: Final = "UPDATE message SET body = zeroblob(?) WHERE id = ?"


def write_body(db: Database, message: int, size: int, body: BinaryIO) -> None:
    """Give the row of ``message`` its body, which has ``size`` bytes."""
    db.execute(_ALLOCATE, (size, message))
    with cast(sqlite3.Connection, db).blobopen("message", "body", message) as blob:
        shutil.copyfileobj(body, cast(BinaryIO, blob), _PIECE)


def open_body(db: Database, message: int) -> BinaryIO:
    """The stored body of ``message``, while ``db`` is open."""
    return cast(BinaryIO, cast(sqlite3.Connection, db).blobopen("message", "body", message, readonly=True))
