"""The report of an earlier run, read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from .report import main
from .tables import Cell, project_tables
from .tally import Tally, from_json


@pytest.fixture
def tally() -> Tally:
    """D-SEQ-004 covered, D-SEQ-005 failing in 1.0, NS-001 covered at the destination, Q-038 broken off."""
    tally = Tally(project_tables())
    everywhere = project_tables().rows["D-SEQ-004"].cells()
    tally.add("test_a", everywhere, "setup", "passed")
    tally.add("test_a", everywhere, "call", "passed")
    tally.add("test_a", everywhere, "teardown", "passed")
    tally.add("test_b", [Cell("D-SEQ-005", "destination", "1.0")], "call", "failed")
    tally.add("test_b", [], "teardown", "passed")
    tally.add("test_c", [Cell("NS-001", "destination", "1.0")], "call", "passed")
    tally.add("test_d", [Cell("Q-038")], "setup", "passed")
    return tally


@pytest.fixture
def file(tally: Tally, tmp_path: Path) -> str:
    path = tmp_path / "report.json"
    path.write_text(tally.as_json())
    return str(path)


def test_a_report_read_again_counts_the_same(tally: Tally) -> None:
    again = from_json(tally.as_json(), project_tables())
    assert again.summary() == tally.summary()
    assert again.as_json() == tally.as_json()


def test_a_test_that_was_broken_off_covers_nothing(tally: Tally) -> None:
    assert tally.outcomes()[Cell("Q-038")] == "not run"


def test_the_table_counts_by_group(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["destination", "rows", "covered", "failing", "deviating", "left"]
    assert next(line.split() for line in lines if "D-SEQ" in line) == ["D-SEQ", "30", "1", "1", "0", "29"]
    assert next(line.split() for line in lines if "SEC" in line) == ["SEC", "30", "0", "0", "3", "27"]
    assert lines[-6] == "destination: 2 of 308 covered, 1 failing, 6 deviating"


def test_a_group_lists_what_it_lacks(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([file, "--uncovered", "D-SEQ"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 29
    assert lines[3].startswith("D-SEQ-005 destination (1.0 failed, 1.1 1.2 not run): 1 and 3 received")


def test_a_half_can_be_listed_by_itself(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([file, "--uncovered", "NS", "--half", "source"])
    assert capsys.readouterr().out.startswith("NS-001 source (1.0 not run): ")
    main([file, "--uncovered", "NS", "--half", "destination"])
    assert "NS-001" not in capsys.readouterr().out


def test_scenarios_are_listed_without_half_and_version(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([file, "--uncovered", "Q"])
    assert "\nQ-038 (not run): NoDiscard, received as 2, 3, 1" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["absent.json"], ["--uncovered", "D-SEQ-004"]])
def test_what_cannot_be_shown_is_said(file: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments if "absent.json" in arguments else [file, *arguments])
    assert ended.value.code == 2
    assert "No such file" in (said := capsys.readouterr().err) or "no group D-SEQ-004" in said
