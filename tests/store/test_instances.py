from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Python
from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.store import port
from wsrm_mq.store.port import Neighbours
from wsrm_mq.store.sqlite.files import beside
from wsrm_mq.store.sqlite.presence import InstanceFiles, Presence
from wsrm_mq.store.store import Store

ANOTHER = """
    import sys
    from pathlib import Path
    from wsrm_mq.store.store import Store
    store = Store(Path(sys.argv[1]))
    store.open()
    print(store.presence.name, flush=True)
    sys.stdin.readline()
    """


@pytest.fixture
def presence(path: Path) -> Iterator[Presence]:
    presence = Presence(path)
    yield presence
    presence.close()


def files(path: Path) -> set[str]:
    return {file.name for file in beside(path).iterdir()}


def test_an_instance_is_alive_from_its_making_to_its_close(path: Path) -> None:
    presence = Presence(path)
    assert InstanceFiles(path).lives(presence.name)
    assert files(path) == {f"{presence.name}.lock", f"{presence.name}.sock"}
    presence.close()
    assert not InstanceFiles(path).lives(presence.name)
    assert files(path) == set()


def test_looking_at_an_instance_does_not_take_its_lock(path: Path, presence: Presence) -> None:
    for _ in range(3):
        assert InstanceFiles(path).lives(presence.name)


def test_no_instance_is_alive_under_a_name_that_was_never_taken(path: Path, presence: Presence) -> None:
    assert not InstanceFiles(path).lives("0123456789abcdef")


def test_names_are_not_used_again(path: Path) -> None:
    names = set()
    for _ in range(50):
        presence = Presence(path)
        names.add(presence.name)
        presence.close()
    assert len(names) == 50


def test_a_killed_process_is_seen_dead_at_once(path: Path, python: Python) -> None:
    process = python(ANOTHER, path)
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    assert InstanceFiles(path).lives(name)
    process.kill()
    process.wait()
    assert not InstanceFiles(path).lives(name)
    db = sqlite3.connect(path)
    assert db.execute("SELECT ended_at FROM instance WHERE name = ?", (name,)).fetchone() == (None,)
    db.close()
    InstanceFiles(path).bury(name)
    assert files(path) & {f"{name}.lock", f"{name}.sock"} == set()


def test_a_stopped_process_is_not_taken_for_dead(path: Path, python: Python) -> None:
    process = python(ANOTHER, path)
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    process.send_signal(19)
    assert InstanceFiles(path).lives(name)
    process.send_signal(18)


def test_an_instance_is_not_taken_for_dead_when_one_cannot_look(path: Path, presence: Presence) -> None:
    """Without a free file descriptor nothing can be opened: that says nothing of the other one's life."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        alive = InstanceFiles(path).lives(presence.name)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert alive


def test_a_wake_up_arrives_with_its_word(path: Path, presence: Presence) -> None:
    InstanceFiles(path).wake([presence.name])
    InstanceFiles(path).wake([presence.name], "42")
    assert presence.wait(5) == {"look", "42"}
    assert presence.wait(0) == set()


def test_waiting_ends_by_itself(presence: Presence) -> None:
    begun = time.monotonic()
    assert presence.wait(0.05) == set()
    assert 0.04 < time.monotonic() - begun < 2


def test_a_wake_up_without_a_receiver_is_lost_without_complaint(path: Path, presence: Presence, tmp_path: Path) -> None:
    InstanceFiles(path).wake(["gone", presence.name])
    assert presence.wait(5) == {"look"}
    InstanceFiles(tmp_path / "never-made.db").wake([presence.name])


def test_wake_ups_beyond_the_buffer_do_not_block(path: Path, presence: Presence) -> None:
    begun = time.monotonic()
    for _ in range(2_000):
        InstanceFiles(path).wake([presence.name])
    assert time.monotonic() - begun < 5
    assert presence.wait(5) == {"look"}


def test_a_store_wakes_the_others_and_not_itself(path: Path, store: Store) -> None:
    other = Store(path)
    other.open()
    assert store.presence is not None
    assert other.presence is not None
    store.wake()
    assert other.presence.wait(5) == {"look"}
    assert store.presence.wait(0) == set()
    other.close()


def test_a_path_longer_than_a_socket_address_may_be_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    store = Store(deep / "store.db")
    store.open()
    assert store.presence is not None
    InstanceFiles(store.path).wake([store.presence.name])
    assert store.presence.wait(5) == {"look"}
    store.close()


def test_an_instance_waits_on_a_descriptor_above_1023(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2048), hard), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        presence = Presence(path)
        InstanceFiles(path).wake([presence.name])
        assert presence.wait(5) == {"look"}
        presence.close()
    finally:
        for handle in taken:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_instance_whose_files_were_removed_notices_and_takes_its_place_again(path: Path, presence: Presence) -> None:
    assert presence.is_in_place
    shutil.rmtree(path.with_name("store.db.d"))
    assert not presence.is_in_place
    presence.take_place()
    assert presence.is_in_place
    assert InstanceFiles(path).lives(presence.name)
    InstanceFiles(path).wake([presence.name])
    assert presence.wait(5) == {"look"}
    (path.with_name("store.db.d") / f"{presence.name}.lock").unlink()
    presence.take_place()
    InstanceFiles(path).wake([presence.name])
    assert presence.wait(5) == {"look"}, "its old socket is in the way of no other"
    assert files(path) == {f"{presence.name}.lock", f"{presence.name}.sock"}


def test_a_missing_lock_is_no_death_until_it_is_missing_for_long(
    path: Path, presence: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "MISSING_SECONDS", 0.2)
    others = Neighbours(InstanceFiles(path))
    assert not others.is_dead(presence.name)
    (path.with_name("store.db.d") / f"{presence.name}.lock").unlink()
    assert not others.is_dead(presence.name)
    time.sleep(0.3)
    presence.take_place()
    assert not others.is_dead(presence.name), "it is there again"
    (path.with_name("store.db.d") / f"{presence.name}.lock").unlink()
    assert not others.is_dead(presence.name), "the time begins anew"
    time.sleep(0.3)
    assert others.is_dead(presence.name)


def test_a_free_lock_is_a_death_at_once(path: Path, presence: Presence) -> None:
    presence.abandon()
    assert Neighbours(InstanceFiles(path)).is_dead(presence.name)


def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "store.db.d").write_text("in the way")
    with pytest.raises(StoreUnavailable, match=r"store\.db\.d"):
        Presence(tmp_path / "store.db")


def test_the_lock_comes_before_the_row_and_the_row_is_ended_by_close(path: Path) -> None:
    store = Store(path)
    store.open()
    assert store.presence is not None
    name = store.presence.name
    with store.reader() as db:
        row = db.execute("SELECT name, pid, ended_at FROM instance WHERE id = ?", (store.instance,)).fetchone()
    assert row == (name, os.getpid(), None)
    store.close()
    db = sqlite3.connect(path)
    assert db.execute("SELECT ended_at IS NOT NULL FROM instance").fetchall() == [(1,)]
    db.close()


def test_a_store_that_cannot_start_leaves_no_instance_that_looks_alive(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("DROP TABLE instance")
    db.commit()
    db.close()
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        Store(path).open()
    assert files(path) == {"witness"}


FORKED = """
    import os, sys, time
    from pathlib import Path
    from wsrm_mq.store.sqlite.presence import InstanceFiles
    from wsrm_mq.store.store import Store

    path = Path(sys.argv[1])
    store = Store(path)
    store.open()
    name = store.presence.name
    store.suspend()
    child = os.fork()
    if not child:
        store.abandon()
        store.abandon()  # a child of the child does it again: it may not close what others opened meanwhile
        print("abandoned", InstanceFiles(path).lives(name), flush=True)
        mine = Store(path)
        mine.open()
        print("own name", mine.presence.name != name, flush=True)
        print("written", mine.call(lambda tx: tx.instance_name == mine.presence.name), flush=True)
        mine.close()
        sys.stdin.readline()
        print("parent", InstanceFiles(path).lives(name), flush=True)
        os._exit(0)
    store.resume()
    store.call(lambda tx: tx.ledger("parent goes on"))
    os._exit(0) if sys.argv[2] == "dies" else None
    os.waitpid(child, 0)
    print("still", InstanceFiles(path).lives(name), flush=True)
    store.close()
    """


def read(process: object, count: int) -> list[str]:
    return [process.stdout.readline().strip() for _ in range(count)]  # type: ignore[attr-defined]


def test_a_child_neither_unlocks_its_parent_nor_is_it_the_parent(path: Path, python: Python) -> None:
    process = python(FORKED, path, "lives")
    assert sorted(read(process, 3)) == ["abandoned True", "own name True", "written True"]
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert read(process, 2) == ["parent True", "still True"]
    assert process.wait(20) == 0


def test_a_child_that_lives_on_does_not_keep_its_dead_parent_alive(path: Path, python: Python) -> None:
    process = python(FORKED, path, "dies")
    read(process, 3)
    assert process.wait(20) == 0
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert read(process, 1) == ["parent False"]


def test_a_process_without_a_free_file_wakes_no_other_and_goes_on(path: Path, presence: Presence) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    taken: list[int] = []
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        os.close(taken.pop())  # enough to look at the directory, not for the socket
        InstanceFiles(path).wake([presence.name])
    finally:
        for handle in taken:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_opens_a_store_by_a_link_meets_who_opened_the_file(tmp_path: Path) -> None:
    place = tmp_path / "real"
    place.mkdir()
    link = tmp_path / "link.db"
    link.symlink_to(place / "store.db")
    by_link, by_name = Store(link), Store(place / "store.db")
    by_link.open()
    by_name.open()
    try:
        assert by_link.path == by_name.path
        assert sum(name.endswith(".lock") for name in files(by_name.path)) == 2
        assert not beside(link).exists()
    finally:
        by_link.close()
        by_name.close()
