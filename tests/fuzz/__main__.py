"""``make fuzz``: see ``run``; with ``TARGET=envelope``: see ``readers``, with ``TARGET=stomp``: see
``stomp``."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from tests.fuzz.failed import Failed, report
from tests.fuzz.readers import READERS, fuzz_readers
from tests.fuzz.run import PLANTS, fuzz
from tests.fuzz.stomp import PLANTS as STOMP_PLANTS
from tests.fuzz.stomp import fuzz_stomp


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=("service", "envelope", "stomp"), default="service")
    parser.add_argument("--plant", choices=(*PLANTS, *READERS, *STOMP_PLANTS), default="")
    arguments = parser.parse_args()
    logging.getLogger("wsrm_mq").addHandler(logging.NullHandler())  # what is refused is told: that is not looked for
    logging.getLogger("wsrm_mq").propagate = False
    with tempfile.TemporaryDirectory() as directory:
        try:
            if arguments.target == "service":
                count = fuzz(Path(directory), arguments.seconds, arguments.seed, arguments.plant)
            elif arguments.target == "stomp":
                count = fuzz_stomp(arguments.seconds, arguments.seed, arguments.plant)
            else:
                count = fuzz_readers(arguments.seconds, arguments.seed, arguments.plant)
        except Failed as failed:
            report(failed, arguments.seed, Path("build/fuzz"))
            return 1
    print(f"{count} mutated messages (seed {arguments.seed}): nothing found")
    return 0


sys.exit(main())
