"""``make soak``: the run, and its last line.

    python -m tests.soak [--duration SECONDS] [--seed N] [--plant loss|repeat|disorder] [--keep DIR]

Exit status 1: something was lost, repeated, swapped or otherwise not as it has to be.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.soak.checker import PLANTS, judge, plant
from tests.soak.run import soak

SHOWN: Final = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--duration", type=float, default=600.0, help="seconds with load and faults (default: 600)")
    parser.add_argument("--seed", type=int, default=1, help="what clients and faults choose by (default: 1)")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="put one mistake into what the checker is given")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave store, service database and log there")
    given = parser.parse_args()
    print(f"soak: {given.duration:g} s, seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak") as temporary:
        directory = given.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        done = soak(directory, given.duration, given.seed)
    print("soak:", ", ".join(f"{name} {count}" for name, count in sorted(done.faults.items())))
    evidence = plant(given.plant, done.evidence) if given.plant else done.evidence
    verdict = judge(evidence)
    for problem in [*done.trouble, *verdict.found][:SHOWN]:
        print(f"soak: {problem}")
    print(verdict.line(done.kills))
    return 0 if verdict.is_clean and not done.trouble else 1


if __name__ == "__main__":
    sys.exit(main())
