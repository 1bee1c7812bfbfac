"""Small suites run with the plugin: what they cover, and what the plugin refuses to count.

The rows used are real ones: D-SEQ-004 (all versions), D-SEQ-015 (1.0), D-SEQ-016 (1.1, 1.2), NS-001 (1.0) and
NS-002 (1.1, 1.2) with two halves, S-CRE-001 (source), POL-009 (deviates at the destination).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .tally import PARTS

INI = """
[pytest]
addopts = --strict-markers -p tests.acceptance.plugin
markers =
    spec: rows
    scenario: rows
    peer: rows
    stomp: rows
    invariant: rows
"""

XDIST = ("-p", "xdist", "-n", "1")

HEAD = """
import os
import pytest
from wsrm_mq.versions import WSRM_1_0, WSRM_1_1
both = pytest.mark.parametrize("rm", [WSRM_1_0, WSRM_1_1], ids=lambda rm: rm.label)

@pytest.fixture(autouse=True)
def server(): pass
"""


@pytest.fixture(params=[(), XDIST], ids=["plain", "xdist"])
def suite(request: pytest.FixtureRequest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    return Suite(pytester, monkeypatch, request.param)


@pytest.fixture
def plain(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    return Suite(pytester, monkeypatch, ())


class Suite:
    """A suite of one module in a directory of its own; with xdist it runs in processes of its own."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
        # another process finds the plugin where this one did, at the root of the project
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # importing those that are not asked for takes longer
        self._pytester = pytester
        self._options = ("--conformance", "--acceptance-report=out/report.json", *options)
        self._run = pytester.runpytest_subprocess if options else pytester.runpytest_inprocess
        pytester.makefile(".ini", pytest=INI)

    def run(self, source: str, *options: str) -> pytest.RunResult:
        self._pytester.makepyfile(test_it=HEAD + source)
        return self._run(*self._options, *options)

    @property
    def report_text(self) -> str:
        return (self._pytester.path / "out/report.json").read_text()

    def status(self, id: str) -> str:
        return str(json.loads(self.report_text)["rows"][id]["status"])


def counts(result: pytest.RunResult) -> dict[str, str]:
    """The last lines, by part."""
    lines = [line for line in result.outlines if line][-len(PARTS) :]
    return dict(line.split(": ", 1) for line in lines)


def test_a_row_is_covered_when_its_test_passed_in_every_version(suite: Suite) -> None:
    result = suite.run("""
@both
@pytest.mark.spec("D-SEQ-004")
@pytest.mark.scenario("Q-038")
@pytest.mark.peer("P-22")
@pytest.mark.invariant("I4")
def test_shows_it(rm): pass
""")
    assert result.ret == 0
    assert list(counts(result)) == list(PARTS)
    assert counts(result) == {
        "destination": "1 of 308 covered, 0 failing, 6 deviating",
        "source": "0 of 147 covered, 0 failing, 6 deviating",
        "spec": "1 of 401 covered, 0 failing, 9 deviating",
        "scenarios": "1 of 119 covered, 0 failing, 0 deviating",
        "peers": "1 of 74 covered, 0 failing, 3 deviating",
        "stomp": "0 of 52 covered, 0 failing, 0 deviating",
    }


def test_deviations_are_printed_by_name(plain: Suite) -> None:
    result = plain.run("def test_nothing(): pass")
    result.stdout.fnmatch_lines(["deviating: SEC-006 destination: *", "deviating: SEC-007 destination: *"])


def test_a_skipped_test_covers_nothing(suite: Suite) -> None:
    suite.run("""
@both
@pytest.mark.spec("D-SEQ-004")
def test_skips(rm): pytest.skip("no")

@both
@pytest.mark.spec("D-SEQ-005")
@pytest.mark.skip(reason="no")
def test_is_skipped(rm): pass

@both
@pytest.mark.spec("D-SEQ-006")
@pytest.mark.xfail(reason="no")
def test_is_expected_to_fail(rm): assert False
""")
    assert [suite.status(id) for id in ("D-SEQ-004", "D-SEQ-005", "D-SEQ-006")] == ["uncovered"] * 3


def test_one_skipped_test_of_two_leaves_the_row_uncovered(plain: Suite) -> None:
    plain.run("""
@both
@pytest.mark.spec("D-SEQ-004")
def test_passes(rm): pass

@pytest.mark.spec("D-SEQ-004", versions=("1.0",))
def test_skips(): pytest.skip("no")
""")
    assert plain.status("D-SEQ-004") == "uncovered"


def test_a_row_whose_other_version_did_not_run_is_uncovered(plain: Suite) -> None:
    result = plain.run(
        """
@pytest.fixture(params=[WSRM_1_1])
def rm(request): return request.param

@pytest.mark.spec("D-SEQ-004", "D-SEQ-016")
def test_of_one_version(rm): pass
""",
        "-v",
    )
    assert plain.status("D-SEQ-004") == "uncovered"
    assert plain.status("D-SEQ-016") == "covered"
    result.stdout.fnmatch_lines(["not covered:", "D-SEQ-004 destination (1.0 not run): 1, 2, 3 *"])


def test_a_test_counts_only_for_the_versions_its_rows_name(plain: Suite) -> None:
    plain.run("""
@both
@pytest.mark.spec("D-SEQ-015", "D-SEQ-016")
def test_of_a_row_for_each_version(rm): assert rm is WSRM_1_0
""")
    assert (plain.status("D-SEQ-015"), plain.status("D-SEQ-016")) == ("covered", "failing")


def test_a_test_without_rm_says_its_versions(plain: Suite) -> None:
    plain.run("""
@pytest.mark.spec("D-SEQ-004", versions=("1.0", "1.1"))
def test_that_loops(): pass

@pytest.mark.spec("D-SEQ-005", versions="all")
def test_of_no_version(): pass

@pytest.mark.spec("D-SEQ-006", versions=("1.0",))
def test_of_one(): pass
""")
    statuses = [plain.status(id) for id in ("D-SEQ-004", "D-SEQ-005", "D-SEQ-006")]
    assert statuses == ["covered", "covered", "uncovered"]


def test_a_row_fails_when_any_of_its_tests_fails(suite: Suite) -> None:
    result = suite.run("""
@both
@pytest.mark.spec("D-SEQ-004", "D-SEQ-005", "D-SEQ-006")
def test_passes(rm): pass

@pytest.mark.spec("D-SEQ-004", versions=("1.0",))
def test_fails(): assert False

@pytest.mark.spec("D-SEQ-005", versions=("1.0",))
def test_fails_at_setup(absent): pass

@pytest.mark.spec("D-SEQ-006", versions=("1.0",))
def test_fails_at_teardown(request): request.addfinalizer(lambda: 1 / 0)
""")
    assert result.ret == 1
    assert counts(result)["destination"] == "0 of 308 covered, 3 failing, 6 deviating"


def test_a_row_that_speaks_of_the_wire_is_covered_by_a_test_that_has_a_server(plain: Suite) -> None:
    plain.run("""
@pytest.fixture
def server(): pass

@pytest.fixture
def source(server): pass

@both
@pytest.mark.spec("D-SEQ-004", "D-CRE-031")
def test_of_a_function(rm): pass

@both
@pytest.mark.spec("D-SEQ-005")
def test_of_bytes(rm, source): pass
""")
    statuses = [plain.status(id) for id in ("D-SEQ-004", "D-CRE-031", "D-SEQ-005")]
    assert statuses == ["uncovered", "covered", "covered"]


def test_a_failing_subtest_fails_its_row(suite: Suite) -> None:
    suite.run("""
@pytest.mark.spec("D-SEQ-004", versions="all")
def test_in_parts(subtests):
    for n in range(3):
        with subtests.test(n=n): assert n != 1
""")
    assert suite.status("D-SEQ-004") == "failing"


def test_a_test_that_kills_its_worker_fails_its_row(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = Suite(pytester, monkeypatch, XDIST)
    suite.run("""
@both
@pytest.mark.spec("D-SEQ-004")
def test_passes(rm): pass

@pytest.mark.spec("D-SEQ-004", versions="all")
def test_dies(): os._exit(1)
""")
    assert suite.status("D-SEQ-004") == "failing"


def test_a_row_with_two_halves_needs_both(plain: Suite) -> None:
    result = plain.run("""
@pytest.mark.spec("NS-002", "NS-001", versions="all")
def test_of_the_destination(): pass

@pytest.mark.spec("NS-002", "S-CRE-001", half="source", versions="all")
def test_of_the_source(): pass
""")
    found = counts(result)
    assert [found[part].split(" ")[0] for part in ("destination", "source", "spec")] == ["2", "2", "2"]
    assert (plain.status("NS-002"), plain.status("NS-001")) == ("covered", "uncovered")


def test_the_destination_half_of_a_row_that_deviates_at_the_source_may_be_tested(plain: Suite) -> None:
    result = plain.run("""
@pytest.mark.spec("F-002", half="destination", versions="all")
def test_of_the_destination(): pass
""")
    assert counts(result)["destination"] == "1 of 308 covered, 0 failing, 6 deviating"
    assert counts(result)["spec"] == "0 of 401 covered, 0 failing, 9 deviating"


def test_a_wrong_marker_stops_the_run_and_names_the_test(suite: Suite) -> None:
    result = suite.run("""
@both
@pytest.mark.spec("D-SEQ-004")
def test_right(rm): pass

@pytest.mark.spec("D-SEQ-999", versions="all")
def test_unknown(): pass

@pytest.mark.spec("D-SEQ-004")
def test_of_no_version(): pass

@pytest.mark.spec("SEC-006", versions="all")
def test_deviating(): pass
""")
    assert result.ret != 0
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_unknown: 'D-SEQ-999' is in no table*",
            "test_it.py::test_of_no_version: no version for D-SEQ-004: *",
            "test_it.py::test_deviating: SEC-006 destination is listed as deviating *",
        ]
    )
    assert counts(result)["destination"] == "0 of 308 covered, 0 failing, 6 deviating"


def test_six_ids_on_a_test_are_refused_over_all_its_markers(plain: Suite) -> None:
    source = """
pytestmark = pytest.mark.invariant("I4")

class TestIt:
    @both
    @pytest.mark.spec("D-SEQ-004", "D-SEQ-005", "D-SEQ-006")
    @pytest.mark.scenario("Q-038"{more})
    def test_much(self, rm): pass
"""
    assert plain.run(source.format(more="")).ret == 0
    result = plain.run(source.format(more=", 'Q-039'"))
    assert result.ret != 0
    result.stdout.fnmatch_lines(["test_it.py::TestIt::test_much*: 6 ids on one test, at most 5 may be: *"])
    assert counts(result)["destination"] == "0 of 308 covered, 0 failing, 6 deviating"


def test_rm_must_be_known_at_collection(plain: Suite) -> None:
    result = plain.run("""
@pytest.fixture
def rm(): return WSRM_1_0

@pytest.mark.spec("D-SEQ-004")
def test_late(rm): pass
""")
    result.stdout.fnmatch_lines(["test_it.py::test_late: rm is read at collection: parametrise it*"])


def test_a_test_with_rm_and_no_marker_is_left_alone(plain: Suite) -> None:
    result = plain.run("""
@pytest.mark.parametrize("rm", ["/"])
def test_removes(rm): pass
""")
    assert result.ret == 0


def test_an_id_selects_the_tests_that_carry_it(suite: Suite) -> None:
    source = """
@both
@pytest.mark.spec("D-SEQ-015", "D-SEQ-016")
def test_of_a_row_for_each_version(rm): pass

@pytest.mark.invariant("I4")
def test_of_an_invariant(): pass

def test_of_none(): pass
"""
    suite.run(source, "--acceptance-id=D-SEQ-015", "--acceptance-id=I4")
    assert set(json.loads(suite.report_text)["tests"]) == {
        "test_it.py::test_of_a_row_for_each_version[1.0]",
        "test_it.py::test_of_an_invariant",
    }


def test_an_unknown_id_selects_nothing_and_says_so(plain: Suite) -> None:
    result = plain.run("def test_it(): pass", "--acceptance-id=D-SEQ-4")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--acceptance-id: 'D-SEQ-4' is in no table*"])


def test_the_same_outcomes_give_the_same_report(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
@both
@pytest.mark.spec("D-SEQ-004")
def test_one(rm): pass

@both
@pytest.mark.spec("D-SEQ-005")
def test_two(rm): assert rm is WSRM_1_1
"""
    texts = set()
    for options in ((), ("-n", "2")):
        suite = Suite(pytester, monkeypatch, options)
        suite.run(source)
        texts.add(suite.report_text)
    assert len(texts) == 1
