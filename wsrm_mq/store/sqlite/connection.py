"""One way to open a SQLite connection, what one can do beside its statements, and one table from its errors to ours.

WAL with synchronous=FULL: what a commit has answered survives a power cut, unless less is wanted (``sync_commits``).
Every connection has a busy timeout; no checkpoint happens by chance inside a commit (the writer makes them, see
``writer``).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast
from urllib.parse import quote

from wsrm_mq.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreUnavailable, about
from wsrm_mq.store.port import Database, Log, Obstacle
from wsrm_mq.store.sqlite.files import lost, refuse_divided, removed

BUSY_TIMEOUT_MS: Final = 5_000
LARGE_LOG_PAGES: Final = 16_384
RESTART_TIMEOUT_MS: Final = 100
"""The longest time for which no process writes while a checkpoint waits for the readers of a large log."""

Error = sqlite3.Error
"""The class of this driver's errors."""
_LOOK_AGAIN_SECONDS: Final = (0.0005, 0.0015)
"""Between two looks at a lock that another process holds: about as long as a commit."""

MOUNTS: Final = Path("/proc/self/mounts")

_NETWORK_FILE_SYSTEMS: Final = {"nfs", "nfs4", "cifs", "smb3", "smbfs"} | {
    "ncpfs",
    "afs",
    "fuse.sshfs",
    "ceph",
    "glusterfs",
}

_BY_CODE: Final[dict[int, type[StoreError]]] = {
    sqlite3.SQLITE_BUSY: StoreBusy,
    sqlite3.SQLITE_LOCKED: StoreBusy,
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_IOERR_SHMSIZE: StoreFull,  # no room for the index of the WAL
    sqlite3.SQLITE_IOERR: StoreUnavailable,
    sqlite3.SQLITE_READONLY: StoreUnavailable,
    sqlite3.SQLITE_CANTOPEN: StoreUnavailable,
    sqlite3.SQLITE_PERM: StoreUnavailable,
    sqlite3.SQLITE_AUTH: StoreUnavailable,
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreLocked,
}
"""Extended or primary result code -> our error. Anything else is a mistake of ours and stays what it is."""


def translate(error: BaseException, path: Path) -> BaseException:
    """Our error for a SQLite one, or the error itself where it is not about the store as a whole."""
    code = getattr(error, "sqlite_errorcode", None)
    kind = None if code is None else _BY_CODE.get(code) or _BY_CODE.get(code & 0xFF)
    if kind is StoreUnavailable and _is_read_only(path):
        return _read_only(path)
    return kind(f"{path}: {error}.") if kind is not None else error


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error
    except UnicodeDecodeError as error:  # SQLite's own words quote a schema that is damaged
        raise StoreCorrupt(f"{path}: has text that is no UTF-8.") from error


_LAST_POSITION: Final = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entry'"
"""The position of a deleted row is not used again."""
_RESERVE: Final = """
UPDATE sqlite_sequence SET seq = (SELECT max(seq) FROM sqlite_sequence WHERE name = 'entry') + ? WHERE name = 'entry'
RETURNING seq
"""
_ALLOCATE: Final = "UPDATE message SET body = zeroblob(?) WHERE id = ?"
_PIECE: Final = 1024 * 1024


class Connection(sqlite3.Connection):
    """The port's connection. Its ``execute`` is SQLite's own."""

    _syncs = True

    def for_writing(self) -> None:
        """From now on it writes, and waits for other writers in ``begin`` alone."""
        self.execute("PRAGMA query_only = OFF")
        self.execute("PRAGMA busy_timeout = 0")

    def sync_commits(self, wanted: bool) -> None:
        """The next commit that is synced takes along what the log has of those that were not."""
        if wanted is not self._syncs:
            self.execute(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self._syncs = wanted

    def begin(self, *, wait: bool = True) -> int:
        """SQLite waits longer after each look at the lock, up to 100 ms, so of several busy processes the one that has
        waited longest looks least often. Here all look alike."""
        if wait:
            _when_free(self, "BEGIN IMMEDIATE")
        else:
            self.execute("BEGIN IMMEDIATE")
        return int(self.execute("PRAGMA data_version").fetchone()[0])

    def positions(self) -> Iterator[int]:
        return count(self.execute(_LAST_POSITION).fetchone()[0] + 1)

    def reserve_positions(self, wanted: int) -> range:
        (last,) = self.execute(_RESERVE, (wanted,)).fetchone()
        return range(last - wanted + 1, last + 1)

    def write_body(self, message: int, size: int, body: BinaryIO) -> None:
        self.execute(_ALLOCATE, (size, message))
        with self.blobopen("message", "body", message) as blob:
            shutil.copyfileobj(body, cast(BinaryIO, blob), _PIECE)

    def open_body(self, message: int) -> BinaryIO:
        return cast(BinaryIO, self.blobopen("message", "body", message, readonly=True))

    def checkpoint(self, then: Log | None = None) -> bool:
        """Take what the write-ahead log has into the file, as far as no reader needs it. A large log is begun anew by
        the next write: where several processes read all the time, that comes by itself too rarely."""
        _is_busy, pages, _taken = self.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if then is None and pages < LARGE_LOG_PAGES:
            return False
        (timeout,) = self.execute("PRAGMA busy_timeout").fetchone()
        self.execute(f"PRAGMA busy_timeout = {RESTART_TIMEOUT_MS}")
        restart, end = f"PRAGMA wal_checkpoint({then or 'RESTART'})", time.monotonic() + RESTART_TIMEOUT_MS / 1000
        try:
            # SQLite waits for readers by itself, but not for the checkpoint of another process.
            while (is_busy := self.execute(restart).fetchone()[0]) and time.monotonic() < end:
                time.sleep(random.uniform(*_LOOK_AGAIN_SECONDS))
        finally:
            self.execute(f"PRAGMA busy_timeout = {timeout}")
        return not is_busy


class CopyConnection(Connection):
    """A connection to a copy that lies in a directory of its own, and goes with it."""

    original: Path
    """The store that it is a copy of."""
    lock: int
    """An open file: that it is locked says that the copy is in use."""

    def close(self) -> None:
        place = _opened_file(self).parent
        super().close()
        shutil.rmtree(place, ignore_errors=True)
        os.close(self.lock)


def create_file(path: Path) -> None:
    """Make an empty store file that only its owner may read; the WAL beside it inherits the mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        pass
    except FileNotFoundError as error:
        raise StoreUnavailable(
            f"{path}: cannot be created: {error.strerror}.", f"Make the directory {path.parent} first."
        ) from error
    except OSError as error:
        raise StoreUnavailable(f"{path}: cannot be created: {error.strerror}.") from error


def connect_writer(path: Path) -> Connection:
    """The writer's connection. The file has to exist. Autocommit mode: every transaction is begun in words."""
    refuse_place(path)
    with store_errors(path):
        db = _open(path, "mode=rw")
        try:
            if not write_ahead(db):
                raise StoreUnavailable(f"{path}: write-ahead logging cannot be switched on.")
            refuse_divided(path)
        except BaseException:
            db.close()
            raise
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("PRAGMA journal_size_limit = 67108864")
        db.execute("PRAGMA cache_size = -32768")
        return db


def why_not_written(db: Database, seconds: float) -> Obstacle | None:
    """Try for so long to get the write lock with a reader's connection, and give it back at once; ``None`` where that
    goes well. To a user who may only read SQLite gives a reader's transaction for BEGIN IMMEDIATE, and refuses what
    would write in it."""
    end = time.monotonic() + seconds
    try:
        db.execute("PRAGMA busy_timeout = 0")
        db.execute("PRAGMA query_only = OFF")
        while True:
            try:
                db.execute("BEGIN IMMEDIATE")
                try:
                    db.execute("DELETE FROM ledger WHERE FALSE")
                finally:
                    db.execute("ROLLBACK")
                return None
            except sqlite3.OperationalError as error:
                code = error.sqlite_errorcode & 0xFF
                if code == sqlite3.SQLITE_BUSY and time.monotonic() < end:
                    time.sleep(random.uniform(*_LOOK_AGAIN_SECONDS))
                elif code == sqlite3.SQLITE_BUSY:
                    return Obstacle(
                        f"another program holds the write lock, and did not give it back within {seconds:g} s",
                        is_of_asker=False,
                    )
                elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
                    text = "this user may not write to the store, so it is not known whether a service can"
                    return Obstacle(text, is_of_asker=True)
                else:
                    return Obstacle(f"the store cannot be written: {error}", is_of_asker=False)
    finally:
        db.execute("PRAGMA query_only = ON")
        db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


def write_ahead(db: sqlite3.Connection) -> bool:
    """Switch write-ahead logging on; whether it is. SQLite itself does not wait here while another process, that makes
    the same store, is about to do so."""
    return bool(_when_free(db, "PRAGMA journal_mode = WAL").fetchone()[0] == "wal")


def _when_free(db: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
    give_up_at = None
    while True:
        try:
            return db.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            now = time.monotonic()
            give_up_at = give_up_at or now + BUSY_TIMEOUT_MS / 1000
            if now >= give_up_at:
                raise
        time.sleep(random.uniform(*_LOOK_AGAIN_SECONDS))


def connect_reader(path: Path) -> Connection:
    """A connection that can only read. It sees every commit that came before its statement."""
    with store_errors(path):
        return only_reading(path, "mode=rw")


def only_reading(path: Path, parameters: str, factory: type[Connection] = Connection) -> Connection:
    """A connection, opened with these parameters of the URI, that can only read."""
    db = _open(path, parameters, factory)
    db.execute("PRAGMA query_only = ON")
    return db


@contextmanager
def snapshot(db: Database) -> Iterator[None]:
    """Several reads that see one state of the store. Keep it short: it holds up checkpoints."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


def named(db: Database, kind: str) -> set[str]:
    """The names of what the schema has of this kind: tables, or views."""
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = ?", (kind,))}


SLACK: Final = 1024 * 1024


class Space(NamedTuple):
    """Bytes of a store's file."""

    size: int
    reclaimable: int
    """Free pages: used for what comes next, or given back by ``vacuum``."""

    @property
    def used(self) -> int:
        return self.size - self.reclaimable

    @property
    def needed(self) -> int:
        """Free space for ``vacuum``: all that is in use is written twice, to a temporary file and to the log."""
        return 2 * self.used + SLACK


def space(db: Database) -> Space:
    """The sizes of a store's file, in bytes: all of it, and what of it is free."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    (page_size,) = db.execute("PRAGMA page_size").fetchone()
    return Space(pages * page_size, free * page_size)


def file_of(db: Database) -> Path:
    """The store's file, of a connection to it or to a copy of it."""
    return db.original if isinstance(db, CopyConnection) else _opened_file(db)


def _opened_file(db: Database) -> Path:
    return Path(next(file for _number, name, file in db.execute("PRAGMA database_list") if name == "main"))


def _open(path: Path, parameters: str, factory: type[Connection] = Connection) -> Connection:
    gone: StoreError | None = lost(path)
    if gone is None and not path.exists():
        gone = StoreUnavailable(f"{path}: there is no such store.", about(path, "Create it with `wsrm-mq store init`."))
    if gone is not None:
        raise removed(path) or gone
    db = sqlite3.connect(
        f"file:{quote(str(path))}?{parameters}",
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=factory,
    )
    try:
        db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def refuse_place(path: Path) -> None:
    """Raise ``StoreUnavailable`` for a store on a read-only file system, or on one of the network: WAL shares memory
    between processes, which no such system offers."""
    if path.exists() and _is_read_only(path):
        raise _read_only(path)
    _refuse_two_names(path)
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    where = os.path.realpath(path)
    parts = {f"{where}{suffix}" for suffix in ("", "-wal", "-shm", ".d")}
    best, kind = "", ""
    for line in mounts:
        _device, point, file_system, *_rest = line.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), point)  # a space is \\040
        if point in parts:
            raise StoreUnavailable(
                f"{path}: {point} is a mount of its own. The log and the locks beside it are not shared then: what is "
                "written here is not where the others, or the next container, look for it.",
                f"Mount the directory {path.parent} as a whole.",
            )
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, file_system
    if kind in _NETWORK_FILE_SYSTEMS:
        raise StoreUnavailable(
            f"{path}: is on a network file system ({kind}), where write-ahead logging cannot work.",
            "Put the store on a local disk.",
        )


def _refuse_two_names(path: Path) -> None:
    """Each name of a file has a log of its own: opened by two of them, each loses what the other wrote."""
    try:
        names = os.stat(path).st_nlink
    except OSError:
        return
    if names > 1:
        raise StoreUnavailable(
            f"{path}: has {names} names (hard links), and each would have a write-ahead log of its own.",
            "Remove the other names; a copy is made with `wsrm-mq store backup`.",
        )


def _is_read_only(path: Path) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _read_only(path: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"{path}: is on a read-only file system.",
        "Mount that for writing; or copy the store, with what lies beside it, to a place that can be written.",
    )
