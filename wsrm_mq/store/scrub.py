"""What older versions stored of a request and this one would not, taken out of the messages that are there.

It follows the migration that asks for it, in small transactions that a watermark counts: a process that is killed in
its middle loses nothing, and the next one goes on. Nothing is served before it is done. A row keeps its length, so a
message's page is written anew and its body, however large, is not.

What was deleted before lies in free space of the file until that is used again: `wsrm-mq store vacuum` writes the file
anew.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Final

from wsrm_mq.events.telling import tell
from wsrm_mq.kept_headers import KeptHeaders
from wsrm_mq.store.database import store_errors

__all__ = ["is_pending", "scrub"]

PIECE: Final = 5_000
"""Messages in one transaction."""
CHECKPOINT_EVERY: Final = 4
"""Pieces: so far the write-ahead log grows."""
_TOLD_EVERY_SECONDS: Final = 2.0
_PENDING: Final = "SELECT upto FROM watermark WHERE name = 'scrubbed'"
_LAST: Final = "SELECT max(id) FROM (SELECT id FROM message WHERE id > ? ORDER BY id LIMIT ?)"
_SCRUB: Final = """UPDATE message SET environ = scrubbed(environ)
    WHERE id > ? AND id <= ? AND environ <> scrubbed(environ)"""


def is_pending(db: sqlite3.Connection) -> bool:
    """Whether messages may still have request headers that an older version stored."""
    return db.execute(_PENDING).fetchone() is not None


def scrub(path: Path, keep: Iterable[str] = (), progress: Callable[[int, int], object] | None = None) -> None:
    """Do what is left of it; ``keep``: the headers that `keep_headers` names. ``progress(position, last)`` is called
    now and then; without it an event is told."""
    kept = KeptHeaders(keep)
    with store_errors(path), closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as db:
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.create_function("scrubbed", 1, lru_cache(4_096)(kept.scrubbed), deterministic=True)
        (last,) = db.execute("SELECT coalesce(max(id), 0) FROM message").fetchone()
        told_at, pieces = time.monotonic(), 0
        while (upto := _piece(db)) is not None:
            pieces += 1
            if pieces % CHECKPOINT_EVERY == 0:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if time.monotonic() - told_at >= _TOLD_EVERY_SECONDS:
                told_at = time.monotonic()
                _tell(path, upto, last, progress)
        # The log still has what was there; it is over when that is gone too.
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        db.execute("DELETE FROM watermark WHERE name = 'scrubbed'")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        _tell(path, last, last, progress)


def _tell(path: Path, upto: int, last: int, progress: Callable[[int, int], object] | None) -> None:
    if progress is not None:
        progress(upto, last)
    else:
        tell("store.scrubbed", path=path, position=upto, last=last)


def _piece(db: sqlite3.Connection) -> int | None:
    """Scrub the next messages; answers the position of the last, ``None`` where there are none."""
    db.execute("BEGIN IMMEDIATE")
    try:
        found = db.execute(_PENDING).fetchone()
        last = db.execute(_LAST, (found[0], PIECE)).fetchone()[0] if found is not None else None
        if last is not None:
            db.execute(_SCRUB, (found[0], last))
            db.execute("UPDATE watermark SET upto = ? WHERE name = 'scrubbed'", (last,))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return last
