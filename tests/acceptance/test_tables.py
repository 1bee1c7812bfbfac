"""The tables are complete, sound, and their loader refuses what contradicts itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .tables import COLUMNS, INVARIANTS, TableError, load, project_tables
from .tally import PARTS, Tally


def folder(path: Path, **lines: str) -> Path:
    """A folder of small sound tables; each keyword replaces the lines of one."""
    small = {
        "spec": "D-SEQ-004\tD\t1.0 1.1 1.2\tMUST\twire\tCounts.\nNS-001\tDS\t1.0\tMUST\tstate\tIs named.",
        "scenarios": "Q-001\t1\tHappens.",
        "peers": "P-01\tIs done by others.",
        "stomp": "STOMP-001\t1.1 1.2\tSEND\tMUST\tIs refused.",
        "deviations": "NS-001\tdestination\tNot yet.",
    }
    for name, text in (small | lines).items():
        header = "\t".join(COLUMNS[f"{name}.tsv"])
        (path / f"{name}.tsv").write_text(f"{header}\n{text}\n")
    return path


def test_the_tables_have_all_their_rows() -> None:
    tables = project_tables()
    assert Counter(row.kind for row in tables.rows.values()) == {"spec": 401, "scenario": 119, "peer": 74, "stomp": 52}
    assert [row for row in tables.rows if row.startswith("Q-")] == [f"Q-{n:03}" for n in range(1, 120)]
    assert [row for row in tables.rows if row.startswith("P-")] == [f"P-{n:02}" for n in range(1, 75)]
    assert {part.name: len(part.rows(tables)) for part in PARTS.values()} == {
        "destination": 308,
        "source": 147,
        "spec": 401,
        "scenarios": 119,
        "peers": 74,
        "stomp": 52,
    }


def test_no_two_rows_say_the_same() -> None:
    said = Counter((row.statement, row.versions, row.kind) for row in project_tables().rows.values())
    assert [statement for statement, n in said.items() if n > 1] == []


def test_each_group_is_numbered_without_gaps() -> None:
    numbers: dict[str, list[int]] = {}
    for id, row in project_tables().rows.items():
        numbers.setdefault(row.group, []).append(int(id.rpartition("-")[2]))
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())


def test_invariants_are_those_of_the_queue_model() -> None:
    assert {f"I{n}" for n in range(1, 18)} == INVARIANTS


def test_a_row_with_two_halves_has_a_cell_for_each_half_and_version() -> None:
    row = project_tables().rows["NS-002"]
    assert len(row.cells()) == 4
    assert {(c.half, c.version) for c in row.cells("source")} == {("source", "1.1"), ("source", "1.2")}
    assert project_tables().rows["Q-040"].processes == "P"


def test_a_folder_of_small_tables_is_read_and_counted(tmp_path: Path) -> None:
    tables = load(folder(tmp_path))
    assert list(tables.rows) == ["D-SEQ-004", "NS-001", "Q-001", "P-01", "STOMP-001"]
    assert tables.deviation("NS-001", "destination")
    assert tables.deviation("NS-001", "source") is None
    assert Tally(tables).summary() == [
        "destination: 0 of 2 covered, 0 failing, 1 deviating",
        "source: 0 of 1 covered, 0 failing, 0 deviating",
        "spec: 0 of 2 covered, 0 failing, 1 deviating",
        "scenarios: 0 of 1 covered, 0 failing, 0 deviating",
        "peers: 0 of 1 covered, 0 failing, 0 deviating",
        "stomp: 0 of 1 covered, 0 failing, 0 deviating",
    ]


@pytest.mark.parametrize(
    ("table", "lines", "message"),
    [
        ("peers", "P-01\tOne.\nP-01\tTwo.", "peers.tsv:3: P-01 stands in the tables twice"),
        ("peers", "D-SEQ-004\tOne.", "peers.tsv:2: D-SEQ-004 stands in the tables twice"),
        ("peers", "P-01", "peers.tsv:2: each of id, statement must be filled"),
        ("peers", "P-01\t ", "peers.tsv:2: each of id, statement must be filled"),
        ("scenarios", "Q-001\t2\tIt.", "scenarios.tsv:2: processes '2' is none of 1, P"),
        ("spec", "A-001\tX\t1.0\tMUST\twire\tIt.", "spec.tsv:2: role 'X' is none of"),
        ("spec", "A-001\tD\t1.3\tMUST\twire\tIt.", "spec.tsv:2: version '1.3' is none of"),
        ("spec", "A-001\tD\t1.0 1.1\tMUST\twire\tIt.", "spec.tsv:2: 1.1 and 1.2 share"),
        ("spec", "A-001\tD\t1.0\tmust\twire\tIt.", "spec.tsv:2: level 'must' is none of"),
        ("spec", "A-001\tD\t1.0\tMUST\tline\tIt.", "spec.tsv:2: about 'line' is none of wire, state"),
        ("stomp", "STOMP-001\t1.0\tSEND\tMUST\tNo.", "stomp.tsv:2: version '1.0' is none of 1.1, 1.2"),
        ("deviations", "A-001\tdestination\tNo.", "deviations.tsv:2: A-001 is in no table"),
        ("deviations", "D-SEQ-004\tsource\tNo.", "deviations.tsv:2: half 'source' is none of destination"),
        ("deviations", "P-01\t-\tNo.\nP-01\t-\tNo.", "deviations.tsv: P-01 - is listed twice"),
    ],
)
def test_a_wrong_line_is_refused_by_name(tmp_path: Path, table: str, lines: str, message: str) -> None:
    with pytest.raises(TableError) as refused:
        load(folder(tmp_path, **{table: lines}))
    assert message in str(refused.value)


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    (folder(tmp_path) / "peers.tsv").write_text("id\twhat\n")
    with pytest.raises(TableError, match=r"peers\.tsv:1: the columns are not id, statement"):
        load(tmp_path)
