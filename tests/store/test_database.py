from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from tests.conftest import Mount
from wsrm_mq.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreUnavailable
from wsrm_mq.store.sqlite import connection
from wsrm_mq.store.sqlite.connection import connect_reader, connect_writer, translate, write_ahead
from wsrm_mq.store.store import Store


def setting(db: sqlite3.Connection, name: str) -> object:
    return db.execute(f"PRAGMA {name}").fetchone()[0]


def test_what_a_commit_answers_survives_a_power_cut(path: Path) -> None:
    db = connect_writer(path)
    assert (setting(db, "journal_mode"), setting(db, "synchronous")) == ("wal", 2)
    assert setting(db, "busy_timeout") == connection.BUSY_TIMEOUT_MS
    db.close()


def test_processes_that_make_a_store_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """SQLite does not where one has begun to write and another switches to write-ahead logging."""
    path = tmp_path / "new.db"
    first = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    first.execute("CREATE TABLE one (x)")
    first.execute("BEGIN IMMEDIATE")
    threading.Timer(0.2, first.execute, ["COMMIT"]).start()
    second = sqlite3.connect(path, isolation_level=None)
    assert write_ahead(second)
    second.close()
    first.close()


@pytest.mark.parametrize("is_large", [True, False])
def test_a_large_log_is_begun_anew_though_something_reads(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    monkeypatch.setattr(connection, "LARGE_LOG_PAGES", 1 if is_large else 1_000_000)
    monkeypatch.setattr(connection, "RESTART_TIMEOUT_MS", 20_000)
    db = connect_writer(path)
    db.for_writing()
    db.execute("CREATE TABLE one (x)")
    for _ in range(50):
        db.execute("INSERT INTO one VALUES (zeroblob(4096))")
    reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM one").fetchone()
    leaving = threading.Timer(0.2, reader.execute, ["COMMIT"])
    leaving.start()
    db.checkpoint()
    db.execute("INSERT INTO one VALUES (0)")
    _is_busy, pages, _taken = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    leaving.join()
    reader.close()
    assert (pages < 50) is is_large
    assert setting(db, "busy_timeout") == 0
    db.close()


def test_a_reader_cannot_write(path: Path) -> None:
    db = connect_reader(path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        db.execute("DELETE FROM ledger")
    assert setting(db, "busy_timeout") == connection.BUSY_TIMEOUT_MS
    db.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY, StoreBusy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreBusy),
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_IOERR_SHMSIZE, StoreFull),
        (sqlite3.SQLITE_IOERR_WRITE, StoreUnavailable),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreUnavailable),
        (sqlite3.SQLITE_CANTOPEN, StoreUnavailable),
        (sqlite3.SQLITE_CORRUPT_INDEX, StoreCorrupt),
        (sqlite3.SQLITE_NOTADB, StoreLocked),
    ],
)
def test_result_codes_become_errors_of_ours(code: int, kind: type[StoreError]) -> None:
    error = sqlite3.OperationalError("something")
    error.sqlite_errorcode = code
    ours = translate(error, Path("/q/store.db"))
    assert type(ours) is kind
    assert "/q/store.db: something." in str(ours)


def test_a_mistake_in_a_statement_stays_what_it_is() -> None:
    error = sqlite3.IntegrityError("UNIQUE constraint failed")
    error.sqlite_errorcode = sqlite3.SQLITE_CONSTRAINT_UNIQUE
    assert translate(error, Path("x")) is error


def test_a_read_only_file_system_is_said_to_be_unusable(path: Path, mount: Mount) -> None:
    read_only = mount("--bind", "-o", "ro", str(path.parent))
    with pytest.raises(StoreUnavailable, match=r"store\.db: is on a read-only file system") as refused:
        Store(read_only / "store.db").open()
    assert "copy the store" in refused.value.hint


def test_a_store_cannot_be_made_on_a_read_only_file_system(mount: Mount) -> None:
    read_only = mount("-t", "tmpfs", "-o", "ro", "tmpfs")
    with pytest.raises(StoreUnavailable, match="cannot be created: Read-only file system"):
        Store(read_only / "store.db").open()


@pytest.mark.parametrize("file_system", ["nfs", "nfs4", "cifs", "fuse.sshfs"])
@pytest.mark.parametrize("escaped", [False, True], ids=["plain", "with a space and an é"])
def test_a_store_on_a_network_file_system_is_refused_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_system: str, escaped: bool
) -> None:
    point = tmp_path / ("qué ue" if escaped else "queue")
    (point / "inner").mkdir(parents=True)
    mounts = tmp_path / "mounts"
    written = str(point).replace(" ", "\\040")
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/q {written} {file_system} rw 0 0\n", encoding="utf-8")
    monkeypatch.setattr(connection, "MOUNTS", mounts)
    store = point / "inner" / "store.db"
    with pytest.raises(StoreUnavailable, match=f"network file system \\({file_system}\\)") as refused:
        Store(store).open()
    assert "local disk" in refused.value.hint
    assert not store.exists()


def test_a_local_file_system_below_a_network_one_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/ {tmp_path.parent} nfs rw 0 0\n/dev/sda {tmp_path} ext4 rw 0 0\n")
    monkeypatch.setattr(connection, "MOUNTS", mounts)
    store = Store(tmp_path / "store.db")
    store.open()
    assert store.is_open
    store.close()


def test_a_name_that_a_uri_would_read_otherwise_is_a_name(tmp_path: Path) -> None:
    store = Store(tmp_path / "a?b#c%20 d.db")
    store.open()
    store.call(lambda tx: tx.ledger("here"))
    store.close()
    assert (tmp_path / "a?b#c%20 d.db").stat().st_size > 0
