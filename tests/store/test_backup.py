"""A copy that is whole or not there, made while a service writes; and a file that gives its free pages back."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.conftest import Mount
from tests.store.test_full import message
from tests.support.disk import MIB, Disk
from wsrm_mq.errors import NotAllowed, StoreCorrupt, StoreError, StoreFull, StoreUnconfirmed
from wsrm_mq.store.identity import identify
from wsrm_mq.store.sqlite import backup as backups
from wsrm_mq.store.sqlite.backup import backup
from wsrm_mq.store.sqlite.connection import space
from wsrm_mq.store.sqlite.space import vacuum
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

NOW = 1_700_000_000_000


def good(copy: sqlite3.Connection) -> str | None:
    (text,) = copy.execute("PRAGMA integrity_check").fetchone()
    return None if text == "ok" else text


def pair(tx: Transaction) -> None:
    """Two rows of one transaction: a copy has both or neither."""
    for _ in range(2):
        message(2_000)(tx)


@contextmanager
def busy(store: Store, verb: Callable[[Transaction], object] = pair) -> Iterator[list[float]]:
    """The store is written all the time; how long each commit took."""
    took: list[float] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            began = time.monotonic()
            store.call(verb)
            took.append(time.monotonic() - began)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield took
    finally:
        stop.set()
        thread.join()


def test_a_copy_of_a_store_that_is_written_is_one_state_of_it(store: Store, tmp_path: Path) -> None:
    for _ in range(5):
        store.call(message(2 * MIB))
    with busy(store) as took:
        while not took:
            time.sleep(0.01)
        before = len(took)
        size = backup(store.path, tmp_path / "copy.db", verify=good, now=NOW)
        during = len(took) - before
    with closing(sqlite3.connect(tmp_path / "copy.db")) as db:
        (count,) = db.execute("SELECT count(*) FROM message").fetchone()
        assert identify(db).copied_at == NOW
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert (count - 5) % 2 == 0
    assert count >= 5 + 2 * before
    assert during > 0, "the service went on meanwhile"
    assert size == (tmp_path / "copy.db").stat().st_size
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


def test_the_log_is_used_from_its_beginning_again_after_a_copy(store: Store, tmp_path: Path) -> None:
    with busy(store):
        backup(store.path, tmp_path / "copy.db", verify=good, now=NOW)
    store.call(message(10))
    with closing(sqlite3.connect(store.path)) as db:
        busy_readers, _log, _moved = db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    assert busy_readers == 0


def test_nothing_but_the_copy_is_left_beside_it(store: Store, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    backup(store.path, there / "copy.db", verify=good, now=NOW)
    assert [one.name for one in there.iterdir()] == ["copy.db"]


def test_a_copy_is_not_served_before_it_is_adopted(store: Store, tmp_path: Path) -> None:
    backup(store.path, tmp_path / "copy.db", verify=good, now=NOW)
    with pytest.raises(StoreUnconfirmed, match="is a copy"):
        Store(tmp_path / "copy.db").open()


def test_a_copy_of_a_copy_says_when_the_first_was_made(store: Store, tmp_path: Path) -> None:
    backup(store.path, tmp_path / "copy.db", verify=good, now=NOW)
    backup(tmp_path / "copy.db", tmp_path / "second.db", verify=good, now=NOW + 1)
    with closing(sqlite3.connect(tmp_path / "second.db")) as db:
        assert identify(db).copied_at == NOW


# what it refuses


def test_nothing_is_overwritten_without_being_told_to(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    for name in ("copy.db", "copy.db-wal"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(NotAllowed, match=rf"{name} exists already; .*--force"):
            backup(store.path, target, verify=good, now=NOW)
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()


def test_told_to_it_overwrites_with_all_that_belongs_to_the_old_file(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    store.call(message(10))
    for name in ("copy.db", "copy.db-wal", "copy.db-shm"):
        (tmp_path / name).write_text("of something else")
    backup(store.path, target, verify=good, now=NOW, force=True)
    with closing(sqlite3.connect(target)) as db:
        assert db.execute("SELECT count(*) FROM message").fetchone() == (1,)
    assert not (tmp_path / "copy.db-wal").exists()


def test_a_target_that_comes_meanwhile_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"

    def comes(_copy: object) -> None:
        target.write_text("mine")

    with pytest.raises(NotAllowed, match="exists already"):
        backup(store.path, target, verify=comes, now=NOW)
    assert target.read_text() == "mine"
    assert not list(tmp_path.glob("*.part*"))


def test_the_store_itself_and_one_in_use_are_no_targets(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other.db")
    other.open()
    try:
        for target, why in ((store.path, "is the store itself"), (other.path, "a service uses")):
            with pytest.raises(NotAllowed, match=why):
                backup(store.path, target, verify=good, now=NOW, force=True)
    finally:
        other.close()


@pytest.mark.parametrize(("target", "why"), [("missing/copy.db", "no such directory"), (".", "is a directory")])
def test_a_target_that_cannot_be_a_file_is_told(store: Store, tmp_path: Path, target: str, why: str) -> None:
    with pytest.raises(NotAllowed, match=why):
        backup(store.path, tmp_path / target, verify=good, now=NOW)


def test_a_copy_that_is_not_good_does_not_get_the_name(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreCorrupt, match="The copy is not good: a page is lost"):
        backup(store.path, tmp_path / "copy.db", verify=lambda _copy: "a page is lost", now=NOW)
    assert not list(tmp_path.glob("copy.db*"))


def test_a_log_that_grows_too_far_ends_the_copy_and_not_the_service(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "STEP_PAGES", 1)
    monkeypatch.setattr(backups, "MAX_LOG_GROWTH", 4 * MIB)
    store.call(message(MIB))

    def write(_done: int, _pages: int) -> None:
        store.call(message(MIB))

    with pytest.raises(StoreError, match="its write-ahead log grew"):
        backup(store.path, tmp_path / "copy.db", verify=good, now=NOW, progress=write)
    assert not list(tmp_path.glob("copy.db*"))
    store.call(message(10))


@pytest.fixture
def disk(mount: Mount) -> Disk:
    return Disk(mount("-t", "tmpfs", "-o", "size=42m", "tmpfs"))


def test_a_disk_without_room_for_it_is_told_before_anything_is_written(store: Store, disk: Disk) -> None:
    for _ in range(30):
        store.call(message(MIB))
    with pytest.raises(StoreFull, match=r"the copy needs \d+ bytes, \d+ are free") as refused:
        backup(store.path, disk.point / "copy.db", verify=good, now=NOW)
    assert "The store is as it was" in refused.value.hint
    assert list(disk.point.iterdir()) == []


def test_a_disk_that_fills_meanwhile_leaves_no_half_copy(
    store: Store, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "STEP_PAGES", 64)
    for _ in range(10):
        store.call(message(MIB))
    with pytest.raises(StoreFull, match="full"):
        backup(store.path, disk.point / "copy.db", verify=good, now=NOW, progress=lambda _done, _pages: disk.fill())
    assert [one.name for one in disk.point.iterdir()] == ["filler"]
    disk.make_room()
    backup(store.path, disk.point / "copy.db", verify=good, now=NOW)


# a kill in the middle

_KILLED = """
import os, signal, sys
from pathlib import Path
from wsrm_mq.store.sqlite import backup as backups

point, store, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
backups.STEP_PAGES = 16

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if point == "placing":
    backups._put = die
backups.backup(
    store, target, now=1, verify=die if point == "verifying" else lambda copy: None, force=True,
    progress=lambda done, pages: die() if point == "copying" and done * 2 > pages else None,
)
"""


@pytest.mark.parametrize("point", ["copying", "verifying", "placing"])
def test_a_killed_backup_leaves_no_half_copy_of_that_name_and_the_next_one_tidies_up(
    store: Store, tmp_path: Path, point: str
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "copy.db").write_text("the copy of yesterday")
    store.call(message(4 * MIB))
    command = [sys.executable, "-c", _KILLED, point, str(store.path), str(there / "copy.db")]
    assert subprocess.run(command, timeout=60, check=False).returncode == -9
    assert (there / "copy.db").read_text() == "the copy of yesterday"
    store.call(message(10))
    assert list(there.glob("*.part"))
    backup(store.path, there / "copy.db", verify=good, now=NOW, force=True)
    assert [one.name for one in there.iterdir()] == ["copy.db"]


# vacuum


def test_free_pages_are_used_again_and_vacuum_gives_them_back(store: Store) -> None:
    for _ in range(8):
        store.call(message(MIB))
    store.call(lambda tx: tx.execute("DELETE FROM message"))
    with store.reader() as db:
        free = space(db).reclaimable
    assert free > 8 * MIB
    for _ in range(7):
        store.call(message(MIB))
    with store.reader() as db:
        assert space(db).reclaimable < free - 6 * MIB, "what comes next uses them"
        size = space(db).size
    store.call(lambda tx: tx.execute("DELETE FROM message WHERE id > 1"))
    store.close()
    before, after = vacuum(store.path)
    assert before == size
    assert after < 3 * MIB
    store.open()
    with store.reader() as db:
        assert space(db).reclaimable == 0
        assert db.execute("SELECT count(*) FROM message").fetchone() == (1,)


def test_vacuum_is_refused_while_a_service_runs(store: Store) -> None:
    with pytest.raises(NotAllowed, match="is used by 1 process,"):
        vacuum(store.path)


def test_vacuum_is_refused_without_the_room_that_it_needs(disk: Disk) -> None:
    store = Store(disk.point / "store.db")
    store.open()
    for _ in range(12):
        store.call(message(MIB))
    store.close()
    content = store.path.stat().st_size
    with (disk.point / "filler").open("wb") as filler:
        filler.write(bytes(disk.free - content))
    with pytest.raises(StoreFull, match=r"takes \d+ bytes, \d+ are free"):
        vacuum(store.path)
    disk.make_room()
    vacuum(store.path)


@pytest.mark.parametrize(
    "name", ["copy.db.part", "copy.db.download.part", "copy.db.0123abcd.part", "copy.db.0123abcd01234567.part"]
)
def test_a_file_of_others_that_is_named_like_an_unfinished_copy_stays(store: Store, tmp_path: Path, name: str) -> None:
    theirs = tmp_path / name
    theirs.write_bytes(b"precious")
    backup(store.path, tmp_path / "copy.db", verify=lambda _db: None, now=0)
    assert theirs.read_bytes() == b"precious"
