"""A connection for looking, wherever a store lies: where this user may not write, on a read-only file system, a copy.

SQLite reads a store through the log beside it and that log's index, ``-shm``, which it makes where it is missing. Where
it cannot be made, no process of the service has the store open. If the log has nothing, the file alone is the store.
Else what it has is read on a copy of both.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.store.sqlite.connection import (
    Connection,
    CopyConnection,
    connect_reader,
    only_reading,
    space,
    store_errors,
)
from wsrm_mq.store.sqlite.files import is_locked, log_bytes, parts

_FOR_WANT_OF_PERMISSION: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_PREFIX: Final = "wsrm-mq-look-"
_LOCK: Final = "in-use"
_LEFT_SECONDS: Final = 60.0
"""A copy that is younger may not have its lock yet."""
_LOG_HEADER: Final = 32
"""Bytes of a write-ahead log that has nothing else."""


def connect_looker(path: Path, *, may_copy: bool = True) -> Connection:
    """A connection that only reads, as ``connect_reader``, but needs no permission to write. One to a copy is a
    ``CopyConnection``: it shows what was there when it was made. Raises ``StoreUnavailable`` where that is needed and
    it may not copy."""
    try:
        return connect_reader(path)
    except StoreUnavailable as error:
        code = getattr(error.__cause__, "sqlite_errorcode", sqlite3.SQLITE_OK)
        if code & 0xFF not in _FOR_WANT_OF_PERMISSION or (_has_log(path) and not may_copy):
            raise
        refused = _not_readable(path)
        if refused:
            raise StoreUnavailable(
                f"{path}: may not be read by this user: {', '.join(refused)}.",
                "Look as the user that the service runs as, or as root.",
            ) from error
        if parts(path)[2].exists():
            raise
    with store_errors(path):
        return _copied(path) if _has_log(path) else only_reading(path, "mode=ro&immutable=1")


def _not_readable(path: Path) -> list[str]:
    """Names of the files of a store that this user may not read."""
    return [one.name for one in parts(path) if one.exists() and not os.access(one, os.R_OK, effective_ids=True)]


def _has_log(path: Path) -> bool:
    return log_bytes(path) > _LOG_HEADER


def _copied(path: Path) -> Connection:
    """A connection that reads a copy of the file and its log, which no process has open."""
    files = parts(path)[:2]
    with _room(path, lambda: sum(file.stat().st_size for file in files), "its log is to be read") as (place, lock):
        for file in files:
            shutil.copyfile(file, place / file.name)
        return _copy(place, lock, path, "mode=ro")


def temporary_copy(db: Connection, path: Path) -> CopyConnection:
    """A copy, which may be written, of what ``db`` sees of the store at ``path``; it goes when it is closed."""
    with _room(path, lambda: space(db).size, "it is to be tried") as (place, lock):
        with closing(sqlite3.connect(place / path.name)) as copy:
            db.backup(copy)
        return _copy(place, lock, path, "mode=rw")


def _copy(place: Path, lock: int, path: Path, parameters: str) -> CopyConnection:
    copy = only_reading(place / path.name, parameters, CopyConnection)
    assert isinstance(copy, CopyConnection)
    copy.original, copy.lock = path, lock
    return copy


@contextmanager
def _room(path: Path, size: Callable[[], int], why: str) -> Iterator[tuple[Path, int]]:
    """A directory with room for so many bytes of the store at ``path``, and the lock that says that it is in use; it is
    removed where the copy fails."""
    home = Path(tempfile.gettempdir())
    _sweep(home)
    place, lock = None, -1
    try:
        needed = size()
        place = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=home))
        lock = os.open(place / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        free = shutil.disk_usage(place).free
        if free < needed:
            raise StoreUnavailable(
                f"{path}: {why}, and nothing can be written beside it. A copy needs {needed} bytes, {home} has {free}.",
                "Say with TMPDIR where there is room, or copy the store to where it can be written.",
            )
        yield place, lock
    except BaseException as error:
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
        if lock >= 0:
            os.close(lock)
        if isinstance(error, OSError):
            raise StoreUnavailable(f"{path}: cannot be copied to {home}: {error.strerror}.") from error
        raise


def _sweep(home: Path) -> None:
    """Remove the copies of processes that were killed: nothing holds their locks."""
    for place in home.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - place.stat().st_mtime > _LEFT_SECONDS and not is_locked(place / _LOCK):
                shutil.rmtree(place, ignore_errors=True)
