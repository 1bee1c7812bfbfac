"""The copy on which a store is looked at that cannot be read where it lies: made, removed, and what is left of one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.store.sqlite import looking, schema
from wsrm_mq.store.sqlite.connection import connect_reader
from wsrm_mq.store.sqlite.looking import temporary_copy

KILLED = """
import os, signal, sys
from pathlib import Path
from wsrm_mq.store.sqlite.connection import connect_reader
from wsrm_mq.store.sqlite.looking import temporary_copy
path = Path(sys.argv[1])
copy = temporary_copy(connect_reader(path), path)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where copies are made."""
    place = tmp_path / "copies"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def path(tmp_path: Path) -> Path:
    schema.ensure(tmp_path / "store.db")
    return tmp_path / "store.db"


def test_the_copy_of_a_process_that_was_killed_goes_with_the_next_one_and_that_of_one_that_lives_stays(
    path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([sys.executable, "-c", KILLED, path], env={**os.environ, "TMPDIR": str(home)}, check=False)
    (left,) = home.iterdir()
    with closing(connect_reader(path)) as db, closing(temporary_copy(db, path)):
        assert left.exists(), "it is so young that its process may not have its lock yet"
        lives = {*home.iterdir()} - {left}
        monkeypatch.setattr(looking, "_LEFT_SECONDS", -1.0)
        with closing(temporary_copy(db, path)) as copy:
            assert copy.execute("SELECT count(*) FROM identity").fetchone() == (1,)
            assert not left.exists()
            assert all(one.exists() for one in lives)
    assert [*home.iterdir()] == []


def test_a_place_for_copies_that_is_not_there_is_told_in_a_line(
    path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(home / "nowhere"))
    with closing(connect_reader(path)) as db, pytest.raises(StoreUnavailable, match=r"cannot be copied to .*nowhere"):
        temporary_copy(db, path)
