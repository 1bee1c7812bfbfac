"""``make fuzz``: see ``run``."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from tests.fuzz.run import PLANTS, Failed, fuzz, report


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plant", choices=PLANTS, default="")
    arguments = parser.parse_args()
    logging.getLogger("wsrm_mq").addHandler(logging.NullHandler())  # what is refused is told: that is not looked for
    logging.getLogger("wsrm_mq").propagate = False
    with tempfile.TemporaryDirectory() as directory:
        try:
            count = fuzz(Path(directory), arguments.seconds, arguments.seed, arguments.plant)
        except Failed as failed:
            report(failed, arguments.seed, Path("build/fuzz"))
            return 1
    print(f"{count} mutated messages (seed {arguments.seed}): nothing found")
    return 0


sys.exit(main())
