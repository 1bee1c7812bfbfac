"""Modules of the tests as programs."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def started(module: str, arguments: Sequence[str], log: Path) -> subprocess.Popen[str]:
    """A module as a program, which tells on its standard output where it listens. ``log``: the file that its standard
    error is appended to."""
    command = [sys.executable, "-m", module, *arguments]
    with log.open("a") as file:
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=file, text=True)


def ended(process: subprocess.Popen[str], timeout: float) -> int:
    """Wait for the end of a program; answers its status."""
    status = process.wait(timeout)
    assert process.stdout is not None
    process.stdout.close()
    return status


def free_port() -> int:
    """A port of loopback that nothing listens on. It lies below those that the system gives to connections: one of them
    would have it before the server that it is meant for."""
    while True:
        port = 15_000 + secrets.randbelow(17_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
