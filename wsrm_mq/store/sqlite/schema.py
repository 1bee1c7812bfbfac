"""The schema of a store, and its way to the schema of this version.

A new store is made as a whole (``creating``), an older one is brought forward step by step (``migrations``). Either is
one transaction: a crash leaves the old schema or the new one. A store from a newer version is refused, never guessed at
(Q-113); so is one of a version that was never released.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from wsrm_mq.errors import SchemaMismatch
from wsrm_mq.store.port import Database
from wsrm_mq.store.sqlite.connection import create_file, named, refuse_place, store_errors, write_ahead
from wsrm_mq.store.sqlite.files import lost, no_store, removed
from wsrm_mq.store.sqlite.presence import in_use

KNOWN: Final = ("0019", "0020", "0021", "0022", "0023", "0024")
"""Every revision this version can read, oldest first; ``migrations`` has a step to each but the first."""

HEAD: Final = KNOWN[-1]


def revision(db: Database, path: Path) -> str | None:
    """The revision of the store behind ``db``; ``None`` for an empty file."""
    with store_errors(path):
        tables = named(db, "table")
        if not tables:
            return None
        if "alembic_version" not in tables:
            raise no_store(path)
        row = db.execute("SELECT version_num FROM alembic_version").fetchone()
        return str(row[0]) if row else None


def ensure(path: Path, *, anew: bool = False) -> None:
    """Bring the store at ``path`` to ``HEAD``, creating it where there is none, and was none: an empty one would know
    nothing of what the lost one acknowledged. ``anew``: that is wanted.

    Raises ``SchemaMismatch`` for a store that a newer version wrote or an older one uses, ``StoreUnconfirmed`` for one
    that is lost.
    """
    refuse_place(path)
    if refusal := removed(path) or (None if anew else lost(path)):
        raise refusal
    if not path.exists():
        create_file(path)
    migrate(path)


def migrate(path: Path) -> tuple[str | None, str]:
    """Upgrade the store, or make the empty file one; answers (revision before, revision after). Does nothing to one
    that is up to date, and refuses one that a process of an older version uses (``SchemaMismatch``)."""
    with store_errors(path), closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as db:
        before = known_revision(db, path)
        if before != HEAD:
            write_ahead(db)
            db.execute("BEGIN IMMEDIATE")
            for statement in _missing(db, path):
                db.execute(statement)
            db.execute("COMMIT")
    return before, HEAD


def known_revision(db: Database, path: Path) -> str | None:
    """``revision``; raises ``SchemaMismatch`` for one that a newer version wrote, or one that was never released."""
    found = revision(db, path)
    if found is not None and found < KNOWN[0]:
        raise SchemaMismatch(
            f"{path}: has schema {found}, of a version that was never released; this one brings forward from "
            f"{KNOWN[0]} on.",
            "Have that version deliver what is in it, then begin with a new store.",
        )
    if found is not None and found not in KNOWN:
        raise SchemaMismatch(
            f"{path}: has schema {found}, this version knows up to {HEAD}; a downgrade is not possible."
        )
    return found


def _missing(db: Database, path: Path) -> Iterator[str]:
    """The statements that lead to ``HEAD``. Asked with the store locked: several that start at once make or upgrade it
    once, and go on together."""
    found = known_revision(db, path)
    if found is None:
        from wsrm_mq.store.sqlite import creating  # only here: a store is made once

        yield from creating.statements(HEAD)
    elif found != HEAD:
        from wsrm_mq.store.published import texts
        from wsrm_mq.store.sqlite import migrations

        _refuse_under_others(path, found)
        # The views of an older version too, so that a step may change the tables behind them.
        yield from [f'DROP VIEW "{name}"' for name in named(db, "view")]
        for step in KNOWN[KNOWN.index(found) + 1 :]:
            yield from migrations.STEPS[step]
        yield f"UPDATE alembic_version SET version_num = '{HEAD}'"
        yield from texts().values()


def _refuse_under_others(path: Path, found: str) -> None:
    others = in_use(path)
    if others:
        raise SchemaMismatch(
            f"{path}: has schema {found}, and {others} running process{'' if others == 1 else 'es'} of an older "
            f"version would not know {HEAD}.",
            "Stop the old service first, then start this one.",
        )
