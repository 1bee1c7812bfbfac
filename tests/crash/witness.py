"""The witness server as a process."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.support.programs import ended, started


class Testimony:
    """What a witness's service wrote into its own database."""

    def __init__(self, service_db: Path) -> None:
        self.service_db = service_db

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.service_db, timeout=30)) as db:
            return db.execute(query, values).fetchall()

    def effects(self, sequence: str) -> list[int]:
        return [n for (n,) in self.rows("SELECT n FROM effects WHERE sequence = ? ORDER BY rowid", sequence)]

    def calls(self, sequence: str) -> list[tuple[int, bool]]:
        found = self.rows("SELECT n, redelivery FROM calls WHERE sequence = ? ORDER BY rowid", sequence)
        return [(n, bool(redelivery)) for n, redelivery in found]


class Witness(Testimony):
    """``tests/servers/witness.py`` with its store and database, over as many lives as it takes."""

    def __init__(self, directory: Path, front: str = "waitress", **options: Any) -> None:
        super().__init__(directory / "service.db")
        self.front = front
        self.store = directory / "store.db"
        self.log = directory / "server.log"
        self.wish = directory / "die"
        self.options = options
        self.port = 0
        self.lives = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self, work: float = 0.0) -> None:
        arguments = ["--store", str(self.store), "--service-db", str(self.service_db), "--port", str(self.port)]
        arguments += ["--front", self.front, "--die", str(self.wish), "--work", str(work)]
        arguments += ["--options", json.dumps(self.options)]
        self._process = started("tests.servers.witness", arguments, self.log)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the server did not start:\n{self._last_words()}"
        self.port = json.loads(line)["port"]
        self.lives += 1

    def die_at(self, point: str, passing: int) -> None:
        """From now on: die when the ``passing``-th message passes ``point``. It holds for this life only."""
        unfinished = self.wish.with_suffix(".new")
        unfinished.write_text(f"{point}:{passing}")
        unfinished.rename(self.wish)

    def kill(self) -> None:
        assert self._process is not None
        assert self.is_alive, f"it had ended before it was killed:\n{self._last_words()}"
        os.kill(self._process.pid, signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float = 30) -> None:
        """Wait until the process has died of SIGKILL, by ``kill`` or where it was to die; any other end is none."""
        status = self._ended(seconds)
        assert status == -signal.SIGKILL, f"it was not killed, it ended with {status}:\n{self._last_words()}"

    def _ended(self, seconds: float) -> int:
        assert self._process is not None
        status = ended(self._process, seconds)
        self._process = None
        self.wish.unlink(missing_ok=True)
        return status

    def _last_words(self) -> str:
        return self.log.read_text()[-4000:]

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._ended(20)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None


def settled(witness: Testimony, sequence: str, count: int, seconds: float = 20) -> list[int]:
    """The effects, as soon as there are ``count``, or at the latest after ``seconds``."""
    end = time.monotonic() + seconds
    while len(effects := witness.effects(sequence)) < count and time.monotonic() < end:
        time.sleep(0.02)
    return effects


def in_background(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
