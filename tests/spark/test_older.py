"""Exports and archives of older layouts, as they were written then, are read by today's jobs.

Those in ``tests/export/older`` are made of the store of ``tests.support.filled``, each by the code of the commit whose
name it has; a change of the layout adds one, and none is ever made anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests.export import older
from wsrm_mq.archive.files import load as load_archive
from wsrm_mq.cli import program
from wsrm_mq.export import TABLES, Kind, load, schema
from wsrm_mq.export.schema import Column
from wsrm_mq.spark import read
from wsrm_mq.spark.reader import Reader, parse

PLACES = sorted(file.parent for file in Path(older.__file__).parent.glob("*/*/manifest.json"))
SETTLED = 1
"""So many messages an archive has."""
ALL = 5

by_place = pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.parent.name} {place.name}")


def expected(place: Path) -> int:
    return SETTLED if load(place).archive else ALL


@by_place
def test_what_an_older_export_lacks_is_null_and_the_rest_is_as_it_was(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _add_columns(monkeypatch)
    for name in load(place).tables:
        columns = ",".join(column.name for column in schema.TABLES[name].columns)
        made = Reader(parse({"path": str(place), "table": name, "columns": columns}))
        found = [row for one in made.partitions() for batch in made.read(one) for row in batch.to_pylist()]
        assert {(row["later"], row["later_at"], row["later_bytes"]) for row in found} == {(None, None, None)}, name
        assert all(row["node"] and len(row["store"]) == 32 for row in found)
        if name == "messages":
            assert len(found) == expected(place)
            assert found[0]["message_id"] == "urn:message:1"
            assert b"<put>" in found[0]["envelope"]


def test_sparks_own_reader_has_null_too(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    _add_columns(monkeypatch)
    for place in PLACES:
        if load(place).encoding == "parquet":
            frame = read(spark, str(place), columns=("number", "later", "later_at", "later_bytes"))
            assert [tuple(row)[1:] for row in frame.collect()] == [(None, None, None)] * expected(place)


def _add_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout of the future: every table has three columns more."""
    more = (Column("later", Kind.INTEGER), Column("later_at", Kind.TIME), Column("later_bytes", Kind.BYTES))
    wider = {name: table._replace(columns=table.columns + more) for name, table in TABLES.items()}
    monkeypatch.setattr(schema, "TABLES", wider)


READ = [
    *(
        (job, [place])
        for place in PLACES
        for job in ("audit", "reorder")
        if job == "reorder" or not load(place).archive
    ),
    *((job, PLACES) for job in ("reconcile --copies", "replay plan")),
]
"""Each job with each place; all at once where a job takes them, as they are of one store. An archive is not audited."""


@pytest.mark.parametrize(
    ("job", "places"), READ, ids=lambda one: one if isinstance(one, str) else f"{one[0].name} of {len(one)}"
)
def test_every_job_reads_them(spark: SparkSession, places: list[Path], tmp_path: Path, job: str) -> None:
    (tmp_path / "wsrm-mq.toml").write_text('replay_targets = ["http://127.0.0.1:8080"]')
    plan = ["--to", "http://127.0.0.1:8080", "--reason", "why", "--skip-missing", "--config", tmp_path / "wsrm-mq.toml"]
    own = plan if job == "replay plan" else []
    arguments = ["pipeline", *job.split(), *places, "--out", tmp_path / "out", "--json", *own]
    done = CliRunner().invoke(program, list(map(str, arguments)), prog_name="wsrm-mq")
    has_found = job.startswith("reconcile") or (job == "reorder" and load(places[0]).archive is None)
    assert done.exit_code == int(has_found), done.output
    said: dict[str, Any] = json.loads(done.stdout if own else done.stdout.splitlines()[-1])
    if job == "reorder":
        assert said["release"] + said["held"] == expected(places[0])
    else:
        assert (said["plan"]["messages"] if own else said["messages"]) == (SETTLED if own else ALL)


def test_an_older_archive_is_whole() -> None:
    assert [load_archive(place).number for place in PLACES if place.name == "archive"] == [1]
