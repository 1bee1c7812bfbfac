"""What readers of stores, Spark and PySpark trip over, without Spark's machine.

What else there is of it stands where it belongs: numbers of 64 bits and damaged segments in ``test_reader``, push-down
that a session forbids in ``test_source``, an executor that is killed in ``test_replay_killed``, what an interrupted
batch leaves in ``tests/archive/test_batches``.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.spark.test_reader import Rows, reader, rows
from tests.support.filled import Filled
from tests.support.permissions import files, without_permission
from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.store.sqlite.connection import connect_reader

ROOT = Path(__file__).parents[2]
COLUMNS = "position,sequence,number,state,envelope"
READ = """
import json, sys
from wsrm_mq.spark.reader import parse
from wsrm_mq.spark.reader import Reader
made = Reader(parse({"path": sys.argv[1], "columns": "number"}))
print(json.dumps([row["number"] for one in made.partitions() for batch in made.read(one) for row in batch.to_pylist()]))
"""


def test_the_source_needs_neither_pandas_nor_protobuf(filled: Filled, tmp_path: Path) -> None:
    for name in ("pandas", "google"):
        (tmp_path / f"{name}.py").write_text("raise ImportError")
    command = [sys.executable, "-c", READ, str(filled.path)]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert json.loads(done.stdout) == [1, 2, 3, 6, 1]


def test_what_is_installed_with_the_package_is_what_pyspark_works_with_and_the_page_says() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {one.name: one.specifier for one in map(Requirement, extras["spark"])}
    assert not wanted["pandas"].contains("3.0.0")
    assert not wanted["pyspark"].contains("4.1.9")
    assert wanted["protobuf"].contains("6.33.5")
    assert not wanted["protobuf"].contains("6.33.4")
    page = (ROOT / "docs" / "howto" / "spark.md").read_text()
    assert "| PySpark | 4.2 and 4.3 |" in page
    assert "| pandas | 2.2 and newer, below 3" in page


# stores that may only be read


@pytest.fixture
def room(others: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary copies are made."""
    place = others / "room"
    place.mkdir()
    place.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


def _copied(filled: Filled, place: Path, *suffixes: str) -> Path:
    place.mkdir(mode=0o755)
    for suffix in ("", *suffixes):
        place.joinpath(f"wsrm.db{suffix}").write_bytes(Path(f"{filled.path}{suffix}").read_bytes())
    return place / "wsrm.db"


def _all(store: Path) -> Rows:
    return rows(reader(store, columns=COLUMNS, numPartitions="2"))


@pytest.mark.parametrize("suffixes", [(), ("-wal",), ("-wal", "-shm")], ids=["file", "log", "log and index"])
def test_a_store_in_a_directory_that_may_not_be_written_is_read_whole_and_left_as_it_was(
    filled: Filled, others: Path, room: Path, suffixes: tuple[str, ...]
) -> None:
    if not suffixes:
        filled.instance.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    expected = _all(filled.path)
    store = _copied(filled, others / "there", *suffixes)
    with without_permission(store):
        assert _all(store) == expected
    assert files(store) == [f"wsrm.db{suffix}" for suffix in sorted(("", *suffixes))]


def test_it_is_read_while_a_service_writes_it_too(filled: Filled, others: Path, room: Path) -> None:
    expected = _all(filled.path)
    store = _copied(filled, others / "there", "-wal")
    with closing(connect_reader(store)) as alive:
        alive.execute("SELECT count(*) FROM entry").fetchone()  # a process with the log's index in use
        with without_permission(store):
            assert _all(store) == expected


def test_a_store_that_this_user_may_not_read_says_as_whom_it_can_be(filled: Filled, others: Path, room: Path) -> None:
    store = _copied(filled, others / "there")
    with without_permission(store, ".db"), pytest.raises(StoreUnavailable, match="Look as the user that the service"):
        _all(store)


# attempts


def test_an_attempt_that_is_repeated_or_races_another_reads_the_same(filled: Filled) -> None:
    made = pickle.dumps(reader(filled.path, columns=COLUMNS, numPartitions="2"))
    parts = pickle.loads(made).partitions()
    filled.take(7, 8)

    def attempt(part: bytes) -> Rows:
        return [row for batch in pickle.loads(made).read(pickle.loads(part)) for row in batch.to_pylist()]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(attempt, [pickle.dumps(part) for part in parts for _ in range(4)]))
    assert found == [found[0]] * 4 + [found[4]] * 4
    assert len(found[0]) + len(found[4]) == 5


def test_a_query_that_wants_only_the_first_rows_leaves_no_connection_behind(filled: Filled) -> None:
    (part,) = reader(filled.path, columns="number", numPartitions="1").partitions()
    found = reader(filled.path, columns="number").read(part)
    assert isinstance(found, Iterator)
    assert next(found).num_rows == 5
    found.close()  # type: ignore[attr-defined]
    filled.instance.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert filled.path.with_name("wsrm.db-wal").stat().st_size == 0
