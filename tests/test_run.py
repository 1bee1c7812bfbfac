"""The suite in two parts: what is held to a time runs by itself, and both parts count."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.run import ROOT, main

INI = """
[pytest]
addopts = --strict-markers
markers =
    spec: rows
    timed: by itself
"""
CONFTEST = """
pytest_plugins = ["tests.acceptance.plugin"]

def pytest_addoption(parser):
    parser.addoption("--long", action="store_true")
"""
SUITE = """
import os
import pytest

@pytest.mark.spec("D-CRE-031", versions="all")
def test_beside():
    assert "PYTEST_XDIST_WORKER" in os.environ and {beside}

@pytest.mark.timed
@pytest.mark.spec("D-TRM-009", versions="all")
def test_by_itself():
    assert "PYTEST_XDIST_WORKER" not in os.environ and {by_itself}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)  # those of this run
    shutil.copytree(ROOT / "tests/acceptance", tmp_path / "tests/acceptance", ignore=shutil.ignore_patterns("test_*"))
    (tmp_path / "tests/__init__.py").touch()
    (tmp_path / "tests/conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(INI)
    return tmp_path


def run(project: Path, *options: str, beside: bool = True, by_itself: bool = True) -> int:
    (project / "tests/test_toy.py").write_text(SUITE.format(beside=beside, by_itself=by_itself))
    return main(["--root", str(project), "--workers", "1", "-q", "-p", "no:cacheprovider", *options])


def covered(project: Path) -> list[str]:
    rows = json.loads((project / "build/acceptance.json").read_text())["rows"]
    return [id for id, row in rows.items() if row["status"] == "covered"]


def test_both_parts_count_for_what_is_covered(project: Path) -> None:
    assert run(project) == 0
    assert covered(project) == ["D-CRE-031", "D-TRM-009"]


@pytest.mark.parametrize("part", ["beside", "by_itself"])
def test_a_failure_in_either_part_is_one_of_the_whole(project: Path, part: str) -> None:
    assert run(project, **{part: False}) == 1
    assert len(covered(project)) == 1


def test_a_run_without_any_test_is_no_success(project: Path) -> None:
    assert run(project, "-k", "no_such") == 5


def test_a_run_of_some_tests_is_not_held_to_the_floor_and_one_part_may_have_none(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(project, "--conformance", "-k", "test_beside") == 0
    said = capfd.readouterr().out
    assert "destination: 1 of" in said
    assert "floor" not in said


RACE = """
from pathlib import Path

def test_that_fails_beside_others():
    first = Path({path!r})
    is_again = first.exists()
    first.touch()
    assert is_again and {by_itself}
"""


@pytest.mark.parametrize(("again", "by_itself", "status"), [("3", True, 0), ("0", True, 1), ("3", False, 1)])
def test_a_failure_that_a_second_run_does_not_show_is_named_where_one_is_asked_for(
    project: Path, capfd: pytest.CaptureFixture[str], again: str, by_itself: bool, status: int
) -> None:
    (project / "tests/test_race.py").write_text(RACE.format(path=str(project / "first"), by_itself=by_itself))
    assert main(["--root", str(project), "--workers", "1", "-q", "--again", again]) == status
    named = "passed only by itself: tests/test_race.py::test_that_fails_beside_others" in capfd.readouterr().out
    assert named is (status == 0)


def test_where_more_fail_than_a_second_run_is_for_there_is_none(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        (project / f"tests/test_{name}.py").write_text("def test_never():\n    assert False\n")
    assert main(["--root", str(project), "--workers", "1", "-q", "--again", "1"]) == 1
    assert "tests again" not in capfd.readouterr().out
