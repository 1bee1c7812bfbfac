"""A measured server as the driver sees it: started, asked, killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench import asking

__all__ = ["THIS_TREE", "ServerProcess", "settled"]

_POLL_SECONDS: Final = 0.02
THIS_TREE: Final = Path(__file__).parent.parent
"""The checkout that this bench is part of."""


class ServerProcess:
    """``python -m bench.server`` with ``arguments``, killed at the end of the ``with`` block. ``tree`` is the checkout
    whose server and middleware these are."""

    def __init__(self, *arguments: str, tree: Path = THIS_TREE) -> None:
        self.begun = time.monotonic_ns()
        """Before there was a process."""
        command = [sys.executable, "-m", "bench.server", *arguments]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        """Standard error: shown only when something went wrong."""
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            cwd=tree,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._not_started()
        announced = json.loads(line)
        self.port: int = announced["port"]
        self.pids: list[int] = announced["pids"]
        """All that belong to the server; the one that serves is the first."""
        self._wait_until_it_listens()

    def _wait_until_it_listens(self) -> None:
        while self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                time.sleep(_POLL_SECONDS)
        raise self._not_started()

    def _not_started(self) -> RuntimeError:
        status = self._process.wait()
        return RuntimeError(f"the server did not start: status {status}\n{self._last_words()}")

    def _last_words(self) -> str:
        self._said.seek(0)
        return self._said.read()[-4_000:].decode(errors="replace")

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self.kill()
        if failed is not None:
            print(self._last_words(), file=sys.stderr)
        self._said.close()

    def kill(self) -> None:
        """kill -9, all of its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def state(self) -> dict[str, Any]:
        return self._get("/state")

    def hold(self, identifier: str, last: int) -> None:
        self._get(f"/hold?identifier={identifier}&last={last}")

    def post(self, envelope: bytes) -> bytes:
        return asking.request(self.port, "POST", "/orders", envelope)

    def create_sequence(self) -> str:
        return asking.create_sequence(self.port)

    def wait_for_calls(self, calls: int) -> dict[str, Any]:
        while (state := self.state())["calls"] < calls:
            time.sleep(_POLL_SECONDS)
        return state

    def _get(self, path: str) -> dict[str, Any]:
        return dict(json.loads(asking.request(self.port, "GET", path)))


def settled(store: Path) -> None:
    """Wait until every sequence of the store, which may be that of an older commit, is settled and given back."""
    db = sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=30)
    try:
        has_lanes = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'lane'").fetchone()
        table = "lane" if has_lanes else "sequence"
        while db.execute(f'SELECT 1 FROM {table} WHERE cursor < "limit" OR owner IS NOT NULL LIMIT 1').fetchone():
            time.sleep(_POLL_SECONDS)
    finally:
        db.close()
