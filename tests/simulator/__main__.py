"""``python -m tests.simulator``: schedules by number, the first that fails cut down to its shortest."""

from __future__ import annotations

import sys

from tests.simulator import faults

if __name__ == "__main__":
    sys.argv[1:] = faults.planted(sys.argv[1:])  # before the product is imported

    from tests.simulator.run import main

    sys.exit(main())
