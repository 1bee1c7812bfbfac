"""A store's file that is removed or replaced while a process has it open.

SQLite does not notice: it goes on with files that have no name any more, and what is committed there is gone with the
process. So the writer looks before a transaction, every 20 ms at most, and the watch once a second, whether the files
still stand at their place. If they do not, nothing is acknowledged any more, and what the open files hold is saved
beside that place, those last 20 ms included: only a process that is killed within them takes something along.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from wsrm_mq.errors import StoreUnavailable, StoreUnconfirmed
from wsrm_mq.hints import about
from wsrm_mq.store.beside import witness_file

FileId = tuple[int, int] | None
"""Device and inode of a file; ``None`` for one that is not there."""
FileIds = tuple[FileId, ...]
"""A store's file, its write-ahead log, and the index of that, which the processes share and lock each other with."""


def file_ids(path: Path) -> FileIds:
    """Those of a store's file, its log and that one's index, ``None`` for what is not there."""
    return file_id(path), file_id(f"{path}-wal"), file_id(f"{path}-shm")


def file_id(path: Path | str) -> FileId:
    """Device and inode of what stands at ``path`` now; ``None``: nothing does."""
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_dev, there.st_ino


def rescued_path(path: Path) -> Path:
    """Where ``rescue`` writes what a store's open files still held."""
    return path.with_name(path.name + ".rescued")


def rescue(db: sqlite3.Connection, path: Path, name: str) -> Path:
    """Copy all that ``db`` has, to ``rescued_path``. It is whole there or not there; ``name`` tells apart processes
    that do so at once. Raises ``OSError`` or ``sqlite3.Error``."""
    unfinished = path.with_name(f"{path.name}.{name}")
    with _in_turn(path.parent):
        unfinished.unlink(missing_ok=True)
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            with closing(sqlite3.connect(unfinished)) as copy:
                db.backup(copy)
            os.replace(unfinished, rescued_path(path))
        finally:
            unfinished.unlink(missing_ok=True)
    return rescued_path(path)


@contextmanager
def _in_turn(directory: Path) -> Iterator[None]:
    """Each process has written its last before it makes its copy. So the last of several copies has all that any of
    them wrote, if none is made while another is."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def removed(path: Path) -> StoreUnavailable | None:
    """What to say of a store that was rescued and not put back: what stands at its place is nothing, or not all."""
    saved = rescued_path(path)
    if not saved.exists():
        return None
    return StoreUnavailable(
        f"{path}: was removed or replaced while a service had it open; all that was in it then is in {saved.name}.",
        f"{put_back(path)}. Or remove that file, to go on with what stands there.",
    )


def lost(path: Path) -> StoreUnconfirmed | None:
    """What to say of a store that was in use here and is not here now: there is no file, or nothing in it."""
    if not witness_file(path).exists():  # asked first: a store that is being made has its file before its witness
        return None
    if path.exists() and path.stat().st_size:
        return None
    return StoreUnconfirmed(
        f"{path}: is missing or empty, and a store was in use here: the directory beside it has its witness.",
        about(
            path,
            "Put the store back. Or, if what it acknowledged may be forgotten, make an empty one in its place: "
            "`wsrm-mq store init --reason TEXT`.",
        ),
    )


def put_back(path: Path) -> str:
    """How an operator makes the rescued store the store again."""
    rescued, wal, shm, store = map(shlex.quote, map(str, (rescued_path(path), f"{path}-wal", f"{path}-shm", path)))
    return f"Stop the service, then: rm -f {wal} {shm} && mv {rescued} {store}"
