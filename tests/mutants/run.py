"""Apply each mutant to a copy of the project and see a test that carries its id fail.

``python -m tests.mutants.run [--list] [--only NAME]``. The selected tests run on the true code first and must
pass there. The last line is ``mutants: K of N killed``; the exit status is 0 only if that is all of them and
some. The working tree is read and never written.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from ..support.memory import MEMORY, has_room
from .catalogue import CatalogueError, Mutant, load

ROOT: Final = Path(__file__).parents[2]
TRUE_CODE_TIMEOUT: Final = 1800.0
"""Seconds for all selected tests on the true code."""
TESTS_FAILED: Final = 1
"""The exit code of pytest."""
GRACE: Final = 10.0
"""Seconds in which an interrupted run may stop the servers it started."""
LEFT_BEHIND: Final = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")


class TrueCodeError(Exception):
    """The tests do not show what the mutants need before any fault is made."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One pytest run. ``tests`` maps node ids to (outcome, ids carried); empty if no report was written."""

    exit_code: int | None
    """None: it had to be stopped at its timeout."""
    tests: dict[str, tuple[str, frozenset[str]]]
    log: str

    def carrying(self, id: str, outcome: str) -> list[str]:
        return [test for test, (found, ids) in self.tests.items() if found == outcome and id in ids]


@dataclass(frozen=True, slots=True)
class Verdict:
    killed: bool
    text: str


def environment(tree: Path) -> dict[str, str]:
    """The environment in which Python, servers that tests start included, imports from ``tree``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling all of it anew would be half of each run
    return kept | {"PYTHONPATH": str(tree)}


def run_tests(tree: Path, ids: Iterable[str], tests: Iterable[str], timeout: float, *options: str) -> Outcome:
    """Run, in ``tree``, those of ``tests`` (all, if empty) that carry one of ``ids``."""
    report, log = tree / ".mutants-report.json", tree / ".mutants-log"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--acceptance-report={report}",
    ]
    chosen = list(dict.fromkeys(tests))
    command += ["--spark"] if any(test.startswith("tests/spark/") for test in chosen) else []
    command += [f"--acceptance-id={id}" for id in sorted(set(ids))] + [*options, *chosen]
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment(tree),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        exit_code = _wait(process, timeout)
    content = json.loads(report.read_text(encoding="utf-8"))["tests"] if report.exists() else {}
    tests_run = {test: (run["outcome"], frozenset(cell[0] for cell in run["cells"])) for test, run in content.items()}
    return Outcome(exit_code, tests_run, log.read_text(encoding="utf-8", errors="replace"))


def _wait(process: subprocess.Popen[bytes], timeout: float) -> int | None:
    """The exit code, or None when it had to be stopped: asked first, so that fixtures end what they began."""
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            pass  # it does not listen; the next line does not ask
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the usual case: nothing of its session is left
        process.wait()


def check_true_code(tree: Path, mutants: Sequence[Mutant], workers: int) -> None:
    """TrueCodeError unless the code tested is that of ``tree`` and each id has a test that passes on it."""
    beside = ["-n", str(workers)] if workers > 1 else []
    for package in sorted({Path(mutant.file).parts[0] for mutant in mutants}):
        _check_import(tree, package)
    named = [test for mutant in mutants if not mutant.id for test in mutant.tests]
    if named and (outcome := run_tests(tree, [], named, TRUE_CODE_TIMEOUT, *beside)).exit_code != 0:
        raise TrueCodeError(f"{outcome.log}\nthe tests do not pass on the true code")
    mutants = [mutant for mutant in mutants if mutant.id]
    if not mutants:
        return
    everywhere = any(not mutant.tests for mutant in mutants)
    tests = [] if everywhere else [test for mutant in mutants for test in mutant.tests]
    ids = {mutant.id for mutant in mutants}
    outcome = run_tests(tree, ids, tests, TRUE_CODE_TIMEOUT, *beside)
    lacking = sorted(id for id in ids if not outcome.carrying(id, "passed"))
    if lacking:
        raise TrueCodeError(f"{outcome.log}\nno test passes on the true code for {', '.join(lacking)}")
    if outcome.exit_code != 0:
        raise TrueCodeError(f"{outcome.log}\nthe tests do not pass on the true code")


def _check_import(tree: Path, package: str) -> None:
    """A package imported from elsewhere would let every mutant survive, or worse, look killed."""
    program = f"import {package}; print({package}.__file__)"
    # -P: servers run in other directories, so the environment alone must do
    found = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=environment(tree),
        capture_output=True,
        text=True,
        check=False,
    )
    if not found.stdout.startswith(f"{tree}{os.sep}"):
        raise TrueCodeError(f"{package} is not imported from the copy but: {found.stdout or found.stderr}")


def judge(mutant: Mutant, pristine: Path) -> Verdict:
    """Apply ``mutant`` to a fresh copy of ``pristine``, with the bytecode that is there, and run its tests."""
    with tempfile.TemporaryDirectory(prefix="mutant-", dir=pristine.parent) as folder:
        tree = Path(folder).resolve() / "tree"
        shutil.copytree(pristine, tree)
        mutated = tree / mutant.file
        mutated.write_text(mutant.mutated(tree), encoding="utf-8")
        Path(cache_from_source(str(mutated))).unlink(missing_ok=True)  # its bytecode is that of the true code
        outcome = run_tests(tree, [mutant.id] if mutant.id else [], mutant.tests, mutant.timeout, "-x")
    if not mutant.id and outcome.exit_code == TESTS_FAILED:
        return Verdict(True, f"by {mutant.tests[0].partition('::')[0]}")
    if failed := outcome.carrying(mutant.id, "failed"):
        return Verdict(True, f"by {failed[0]}")
    if outcome.exit_code is None:
        return Verdict(mutant.hang, f"did not end within {mutant.timeout:g} s")
    if outcome.exit_code == 0:
        return Verdict(False, f"every test of {mutant.id or 'it'} passed")
    last = [line for line in outcome.log.splitlines() if line.strip()][-1:]
    return Verdict(False, f"no test of {mutant.id} failed, yet pytest ended with {outcome.exit_code}: {''.join(last)}")


def run(mutants: Sequence[Mutant], root: Path, workers: int, *, have_passed: bool = False) -> int:
    """Judge all ``mutants``, ``workers`` at a time, print a line for each, and return how many were killed.
    ``have_passed``: the tests are known to pass on the true code."""
    killed = 0
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=MEMORY if has_room() else None) as folder:
        pristine = Path(folder).resolve() / "tree"
        shutil.copytree(root, pristine, ignore=LEFT_BEHIND)
        if have_passed:  # each copy gets the bytecode that is made here
            run_tests(pristine, [], [test for mutant in mutants for test in mutant.tests], 300.0, "--collect-only")
        else:
            check_true_code(pristine, mutants, workers)
        with ThreadPoolExecutor(max(2, workers)) as pool:
            verdicts = pool.map(lambda mutant: judge(mutant, pristine), mutants)
            for mutant, verdict in zip(mutants, verdicts, strict=True):
                killed += verdict.killed
                word = "killed" if verdict.killed else "SURVIVED"
                print(f"{word:8} {mutant.name} ({mutant.id or '-'}) {verdict.text}", flush=True)
    return killed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description=__doc__)
    parser.add_argument("--list", action="store_true", help="check and list the mutants, run nothing")
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="this mutant; may be repeated")
    parser.add_argument("--workers", type=int, default=1, help="how many run at a time; mutants at least two")
    parser.add_argument("--have-passed", action="store_true", help="the tests have just passed on the true code")
    parser.add_argument("--share", metavar="K/N", default="0/1", help="every Nth mutant alone, from number K on")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project to copy")
    parser.add_argument("--mutants", type=Path, metavar="FILE", help="default: tests/mutants/mutants.toml in it")
    args = parser.parse_args(argv)
    try:
        mutants = load(args.mutants or args.root / "tests/mutants/mutants.toml", args.root, args.only)
        first, step = map(int, args.share.split("/"))
        mutants = mutants[first::step]
        if args.list:
            print("\n".join(f"{mutant.name} ({mutant.id}) {mutant.file}" for mutant in mutants))
            return 0
        killed = run(mutants, args.root, args.workers, have_passed=args.have_passed) if mutants else 0
    except (CatalogueError, TrueCodeError) as wrong:
        print(wrong, file=sys.stderr)
        return 2
    print(f"mutants: {killed} of {len(mutants)} killed")
    return 0 if mutants and killed == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
