"""The files of a store, and what lies beside them in a directory: locks, sockets, witness, reserve and clock.

A store's file may be removed or replaced while a process has it open. SQLite does not notice: it goes on with files
that have no name any more, and what is committed there is gone with the process. So the writer looks before a
transaction, every 20 ms at most, and the watch once a second, whether the files still stand at their place. If they do
not, nothing is acknowledged any more, and what the open files hold is saved beside that place, those last 20 ms
included: only a process that is killed within them takes something along.

No two processes may write to different files either. SQLite's processes lock each other in the index of the log
(``-shm``). Where that file, or the log, is removed while one has it open, the next process makes another: each then
holds the locks of its own file, and both write the same places of the log. So all of them tell in their lock files
which files they have open, and a process that is to write compares first. What is told stays true while its process
lives, for an open file keeps its inode; a process that has died is not asked.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from wsrm_mq.errors import StoreCorrupt, StoreLocked, StoreUnavailable, StoreUnconfirmed, about
from wsrm_mq.events.telling import Events
from wsrm_mq.store.port import Database

FileId = tuple[int, int] | None
"""Device and inode of a file; ``None`` for one that is not there."""
FileIds = tuple[FileId, ...]
"""A store's file, its write-ahead log, and the index of that, which the processes share and lock each other with."""

_SIZE: Final = 256
"""Bytes of what a lock file tells: always the same number, so that no reader sees half of it."""


def beside(store: Path) -> Path:
    """The directory ``<store>.d`` beside the file of a store, where its locks, bells and marks are."""
    return store.with_name(store.name + ".d")


def parts(store: Path) -> tuple[Path, Path, Path]:
    """The file of the store at ``store``, its write-ahead log, and the index of the log."""
    return store, store.with_name(f"{store.name}-wal"), store.with_name(f"{store.name}-shm")


def log_bytes(store: Path) -> int:
    """The size of a store's write-ahead log; 0 if there is none."""
    try:
        return parts(store)[1].stat().st_size
    except FileNotFoundError:
        return 0


def witness_file(store: Path) -> Path:
    """The file that says which store was in use here, and how far it was; see ``witness``."""
    return beside(store) / "witness"


def rehearsal_file(store: Path) -> Path:
    """The file that says that acts may be tried on the copy here; see ``witness``."""
    return beside(store) / "rehearsal"


def content_of(file: Path) -> bytes:
    """The content of a file beside a store; a link is not followed. Raises ``OSError``."""
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as opened:
        return opened.read()


def refuse_foreign(store: Path) -> None:
    """Raise ``StoreLocked`` for a file that is no database as SQLite reads it, and ``StoreCorrupt`` for a database of
    another program: nothing of it, nor its permissions, is changed then. SQLite itself looks: where this process has
    the store open, another file that is opened there and closed would take the locks along, and a process that leaves
    would take itself for the last and remove the log."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(store))}?mode=ro", uri=True)) as db:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise StoreLocked(f"{store}: file is not a database.") from error
        return  # it is not there, or the open shall tell
    if tables and not tables >= {"alembic_version", "entry"}:
        raise no_store(store)


def no_store(path: Path) -> StoreCorrupt:
    return StoreCorrupt(f"{path}: is an SQLite database, but not a wsrm_mq store.", "Name another file.")


def keep_private(store: Path, events: Events) -> None:
    """Take other users' permissions on the store's files away, loudly: messages are in them. Raises
    ``StoreUnavailable`` where a link stands beside the store: what is written there would be somewhere else."""
    home = beside(store)
    files = [*parts(store), home]
    if home.is_dir() and not home.is_symlink():
        files += home.iterdir()
    for file in files:
        try:
            found = file.lstat()
        except OSError:  # it is gone, or never was
            continue
        if stat.S_ISLNK(found.st_mode):
            raise StoreUnavailable(
                f"{file}: is a symbolic link; what is written there would be somewhere else.",
                "Find out who made it, and remove it.",
            )
        open_to_others = found.st_mode & 0o077
        if not open_to_others or stat.S_ISSOCK(found.st_mode):
            continue
        try:
            file.chmod(stat.S_IMODE(found.st_mode) & 0o700)
        except OSError as error:
            events.tell("store.not_private", path=file, mode=f"{found.st_mode & 0o777:04o}", error=error)
        else:
            events.tell("store.tightened", path=file, mode=f"{found.st_mode & 0o777:04o}")


def is_locked(file: Path) -> bool | None:
    """Whether a process holds the lock on this file; ``None`` where there is no such file."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError:  # not known: a live process must not be taken for dead
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def file_ids(path: Path) -> FileIds:
    """The ids of a store's file, of its log and of the log's index, ``None`` for a file that is not there."""
    return _ids(path, f"{path}-wal", f"{path}-shm")


def file_id(path: Path | str) -> FileId:
    """Device and inode of what stands at ``path`` now; ``None``: nothing does."""
    return _ids(path)[0]


def _ids(*paths: Path | str) -> FileIds:
    """In one call: each commit of a message that comes alone asks for those of three."""
    found: list[FileId] = []
    for path in paths:
        try:
            there = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((there.st_dev, there.st_ino))
    return tuple(found)


def rescued_path(path: Path) -> Path:
    """The file that ``rescue`` writes."""
    return path.with_name(path.name + ".rescued")


def rescue(db: Database, path: Path, name: str) -> Path:
    """Copy all that ``db`` has, to ``rescued_path``. It is whole there or not there; ``name`` tells apart processes
    that do so at once. Raises ``OSError`` or ``sqlite3.Error``."""
    unfinished = path.with_name(f"{path.name}.{name}")
    with _in_turn(path.parent):
        unfinished.unlink(missing_ok=True)
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            assert isinstance(db, sqlite3.Connection)
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
    """The refusal of a store that was rescued and not put back: the file at its place is missing, or not whole."""
    saved = rescued_path(path)
    if not saved.exists():
        return None
    return StoreUnavailable(
        f"{path}: was removed or replaced while a service had it open; all that was in it then is in {saved.name}.",
        f"{put_back(path)}. Or remove that file, to go on with what stands there.",
    )


def lost(path: Path) -> StoreUnconfirmed | None:
    """The refusal of a store that was in use here and is not here now: its file is missing, or empty."""
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
    rescued, store, wal, shm = map(shlex.quote, map(str, (rescued_path(path), *parts(path))))
    return f"Stop the service, then: rm -f {wal} {shm} && mv {rescued} {store}"


def tell_open(handle: int, files: FileIds) -> None:
    """Write into the open lock file which files are open; none of them where they are closed."""
    text = json.dumps(files).encode()
    try:
        os.pwrite(handle, text.ljust(_SIZE), 0)
    except OSError:  # the disk is full: that the process lives is more than what it has open
        pass


def refuse_divided(path: Path) -> None:
    """Raise ``StoreUnavailable`` where a live process has other files open than those that stand at ``path``."""
    here = file_ids(path)
    others = [lock for lock in beside(path).glob("*.lock") if _told(lock) not in ((), here) and is_locked(lock)]
    if not others:
        return
    count = "a process has" if len(others) == 1 else f"{len(others)} processes have"
    raise StoreUnavailable(
        f"{path}: {count} it open with files that were removed or replaced since ({path.name}, -wal or -shm). "
        "Written from here, it would lose what they acknowledge.",
        f"Stop every process of the service, then start it. Those that run: {', '.join(lock.stem for lock in others)}.",
    )


def _told(lock: Path) -> FileIds:
    try:
        found = json.loads(content_of(lock))
        return tuple(None if one is None else (int(one[0]), int(one[1])) for one in found)
    except (OSError, ValueError, TypeError, IndexError):
        return ()
