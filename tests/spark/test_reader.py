"""The reader without Spark's machine: what it plans, what it pushes, and the batches that it reads."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tests.support.filled import SECURITY, Filled
from wsrm_mq.errors import ConfigurationError, ExportError, NotFound, StoreLocked, StoreUnavailable
from wsrm_mq.export import TABLES, Asked, Kind, export
from wsrm_mq.spark.reader import OPTIONS, PushingReader, Reader, parse

Rows = list[dict[str, Any]]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WITHOUT = {"messages": ("request",), "replies": ("headers", "body")}
"""What is not given as the view has it."""


def reader(*paths: Path, kind: type[Reader] = Reader, **options: str) -> Reader:
    import json

    return kind(parse({"paths": json.dumps(list(map(str, paths))), **options}))


def rows(made: Reader) -> Rows:
    """All that it reads; reader and partitions go through pickle, as to an executor."""
    partitions = made.partitions() or [InputPartition(None)]
    return [
        row
        for one in partitions
        for batch in pickle.loads(pickle.dumps(made)).read(pickle.loads(pickle.dumps(one)))
        for row in batch.to_pylist()
    ]


def expected(filled: Filled, name: str) -> Rows:
    """The rows of a read view, as a batch has them."""
    table = TABLES[name]
    kinds = {column.name: column.kind for column in table.given if column.name not in WITHOUT.get(name, ())}
    view = "ledger_events" if name == "ledger" else name
    found = filled.instance.rows(f"SELECT * FROM {view} ORDER BY {', '.join(table.key)}")
    return [{key: shown(kind, row[key]) for key, kind in kinds.items() if key in row} for row in found]


def shown(kind: Kind, value: Any) -> Any:
    if value is None or kind not in (Kind.TIME, Kind.BOOLEAN):
        return value
    return bool(value) if kind is Kind.BOOLEAN else EPOCH + timedelta(milliseconds=value)


def without(found: Rows, *names: str) -> Rows:
    return [{key: value for key, value in row.items() if key not in names} for row in found]


@pytest.mark.parametrize("partitions", ["1", "4"])
@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_as_its_view_has_it(filled: Filled, name: str, partitions: str) -> None:
    found = rows(reader(filled.path, table=name, numPartitions=partitions))
    assert without(found, "store", "node", *WITHOUT.get(name, ())) == expected(filled, name)


@pytest.mark.parametrize("encoding", ["parquet", "ndjson"])
def test_an_export_is_read_as_its_store_is(filled: Filled, tmp_path: Path, encoding: str) -> None:
    export(filled.path, tmp_path / "out", Asked(encoding=encoding, segment_rows=2, bodies=True))
    for name, table in TABLES.items():
        columns = ",".join(column.name for column in table.columns)
        asked = {"table": name, "columns": columns}
        assert rows(reader(tmp_path / "out", **asked)) == rows(reader(filled.path, **asked)), name


def test_envelopes_come_only_when_named_and_without_their_security(filled: Filled) -> None:
    assert not {"envelope", "replayable"} & set(rows(reader(filled.path))[0])
    found = rows(reader(filled.path, columns="envelope,replayable"))
    redacted = filled.signed.replace(SECURITY.encode(), b"")
    assert [tuple(row.values()) for row in found] == [(filled.plain, True)] * 4 + [(redacted, False)]
    assert rows(reader(filled.path, columns="envelope", withSecurity="true"))[-1] == {"envelope": filled.signed}


def test_what_comes_after_planning_is_not_read(filled: Filled) -> None:
    planned = reader(filled.path, columns="number")
    (only,) = planned.partitions()
    filled.take(7, 8)
    assert sum(batch.num_rows for batch in planned.read(only)) == 5


def test_partitions_divide_the_keys(filled: Filled) -> None:
    filled.take(*range(7, 20))
    parts = reader(filled.path, numPartitions="4").partitions()
    assert [one.within for one in parts] == [(1, 5), (6, 10), (11, 15), (16, 18)]
    assert reader(filled.path, table="attempts", node="n").partitions()[0].source.node == "n"


def test_only_the_keys_that_are_named_are_read(filled: Filled) -> None:
    filled.take(*range(7, 20))
    named = reader(filled.path, columns="position", keys="2-3,9,17-90", numPartitions="3")
    assert [one.keys for one in named.partitions()] == [((2, 3),), ((9, 9),), ((17, 18),)]
    assert [row["position"] for row in rows(named)] == [2, 3, 9, 17, 18]
    for wrong in ("", "3-", "a", "1;2"):
        with pytest.raises(ConfigurationError, match="is no list of keys such as 1-49,60"):
            reader(filled.path, keys=wrong)


# filters


def fits(row: dict[str, Any], wanted: Filter) -> bool | None:
    """What Spark would say of a row: a filter of a value that is not known is not known."""
    if isinstance(wanted, Not):
        inner = fits(row, wanted.child)
        return None if inner is None else not inner
    value = row[wanted.attribute[0]]
    if isinstance(wanted, IsNull):
        return value is None
    if isinstance(wanted, IsNotNull):
        return value is not None
    return None if value is None else JUDGED[type(wanted)](value, wanted.value)


JUDGED: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda value, other: value == other,
    GreaterThan: lambda value, other: value > other,
    GreaterThanOrEqual: lambda value, other: value >= other,
    LessThan: lambda value, other: value < other,
    LessThanOrEqual: lambda value, other: value <= other,
    In: lambda value, others: value in others,
    StringStartsWith: lambda value, other: value.startswith(other),
    StringEndsWith: lambda value, other: value.endswith(other),
    StringContains: lambda value, other: other in value,
}
RECEIVED = EPOCH + timedelta(milliseconds=1_767_225_600_123)
PUSHED = [
    EqualTo(("number",), 3),
    EqualTo(("sequence",), "{first}"),
    In(("sequence",), ("{first}", "none")),
    Not(EqualTo(("sequence",), "{first}")),
    Not(In(("number",), (1, 2))),
    GreaterThan(("number",), 2),
    GreaterThanOrEqual(("position",), 2),
    LessThan(("position",), 4),
    LessThanOrEqual(("number",), 2),
    IsNull(("outcome",)),
    IsNotNull(("outcome",)),
    Not(EqualTo(("reason",), "gap")),
    EqualTo(("has_body",), True),
    Not(EqualTo(("wants_reply",), True)),
    EqualTo(("received_at",), RECEIVED),
    LessThanOrEqual(("settled_at",), RECEIVED),
    StringStartsWith(("queue",), "/ord"),
    StringEndsWith(("message_id",), ":6"),
    StringContains(("state",), "el"),
    StringContains(("action",), "€ \u2028"),
    EqualTo(("store",), "no such store"),
    Not(EqualTo(("node",), "there")),
]
LEFT = [
    EqualTo(("request",), "{}"),
    StringContains(("request",), "POST"),
    EqualNullSafe(("reason",), None),
    EqualTo(("number",), "3"),
    In(("number",), (1, None)),
    EqualTo(("received_at",), RECEIVED + timedelta(microseconds=1)),
    EqualTo(("received_at",), RECEIVED.replace(tzinfo=None)),
    StringStartsWith(("queue",), ""),
    EqualTo(("a", "b"), 1),
]


def of_first(wanted: Filter, first: str) -> Filter:
    """With the identifier that it is about."""
    if isinstance(wanted, Not):
        return Not(of_first(wanted.child, first))
    if isinstance(wanted, EqualTo) and wanted.value == "{first}":
        return EqualTo(wanted.attribute, first)
    return In(wanted.attribute, (first, "none")) if isinstance(wanted, In) and "{first}" in wanted.value else wanted


@pytest.mark.parametrize("wanted", PUSHED, ids=str)
def test_the_store_filters_as_spark_would(filled: Filled, wanted: Filter) -> None:
    asked = of_first(wanted, filled.first)
    pushing = reader(filled.path, kind=PushingReader, numPartitions="2")
    assert list(pushing.pushFilters([asked])) == []
    assert rows(pushing) == [row for row in rows(reader(filled.path)) if fits(row, asked)]


@pytest.mark.parametrize("wanted", LEFT, ids=str)
def test_what_the_store_cannot_tell_is_left_to_spark(filled: Filled, wanted: Filter) -> None:
    pushing = reader(filled.path, kind=PushingReader)
    assert list(pushing.pushFilters([wanted, IsNull(("outcome",))])) == [wanted]
    assert len(rows(pushing)) == 4


def test_exports_leave_all_filters_to_spark(filled: Filled, tmp_path: Path) -> None:
    export(filled.path, tmp_path / "out", Asked())
    wanted = [EqualTo(("number",), 3)]
    assert list(reader(tmp_path / "out", kind=PushingReader).pushFilters(wanted)) == wanted


def test_few_rows_are_planned_as_few_partitions(filled: Filled) -> None:
    for wanted, parts in (
        ([EqualTo(("sequence",), filled.first)], [(1, 5)]),
        ([GreaterThan(("position",), 2), LessThanOrEqual(("position",), 4)], [(2, 3), (4, 4)]),
        ([EqualTo(("position",), 4)], [(4, 4)]),
        ([EqualTo(("position",), 400)], []),
    ):
        pushing = reader(filled.path, kind=PushingReader, numPartitions="2")
        pushing.pushFilters(wanted)
        assert [one.within for one in pushing.partitions()] == parts
        assert rows(pushing) == [row for row in rows(reader(filled.path)) if all(fits(row, one) for one in wanted)]


# several, and none


def copied(filled: Filled, path: Path, *changes: str) -> Path:
    """A copy of the store, changed by statements."""
    import sqlite3
    from contextlib import closing

    filled.instance.db.execute("VACUUM INTO ?", (str(path),))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for change in changes:
            db.execute(change)
    return path


def test_several_stores_are_one_table_and_each_row_says_where_it_is_from(filled: Filled, tmp_path: Path) -> None:
    another = ("UPDATE identity SET id = 'another'", "UPDATE instance SET host = 'there'")
    copied(filled, tmp_path / "other.db", *another)
    found = rows(reader(tmp_path / "*.db", columns="store,node"))
    assert sorted(row["node"] for row in found) == ["here"] * 5 + ["there"] * 5
    assert {row["store"] for row in found if row["node"] == "there"} == {"another"}


def test_a_copy_beside_its_original_is_refused_unless_that_is_wanted(filled: Filled, tmp_path: Path) -> None:
    copy = copied(filled, tmp_path / "copy.db")
    with pytest.raises(ConfigurationError, match=r"wsrm\.db and .*copy\.db are of one store"):
        reader(filled.path, copy).partitions()
    assert len(rows(reader(filled.path, copy, copies="true"))) == 10
    export(filled.path, tmp_path / "out", Asked(encoding="parquet"))
    with pytest.raises(ConfigurationError, match="are of one store"):
        reader(tmp_path / "out", copy).partitions()


def test_64_bit_numbers_are_whole(filled: Filled) -> None:
    filled.instance.db.execute("UPDATE entry SET number = ? WHERE number = 6", (2**62 + 1,))
    assert rows(reader(filled.path, columns="number"))[3] == {"number": 2**62 + 1}


def test_a_table_without_rows_is_empty(filled: Filled) -> None:
    filled.instance.db.execute("DELETE FROM reply")
    assert rows(reader(filled.path, table="replies")) == []


@pytest.mark.parametrize(
    ("name", "options", "error", "told"),
    [
        ("none.db", {}, StoreUnavailable, "there is no such store or export"),
        ("*.nothing", {}, StoreUnavailable, "there is no such store or export"),
        ("text.txt", {}, StoreLocked, "file is not a database"),
        ("wsrm.db", {"tabel": "messages"}, ConfigurationError, r"there is no option tabel; did you mean table\?"),
        ("wsrm.db", {"table": "message"}, ConfigurationError, "there is no table 'message'; there are messages"),
        ("wsrm.db", {"columns": "positon"}, ConfigurationError, "has no column 'positon'; it has store, node"),
        ("wsrm.db", {"numPartitions": "0"}, ConfigurationError, "'0' is no whole number above 0"),
        ("wsrm.db", {"copies": "perhaps"}, ConfigurationError, "'perhaps' is neither true nor false"),
        ("csv", {}, ConfigurationError, "an export as csv is for people; export it as parquet or ndjson"),
        ("missing", {}, NotFound, r"first: has tables and no manifest.json: .*`wsrm-mq pipeline archive` goes on with"),
        ("lost", {}, ExportError, r"second: is an archive whose manifest.json is missing. Put it back: `cp .*/2.json"),
        ("rows", {}, ExportError, "manifest.json: was changed after it was written. Copy it again, or export again."),
        ("part", {}, ConfigurationError, "the export has no table messages; it has ranges"),
        ("plain", {"columns": "envelope"}, ConfigurationError, "no column envelope of messages; was it made with"),
    ],
)
def test_bad_input_is_told_in_words(
    filled: Filled, tmp_path: Path, name: str, options: dict[str, str], error: type[Exception], told: str
) -> None:
    (tmp_path / "text.txt").write_text("no store" * 1000)
    export(filled.path, tmp_path / "csv", Asked(encoding="csv"))
    export(filled.path, tmp_path / "part", Asked(tables=("ranges",)))
    export(filled.path, tmp_path / "plain", Asked())
    for beside, left in (("missing", "first/messages"), ("lost", "second/manifests")):
        shutil.copytree(tmp_path / "plain", tmp_path / beside / "whole")
        (tmp_path / beside / left).mkdir(parents=True)
    for number in "12":
        (tmp_path / "lost" / "second" / "manifests" / f"{number}.json").touch()
    shutil.copytree(tmp_path / "plain", tmp_path / "rows")
    manifest = tmp_path / "rows" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"rows": 5', '"rows": 4'))
    with pytest.raises(error, match=told):
        reader(tmp_path / name, **options).partitions()


@pytest.mark.parametrize("scheme", ["file:", "file://", "FILE://localhost"])
def test_an_address_of_a_file_is_a_path(filled: Filled, scheme: str) -> None:
    assert parse({"path": f"{scheme}{filled.path}"}).paths == (str(filled.path),)


@pytest.mark.parametrize("address", ["s3a://bucket/archive", "hdfs://name/stores/*.db", "abfss://a@b/c"])
def test_an_address_elsewhere_is_refused_with_what_to_do(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r": are not supported yet\. Mount it, or copy it to this machine"):
        parse({"path": address})


@pytest.mark.parametrize("encoding", ["parquet", "ndjson"])
def test_a_segment_that_is_damaged_or_gone_is_told(filled: Filled, tmp_path: Path, encoding: str) -> None:
    made = export(filled.path, tmp_path / "out", Asked(encoding=encoding, tables=("messages",)))
    segment = tmp_path / "out" / made.segments[0].file
    content = segment.read_bytes()
    for damaged in (content[:-1], b"", bytes(len(content)), None):
        if damaged is None:
            segment.unlink()
        else:
            segment.write_bytes(damaged)
        with pytest.raises(ExportError, match=r"000001.*: .*\. Copy it again, or export again\."):
            rows(reader(tmp_path / "out"))


def test_the_page_has_each_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "spark.md").read_text()
    for name, option in OPTIONS.items():
        assert f"| `{name}` | {option.help} |" in page
