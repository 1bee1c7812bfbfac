"""What an examination of a store asks beyond its rows: whether its pages are sound, and which programs have it open."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final, NamedTuple

from wsrm_mq.store.port import Database

STEPS: Final = 10_000
"""Instructions of SQLite from one look at the clock to the next."""
PROC: Final = Path("/proc")


class Opener(NamedTuple):
    """A process that has the file of a store open, or its log."""

    pid: int
    command: str


def unsound(db: Database, seconds: float) -> str | None:
    """What SQLite's quick check finds, ``""`` for nothing; ``None`` where it is not through in time."""
    assert isinstance(db, sqlite3.Connection)
    end = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    try:
        (text,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return None
    finally:
        db.set_progress_handler(None, 0)
    return "" if text == "ok" else str(text)


def openers(path: Path) -> list[Opener]:
    """Of the processes that this user may look at; not this one. Nothing where the system does not show them."""
    wanted = {f"{os.path.realpath(path)}{suffix}" for suffix in ("", "-wal", "-shm")}
    found = []
    for process in PROC.glob("[0-9]*"):
        pid = int(process.name)
        if pid != os.getpid() and wanted & _open_files(process):
            found.append(Opener(pid, _command(process)))
    return sorted(found)


def _open_files(process: Path) -> set[str]:
    try:
        return {os.readlink(handle) for handle in os.scandir(process / "fd")}
    except OSError:  # it has ended, or is another user's
        return set()


def _command(process: Path) -> str:
    try:
        return process.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:100]
    except OSError:
        return ""
