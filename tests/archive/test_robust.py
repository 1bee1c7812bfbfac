"""A batch that is killed, that finds no room, or that two attempts of a task have written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.archive.local import archive, held
from tests.queue.build import Node
from tests.support.disk import Disk
from wsrm_mq.archive.batches import begun, doomed, forget
from wsrm_mq.archive.files import load, locked, write
from wsrm_mq.archive.verifying import stored
from wsrm_mq.errors import ExportError
from wsrm_mq.export.pieces import Exposure, opened
from wsrm_mq.export.schema import TABLES
from wsrm_mq.queue.arrival import Body
from wsrm_mq.sequence.ranges import AckRanges

SLOW = """
import sys, time
from pathlib import Path
from tests.archive.local import archive
from wsrm_mq.archive import batches
if sys.argv[3] == "commit":
    batches.commit = lambda *_args: (print("there", flush=True), time.sleep(60))
else:
    from tests.archive import local
    def slowly(*args):
        for one in write(*args):
            print("there", flush=True)
            time.sleep(60)
            yield one
    write, local.write = local.write, slowly
archive(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with 40 delivered messages of 10 kB, no two alike."""
    node = Node(tmp_path / "store.db")
    one = node.start()
    identifier = one.create().terms.identifier
    for number in range(1, 41):
        one.take(identifier, number, body=Body(f"<e>{os.urandom(5_000).hex()}</e>".encode()))
    one.db.execute("UPDATE entry SET outcome = 'delivered', settled_at = 1")
    node.close()
    return node.path


def files(place: Path) -> set[str]:
    return {str(file.relative_to(place)) for file in place.rglob("*.parquet*")}


@pytest.mark.parametrize("when", ["write", "commit"])
def test_a_process_that_was_killed_leaves_what_the_next_run_removes(store: Path, tmp_path: Path, when: str) -> None:
    place = tmp_path / "archive"
    process = subprocess.Popen([sys.executable, "-c", SLOW, store, place, when], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = files(place)
    assert left
    known, wrong = archive(store, place)
    assert (wrong, known.number, len(held(place, "messages", "position"))) == ([], 1, 40)
    assert files(place) == {one.file for one in known.segments}
    assert not left & files(place)


def test_an_archive_that_lost_its_manifest_is_not_begun_anew_over_its_files(store: Path, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    archive(store, place)
    there = files(place)
    (place / "manifest.json").unlink()
    with pytest.raises(ExportError, match=r"whose manifest.json is missing. Put it back: `cp .*000001.json ") as said:
        archive(store, place)
    assert files(place) == there
    subprocess.run(str(said.value).split("`")[1], shell=True, check=True)
    assert archive(store, place)[0].number == 1


def test_a_full_disk_is_told_and_leaves_the_archive_as_it_was(store: Path, mount: Callable[..., Path]) -> None:
    disk = Disk(mount("-t", "tmpfs", "-o", "size=4m", "tmpfs"))
    place = disk.point / "archive"
    with pytest.raises(
        ExportError, match=r"No space left on device\. Make room, and try again; the archive is as it was"
    ):
        archive(store, place, meanwhile=disk.fill)
    assert files(place) == set()
    disk.make_room()
    known, wrong = archive(store, place)
    assert (wrong, len(held(place, "messages", "position"))) == ([], 40)
    before = files(place)
    disk.fill()
    with pytest.raises(ExportError, match="Make room"), locked(place):
        forget(place, known, doomed(place, known, message_id="urn:message:2"), actor="a", reason="r", now=1)
    assert (load(place), files(place)) == (known, before)
    disk.make_room()
    with locked(place):
        forget(place, known, doomed(place, known, message_id="urn:message:2"), actor="a", reason="r", now=1)
    assert len(held(place, "messages", "position")) == 39


def test_of_two_attempts_of_a_task_one_counts_and_the_files_of_the_other_go(store: Path, tmp_path: Path) -> None:
    place, table = tmp_path / "archive", TABLES["messages"]
    place.mkdir()
    with opened(store) as db:
        known = begun(place, db, Exposure(), None, 0)
        rows = list(stored(db, known, table, AckRanges(((1, 40),))))
    attempts = [list(write(place, 1, table, table.columns, rows)) for _ in range(2)]
    assert len(files(place)) == 2
    assert [one.rows for attempt in attempts for one in attempt] == [40, 40]
    known, wrong = archive(store, place)
    assert wrong == []
    assert files(place) == {one.file for one in known.segments}


def test_an_archive_that_cannot_be_written_is_told(store: Path, tmp_path: Path) -> None:
    (tmp_path / "archive").write_text("")
    with pytest.raises(ExportError, match=r"cannot be written: (Not a directory|File exists)"):
        archive(store, tmp_path / "archive")


def test_files_are_read_by_duckdb_and_pandas_with_day_and_queue(store: Path, tmp_path: Path) -> None:
    archive(store, tmp_path / "archives" / "one")
    duckdb, pandas = pytest.importorskip("duckdb"), pytest.importorskip("pandas")
    asked = "SELECT queue, date, count(*) FROM read_parquet('{}', hive_partitioning = true) GROUP BY ALL"
    place = tmp_path / "archives/*/messages/**/*.parquet"
    ((queue, day, count),) = duckdb.sql(asked.format(place)).fetchall()
    assert (queue, str(day), count) == ("/orders", "2023-11-14", 40)
    (file,) = (tmp_path / "archives").glob("*/messages/*/*/*.parquet")
    found = pandas.read_parquet(file)
    assert list(found.number) == list(range(1, 41))
    assert set(found.queue) == {"/orders"}
