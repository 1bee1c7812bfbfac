"""``python -m tests.simulator``: schedules by number, the first that fails cut down to its shortest."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from tests.simulator.run import main

    sys.exit(main())
