"""The runner judges a small package whose tests are known to notice some faults and not others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from . import run as runner
from .catalogue import CatalogueError, load
from .run import ROOT, main

PACKAGE = """
def add(a, b):
    return a + b

def double(a):
    return a * 2

def countdown(n):
    while n > 0:
        n -= 1
    return n
"""

TESTS = """
import pytest
import toy

pytestmark = pytest.mark.spec("D-SEQ-001", versions="all")

@pytest.mark.spec("D-SEQ-004", versions="all")
def test_adds():
    assert toy.add(2, 2) == 4

@pytest.mark.spec("D-SEQ-005", versions="all")
def test_ends():
    assert toy.countdown(3) == 0

def test_doubles():
    assert toy.double(2) == 4
"""

INI = """
[pytest]
testpaths = tests
addopts = --strict-markers -p no:hypothesispytest -p no:anyio -p no:xdist -p no:xdist.looponfail
markers = spec: rows
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A project of one package and three tests, with the acceptance plugin of this one."""
    root = tmp_path / "project"
    shutil.copytree(ROOT / "tests/acceptance", root / "tests/acceptance", ignore=shutil.ignore_patterns("test_*"))
    for path, text in {
        "toy/__init__.py": PACKAGE,
        "tests/__init__.py": "",
        "tests/conftest.py": "pytest_plugins = ['tests.acceptance.plugin']\n",
        "tests/test_toy.py": TESTS,
        "pytest.ini": INI,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def write(toy: Path, *mutants: str) -> None:
    """The mutants file; each of ``mutants`` is TOML that leaves out the file."""
    (toy / "tests/mutants").mkdir(exist_ok=True)
    text = "\n".join(f"[[mutant]]\nfile = 'toy/__init__.py'\n{mutant}" for mutant in mutants)
    (toy / "tests/mutants/mutants.toml").write_text(text)


SUBTRACTS = "name = 'subtracts'\nfind = 'a + b'\nreplace = 'a - b'\nid = 'D-SEQ-004'\n"
MULTIPLIES = "name = 'multiplies'\nfind = 'a + b'\nreplace = 'a * b'\nid = 'D-SEQ-004'\n"
TRIPLES = "name = 'triples'\nfind = 'a * 2'\nreplace = 'a * 3'\nid = 'D-SEQ-004'\n"
STANDS_STILL = "name = 'stands-still'\nfind = 'n -= 1'\nreplace = 'pass'\nid = 'D-SEQ-005'\ntimeout = 2\n"
RAISES = "name = 'raises'\nfind = 'def add'\nreplace = \"1 / 0\\ndef add\"\nid = 'D-SEQ-004'\n"


def judged(toy: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[str]]:
    exit_code = main(["--root", str(toy), *options])
    return exit_code, capsys.readouterr().out.splitlines()


def test_a_fault_that_a_test_with_its_id_notices_is_killed(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(toy, SUBTRACTS)
    before = {path: path.read_bytes() for path in toy.rglob("*") if path.is_file()}
    exit_code, lines = judged(toy, capsys)
    assert (exit_code, lines) == (
        0,
        ["killed   subtracts (D-SEQ-004) by tests/test_toy.py::test_adds", "mutants: 1 of 1 killed"],
    )
    assert {path: path.read_bytes() for path in toy.rglob("*") if path.is_file()} == before


def test_a_fault_is_not_killed_by_no_test_another_id_or_a_broken_import(
    toy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(toy, SUBTRACTS, MULTIPLIES, TRIPLES, RAISES)
    exit_code, lines = judged(toy, capsys)
    assert exit_code == 1
    assert [line[:30] for line in lines] == [
        "killed   subtracts (D-SEQ-004)",
        "SURVIVED multiplies (D-SEQ-004",
        "SURVIVED triples (D-SEQ-004) e",
        "SURVIVED raises (D-SEQ-004) no",
        "mutants: 1 of 4 killed",
    ]
    assert "pytest ended with 2" in lines[3]


def test_a_hang_counts_as_killed_only_if_declared(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(toy, STANDS_STILL + "hang = true", STANDS_STILL.replace("stands-still", "is-stuck") + "hang = false")
    exit_code, lines = judged(toy, capsys)
    assert [line.split()[:3] for line in lines[:2]] == [
        ["killed", "stands-still", "(D-SEQ-005)"],
        ["SURVIVED", "is-stuck", "(D-SEQ-005)"],
    ]
    assert all(line.endswith("did not end within 2 s") for line in lines[:2])
    assert exit_code == 1


def test_named_tests_are_the_only_ones_run(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    triples = TRIPLES.replace("D-SEQ-004", "D-SEQ-001")
    write(
        toy,
        triples + "tests = ['tests/test_toy.py::test_doubles']",
        triples.replace("'triples'", "'unseen'") + "tests = ['tests/test_toy.py::test_adds']",
    )
    exit_code, lines = judged(toy, capsys)
    assert [line.split()[0] for line in lines] == ["killed", "SURVIVED", "mutants:"]
    assert exit_code == 1


def test_a_promise_of_no_table_is_kept_by_the_test_that_is_named(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = TRIPLES.replace("id = 'D-SEQ-004'\n", "")
    write(toy, nowhere + "tests = ['tests/test_toy.py::test_doubles']")
    assert judged(toy, capsys) == (0, ["killed   triples (-) by tests/test_toy.py", "mutants: 1 of 1 killed"])
    write(toy, nowhere + "tests = ['tests/test_toy.py::test_adds']")
    assert judged(toy, capsys)[0] == 1


def test_one_mutant_can_be_run_by_name(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(toy, SUBTRACTS, TRIPLES)
    assert judged(toy, capsys, "--only", "subtracts")[1][-1] == "mutants: 1 of 1 killed"


def test_the_list_runs_nothing(toy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write(toy, SUBTRACTS, TRIPLES)
    monkeypatch.delattr(runner, "run")
    assert judged(toy, capsys, "--list") == (
        0,
        ["subtracts (D-SEQ-004) toy/__init__.py", "triples (D-SEQ-004) toy/__init__.py"],
    )


def test_no_mutants_at_all_is_no_success(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(toy)
    assert judged(toy, capsys) == (1, ["mutants: 0 of 0 killed"])


def test_tests_that_fail_on_the_true_code_are_an_error(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(toy, SUBTRACTS)
    (toy / "toy/__init__.py").write_text(PACKAGE.replace("a + b", "a + b + 1"))
    assert main(["--root", str(toy)]) == 2
    assert "no test passes on the true code for D-SEQ-004" in capsys.readouterr().err


def test_an_id_that_no_test_carries_is_an_error(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(toy, SUBTRACTS.replace("D-SEQ-004", "D-SEQ-009"))
    assert main(["--root", str(toy)]) == 2
    assert "no test passes on the true code for D-SEQ-009" in capsys.readouterr().err


def test_one_failing_test_on_the_true_code_is_an_error(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(toy, SUBTRACTS.replace("D-SEQ-004", "D-SEQ-001"))
    (toy / "toy/__init__.py").write_text(PACKAGE.replace("a * 2", "a * 3"))
    assert main(["--root", str(toy)]) == 2
    assert "the tests do not pass on the true code" in capsys.readouterr().err


def test_a_package_that_python_takes_from_elsewhere_is_an_error(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(toy, SUBTRACTS)
    (toy / "toy").rename(toy / "sys")
    mutants = toy / "tests/mutants/mutants.toml"
    mutants.write_text(mutants.read_text().replace("toy/", "sys/"))
    assert main(["--root", str(toy)]) == 2
    assert "sys is not imported from the copy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mutant", "problem"),
    [
        (SUBTRACTS.replace("'a + b'", "'a + c'"), "subtracts: find stands in toy/__init__.py 0 times"),
        (SUBTRACTS.replace("'a + b'", "'return '"), "subtracts: find stands in toy/__init__.py 3 times"),
        (SUBTRACTS.replace("'a + b'", "''"), "subtracts: find stands in toy/__init__.py 0 times"),
        (SUBTRACTS.replace("'a - b'", "'a + b'"), "subtracts: replace is the same as find"),
        (SUBTRACTS.replace("'a - b'", "'a -'"), "subtracts: toy/__init__.py is no Python any more"),
        (SUBTRACTS.replace("D-SEQ-004", "D-SEQ-099"), "subtracts: D-SEQ-099 is in no table"),
        (SUBTRACTS + "when = 'now'", "mutants.toml: Object contains unknown field `when`"),
        (SUBTRACTS.replace("id = 'D-SEQ-004'", ""), "subtracts: without an id it has to name its tests"),
        ("name = 'nameless'", "mutants.toml: Object missing required field `find`"),
    ],
    ids=["absent", "repeated", "empty", "unchanged", "no-python", "no-row", "unknown-key", "no-id", "missing-key"],
)
def test_a_mutant_that_cannot_be_applied_as_written_is_refused(toy: Path, mutant: str, problem: str) -> None:
    write(toy, mutant)
    with pytest.raises(CatalogueError) as refused:
        load(toy / "tests/mutants/mutants.toml", toy)
    assert problem in str(refused.value)


def test_names_are_unique_and_known(toy: Path) -> None:
    write(toy, SUBTRACTS, SUBTRACTS)
    with pytest.raises(CatalogueError, match="subtracts: named 2 times\nadds: no mutant has this name"):
        load(toy / "tests/mutants/mutants.toml", toy, ["adds"])


def test_a_file_that_is_not_there_is_refused(toy: Path) -> None:
    write(toy, SUBTRACTS)
    (toy / "toy/__init__.py").unlink()
    with pytest.raises(CatalogueError, match=r"toy/__init__\.py: No such file"):
        load(toy / "tests/mutants/mutants.toml", toy)


def test_the_mutants_of_this_project_can_be_applied() -> None:
    load(ROOT / "tests/mutants/mutants.toml", ROOT)
