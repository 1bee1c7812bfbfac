"""``make soak``: the run, and its last line.

    python -m tests.soak [--duration SECONDS] [--seed N] [--plant MISTAKE] [--front FRONT] [--target TARGET]
                         [--keep DIR] [--audit]

With ``--audit`` a job of Spark goes through the stores that they left: wsrm-mq pipeline audit.

Half of the time behind gunicorn, half behind ``wsrm-mq serve``, or all of it behind the one that is named. With
``--target queues`` behind gunicorn, with programs beside it that put, publish and consume. With ``--target routes``
five nodes that hand messages on.

Exit status 1: something was lost, repeated, swapped, owned and not run, or otherwise not as it has to be.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from tests.soak.checker import PLANTS, judge, plant
from tests.soak.queues import soak_queues
from tests.soak.routes import soak_routes
from tests.soak.run import FRONTS, Soak, soak

SHOWN: Final = 100
BESIDE: Final = {"queues": soak_queues, "routes": soak_routes}


def audit(stores: list[Path], out: Path) -> list[str]:
    """What the audit of the stores says, where it finds anything or cannot be done."""
    command = [sys.executable, "-m", "wsrm_mq", "pipeline", "audit", *map(str, stores), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(*(f"soak: audit: {line}" for line in done.stdout.splitlines()), sep="\n")
    return [f"audit: {line}" for line in done.stderr.splitlines()] if done.returncode else []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--duration", type=float, help="seconds with load and faults (default: 600; of routes 60)")
    parser.add_argument("--seed", type=int, default=1, help="what clients and faults choose by (default: 1)")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="put one mistake into what the checker is given")
    parser.add_argument(
        "--target", choices=["service", "queues", "routes"], default="service", help="what is used beside clients"
    )
    parser.add_argument("--front", choices=FRONTS, help="behind this only")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave store, service database and log there")
    parser.add_argument("--audit", action="store_true", help="have Spark audit the stores at the end")
    given = parser.parse_args()
    duration = given.duration or (60.0 if given.target == "routes" else 600.0)
    print(f"soak: {duration:g} s, seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak") as temporary:
        fronts = [given.target] if given.target in BESIDE else [given.front] if given.front else FRONTS
        runs: list[Soak] = []
        for front in fronts:
            directory = (given.keep or Path(temporary)) / front
            directory.mkdir(parents=True, exist_ok=True)
            begin = BESIDE.get(front, partial(soak, front=front))
            done = begin(directory, duration / len(fronts), given.seed)
            print(f"soak: {front}:", ", ".join(f"{name} {count}" for name, count in sorted(done.faults.items())))
            runs.append(done)
        audited = audit([done.store for done in runs], Path(temporary) / "audit") if given.audit else []
    evidence = [one for done in runs for one in done.evidence]
    verdict = judge(plant(given.plant, evidence) if given.plant else evidence)
    trouble = [*audited, *(problem for done in runs for problem in done.trouble)]
    for problem in [*trouble, *verdict.found][:SHOWN]:
        print(f"soak: {problem}")
    print(verdict.line(sum(done.kills for done in runs)))
    return 0 if verdict.is_clean and not trouble else 1


if __name__ == "__main__":
    sys.exit(main())
