"""The format ``wsrm`` in Spark itself; what its reader does is in ``test_reader``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession

from tests.support.filled import Filled
from wsrm_mq.errors import ConfigurationError, ExportError, StoreUnavailable
from wsrm_mq.export import Asked, export
from wsrm_mq.spark import read
from wsrm_mq.spark.session import plain_errors


def test_the_format_is_found_without_being_registered(spark: SparkSession, filled: Filled) -> None:
    frame = spark.read.format("wsrm").load(str(filled.path))
    found = [(row.sequence, row.number, row.received_at.isoformat()) for row in frame.orderBy("position").collect()]
    at = "2026-01-01T00:00:00.123000"
    assert found == [*((filled.first, number, at) for number in (1, 2, 3, 6)), (filled.second, 1, at)]


def test_stores_and_exports_are_one_table(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    for encoding in ("parquet", "ndjson"):
        export(filled.path, tmp_path / encoding, Asked(encoding=encoding, bodies=True, segment_rows=2))
    paths = (str(filled.path), str(tmp_path / "parquet"), str(tmp_path / "ndjson"))
    frame = read(spark, *paths, columns=("position", "envelope", "settled_at", "wants_reply"), copies=True)
    assert [row["count"] for row in frame.groupBy(*frame.columns).count().collect()] == [3] * 5


def test_filters_are_pushed_where_the_session_lets_them(spark: SparkSession, filled: Filled) -> None:
    wanted = f"sequence = '{filled.first}' AND received_at = timestamp'2026-01-01 00:00:00.123' AND number % 2 = 1"
    for lets in ("true", "false"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", lets)
        assert [row.number for row in read(spark, str(filled.path)).where(wanted).orderBy("number").collect()] == [1, 3]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_schema_that_is_given_prunes_columns(spark: SparkSession, filled: Filled) -> None:
    load = spark.read.format("wsrm").schema("number long, sequence string").load
    assert {tuple(row) for row in load(str(filled.path)).collect()} >= {(6, filled.first), (1, filled.second)}
    with pytest.raises(AnalysisException, match="the column number is bigint, not int"):
        spark.read.format("wsrm").schema("number int").load(str(filled.path)).count()


def test_bad_input_is_told_where_it_is_planned_and_where_it_is_read(
    spark: SparkSession, filled: Filled, tmp_path: Path
) -> None:
    with pytest.raises(StoreUnavailable, match="there is no such store or export"):
        read(spark, str(tmp_path / "none.db"))
    with pytest.raises(AnalysisException, match="there is no such store or export"):
        spark.read.format("wsrm").load(str(tmp_path / "none.db"))
    made = export(filled.path, tmp_path / "out", Asked(encoding="parquet"))
    (segment,) = (one for one in made.segments if one.table == "messages")
    damaged = tmp_path / "out" / segment.file
    damaged.write_bytes(bytes(segment.bytes))
    with pytest.raises(PythonException, match=r"cannot be read: .*Copy it again, or export again"):
        spark.read.format("wsrm").load(str(tmp_path / "out")).collect()
    with pytest.raises(ExportError, match=rf"^{damaged}: cannot be read as Parquet"), plain_errors(None):
        read(spark, str(tmp_path / "out")).collect()


def test_spark_reads_segments_of_parquet_itself_in_any_directory(
    spark: SparkSession, filled: Filled, tmp_path: Path
) -> None:
    plain = [tuple(row) for row in read(spark, str(filled.path)).orderBy("position").collect()]
    for name in ("date=2026-01-01 at 100%", "a[bc]*"):
        export(filled.path, tmp_path / name, Asked(encoding="parquet", segment_rows=2))
        frame = read(spark, str(tmp_path / name).replace("[", "[[]").replace("*", "[*]"))
        assert [tuple(row) for row in frame.orderBy("position").collect()] == plain
        assert ("FileScan parquet" in explained(frame)) == ("*" not in name), "a pattern is read by the format"


def test_a_place_that_spark_takes_for_a_pattern_is_read_from_within(
    spark: SparkSession, filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(filled.path, tmp_path / "a[bc]" / "out", Asked(encoding="parquet"))
    monkeypatch.chdir(tmp_path / "a[bc]")
    assert read(spark, "out").count() == 5


def explained(frame: DataFrame) -> str:
    plan: Any = frame._jdf  # type: ignore[attr-defined]
    return str(plan.queryExecution().toString())


def test_a_segment_beside_the_store_that_it_is_from_is_refused(
    spark: SparkSession, filled: Filled, tmp_path: Path
) -> None:
    export(filled.path, tmp_path / "out", Asked(encoding="parquet"))
    with pytest.raises(ConfigurationError, match=r"are of one store .*copies=true"):
        read(spark, str(filled.path), str(tmp_path / "out"))
