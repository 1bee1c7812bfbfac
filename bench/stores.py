"""A store of any size, written straight into its tables: what readers of it cost does not hang on how it came."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from wsrm_mq.store.sqlite import schema
from wsrm_mq.testing import EnvelopeFactory

__all__ = ["made"]

BEGAN: Final = 1_767_225_600_000
"""ms since the epoch."""
_SPEAK: Final = EnvelopeFactory()

_ENVIRON: Final = json.dumps(
    {"REQUEST_METHOD": "POST", "PATH_INFO": "/orders", "CONTENT_TYPE": _SPEAK.content_type, "REMOTE_ADDR": "192.0.2.1"}
)
_QUEUE: Final = "INSERT INTO queue (id, name, kind, created_at) VALUES (1, '/orders', 'app', :began)"
_SEQUENCES: Final = """
WITH RECURSIVE k(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM k WHERE i < :sequences)
INSERT INTO lane (id, queue, identifier, soap, addressing, assurance, ordered, created_at, active_at, cursor, "limit",
    fence)
SELECT i, 1, printf('urn:uuid:00000000-0000-4000-8000-%012d', i), '1.1', '1.0', 'exactly_once', 1, :began, :began,
    :each + 1, :each + 1, 1
FROM k"""
_RULING: Final = """
INSERT INTO sequence (lane, rm, behavior, incomplete_reason, state)
SELECT id, '1.1', 'NoDiscard', 'incomplete', 'created' FROM lane"""
_RANGES: Final = "INSERT INTO range SELECT id, 1, :each FROM lane"
_ROWS: Final = "WITH RECURSIVE k(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM k WHERE i < :messages)"
_MESSAGES: Final = f"""{_ROWS}
INSERT INTO message (id, message_id, action, environ, connection, received_at, body_size, body)
SELECT i, printf('urn:message:%d', i), 'urn:orders/put', :environ, 'connection', :began + i, length(:body), :body
FROM k"""
_ENTRIES: Final = f"""{_ROWS}
INSERT INTO entry (id, queue, message, lane, number, outcome, settled_at, deliveries)
SELECT i, 1, i, (i - 1) % :sequences + 1, (i - 1) / :sequences + 1, 'delivered', :began + i + 40, 1
FROM k"""


def made(path: Path, messages: int, sequences: int = 100, body_bytes: int = 1_000) -> Path:
    """A store with ``messages`` delivered messages, dealt out to ``sequences`` in turn; one that is there is used
    again. ``messages`` is a multiple of ``sequences``."""
    if path.exists():
        return path
    envelope = _SPEAK.message("urn:uuid:00000000-0000-4000-8000-000000000001", 1, "<put/>")
    envelope = envelope.replace(b"<put/>", b"<put>%s</put>" % (b"x" * max(0, body_bytes - len(envelope) - 5)))
    schema.ensure(path)
    values = {
        "began": BEGAN,
        "messages": messages,
        "sequences": sequences,
        "each": messages // sequences,
        "environ": _ENVIRON,
        "body": envelope,
    }
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("BEGIN")
        for statement in (_QUEUE, _SEQUENCES, _RULING, _RANGES, _MESSAGES, _ENTRIES):
            db.execute(statement, values)
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path
