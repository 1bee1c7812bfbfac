"""Messages that wait for an application which no process serves: who has them, and the new name of one."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, NamedTuple

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.store.applications import Serving
from wsrm_mq.store.database import file_of
from wsrm_mq.store.instances import is_alive

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

__all__ = ["Unserved", "rename", "unserved"]


class Unserved(NamedTuple):
    """A queue in which something waits that no process which lives may run."""

    queue: str
    application: str | None


def unserved(db: sqlite3.Connection, waiting: set[str]) -> list[Unserved]:
    """Of the queues in which something is ``waiting``; none where no process lives at all."""
    live = _live(db)
    rows = db.execute("SELECT name, application FROM queue WHERE kind = 'app' ORDER BY name").fetchall() if live else []
    return [
        Unserved(name, application)
        for name, application in rows
        if name in waiting and not any(one.may_run(name, application) for one in live)
    ]


def rename(tx: Transaction, old: str | None, new: str | None, reason: str, actor: str) -> int:
    """What was stored for ``old`` is for ``new``; ``None`` is an application without a name. Answers how many queues
    that are. Raises ``NotFound`` where there is none, ``NotAllowed`` while a process serves ``old``."""
    if any(one.application == old for one in _live(tx.db)):
        raise NotAllowed(f"a process serves {_word(old)}: stop it first.")
    count = tx.execute("UPDATE queue SET application = ? WHERE kind = 'app' AND application IS ?", (new, old)).rowcount
    if not count:
        raise NotFound(f"no queue is that of {_word(old)}.")
    tx.ledger("application_renamed", reason=f"{_word(old)} is {_word(new)}: {reason}", actor=actor)
    return count


def _live(db: sqlite3.Connection) -> list[Serving]:
    store = file_of(db)
    rows = db.execute("SELECT name, application, paths FROM instance WHERE ended_at IS NULL").fetchall()
    return [Serving.load(application, paths) for name, application, paths in rows if is_alive(store, name)]


def _word(application: str | None) -> str:
    return application or "none"
