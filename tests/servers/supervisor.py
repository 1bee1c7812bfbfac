"""Keeps a command running, as systemd would: what ends is begun again.

    python -m tests.servers.supervisor COMMAND…

SIGTERM ends the command and then this; SIGHUP has it begun anew. Where this is killed, the command gets a SIGTERM.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


class Supervisor:
    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._child: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGHUP, self._begin_anew)
        while not self._is_over:
            self._child = subprocess.Popen(self._command, preexec_fn=_end_with_parent)
            if self._is_over:  # the signal came before there was a child to tell
                self._child.terminate()
            self._child.wait()
            time.sleep(0.1)

    def _end(self, _signal: int, _frame: FrameType | None) -> None:
        self._is_over = True
        self._begin_anew()

    def _begin_anew(self, *_: object) -> None:
        if self._child is not None and self._child.returncode is None:
            self._child.terminate()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    Supervisor(sys.argv[1:]).run()
