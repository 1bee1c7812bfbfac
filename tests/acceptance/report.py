"""Show what a run covered: ``python -m tests.acceptance.report FILE [--uncovered GROUP] [--half HALF]``, or take it for
the floor: ``--raise-floor``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from .floor import raise_floor
from .tables import HALVES, TableError, project_tables
from .tally import COVERED, DEVIATING, FAILING, PARTS, Part, Tally, from_json


def table(tally: Tally) -> Iterator[str]:
    """One line for each group of rows in each part, then the counts."""
    for part in (part for part in PARTS.values() if part.name != "spec"):
        yield f"{part.name:12} {'rows':>5} {'covered':>8} {'failing':>8} {'deviating':>10} {'left':>5}"
        yield from _groups(tally, part)
        yield ""
    yield from (f"deviating: {deviation}" for deviation in tally.tables.deviations)
    yield from tally.summary()


def _groups(tally: Tally, part: Part) -> Iterator[str]:
    groups: dict[str, Counter[str]] = {}
    for row, status in tally.statuses(part).items():
        groups.setdefault(row.group, Counter())[status] += 1
    for group, n in groups.items():
        left = n.total() - n[COVERED] - n[DEVIATING]
        yield f"  {group:10} {n.total():5} {n[COVERED]:8} {n[FAILING]:8} {n[DEVIATING]:10} {left:5}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.report", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="what pytest --acceptance-report=FILE wrote")
    parser.add_argument("--uncovered", metavar="GROUP", help="list what GROUP (D-SEQ, Q, or all) lacks")
    parser.add_argument("--half", choices=HALVES, help="with --uncovered: only this half")
    parser.add_argument("--raise-floor", action="store_true", help="take what FILE has as covered into floor.tsv")
    args = parser.parse_args(argv)
    try:
        tables = project_tables()
        tally = from_json(args.file.read_text(encoding="utf-8"), tables)
        if args.raise_floor:
            print(f"floor: {raise_floor(tally)} more")
            return 0
    except (OSError, ValueError, KeyError, TableError) as wrong:
        parser.error(f"{args.file}: {wrong}")
    groups = {row.group for row in tables.rows.values()}
    if args.uncovered not in {None, "all", *groups}:
        parser.error(f"no group {args.uncovered}: it is all, or one of {', '.join(sorted(groups))}")
    group = None if args.uncovered == "all" else args.uncovered
    lines = table(tally) if args.uncovered is None else tally.gaps(group, args.half)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
