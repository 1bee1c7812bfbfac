"""``python -m tests.soak.clocked SECONDS COMMAND …``: wsrm-mq on a machine whose clock is ahead by so many seconds."""

from __future__ import annotations

import sys
import time

if __name__ == "__main__":
    ahead = float(sys.argv.pop(1))
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + ahead
    time.time_ns = lambda: nanoseconds() + round(ahead * 1e9)
    from wsrm_mq.cli import main

    main()
