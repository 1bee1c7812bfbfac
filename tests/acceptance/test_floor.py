"""What was covered once may not be uncovered unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run import covered_by

from . import floor as module
from .floor import below_floor, raise_floor, read_floor, to_be_raised
from .network import HEADER, read_network
from .report import main
from .tables import Cell, TableError, project_tables
from .tally import Tally

SCENARIO = Cell("Q-038")
HALF = Cell("D-SEQ-004", "destination")


def tally(*, scenario: str = "passed", half: str = "passed") -> Tally:
    tally = Tally(project_tables())
    tally.add("test_a", [SCENARIO], "call", scenario)
    tally.add("test_b", project_tables().rows[HALF.id].cells(HALF.half), "call", half)
    return tally


@pytest.fixture
def floor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A floor of the two."""
    path = tmp_path / "floor.tsv"
    path.write_text("id\thalf\n")
    raise_floor(tally(), path)
    monkeypatch.setattr(module.read_floor, "__defaults__", (path, None))
    nothing = tmp_path / "network.tsv"
    nothing.write_text("\t".join(HEADER) + "\n")
    monkeypatch.setattr(read_network, "__defaults__", (nothing, None))
    monkeypatch.setattr(module.raise_floor, "__defaults__", (path,))
    return path


@pytest.mark.parametrize(
    ("outcome", "why"),
    [("failed", "failed"), ("skipped", "skipped"), ("passed", "")],
    ids=["failed", "skipped", "kept"],
)
def test_what_is_not_covered_any_more_is_named_with_the_reason(
    floor: Path, capsys: pytest.CaptureFixture[str], outcome: str, why: str
) -> None:
    assert covered_by(tally(scenario=outcome), is_whole=True) is bool(why)
    said = capsys.readouterr().out
    assert ("below the floor: Q-038" in said) is bool(why)
    assert why in said
    assert ("floor: kept" in said) is not bool(why)


def test_a_row_whose_test_is_gone_is_below_the_floor(floor: Path) -> None:
    gone = Tally(project_tables())
    gone.add("test_a", [SCENARIO], "call", "passed")
    first, last = below_floor(gone, read_floor(floor))
    assert first.startswith("below the floor: D-SEQ-004 destination (1.0 1.1 1.2 not run): ")
    assert last == "floor: 1 that were covered are not"


def test_the_floor_is_raised_by_a_command_and_never_lowered_by_it(
    floor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = Tally(project_tables())
    more.add("test_c", [Cell("Q-043")], "call", "passed")
    assert to_be_raised(more, read_floor(floor)) == [Cell("Q-043")]
    report = tmp_path / "report.json"
    report.write_text(more.as_json())
    assert main([str(report), "--raise-floor"]) == 0
    assert capsys.readouterr().out == "floor: 1 more\n"
    assert read_floor(floor) == [HALF, SCENARIO, Cell("Q-043")]


@pytest.mark.parametrize("line", ["D-SEQ-004\tsource", "Q-999\t-", "Q-038"])
def test_a_floor_that_names_what_is_in_no_table_is_an_error(tmp_path: Path, line: str) -> None:
    path = tmp_path / "floor.tsv"
    path.write_text(f"id\thalf\n{line}\n")
    with pytest.raises(TableError, match=r"floor\.tsv:2"):
        read_floor(path)


def test_the_floor_of_this_project_is_about_its_tables() -> None:
    assert read_floor()
