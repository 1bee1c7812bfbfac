"""Parquet segments, read by what others have: DuckDB, pandas and pyarrow."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.filled import ODD, Filled
from wsrm_mq.export import TABLES, Asked, Kind, export, load

pa = pytest.importorskip("pyarrow", reason="needs the extra export")

KINDS = {
    Kind.TEXT: "string",
    Kind.INTEGER: "int64",
    Kind.BOOLEAN: "bool",
    Kind.TIME: "timestamp[us, tz=UTC]",
    Kind.BYTES: "binary",
}


@pytest.fixture
def exported(filled: Filled, tmp_path: Path) -> Path:
    asked = Asked(encoding="parquet", bodies=True, segment_rows=2)
    export(filled.path, tmp_path / "out", asked, clock=filled.clock)
    return tmp_path / "out"


@pytest.mark.parametrize("name", TABLES)
def test_columns_have_the_types_of_the_schema_where_every_value_is_unknown_too(exported: Path, name: str) -> None:
    from pyarrow import parquet

    for segment in (one for one in load(exported).segments if one.table == name):
        found = parquet.read_schema(exported / segment.file)
        assert [(one.name, str(one.type)) for one in found] == [
            (column.name, KINDS[column.kind]) for column in TABLES[name].columns
        ]


def test_pandas_reads_them(exported: Path, filled: Filled) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(exported / "messages")
    assert list(frame.position) == [1, 2, 3, 4, 5]
    assert list(frame.action[:4]) == [ODD] * 4
    assert frame.envelope[0] == filled.plain
    assert list(frame.replayable) == [True] * 4 + [False]
    assert frame.received_at[0].to_pydatetime() == datetime(2026, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC)


def test_duckdb_reads_them_and_the_other_formats_alike(exported: Path, filled: Filled, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    asked = "SELECT position, action, received_at::TIMESTAMP, has_body, reason FROM {}('{}') ORDER BY position"
    (first, *others) = duckdb.sql(asked.format("read_parquet", exported / "messages/*.parquet")).fetchall()
    assert first == (1, ODD, datetime(2026, 1, 1, 0, 0, 0, 123_000), True, None)
    for encoding, read in (("ndjson", "read_json"), ("csv", "read_csv")):
        export(filled.path, tmp_path / encoding, Asked(encoding=encoding, tables=("messages",)), clock=filled.clock)
        assert duckdb.sql(asked.format(read, tmp_path / encoding / "messages/*.gz")).fetchall() == [first, *others]
