"""``tests/servers/asgi.py`` behind an ASGI server from its own command line, as a process tree that can be killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tests.support.orders_server import within
from tests.support.programs import ROOT, free_port
from wsrm_mq.testing import HTTPAnswer, HTTPWire

from .stored import Stored

_TARGET: Final = ["--factory", "tests.servers.asgi:build"]
COMMANDS: Final = {
    "uvicorn": ["uvicorn", *_TARGET, "--host", "127.0.0.1", "--no-access-log", "--log-level", "warning"],
    "granian": ["granian", "--interface", "asgi", *_TARGET, "--host", "127.0.0.1", "--no-ws", "--log-level", "warning"],
}
_GRANIAN: Final = ["granian", "--factory", "tests.servers.asgi:build_wsgi", "--host", "127.0.0.1", "--no-ws"]
WSGI_COMMANDS: Final = {"granian-wsgi": [*_GRANIAN, "--interface", "wsgi", "--blocking-threads", "4"]}
"""The same around the WSGI application, by the WSGI middleware."""


class ASGIServer:
    """``kind`` is the wrapped application's: asgi or wsgi."""

    def __init__(self, home: Path, make: str, kind: str, **options: Any) -> None:
        self.home = home
        self.log = home / "server.log"
        self.store = Stored(home / "store.db")
        self._command = [sys.executable, "-m", *(COMMANDS | WSGI_COMMANDS)[make]]
        self._served = json.dumps({"app": kind, "home": str(home), "options": options})
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        port = free_port()
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [*self._command, "--port", str(port), *more],
                cwd=ROOT,
                env=os.environ | {"SERVED": self._served},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert within(30, lambda: self._answers(port), bool), self.log.read_text()[-4000:]
        self.port = port

    def _answers(self, port: int) -> bool:
        try:
            with HTTPWire(port, timeout=5) as wire:
                return wire.ask(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").status == 200
        except OSError:
            return False

    def kill(self) -> None:
        self.port = 0
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self.ended()

    def begin_to_stop(self) -> None:
        assert self._process is not None
        self._process.terminate()

    def ended(self, seconds: float = 30) -> None:
        """Wait for the end."""
        assert self._process is not None
        self._process.wait(seconds)
        self._process = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def get(self, path: str) -> HTTPAnswer:
        with HTTPWire(self.port) as wire:
            return wire.ask(f"GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.home / "service.db", timeout=20)) as db:
            return db.execute(query, values).fetchall()

    def effects(self, sequence: str) -> list[int]:
        return [n for (n,) in self.rows("select number from effects where sequence = ? order by rowid", sequence)]

    def calls(self, sequence: str) -> list[int]:
        return [n for (n,) in self.rows("select number from calls where sequence = ? order by rowid", sequence)]

    def effects_soon(self, sequence: str, wanted: list[int], seconds: float = 30) -> list[int]:
        return within(seconds, lambda: self.effects(sequence), lambda seen: seen == wanted)
