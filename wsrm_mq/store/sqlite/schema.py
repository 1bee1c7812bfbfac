"""The schema of a store, and its way to the schema of this version.

A new store is made as a whole (``creating``). Migrations are Alembic's and live in this package. Each upgrade is one
transaction: a crash leaves the old schema or the new one. A store from a newer version is refused, never guessed at
(Q-113); so is one of a version that was never released.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from wsrm_mq.errors import SchemaMismatch
from wsrm_mq.store.port import Database
from wsrm_mq.store.sqlite.connection import create_file, named, refuse_place, store_errors, write_ahead
from wsrm_mq.store.sqlite.files import lost, no_store, removed
from wsrm_mq.store.sqlite.presence import in_use

KNOWN: Final = ("0019", "0020", "0021", "0022", "0023", "0024")
"""Every revision this version can read, oldest first. A test holds it against the migration scripts."""

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
    """Upgrade the store; answers (revision before, revision after). Does nothing to one that is up to date, and refuses
    one that a process of an older version uses (``SchemaMismatch``)."""
    before = _revision(path)
    if before is None:
        _create(path)
    if (before or _revision(path)) != HEAD:
        upgrade(path)
    return before, HEAD


def _revision(path: Path) -> str | None:
    with store_errors(path), closing(sqlite3.connect(path, timeout=30)) as db:
        return known_revision(db, path)


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


def _refuse_under_others(path: Path, db: Any) -> None:
    """Asked with the store locked: several that start at once upgrade it once, and go on together."""
    found = revision(db, path)
    if found is None or found == HEAD:
        return
    others = in_use(path)
    if others:
        raise SchemaMismatch(
            f"{path}: has schema {found}, and {others} running process{'' if others == 1 else 'es'} of an older "
            f"version would not know {HEAD}.",
            "Stop the old service first, then start this one.",
        )


def _create(path: Path) -> None:
    """Make the empty file a store, unless another process was before with that."""
    from wsrm_mq.store.sqlite import creating  # only here: a store is made once

    with store_errors(path), closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as db:
        write_ahead(db)
        db.execute("BEGIN IMMEDIATE")
        if revision(db, path) is None:
            for statement in creating.statements(HEAD):
                db.execute(statement)
        db.execute("COMMIT")


def upgrade(path: Path, head: str = HEAD) -> None:
    """Run the migrations that the store lacks up to ``head``; of an empty file, all of them."""
    # Imported here: Alembic and SQLAlchemy's engine cost 0.3 s, and only an old store needs them.
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    from wsrm_mq.store.published import drop_views, make_views

    def connected() -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=30, isolation_level=None)  # the driver must not begin or commit on its own
        write_ahead(db)
        return db

    # Not by a URL: a path may hold characters that mean something there.
    engine = create_engine("sqlite://", creator=connected, poolclass=NullPool)
    config = Config()
    config.set_main_option("script_location", "wsrm_mq:store/migrations")
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            db = connection.connection.driver_connection
            assert db is not None
            _refuse_under_others(path, db)
            config.attributes["connection"] = connection
            drop_views(connection.exec_driver_sql, named(db, "view"))
            command.upgrade(config, head)
            make_views(connection.exec_driver_sql)
    except Exception as error:
        original = getattr(error, "orig", None)
        if isinstance(original, sqlite3.Error):
            with store_errors(path):
                raise original from error
        raise
    finally:
        engine.dispose()
