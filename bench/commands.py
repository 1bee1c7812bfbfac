"""``wsrm-mq`` as an operator runs it, and the most memory that it had."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from bench.dying import die_with_parent

__all__ = ["Command", "Ran", "wsrm"]

_POLL_SECONDS: Final = 0.05


class Ran(NamedTuple):
    """A command that has ended well."""

    seconds: float
    peak: float
    """The most bytes that the process had in memory."""


class Command:
    """A process of ``wsrm-mq``, which dies with this one; ``environ`` is beside what this one has."""

    def __init__(self, *arguments: object, store: Path | None = None, **environ: str) -> None:
        self.words = [sys.executable, "-m", "wsrm_mq", *map(str, arguments)]
        self.words += [] if store is None else ["--store", str(store)]
        self.peak = 0.0
        """Bytes; as far as it was looked at."""
        self._begun = time.monotonic()
        self._process = subprocess.Popen(
            self.words, stdout=subprocess.DEVNULL, env={**os.environ, **environ}, preexec_fn=die_with_parent
        )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def look(self) -> None:
        """How much memory it has."""
        if not self.has_ended:
            self.peak = max(self.peak, _peak_bytes(self._process.pid))

    def wait(self) -> int:
        """Its exit status."""
        while not self.has_ended:
            self.look()
            time.sleep(_POLL_SECONDS)
        return self._process.returncode

    def ran(self) -> Ran:
        """Wait for its end, which has to be a good one."""
        if status := self.wait():
            raise SystemExit(f"{' '.join(self.words)}: exit status {status}")
        return Ran(time.monotonic() - self._begun, self.peak)

    def kill(self) -> None:
        """With -9."""
        self._process.kill()
        self._process.wait()


def wsrm(*arguments: object, store: Path | None = None) -> Ran:
    """Run it to its end."""
    return Command(*arguments, store=store).ran()


def _peak_bytes(pid: int) -> float:
    """Of its own program: what ``wait4`` tells has the memory of the parent in it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0
