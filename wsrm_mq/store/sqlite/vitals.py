"""An examination of a store beyond its rows: whether its pages are sound, the programs that have it open, and the rest
of a write that was cut off in the log.

A process that is killed within a transaction, or a power cut, leaves such a write. SQLite drops it without a word,
which is right: nothing of it was acknowledged. An operator who looks for the last message before the crash is told of
it.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from wsrm_mq.store.port import Database
from wsrm_mq.store.sqlite.connection import connect_writer, store_errors
from wsrm_mq.store.sqlite.files import beside, is_locked, parts, removed

STEPS: Final = 10_000
"""The number of SQLite's instructions between two looks at the clock."""
PROC: Final = Path("/proc")


class Opener(NamedTuple):
    """A process that has the file of a store open, or its log."""

    pid: int
    command: str


def unsound(db: Database, seconds: float) -> str | None:
    """The first finding of SQLite's quick check, ``""`` for none; ``None`` if the time does not suffice."""
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


def damage(db: Database, table: str = "") -> Iterator[str]:
    """The findings of SQLite's integrity check about a table and its indexes; about all of them if none is named."""
    for (text,) in db.execute(f"PRAGMA integrity_check('{table}')" if table else "PRAGMA integrity_check(1)"):
        if text != "ok":
            yield str(text)


def tells_damage(error: Exception) -> bool:
    """Whether this error of SQLite means that the file is damaged."""
    code = error.sqlite_errorcode & 0xFF if isinstance(error, sqlite3.DatabaseError) else sqlite3.SQLITE_OK
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def dangling(db: Database, table: str) -> Iterator[tuple[int | None, str]]:
    """The rows of a table that refer to a row which is not there: each one's key, and the table of the other."""
    if table == "sqlite_schema":
        return
    for _table, key, parent, _constraint in db.execute(f"PRAGMA foreign_key_check('{table}')"):
        yield key, parent


def openers(path: Path) -> list[Opener]:
    """The other processes that have the store open, as far as this user may look at them."""
    wanted = set(map(str, parts(Path(os.path.realpath(path)))))
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


_HEADER: Final = struct.Struct(">8xI4x8s8x")
"""The header of the log: the size of a page, and the salt that its frames have."""
_FRAME: Final = struct.Struct(">8x8s8x")
"""Header of a frame, a page follows: its salt; that of an older round of the log is another."""
_INDEX: Final = struct.Struct("<16xI" if sys.byteorder == "little" else ">16xI")
"""The header of the log's index: the number of committed frames."""


def dropped_pages(path: Path) -> int:
    """Pages in the log of the store at ``path`` that belong to no committed transaction. To be asked before a process
    opens the store; where another one lives, what it just writes is no loss: 0. One that makes the store at the same
    time has no lock file yet, so they are counted while none writes."""
    if removed(path):  # what stands there is refused, and the log beside it may be of another file
        return 0
    _file, log, index_file = parts(path)
    if not path.exists() or not _written(log) or any(map(is_locked, beside(path).glob("*.lock"))):
        return 0
    with closing(connect_writer(path)) as db, store_errors(path):
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # the index is made anew from what is committed
        try:
            db.begin(wait=False)
        except db.Error as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return 0  # one writes
            raise
        with index_file.open("rb") as index:
            (committed,) = _INDEX.unpack(index.read(_INDEX.size))
        return max(0, _written(log) - int(committed))


def _written(log: Path) -> int:
    """Frames of the last round, the one that was cut off too."""
    try:
        file = log.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return 0
        page, salt = _HEADER.unpack(head)
        frames = 0
        while len(frame := file.read(_FRAME.size)) == _FRAME.size and _FRAME.unpack(frame) == (salt,):
            frames += 1
            file.seek(page, 1)
        return frames + (0 < len(frame) < _FRAME.size)
