"""Files of a store are its owner's: others may not read them, and no link leads what is written elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.store.test_writer import note
from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.store.sqlite.files import beside
from wsrm_mq.store.sqlite.witness import Witness
from wsrm_mq.store.store import Store


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


@pytest.mark.parametrize("others", [0o040, 0o004, 0o066])
def test_a_store_that_others_may_read_is_told_and_tightened(
    path: Path, others: int, caplog: pytest.LogCaptureFixture
) -> None:
    first = Store(path)
    first.open()
    parts = [path, Path(f"{path}-wal"), Path(f"{path}-shm"), Witness(path).file]
    for part in parts:
        part.chmod(0o600 | others)
    beside(path).chmod(0o755)
    second = Store(path)
    second.open()
    assert {mode(part) for part in parts} == {0o600}
    assert mode(beside(path)) == 0o700
    assert caplog.text.count("store.tightened") == len(parts) + 1
    assert f"{0o600 | others:04o}" in caplog.text
    second.close()
    first.close()


@pytest.mark.parametrize("name", ["witness", "reserve", "janitor", "0123456789abcdef.lock", "0123456789abcdef.sock"])
def test_a_link_beside_a_store_is_refused_and_what_it_leads_to_stays(path: Path, tmp_path: Path, name: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"precious")
    beside(path).mkdir(exist_ok=True)
    (beside(path) / name).symlink_to(theirs)
    with pytest.raises(StoreUnavailable, match=f"{name}: is a symbolic link"):
        Store(path).open()
    assert theirs.read_bytes() == b"precious"


def test_a_directory_beside_a_store_that_is_a_link_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    beside(path).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailable, match="is a symbolic link"):
        Store(path).open()


def test_a_link_that_comes_while_the_store_is_open_is_not_followed(store: Store, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"precious")
    for name in ("witness", "reserve"):
        (beside(store.path) / name).unlink()
        (beside(store.path) / name).symlink_to(theirs)
    store.call(note("something"))
    store.bear_witness()
    assert theirs.read_bytes() == b"precious"
    assert Witness(store.path).seen() is not None


def test_the_directory_beside_a_store_that_is_removed_is_no_full_disk(store: Store) -> None:
    """Neither before it is made again, nor after, when the reserve is missing in it."""
    store.call(note("before"))
    shutil.rmtree(beside(store.path))
    for attempt in range(20):
        assert store.call(note(f"{attempt}")) == f"{attempt}"
        assert not store.writer.is_disk_full
        if attempt == 10:
            beside(store.path).mkdir(mode=0o700, exist_ok=True)
