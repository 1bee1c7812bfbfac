"""The load generator: ``load.c``, compiled when it is first needed, and its one rule.

A generator that needs much of a core takes it from the server it measures; a run in which it used 30 % or more is void.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.messages import FIELD_WIDTH, http_request, message

__all__ = ["MOST_CPU_SHARE", "Load", "RunIsVoid", "load"]

MOST_CPU_SHARE: Final = 0.30
_SOURCE: Final = Path(__file__).with_name("load.c")
_BINARY: Final = Path(__file__).parent.parent / "build" / "bench" / "load"
_MARKED: Final = 10**FIELD_WIDTH - 1
"""A number that fills its field: where it stands, the generator writes."""


class RunIsVoid(Exception):
    """What was measured says nothing about the server."""


class Load(NamedTuple):
    messages: int
    seconds: float
    cpu_share: float
    p50_us: float
    p99_us: float
    answer_bytes: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


def compiled() -> Path:
    """The generator's binary, newer than its source."""
    if _BINARY.exists() and _BINARY.stat().st_mtime >= _SOURCE.stat().st_mtime:
        return _BINARY
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RunIsVoid("the load generator is a C program, and there is no C compiler (gcc, cc or $CC)")
    _BINARY.parent.mkdir(parents=True, exist_ok=True)
    fresh = _BINARY.with_suffix(f".{os.getpid()}")
    subprocess.run([compiler, "-O2", "-Wall", "-o", fresh, _SOURCE], check=True)
    fresh.replace(_BINARY)
    return _BINARY


def load(
    port: int,
    identifiers: Sequence[str],
    messages: int,
    *,
    first: int = 1,
    acknowledged: bool = True,
    most_per_second: int = 0,
) -> Load:
    """Send ``messages`` in order on one connection for each of ``identifiers``, closed loop; no faster than
    ``most_per_second`` on all of them together."""
    numbers = map(str, (port, messages, first, most_per_second))
    command = [str(compiled()), *numbers, *(["--acknowledged"] if acknowledged else [])]
    plan = b"".join(_planned(identifier, connection) for connection, identifier in enumerate(identifiers))
    done = subprocess.run(command, input=plan, capture_output=True)
    if done.returncode:
        raise RunIsVoid(done.stderr.decode().strip())
    result = Load(**json.loads(done.stdout))
    if result.cpu_share >= MOST_CPU_SHARE:
        raise RunIsVoid(
            f"the load generator used {result.cpu_share:.0%} of a core; from {MOST_CPU_SHARE:.0%} on "
            "it is the generator that is measured"
        )
    return result


def _planned(identifier: str, connection: int) -> bytes:
    request = http_request(message(identifier, _MARKED, connection=connection))
    number_at, id_at = request.index(b"%d" % _MARKED), request.index(b"%012x" % _MARKED)
    return b"%d %d %d\n" % (len(request), number_at, id_at) + request
