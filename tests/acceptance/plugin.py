"""The pytest side of the acceptance tables: markers are checked at collection, outcomes counted at the end.

``--conformance`` ends the run with the counts, ``--acceptance-report=FILE`` keeps what they rest on, and
``--acceptance-id=D-SEQ-004`` runs the tests of one row. Under pytest-xdist the workers attach the cells to
their reports and the controller counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Generator, Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from wsrm_mq.versions import RMVersion

from .claims import KEYWORDS, ON_THE_WIRE, Claims, claims
from .tables import INVARIANTS, TableError, project_tables
from .tally import Tally

CLAIMS: Final = pytest.StashKey[Claims]()


def pytest_addoption(parser: pytest.Parser) -> None:
    add = parser.getgroup("acceptance").addoption
    add("--conformance", action="store_true", help="end with the counts of covered acceptance rows")
    add("--acceptance-report", metavar="FILE", help="write outcomes by acceptance row to FILE, as JSON")
    add("--acceptance-id", metavar="ID", action="append", default=[], help="only tests that carry ID")


def pytest_configure(config: pytest.Config) -> None:
    try:
        tables = project_tables()
    except TableError as wrong:
        raise pytest.UsageError(str(wrong)) from wrong
    for id in config.getoption("acceptance_id"):
        if id not in tables.rows and id not in INVARIANTS:
            raise pytest.UsageError(f"--acceptance-id: {id!r} is in no table")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Count(config, Tally(tables)), "acceptance-count")


def claims_of(item: pytest.Item) -> Claims:
    if CLAIMS not in item.stash:
        item.stash[CLAIMS] = _claims_of(item)
    return item.stash[CLAIMS]


def _claims_of(item: pytest.Item) -> Claims:
    marks = [mark for mark in item.iter_markers() if mark.name in KEYWORDS]
    fixtures: Collection[str] = getattr(item, "fixturenames", ())
    # Whose mistake a test finds (--acceptance-id) does not depend on how it is shown: any test of the row will do.
    shown_by = ON_THE_WIRE if item.config.getoption("acceptance_id") else fixtures
    if not marks or "rm" not in fixtures:
        return claims(marks, project_tables(), fixtures=shown_by)
    params = item.callspec.params if hasattr(item, "callspec") else {}
    rm = params.get("rm")
    if isinstance(rm, RMVersion):
        return claims(marks, project_tables(), rm.label, shown_by)
    return Claims((), (f"rm is read at collection: parametrise it with values of RMVersion, not {rm!r}",))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.passed:
        items = [node for node in report.result if isinstance(node, pytest.Item)]
        problems = [f"{item.nodeid}: {problem}" for item in items for problem in claims_of(item).problems]
        if problems:
            report.outcome, report.result = "failed", []
            report.longrepr = "\n".join(problems)
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = set(config.getoption("acceptance_id"))
    if not wanted:
        return
    carries = {item: bool(wanted & {cell.id for cell in claims_of(item).cells}) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not carries[item]])
    items[:] = [item for item in items if carries[item]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if cells := claims_of(item).cells:
        report.acceptance = [list(cell) for cell in cells]  # type: ignore[attr-defined]  # plain lists cross xdist
    return report


class Count:
    """Listens to the reports where all of them arrive: in the only process, or in xdist's controller."""

    def __init__(self, config: pytest.Config, tally: Tally) -> None:
        self._config = config
        self._tally = tally

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cells: list[list[str]] = getattr(report, "acceptance", [])
        self._tally.add(report.nodeid, cells, report.when, report.outcome)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, Any, Any]:
        """Outermost of its kind: what the terminal prints about the session comes before."""
        result = yield
        if file := self._config.getoption("acceptance_report"):
            path = Path(file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._tally.as_json(), encoding="utf-8")
        if self._config.getoption("conformance"):
            self._print(self._lines())
        return result

    def _lines(self) -> Iterable[str]:
        if self._config.get_verbosity() > 0:
            yield "not covered:"
            yield from self._tally.gaps()
        yield from (f"deviating: {deviation}" for deviation in self._tally.tables.deviations)
        yield from self._tally.summary()

    def _print(self, lines: Iterable[str]) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        write = terminal.write_line if terminal else print
        for line in itertools.chain([""], lines):
            write(line)
