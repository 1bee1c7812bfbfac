"""A store that may have forgotten what it acknowledged is not opened; one that has not, always is."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.test_writer import note
from tests.support.processes import Python
from tests.support.synced import Synced
from wsrm_mq.errors import StoreUnconfirmed
from wsrm_mq.store import identity
from wsrm_mq.store.identity import Identity
from wsrm_mq.store.outside import run_once
from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.sqlite.connection import connect_reader
from wsrm_mq.store.sqlite.witness import Witness, is_older
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction


def a_sequence(tx: Transaction) -> None:
    """Something that can be acknowledged; written by hand, the rules of sequences do not matter here."""
    queue = tx.queue("/orders")
    tx.execute(
        """INSERT INTO lane (queue, identifier, soap, addressing, assurance, ordered, created_at, active_at, cursor,
        "limit", fence) VALUES (?, 'urn:uuid:1', '1.1', '2005', 'exactly_once', 1, 0, 0, 1, 1, 0)""",
        (queue,),
    )


@pytest.fixture
def used(path: Path) -> Path:
    """A store that a service has used and left in order."""
    serve(path, a_sequence)
    return path


def serve(path: Path, verb: Callable[[Transaction], object] = lambda _tx: None) -> None:
    store = Store(path)
    store.open()
    store.call(verb)
    store.close()


def file_copy(path: Path, name: str = "copy.db") -> Path:
    """A copy as ``cp`` makes it, of a store that no process has open."""
    return Path(shutil.copy(path, path.with_name(name)))


def found(path: Path) -> Identity:
    with closing(sqlite3.connect(path)) as db:
        return identity.identify(db)


def test_a_store_that_stays_where_it_is_is_opened_again_and_again(used: Path) -> None:
    marks = [found(used).mark]
    for _ in range(3):
        serve(used)
        marks.append(found(used).mark)
        assert Witness(used).seen() == Identity(found(used).id, marks[-1], None)
    assert marks == sorted(set(marks))


def test_a_file_from_before_is_refused_at_its_old_place(used: Path) -> None:
    before = file_copy(used)
    serve(used)
    before.replace(used)
    with pytest.raises(StoreUnconfirmed, match="is older than what was here before") as refused:
        Store(used).open()
    assert f"`wsrm-mq store adopt --store {used}`" in refused.value.hint


def test_what_was_refused_is_as_it_was(used: Path) -> None:
    before = file_copy(used)
    serve(used)
    before.replace(used)
    content, beside = used.read_bytes(), sorted(used.with_name("store.db.d").iterdir())
    for _ in range(2):
        with pytest.raises(StoreUnconfirmed):
            Store(used).open()
    assert used.read_bytes() == content
    assert sorted(used.with_name("store.db.d").iterdir()) == beside


def test_an_act_of_an_operator_is_no_more_forgotten_than_a_message(used: Path) -> None:
    before = file_copy(used)
    run_once(used, note("skipped"))
    before.replace(used)
    for opening in (lambda: Store(used).open(), lambda: run_once(used, note("resumed"))):
        with pytest.raises(StoreUnconfirmed, match="older"):
            opening()


def test_a_file_from_before_is_found_out_after_a_kill_too(used: Path, python: Python) -> None:
    before = file_copy(used)
    process = python(
        """
        import os, signal, sys
        from pathlib import Path
        from wsrm_mq.store.store import Store
        store = Store(Path(sys.argv[1]))
        store.open()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        used,
    )
    process.communicate(timeout=30)
    before.replace(used)
    for suffix in ("-wal", "-shm"):
        used.with_name(used.name + suffix).unlink(missing_ok=True)
    with pytest.raises(StoreUnconfirmed, match="older"):
        Store(used).open()


def test_a_kill_between_the_commit_and_the_witness_does_no_harm(used: Path) -> None:
    """The witness lags behind; it never leads."""
    with closing(sqlite3.connect(used)) as db:
        db.execute("UPDATE identity SET mark = mark + 7")
        db.commit()
    serve(used)


def test_a_running_store_moves_its_mark_where_something_was_written_and_only_there(store: Store) -> None:
    store.bear_witness()
    first = store._witness.seen()
    store.bear_witness()
    assert store._witness.seen() == first
    store.call(note("something"))
    store.bear_witness()
    second = store._witness.seen()
    assert first is not None
    assert second is not None
    assert second.mark > first.mark


def test_a_witness_that_is_removed_while_a_service_runs_comes_back(store: Store) -> None:
    store._witness.file.unlink()
    store.call(note("something"))
    store.bear_witness()
    store._witness.file.unlink()
    store.bear_witness()
    assert store._witness.seen() is not None


def test_several_that_write_at_once_are_never_taken_for_an_older_store(store: Store) -> None:
    others = [Store(store.path) for _ in range(3)]
    for other in others:
        other.open()
        for each in (store, *others):
            if each.is_open:
                each.call(note("something"))
                each.bear_witness()
    for other in others:
        other.close()
    store.bear_witness()


def test_a_file_that_was_replaced_under_a_service_does_not_make_the_witness_forget(used: Path) -> None:
    before = file_copy(used)
    store = Store(used)
    store.open()
    store.bear_witness()
    told = store._witness.seen()
    before.replace(used)
    store.close(timeout=0.1)
    assert store._witness.seen() == told
    used.with_name("store.db.rescued").unlink()
    for suffix in ("-wal", "-shm"):
        used.with_name(used.name + suffix).unlink(missing_ok=True)
    with pytest.raises(StoreUnconfirmed, match="older"):
        Store(used).open()


# moved, mixed up, lost


def test_a_store_that_is_moved_with_its_directory_is_opened(used: Path) -> None:
    there = used.parent / "there"
    there.mkdir()
    for one in used.parent.glob("store.db*"):
        one.rename(there / one.name)
    serve(there / "store.db")


def test_without_its_directory_it_is_asked_for(used: Path) -> None:
    moved = used.rename(used.with_name("moved.db"))
    with pytest.raises(StoreUnconfirmed, match=r"its witness.* is missing") as refused:
        Store(moved).open()
    assert "adopt --current" in refused.value.hint
    assert not moved.with_name("moved.db.d").exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"store": "x"}', '{"store": "x", "mark": "many"}'])
def test_a_witness_that_cannot_be_read_is_a_missing_one(used: Path, content: str) -> None:
    Witness(used).file.write_text(content)
    with pytest.raises(StoreUnconfirmed, match="missing"):
        Store(used).open()


def test_another_store_in_its_place_is_asked_for(used: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    serve(other, a_sequence)
    other.replace(used)
    with pytest.raises(StoreUnconfirmed, match="is not the store that was used here before"):
        Store(used).open()


@pytest.mark.parametrize("starts", [1, 5])
def test_the_witness_of_another_store_says_that_it_is_another_and_not_how_old_it_is(
    used: Path, tmp_path: Path, starts: int
) -> None:
    """How far the one was says nothing of the other, however far that is."""
    other = tmp_path / "other.db"
    serve(other, a_sequence)
    for _ in range(starts):
        serve(used)
    other.replace(used)
    with pytest.raises(StoreUnconfirmed) as refused:
        Store(used).open()
    assert "is not the store that was used here before" in str(refused.value)
    assert not is_older(used, found(used))


def test_a_witness_is_on_disk_before_it_stands_in_its_place(used: Path, synced: Synced) -> None:
    """Else a power cut could leave an empty one there."""
    serve(used)
    file = Witness(used).file
    assert synced[file] == file.stat().st_size > 0


def test_none_is_made_in_the_place_of_one_that_is_missing(used: Path) -> None:
    """It was moved: what was acknowledged is there."""
    there = used.rename(used.with_name("moved.db"))
    for look in (Store(used).open, lambda: connect_reader(used)):
        with pytest.raises(StoreUnconfirmed, match="is missing or empty, and a store was in use here") as refused:
            look()
        assert f"`wsrm-mq store init --reason TEXT --store {used}`" in refused.value.hint
        assert not used.exists()
    serve(there.rename(used))


def test_an_empty_file_in_its_place_is_none(used: Path) -> None:
    """Of a copy for which the disk had no room."""
    used.write_bytes(b"")
    for look in (Store(used).open, lambda: connect_reader(used)):
        with pytest.raises(StoreUnconfirmed, match="is missing or empty"):
            look()
    assert used.read_bytes() == b""


def test_an_older_one_is_older_though_it_has_no_sequence(path: Path) -> None:
    serve(path)
    early = file_copy(path)
    serve(path, a_sequence)
    early.replace(path)
    with pytest.raises(StoreUnconfirmed, match="older"):
        Store(path).open()


def test_a_new_store_that_was_asked_for_in_the_place_of_another_one_is_taken_and_told(
    used: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of it was ever acknowledged: a source that asks for a sequence learns that."""
    used.unlink()
    schema.ensure(used, anew=True)
    serve(used, a_sequence)
    assert "store.new path=" in caplog.text
    serve(used)


def test_a_store_of_a_version_without_a_witness_gets_one(used: Path) -> None:
    with closing(sqlite3.connect(used)) as db:
        db.execute("UPDATE identity SET mark = 0")
        db.commit()
    shutil.rmtree(used.with_name("store.db.d"))
    serve(used)
    assert Witness(used).seen() is not None


def test_only_its_owner_may_read_the_witness(used: Path) -> None:
    assert Witness(used).file.stat().st_mode & 0o777 == 0o600
    assert set(json.loads(Witness(used).file.read_text())) == {"store", "mark"}


def test_a_stamped_copy_is_refused_with_its_time_wherever_it_lies(used: Path) -> None:
    with closing(sqlite3.connect(used)) as db:
        identity.stamp(db, 1_700_000_000_000)
        db.commit()
    for where in (used, file_copy(used)):
        with pytest.raises(StoreUnconfirmed, match="is a copy of 2023-11-14 22:13:20 UTC"):
            Store(where).open()
