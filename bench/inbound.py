"""The figures of the inbound path.

    python -m bench.inbound [--rounds 5] [--gap-rounds 1] [--quick] [--directory DIR] [CASE …]

Prints a table; a full run also writes it to bench/results-inbound.md and .json. Exit status 1: a bound was missed; 2:
the run is void.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench import behind_gap, restart, scanning
from bench.figures import Figure, as_json, as_markdown, status
from bench.load import RunIsVoid

_HERE: Final = Path(__file__).parent


class Size(NamedTuple):
    """The gap is measured less often than the rest."""

    rounds: int
    gap_rounds: int
    held: int
    held_at_restart: int


FULL: Final = Size(rounds=5, gap_rounds=1, held=1_000_000, held_at_restart=100_000)
QUICK: Final = Size(rounds=3, gap_rounds=1, held=50_000, held_at_restart=10_000)

CASES: Final[dict[str, Callable[[Path, Size], Iterator[Figure]]]] = {
    "scan": lambda _directory, size: scanning.measure(size.rounds),
    "gap": lambda directory, size: behind_gap.measure(directory, size.gap_rounds, size.held),
    "restart": lambda directory, size: restart.measure(directory, size.rounds, size.held_at_restart),
}


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.inbound", description="The figures of the inbound path.")
    options.add_argument("--rounds", type=int, help="alternating rounds of a case")
    options.add_argument("--gap-rounds", type=int, help="rounds of the gap, of minutes each")
    options.add_argument("--quick", action="store_true", help="small numbers; nothing is written down")
    options.add_argument("--directory", type=Path, default=_HERE, help="where the stores are put: a real disk")
    options.add_argument("case", nargs="*", choices=[*CASES, []], help="default: all")
    chosen = options.parse_args()
    size = QUICK if chosen.quick else FULL
    if chosen.rounds:
        size = size._replace(rounds=chosen.rounds)
    if chosen.gap_rounds:
        size = size._replace(gap_rounds=chosen.gap_rounds)
    try:
        figures = run(chosen.case or list(CASES), size, chosen.directory)
    except RunIsVoid as reason:
        print(f"VOID: {reason}", file=sys.stderr)
        return 2
    print(as_markdown(figures))
    if not chosen.quick and not chosen.case:
        title = f"# Inbound, {size.rounds} rounds ({size.gap_rounds} of the gap)"
        (_HERE / "results-inbound.md").write_text(f"{title}\n\n{as_markdown(figures)}\n")
        (_HERE / "results-inbound.json").write_text(as_json(figures, **size._asdict()) + "\n")
    return status(figures)


def run(cases: list[str], size: Size, directory: Path) -> list[Figure]:
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="stores-", dir=directory) as stores:
        for case in cases:
            print(f"{case} …", file=sys.stderr, flush=True)
            figures += CASES[case](Path(stores), size)
    return figures


if __name__ == "__main__":
    sys.exit(main())
