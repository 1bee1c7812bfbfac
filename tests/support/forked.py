"""Servers of the tests, forked from a process that has imported what they run: most of a start was that.

A server is a process of its own all the same: it is killed, ends and leaves its files as one that begins anew.
"""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_IMPORTED: Final = [
    "tests.servers.orders",
    "tests.servers.witness",
    "waitress",
    "uvicorn",
    "wsrm_mq.store.sqlite.creating",
]
_forking: Final = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(_IMPORTED)


class Forked:
    """``main()`` of a module of ``_IMPORTED`` as a process, with as much of ``subprocess.Popen`` as tests use."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path) -> None:
        """``log``: the file that its standard error is appended to."""
        heard, told = _forking.Pipe(duplex=False)
        environ = dict(os.environ)
        self._process = _forking.Process(target=_run, args=(module, arguments, environ, log, told), daemon=True)
        self._process.start()
        told.close()
        self.stdout = os.fdopen(os.dup(heard.fileno()))
        heard.close()
        self._lock = threading.Lock()
        """The status can be read once: two threads may look for it."""

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        with self._lock:
            return self._process.exitcode

    def wait(self, timeout: float) -> int:
        wait([self._process.sentinel], timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return status

    def send_signal(self, which: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, which)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(module: str, arguments: Sequence[str], environ: dict[str, str], log: Path, out: Connection) -> None:
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environ)
    os.dup2(out.fileno(), 1)
    with log.open("a") as file:
        os.dup2(file.fileno(), 2)
    out.close()
    sys.argv = [module, *arguments]
    try:
        importlib.import_module(module).main()
    finally:
        atexit._run_exitfuncs()  # a process of multiprocessing ends without
