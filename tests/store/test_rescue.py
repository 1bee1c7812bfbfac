"""What is saved of a store whose files were taken away, and what is said where it cannot be."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from tests.conftest import Mount
from tests.store.test_writer import Told, note, noted
from tests.support.disk import Disk
from tests.support.orders_server import SETTLED
from tests.support.stored import a_look_is_due
from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.sqlite.files import file_ids, rescue, rescued_path
from wsrm_mq.store.store import Store
from wsrm_mq.store.writer import RETRY_SECONDS


def test_the_files_of_an_open_store_keep_their_identity(store: Store) -> None:
    before = file_ids(store.path)
    assert None not in before
    for _ in range(3):
        store.call(note("something"))
        with store.reader() as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert file_ids(store.path) == before


def test_all_that_was_committed_is_saved_and_nothing_later_is_committed(store: Store) -> None:
    store.call(note("before"))
    store.path.unlink()
    a_look_is_due()
    with pytest.raises(StoreUnavailable, match="was removed or replaced") as refused:
        store.call(note("after"))
    assert "store.db.rescued" in refused.value.hint
    saved = Store(rescued_path(store.path).rename(store.path.with_name("saved.db")))
    saved.open()
    assert noted(saved) == ["before"]
    saved.call(note("later"))
    saved.close()


def test_what_must_be_stored_waits_and_is_stored_when_the_file_is_back(store: Store, tmp_path: Path) -> None:
    store.path.rename(tmp_path / "elsewhere.db")
    a_look_is_due()
    told = Told()
    store.submit(note("settled"), told, keep=True)
    with pytest.raises(StoreUnavailable):
        store.call(note("accepted"))
    assert told.results == []
    (tmp_path / "elsewhere.db").rename(store.path)
    assert told.wait(1) == ["settled"]
    assert noted(store) == ["settled"]
    assert not rescued_path(store.path).exists(), "it would be a copy of the past"


@pytest.mark.timed
def test_a_request_is_refused_at_once_while_what_must_be_stored_waits(store: Store, tmp_path: Path) -> None:
    store.path.rename(tmp_path / "elsewhere.db")
    a_look_is_due()
    told = Told()
    store.submit(note("settled"), told, keep=True)
    begun = time.monotonic()
    for _ in range(20):
        with pytest.raises(StoreUnavailable):
            store.call(note("accepted"), is_request=True)
    assert time.monotonic() - begun < RETRY_SECONDS[-1]
    (tmp_path / "elsewhere.db").rename(store.path)
    assert told.wait(1) == ["settled"]


def test_what_is_committed_is_told_so_though_the_copy_of_the_past_cannot_be_removed(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.path.rename(tmp_path / "elsewhere.db")
    a_look_is_due()
    with pytest.raises(StoreUnavailable):
        store.call(note("refused"))
    saved = rescued_path(store.path)
    saved.unlink()
    saved.mkdir()  # cannot be unlinked
    (tmp_path / "elsewhere.db").rename(store.path)
    for number in range(3):
        assert store.call(note(f"{number}")) == f"{number}"
    assert noted(store) == ["0", "1", "2"]
    assert caplog.text.count("store.copy_left") == 1
    saved.rmdir()


def test_files_that_go_twice_are_saved_twice_and_a_loop_goes_on_writing_in_between(
    store: Store, tmp_path: Path
) -> None:
    elsewhere, told = tmp_path / "elsewhere.db", Told()
    for turn in (1, 2):
        store.path.rename(elsewhere)
        a_look_is_due()
        copies = set()
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                store.call(note("refused"))
            copies.add(rescued_path(store.path).stat().st_mtime_ns)
        assert len(copies) == 1, "saved once"
        elsewhere.rename(store.path)
        store.call(note(f"back {turn}"))
        assert not rescued_path(store.path).exists()
        before = store.writer.commits
        store.writer.submit(note(f"led {turn}"), told, is_led=True)
        store.writer.lead()
        assert (told.results[-1:], store.writer.commits) == ([f"led {turn}"], before + 1), "in the loop's own thread"
    assert noted(store) == ["back 1", "led 1", "back 2", "led 2"]


def test_where_nothing_can_be_saved_the_operator_learns_where_it_still_is(path: Path, mount: Mount) -> None:
    disk = Disk(mount("-t", "tmpfs", "-o", "size=2m", "tmpfs"))
    store = Store(disk.point / "store.db")
    store.open()
    store.call(note("before"))
    store.path.unlink()
    a_look_is_due()
    disk.fill()
    with pytest.raises(StoreUnavailable, match="was removed or replaced") as refused:
        store.call(note("after"))
    assert "could not be saved" in refused.value.hint
    assert "/fd" in refused.value.hint
    assert not list(disk.point.glob("store.db.*[!d]")), "no half of a copy is left"
    store.close()


def test_a_copy_waits_until_another_process_has_made_its_own(path: Path) -> None:
    """So the last of several copies has what every one of them has written."""
    turn = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(turn, fcntl.LOCK_EX)
    db = sqlite3.connect(path, check_same_thread=False)
    copying = threading.Thread(target=rescue, args=(db, path, "one"))
    copying.start()
    try:
        copying.join(SETTLED)
        assert copying.is_alive()
        assert not rescued_path(path).exists()
    finally:
        os.close(turn)
        copying.join()
        db.close()
    assert rescued_path(path).exists()


def test_a_directory_that_is_gone_ends_nothing(path: Path) -> None:
    home = path.parent / "home"
    home.mkdir()
    store = Store(home / "store.db")
    store.open()
    shutil.rmtree(home)
    a_look_is_due()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="could not be saved"):
            store.call(note("something"))
    store.close()


def test_a_store_that_was_replaced_during_a_fork_is_not_written(store: Store, tmp_path: Path) -> None:
    store.call(note("before"))
    store.suspend()
    store.path.rename(tmp_path / "elsewhere.db")
    a_look_is_due()
    schema.ensure(store.path, anew=True)
    other = Store(store.path)
    other.open()
    store.resume()
    with pytest.raises(StoreUnavailable, match="was replaced"):
        store.call(note("after"))
    other.close()
    (tmp_path / "elsewhere.db").rename(store.path)
    store.call(note("again"))
    assert noted(store) == ["before", "again"]


def test_a_loop_and_the_writers_thread_both_see_that_the_files_are_gone(store: Store, tmp_path: Path) -> None:
    """What one has seen the other may not take for a look that was good."""
    writer = store.writer
    for _ in range(20):
        store.call(note("before"))
    store.path.with_name("store.db-wal").rename(tmp_path / "elsewhere")
    a_look_is_due()
    for _ in range(20):
        told = Told()
        writer.submit(note("after"), told, is_led=True)
        writer.lead()
        [error] = told.wait(1)
        assert isinstance(error, StoreUnavailable)
    assert rescued_path(store.path).exists()


def test_a_fork_does_not_wait_for_what_cannot_be_stored(store: Store, tmp_path: Path) -> None:
    store.path.rename(tmp_path / "elsewhere.db")
    a_look_is_due()
    told = Told()
    store.submit(note("settled"), told, keep=True)
    suspending = threading.Thread(target=store.suspend)
    suspending.start()
    suspending.join(10)
    assert not suspending.is_alive()
    (tmp_path / "elsewhere.db").rename(store.path)
    store.resume()
    assert told.wait(1) == ["settled"]
