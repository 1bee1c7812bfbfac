"""``make test`` and ``make conformance``: the suite in two parts, and one result.

    python -m tests.run [--workers N] [--conformance] [--again N] [-m EXPRESSION] [anything that pytest takes]

Most tests run beside each other, in ``--workers`` processes. Those marked ``timed`` hold something to a time, which a
busy machine would spoil: they run by themselves afterwards. ``--again N``: where at most N tests fail, each has a
second run by itself, and the end names those that passed only then. Exit status 0 only if both parts passed. What they
covered is written to ``build/acceptance.json``; ``--conformance`` counts it and holds it against the floor
(``floor.tsv``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.acceptance.floor import below_floor, to_be_raised
from tests.acceptance.network import read_network, shown_in, without
from tests.acceptance.tables import project_tables
from tests.acceptance.tally import Tally, from_json

ROOT: Final = Path(__file__).parents[1]
NONE_COLLECTED: Final = 5
GOES_ON: Final = (0, 1, NONE_COLLECTED)
"""Exit codes of pytest after which the other part is worth its time."""
HARMLESS: Final = ("--ci", "--long", "--durations", "--timeout", "-q", "-v", "-s", "-x", "-r", "--tb")
"""Options with which all tests are run all the same."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__.splitlines()[0], add_help=False)
    parser.add_argument("--workers", default="4")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--conformance", action="store_true")
    parser.add_argument("--again", type=int, default=0, metavar="N")
    parser.add_argument("-m", dest="marked", metavar="EXPRESSION", default="")
    known, given = parser.parse_known_args(argv)
    options = [*given, *(["--long"] if known.conformance else [])]
    parts = {
        "beside each other": ("not timed", ["-n", known.workers]),
        "by themselves": ("timed", []),
    }
    report = known.root / "build" / "acceptance.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    # Hundreds of processes are started: a fifth of each start is compiling, where the environment forbids keeping that.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    tally = Tally(project_tables())

    def run(name: str, *how: str) -> int:
        begun = time.monotonic()
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", *how, *options, f"--acceptance-report={report}"]
        code = subprocess.run(command, cwd=known.root, env=environment, check=False).returncode
        print(f"tests {name}: {time.monotonic() - begun:.0f} s", flush=True)
        if report.exists():
            tally.take(from_json(report.read_text(encoding="utf-8"), tally.tables))
        return code

    codes: list[int] = []
    for name, (expression, how) in parts.items():
        marked = f"({known.marked}) and {expression}" if known.marked else expression
        codes.append(run(name, *how, "-m", marked, *(["--cache-clear"] if known.again and not codes else [])))
        if codes[-1] not in GOES_ON or (codes[-1] == 1 and "-x" in given):
            break
    if 1 in codes and codes[-1] in GOES_ON and 0 < len(failed := _failed(known.root)) <= known.again:
        codes = [*(code for code in codes if code != 1), run("again", "--last-failed", "-m", known.marked)]
        still = _failed(known.root) if codes[-1] else []
        print(*(f"passed only by itself: {test}" for test in failed if test not in still), sep="\n", flush=True)
    report.write_text(tally.as_json(), encoding="utf-8")
    fell = covered_by(tally, is_whole=all(word.startswith(HARMLESS) for word in given)) if known.conformance else False
    failed = [code for code in codes if code not in (0, NONE_COLLECTED)]
    if failed:
        return failed[0]
    return 1 if fell else min(codes)


def _failed(root: Path) -> list[str]:
    """The tests that failed in the run of pytest that ended last."""
    file = root / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else []


def covered_by(tally: Tally, *, is_whole: bool) -> bool:
    """Print what was covered. Answers whether it is less than the floor; a run of some tests is not held to that."""
    print()
    for deviation in tally.tables.deviations:
        print(f"deviating: {deviation}")
    print("\n".join(tally.summary()))
    if not is_whole:
        return False
    fell = [*below_floor(tally), *without(shown_in(tally), read_network())]
    print("\n".join(fell) or "floor: kept", flush=True)
    if more := to_be_raised(tally):
        print(f"floor: {len(more)} more are covered; `make floor` raises it to them", flush=True)
    return bool(fell)


if __name__ == "__main__":
    sys.exit(main())
