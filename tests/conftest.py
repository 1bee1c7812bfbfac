"""What every test shares."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import slow
from tests.servers.fronts import FRONTS
from tests.support import examples, orders_server
from tests.support.in_process import Application, InProcess

pytest_plugins = [
    "tests.acceptance.plugin",
    "tests.queue.fixtures",
    "tests.support.commands",
    "tests.support.filled",
    "tests.support.memory",
    "tests.support.pages",
    "tests.support.permissions",
    "tests.support.policies",
    "tests.support.postgres",
    "tests.support.processes",
    "tests.support.queue_server",
    "tests.support.quick_start",
    "tests.support.serve_command",
    "tests.support.synced",
    "pytester",
]

TESTS: Final = Path(__file__).parent
Mount = Callable[..., Path]
Wrapped = Callable[..., InProcess]

TOGETHER: Final = (
    "tests/interop/test_gsoap.py",
    "tests/interop/test_gsoap_ways.py",
    "tests/protocol/",
    "tests/scenarios/test_blocking.py",
    "tests/scenarios/test_clock.py",
    "tests/scenarios/test_two_servers.py",
    "tests/soak/",
    "tests/test_asgi.py",
    "tests/test_demo.py",
    "tests/test_imports.py",
    "tests/test_inbox.py",
)
"""Modules whose tests share servers, what they have read, or a run of minutes: begun in each worker anew they take
longer than the tests."""

FIRST: Final = (
    "tests/soak/",
    "tests/simulator/",
    "tests/test_docs.py::test_the_tutorial",
    "tests/protocol/test_decoupled.py",
    "tests/workers/",
    "tests/deploy/",
)
"""Begun first: begun last, one worker would run them while the others have nothing left to do."""


class Sharing(LoadScopeScheduling):
    """Workers take test by test, and of the modules ``TOGETHER`` all tests at once."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith(TOGETHER) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    return Sharing(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--front", choices=FRONTS, help="behind which server the orders service of the tests runs")
    parser.addoption("--ci", action="store_true", help="a test that is skipped, for want of whatever, fails")
    parser.addoption("--java", action="store_true", help="the tests that need Java; no others mean it")
    parser.addoption("--peers", action="store_true", help="the tests that need Maven and Java; no others mean it")
    parser.addoption("--spark", action="store_true", help="the tests in tests/spark, which need PySpark and Java")
    parser.addoption("--over-http", action="store_true", help="all tests of the node over HTTP, not only scenarios")
    parser.addoption("--long", action="store_true", help="tests that take minutes too; --ci and --conformance mean it")


def pytest_configure(config: pytest.Config) -> None:
    orders_server.front = config.getoption("front") or orders_server.front
    examples.are_all = _runs_long(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so a shell starts what it starts in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # and what a test interrupts would inherit it


def pytest_sessionstart(session: pytest.Session) -> None:
    """A worker imports its share of the modules first. Their assertions are rewritten by that, which takes longer than
    all imports, and is kept beside them: else each worker would rewrite all modules of a new checkout."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    share, workers = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for module in sorted(TESTS.rglob("test_*.py"))[share::workers]:
        with suppress(Exception, pytest.skip.Exception):  # the collection tells it
            import_module(".".join(module.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only those marked ``timed`` run, modules that have none are not imported: that takes as long as they do."""
    only_timed = re.fullmatch(r"(\(.*\) and )?timed", config.option.markexpr)
    if only_timed and collection_path.suffix == ".py" and "mark.timed" not in collection_path.read_text():
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    are_long_run = _runs_long(config)
    kept = {
        "long": are_long_run,
        "brief": not are_long_run,
        "java": config.getoption("java"),
        "live": config.getoption("peers"),
    }
    absent = [marker for marker, is_kept in kept.items() if not is_kept]
    left_out = {item for item in items if any(map(item.get_closest_marker, absent))}
    if not are_long_run and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        left_out |= slow.left_out(item for item in items if item not in left_out)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


def _runs_long(config: pytest.Config) -> bool:
    return any(map(config.getoption, ("long", "ci", "conformance")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and item.config.getoption("ci"):
        report.outcome = "failed"
    return report


@pytest.fixture
def in_process(tmp_path: Path) -> Iterator[Wrapped]:
    """The middleware over an application, with these options: bytes go in and come out, and no server is there."""
    wrapped: list[InProcess] = []

    def wrap(app: Application, **options: Any) -> InProcess:
        wrapped.append(InProcess(tmp_path, app, **options))
        return wrapped[-1]

    yield wrap
    for one in wrapped:
        one.middleware.close()


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mount something for the length of a test: ``mount("-t", "tmpfs", "-o", "size=2m", "tmpfs")``.

    Without the right to do so the test is skipped.
    """
    mounted: list[Path] = []

    def begin(*options: str) -> Path:
        point = tmp_path / f"mounted{len(mounted)}"
        point.mkdir()
        done = subprocess.run(["mount", *options, point], capture_output=True, text=True, check=False)
        if done.returncode:
            reason = f"needs the right to mount a file system (root with CAP_SYS_ADMIN): {done.stderr.strip()}"
            pytest.skip(reason)
        mounted.append(point)
        return point

    yield begin
    for point in reversed(mounted):
        subprocess.run(["umount", "-l", point], check=True)
