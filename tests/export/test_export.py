"""What is exported is what the read views have, in every format, in segments that an interrupted export adds to."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import itertools
import json
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.filled import ODD, SECURITY, Filled
from tests.support.processes import OLDER
from wsrm_mq.errors import (
    ConfigurationError,
    ExportError,
    NotAllowed,
    NotFound,
    QueryError,
    SchemaMismatch,
    StoreUnavailable,
)
from wsrm_mq.export import TABLES, Asked, Kind, export, load, pieces
from wsrm_mq.export.schema import CONTENT

Rows = list[dict[str, Any]]


def stored(filled: Filled, name: str) -> Rows:
    """The rows of a read view, as an export has them."""
    view = "ledger_events" if name == "ledger" else name
    kinds = {column.name: column.kind for column in TABLES[name].columns}
    order = ", ".join(f'"{key}"' for key in TABLES[name].key)
    columns = ", ".join(f'"{one}"' for one in kinds if one not in ("store", "node", *CONTENT))
    rows = filled.instance.rows(f"SELECT {columns} FROM {view} ORDER BY {order}")
    return [
        {key: bool(value) if value is not None and kinds[key] is Kind.BOOLEAN else value for key, value in row.items()}
        for row in rows
    ]


def segments(directory: Path, name: str) -> list[Path]:
    found = [directory / one.file for one in load(directory).segments if one.table == name]
    assert found == sorted((directory / name).glob("*"))
    return found


def from_ndjson(directory: Path, name: str) -> Rows:
    return [json.loads(line) for one in segments(directory, name) for line in gzip.open(one, "rt", encoding="utf-8")]


def from_csv(directory: Path, name: str) -> Rows:
    kinds = {column.name: column.kind for column in TABLES[name].columns}
    read: dict[Kind, Callable[[str], Any]] = {
        Kind.INTEGER: int,
        Kind.BOOLEAN: {"true": True, "false": False}.__getitem__,
    }
    rows: Rows = []
    for one in segments(directory, name):
        with gzip.open(one, "rt", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                rows.append({key: read.get(kinds[key], str)(value) if value else None for key, value in row.items()})
    return rows


def moments_back(name: str, rows: Rows) -> Rows:
    """With ms since the epoch for ISO 8601, and without what no view has."""
    times = {column.name for column in TABLES[name].columns if column.kind is Kind.TIME}

    def ms(value: str) -> int:
        return round(datetime.fromisoformat(value).timestamp() * 1000)

    return [
        {
            key: ms(value) if key in times and value is not None else value
            for key, value in row.items()
            if key not in ("store", "node")
        }
        for row in rows
    ]


def without_content(name: str, rows: Rows) -> Rows:
    """Views have all that is stored of requests and replies."""
    hidden = {"messages": ("request",), "replies": ("headers", "body")}.get(name, ())
    return [{key: value for key, value in row.items() if key not in hidden} for row in rows]


@pytest.mark.parametrize(("encoding", "read"), [("ndjson", from_ndjson), ("csv", from_csv)])
@pytest.mark.parametrize("segment_rows", [1, 3, 100_000])
def test_every_table_is_as_its_view_has_it(
    filled: Filled, tmp_path: Path, encoding: str, read: Callable[[Path, str], Rows], segment_rows: int
) -> None:
    export(filled.path, tmp_path / "out", Asked(encoding=encoding, segment_rows=segment_rows), clock=filled.clock)
    for name in TABLES:
        found = without_content(name, moments_back(name, read(tmp_path / "out", name)))
        assert found == without_content(name, stored(filled, name)), name
    assert read(tmp_path / "out", "messages")[0]["action"] == ODD
    assert {(row["store"], row["node"]) for row in read(tmp_path / "out", "ranges")} == {
        (load(tmp_path / "out").store, "here")
    }


def test_the_manifest_says_what_each_segment_holds(filled: Filled, tmp_path: Path) -> None:
    made = export(filled.path, tmp_path / "out", Asked(segment_rows=2), clock=filled.clock)
    assert made == load(tmp_path / "out")
    assert {one.table for one in made.segments} == set(TABLES) - {
        "bindings",
        "subscriptions",
        "clients",
        "request_sequences",
    }
    for name in TABLES:
        of_table = [one for one in made.segments if one.table == name]
        assert all(earlier.last < later.first for earlier, later in itertools.pairwise(of_table))
    for one in made.segments:
        content = (tmp_path / "out" / one.file).read_bytes()
        assert (one.bytes, one.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    first = made.segments[0]
    received = [row["received_at"] for row in stored(filled, "messages")[:2]]
    assert (first.rows, first.first, first.last, first.earliest, first.latest) == (
        2,
        (1,),
        (2,),
        min(received),
        max(received),
    )
    assert [one.name for one in (tmp_path / "out").iterdir() if one.is_file()] == ["manifest.json"]


# what leaves the node


def test_envelopes_leave_only_when_asked_for_and_without_their_security(filled: Filled, tmp_path: Path) -> None:
    export(filled.path, tmp_path / "without", Asked())
    assert not set(CONTENT) & set(from_ndjson(tmp_path / "without", "messages")[0])
    export(filled.path, tmp_path / "with", Asked(bodies=True))
    rows = from_ndjson(tmp_path / "with", "messages")
    envelopes = [base64.b64decode(row["envelope"]) for row in rows]
    assert envelopes == [filled.plain] * 4 + [filled.signed.replace(SECURITY.encode(), b"")]
    assert [row["replayable"] for row in rows] == [True] * 4 + [False]
    inside = [one.partition(b"<soap:Body>")[2] for one in (filled.plain, filled.signed)]
    plain, signed = (hashlib.sha256(one).hexdigest() for one in inside)
    assert [row["body_digest"] for row in rows] == [plain] * 4 + [signed]


def test_security_stays_where_that_is_asked_for(filled: Filled, tmp_path: Path) -> None:
    made = export(filled.path, tmp_path / "out", Asked(tables=("messages",), bodies=True, security=True))
    last = from_ndjson(tmp_path / "out", "messages")[-1]
    assert (base64.b64decode(last["envelope"]), last["replayable"]) == (filled.signed, True)
    assert made.security == "kept"


def test_a_compressed_envelope_is_expanded_before_it_is_redacted(filled: Filled, tmp_path: Path) -> None:
    from tests.support.filled import REQUEST
    from wsrm_mq.queue.arrival import Body

    environ = json.dumps({**REQUEST, "HTTP_CONTENT_ENCODING": "gzip"})
    filled.instance.take(filled.second, 2, body=Body(gzip.compress(filled.signed)), environ=environ)
    filled.instance.take(filled.second, 3, body=Body(gzip.compress(filled.plain)[:-9]), environ=environ)
    export(filled.path, tmp_path / "out", Asked(tables=("messages",), bodies=True))
    expanded, broken = from_ndjson(tmp_path / "out", "messages")[-2:]
    assert base64.b64decode(expanded["envelope"]) == filled.signed.replace(SECURITY.encode(), b"")
    assert (broken["envelope"], broken["replayable"], broken["body_digest"]) == (None, False, None)
    assert expanded["body_digest"] == from_ndjson(tmp_path / "out", "messages")[4]["body_digest"]


def test_of_headers_only_those_that_are_asked_for_leave(filled: Filled, tmp_path: Path) -> None:
    export(filled.path, tmp_path / "few", Asked(bodies=True))
    request = json.loads(from_ndjson(tmp_path / "few", "messages")[0]["request"])
    assert set(request) == {"REQUEST_METHOD", "PATH_INFO", "CONTENT_TYPE", "HTTP_SOAPACTION"}
    (reply,) = from_ndjson(tmp_path / "few", "replies")
    assert (json.loads(reply["headers"]), base64.b64decode(reply["body"])) == ([["Content-Type", "text/xml"]], b"<ok/>")
    export(filled.path, tmp_path / "more", Asked(headers=("user-agent",)))
    assert json.loads(from_ndjson(tmp_path / "more", "messages")[0]["request"])["HTTP_USER_AGENT"] == "CXF"
    with pytest.raises(ConfigurationError, match="'Cookie' cannot be exported: it is never stored"):
        export(filled.path, tmp_path / "never", Asked(headers=("cookie",)))


def test_a_zip_has_each_envelope_as_a_file_and_an_index(filled: Filled, tmp_path: Path) -> None:
    export(filled.path, tmp_path / "out", Asked(tables=("messages",), encoding="zip", bodies=True, segment_rows=2))
    archives = [zipfile.ZipFile(one) for one in segments(tmp_path / "out", "messages")]
    index = [json.loads(line) for one in archives for line in one.read("index.ndjson").splitlines()]
    assert [len(one.namelist()) for one in archives] == [3, 3, 2]
    assert archives[0].read(index[0]["file"]) == filled.plain
    assert [row["file"] for row in index] == [f"{row['position']:012}.xml" for row in index]
    assert (
        without_content("messages", stored(filled, "messages"))[0].items() <= moments_back("messages", index)[0].items()
    )
    with pytest.raises(ConfigurationError, match="zip is for messages with their envelopes"):
        export(filled.path, tmp_path / "none", Asked(encoding="zip"))


class Stop(Exception):
    pass


def stop_after(count: int) -> Callable[[object, int], None]:
    counter = itertools.count(1)

    def told(_segment: object, _upper: int) -> None:
        if next(counter) == count:
            raise Stop

    return told


# a part of the store


def test_a_query_chooses_messages_and_what_belongs_to_them(filled: Filled, tmp_path: Path) -> None:
    export(filled.path, tmp_path / "out", Asked(query="msg:1 -state:held", bodies=True), clock=filled.clock)
    messages = from_ndjson(tmp_path / "out", "messages")
    assert [(row["sequence"], row["number"]) for row in messages] == [(filled.first, 1), (filled.second, 1)]
    assert [row["position"] for row in from_ndjson(tmp_path / "out", "replies")] == [1]
    assert from_ndjson(tmp_path / "out", "attempts") == []
    assert len(from_ndjson(tmp_path / "out", "ranges")) == 3


def test_ages_of_an_interrupted_export_are_those_of_its_beginning(filled: Filled, tmp_path: Path) -> None:
    asked = Asked(tables=("messages",), query="age:<2h", segment_rows=2)
    with pytest.raises(Stop):
        export(filled.path, tmp_path / "out", asked, on_progress=stop_after(1), clock=filled.clock)
    filled.clock.advance(24 * 3_600_000)
    export(filled.path, tmp_path / "out", asked, clock=filled.clock)
    assert len(from_ndjson(tmp_path / "out", "messages")) == 5


def test_a_query_that_cannot_be_asked_leaves_nothing(filled: Filled, tmp_path: Path) -> None:
    for query, error in (("colour:red", QueryError), ("seq:urn:uuid:00000000", NotFound)):
        with pytest.raises(error):
            export(filled.path, tmp_path / "out", Asked(query=query))
    assert not (tmp_path / "out").exists()


def test_rows_that_fit_are_found_however_far_apart(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "REACH", 2)
    filled.take(*range(7, 20))
    export(filled.path, tmp_path / "out", Asked(query="msg:2,19", tables=("messages", "ranges")), clock=filled.clock)
    assert [row["number"] for row in from_ndjson(tmp_path / "out", "messages")] == [2, 19]
    assert len(from_ndjson(tmp_path / "out", "ranges")) == 3


# an interrupted export


@pytest.mark.parametrize("count", [1, 5, 6])
def test_an_interrupted_export_goes_on_behind_the_last_closed_segment(
    filled: Filled, tmp_path: Path, count: int
) -> None:
    asked = Asked(tables=("messages", "ranges"), segment_rows=1)
    directory = tmp_path / "out"
    with pytest.raises(Stop):
        export(filled.path, directory, asked, on_progress=stop_after(count))
    with pytest.raises(NotFound, match="unfinished export; run its command again"):
        load(directory)
    there = {one: one.stat().st_mtime_ns for one in directory.glob("*/*")}
    with (directory / "unfinished.ndjson").open("ab") as journal:
        journal.write(b'{"table": "messa')  # a crash may leave half a line, and a segment that no line tells of
    for name in ("000008.ndjson.gz", "000009.ndjson.gz.part"):
        (directory / "messages" / name).write_bytes(b"half")
    filled.take(7, 8)
    made = export(filled.path, directory, asked)
    assert {one: one.stat().st_mtime_ns for one in there} == there
    assert [row["position"] for row in from_ndjson(directory, "messages")] == [1, 2, 3, 4, 5]  # none that came later
    assert sum(one.rows for one in made.segments if one.table == "ranges") == 3


def test_a_directory_with_anything_else_is_refused_and_stays_as_it_is(filled: Filled, tmp_path: Path) -> None:
    asked = Asked(tables=("messages",), segment_rows=1)
    with pytest.raises(Stop):
        export(filled.path, tmp_path / "half", asked, on_progress=stop_after(1))
    with pytest.raises(NotAllowed, match="asked for something else"):
        export(filled.path, tmp_path / "half", asked._replace(bodies=True))
    export(filled.path, tmp_path / "whole", asked)
    with pytest.raises(NotAllowed, match="an export that is finished; it stays as it is"):
        export(filled.path, tmp_path / "whole", asked)
    with pytest.raises(NotAllowed, match="is not empty, and has no export"):
        export(filled.path, tmp_path, asked)


def test_two_exports_at_once_to_one_directory_are_refused(filled: Filled, tmp_path: Path) -> None:
    def again(_segment: object, _upper: int) -> None:
        with pytest.raises(NotAllowed, match="another process is exporting to it"):
            export(filled.path, tmp_path / "out", Asked())

    export(filled.path, tmp_path / "out", Asked(), on_progress=again)


def test_a_full_disk_is_told_and_the_export_goes_on_when_there_is_room(
    filled: Filled, mount: Callable[..., Path]
) -> None:
    from tests.support.disk import Disk

    disk = Disk(mount("-t", "tmpfs", "-o", "size=1m", "tmpfs"))
    directory = disk.point / "out"
    asked = Asked(tables=("messages",), segment_rows=1)
    with pytest.raises(ExportError, match=r"No space left on device\. Make room, and run the command again"):
        export(filled.path, directory, asked, on_progress=lambda _segment, _upper: disk.fill())
    disk.make_room()
    export(filled.path, directory, asked)
    assert len(from_ndjson(directory, "messages")) == 5


# stores that cannot be exported


def test_what_is_no_store_of_this_version_is_told(filled: Filled, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="there is no such store"):
        export(tmp_path / "none.db", tmp_path / "out", Asked())
    with closing(sqlite3.connect(tmp_path / "older.db")) as db:
        db.executescript((OLDER / "0019.sql").read_text())
    with pytest.raises(SchemaMismatch, match="has schema 0019, this version reads"):
        export(tmp_path / "older.db", tmp_path / "out", Asked())
    assert not (tmp_path / "out").exists()


def test_a_manifest_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="has no export"):
        load(tmp_path)
    for text, told in (
        ("{", "is no manifest that can be read"),
        ("{}", "of format None"),
        ('{"format": "wsrm-export", "version": 1}', "missing required"),
    ):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(ExportError, match=told):
            load(tmp_path)


def test_more_rows_than_a_file_can_hold_are_refused(filled: Filled, tmp_path: Path) -> None:
    asked = Asked(tables=("messages",), encoding="zip", bodies=True, segment_rows=10_001)
    with pytest.raises(ConfigurationError, match="A file of zip holds at most 10000 rows"):
        export(filled.path, tmp_path / "out", asked)
    assert not (tmp_path / "out").exists()
