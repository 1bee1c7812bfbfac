"""A copy of a store, made while services write to it.

SQLite's online backup, in steps, all of them within one read transaction: without it the copy would begin anew with
every commit of another process, and under load never end. A read transaction keeps the write-ahead log from being used
again from its beginning, so the copy does nothing else while it holds one: the copy is synced, stamped and verified
afterwards. A log that grows too far, or a disk that fills, ends the copy, not the service.

The copy is made under another name. Its own name it gets when it is verified and on disk: there is a whole copy of that
name or none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from wsrm_mq.errors import NotAllowed, StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from wsrm_mq.files import sync_directory
from wsrm_mq.store import identity
from wsrm_mq.store.port import Database
from wsrm_mq.store.sqlite import presence
from wsrm_mq.store.sqlite.connection import connect_reader, named, space, store_errors
from wsrm_mq.store.sqlite.files import is_locked, log_bytes

STEP_PAGES: Final = 1024
MAX_LOG_GROWTH: Final = 1024 * 1024 * 1024
LEAST_FREE: Final = 16 * 1024 * 1024
"""Bytes that the copy leaves free, on its own disk and on that of the store."""
_TOKEN: Final = 8
_BESIDE: Final = ("-wal", "-shm", "-journal")

Progress = Callable[[int, int], object]
"""Pages done, pages in all."""
Verify = Callable[[sqlite3.Connection], object]
"""A function that examines the copy. It answers what is wrong with it, or raises; it answers nothing if it is good."""


def backup(
    path: Path,
    target: Path,
    *,
    verify: Verify,
    now: int,
    force: bool = False,
    progress: Progress = lambda _done, _pages: None,
) -> int:
    """Copy the store at ``path`` to ``target``, stamped as a copy of the time ``now``; answers its size in bytes.

    Raises ``NotAllowed`` where the target may not be written, ``StoreFull`` where the disk has no room,
    ``StoreCorrupt`` where the copy is not good.
    """
    _refuse_target(path, target, force)
    with closing(connect_reader(path)) as source, store_errors(path):
        if "identity" not in named(source, "table"):
            raise NotAllowed(f"{path}: has a schema too old to mark a copy as one. Stop the service and copy the file.")
        _refuse_full(source, target)
        with _unfinished(target) as (part, handle):
            with store_errors(part):
                _copy(source, path, part, progress)
                source.checkpoint()  # the copy held it up: it would make the next one of a service long
                _finish(part, verify, now)
            os.fsync(handle)
            size = part.stat().st_size
            _put(part, target, force)
    return size


def _refuse_target(path: Path, target: Path, force: bool) -> None:
    if not target.parent.is_dir():
        raise NotAllowed(f"{target.parent}: there is no such directory.")
    if target.is_dir():
        raise NotAllowed(f"{target}: is a directory; name the file that the copy shall be.")
    if target.exists() and target.samefile(path):
        raise NotAllowed(f"{target}: is the store itself.")
    if presence.in_use(target):
        raise NotAllowed(f"{target}: is a store that a service uses.")
    there = next((name for name in _names(target) if name.exists()), None)
    if there is not None and not force:
        raise NotAllowed(f"{there} exists already; it stays as it is. Name another file, or say --force.")


def _names(target: Path) -> Iterator[Path]:
    """The target, and files that SQLite would take for a part of it."""
    yield target
    yield from (target.with_name(target.name + suffix) for suffix in _BESIDE)


def _refuse_full(source: Database, target: Path) -> None:
    needed = space(source).size + LEAST_FREE
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise _full(target, f"the copy needs {needed} bytes, {free} are free")


def _full(target: Path, why: str) -> StoreFull:
    return StoreFull(f"{target}: {why}.", "Make room, or put the copy on another disk. The store is as it was.")


@contextmanager
def _unfinished(target: Path) -> Iterator[tuple[Path, int]]:
    """A file for the copy while it is none, locked; what a killed backup left of the same target is removed, and no
    file of others that is only named like it."""
    for left in target.parent.glob(f"{target.name}.*.part"):
        if left == _part(target, left.name[len(target.name) + 1 :][:_TOKEN]) and is_locked(left) is False:
            _remove(left)
    part = _part(target, secrets.token_hex(_TOKEN // 2))
    try:
        handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except OSError as error:
        raise StoreUnavailable(f"{part}: cannot be created: {error.strerror}.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield part, handle
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _full(target, "the disk is full") from error
        raise StoreUnavailable(f"{target}: {error.strerror}.") from error
    except StoreFull as error:
        raise _full(target, "the disk is full") from error
    finally:
        _remove(part)
        os.close(handle)


def _part(target: Path, token: str) -> Path:
    """A name that no other program gives: it has a checksum of itself."""
    check = zlib.crc32(f"wsrm-mq {target.name} {token}".encode(errors="surrogateescape"))
    return target.with_name(f"{target.name}.{token}{check:08x}.part")


def _remove(part: Path) -> None:
    for name in _names(part):
        name.unlink(missing_ok=True)


def _copy(source: sqlite3.Connection, path: Path, part: Path, progress: Progress) -> None:
    log_before = log_bytes(path)

    def look(_status: int, remaining: int, pages: int) -> None:
        if log_bytes(path) - log_before > MAX_LOG_GROWTH:
            raise StoreError(
                f"{path}: its write-ahead log grew by more than {MAX_LOG_GROWTH} bytes meanwhile; no copy was made.",
                "Make the copy when less is written, or to a faster disk.",
            )
        if shutil.disk_usage(path.parent).free < LEAST_FREE:
            raise StoreError(f"{path}: its disk is nearly full; no copy was made.", "Make room first.")
        progress(pages - remaining, pages)

    with closing(sqlite3.connect(part, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous = OFF")  # it is synced when it is whole
        source.execute("BEGIN")
        try:
            source.execute("SELECT 1 FROM sqlite_master").fetchone()
            source.backup(copy, pages=STEP_PAGES, progress=look)
        finally:
            source.execute("ROLLBACK")


def _finish(part: Path, verify: Verify, now: int) -> None:
    """Make the copy one file without a log, stamp it and verify it. Such a file can be read in a place that cannot be
    written."""
    with closing(sqlite3.connect(part, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE").fetchone()
        identity.stamp(copy, now)
        wrong = verify(copy)
        if wrong:
            raise StoreCorrupt(f"The copy is not good: {wrong}.", "Run `wsrm-mq store verify` on the store.")


def _put(part: Path, target: Path, force: bool) -> None:
    """Give the copy its name."""
    if force:
        for beside in list(_names(target))[1:]:
            beside.unlink(missing_ok=True)
        part.replace(target)
    else:
        try:
            target.hardlink_to(part)  # a rename would overwrite what came there meanwhile
        except FileExistsError as error:
            raise NotAllowed(
                f"{target} exists already; it stays as it is. Name another file, or say --force."
            ) from error
        except OSError:  # a file system without links
            part.rename(target)
    sync_directory(target.parent)
