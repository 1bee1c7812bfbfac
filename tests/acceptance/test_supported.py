"""The page of what is supported says what tables and markers say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .sources import shown_by, written_marks
from .supported import ADVISORY, GROUPS, PAGE, ROOT, page
from .tables import Cell, project_tables

SOURCES = [path for path in sorted((ROOT / "tests").rglob("*.py")) if ROOT / "tests/acceptance" not in path.parents]

SUITE = """
import pytest

@pytest.mark.spec("NS-001", "NS-004")
@pytest.mark.parametrize("x", [1, 2])
def test_both(rm, x): pass

@pytest.mark.spec("NS-001", half="source", versions=("1.0",))
@pytest.mark.peer("P-01")
async def test_source(): pass

@pytest.mark.spec("D-SEQ-016", versions=("1.1",))
def not_a_test(): pass
"""


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make supported-spec writes it anew"


def test_a_test_shows_the_halves_that_its_markers_name(tmp_path: Path) -> None:
    (tmp_path / "tests/room").mkdir(parents=True)
    (tmp_path / "tests/room/test_it.py").write_text(SUITE)
    both, source = "tests/room/test_it.py::test_both", "tests/room/test_it.py::test_source"
    assert shown_by(tmp_path, project_tables()) == {
        Cell("NS-001", "destination"): [both],
        Cell("NS-004", "destination"): [both],
        Cell("NS-001", "source"): [source],
        Cell("P-01"): [source],
    }


def test_every_marker_of_a_statement_is_seen() -> None:
    """A marker elsewhere than on a function of a module would count in a run, and the page would not know of it."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES if "mark.spec" in path.read_text()]
    written = {id for tree in trees for mark in written_marks(tree) if mark.name == "spec" for id in mark.args}
    assert written == {cell.id for cell in shown_by(ROOT, project_tables()) if cell.half != "-"}


@pytest.mark.parametrize("state", ["Deviating: UsesSequenceSTR", "`protocol/test_create.py::"])
def test_each_state_is_told(state: str) -> None:
    assert f"\n- {state}" in page()


def test_what_no_test_shows_is_not_yet_supported(tmp_path: Path) -> None:
    assert "\n- Not yet." in page(tmp_path)


def test_what_is_advisory_and_every_group_are_of_the_tables() -> None:
    rows = project_tables().rows
    assert set(rows) >= ADVISORY
    assert set(GROUPS) == {row.group for row in rows.values() if row.kind == "spec"}
