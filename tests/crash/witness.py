"""The witness server as a process, and a source that lets nothing go before it is acknowledged."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

from tests.support.orders_server import ROOT
from tests.support.raw import Answer, Dialect, Wire, open_sequence

__all__ = ["Server", "Source", "Testimony", "Witness"]


class Server(Protocol):
    """What a source needs to know of its server: where it listens now."""

    @property
    def port(self) -> int: ...


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
        command = [sys.executable, "-m", "tests.servers.witness", "--store", str(self.store), "--front", self.front]
        command += ["--service-db", str(self.service_db), "--port", str(self.port), "--die", str(self.wish)]
        command += ["--work", str(work), "--options", json.dumps(self.options)]
        with self.log.open("a") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
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
        status = self._process.wait(seconds)
        assert self._process.stdout is not None
        self._process.stdout.close()
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


class Source:
    """Sends the numbers of one sequence and resends what is not acknowledged. It survives its server."""

    PATIENCE: Final = 30

    def __init__(self, server: Server, dialect: Dialect | None = None, *, identifier: str | None = None) -> None:
        self.server = server
        self.dialect = dialect or Dialect()
        self.acknowledged: set[int] = set()
        self._wire: Wire | None = None
        self.identifier = identifier or self._created()

    def _created(self) -> str:
        with Wire(self.server.port) as wire:
            return open_sequence(wire, self.dialect)

    def another(self) -> Source:
        """A second connection of the same sequence."""
        return Source(self.server, self.dialect, identifier=self.identifier)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.__exit__()
            self._wire = None

    def send(self, number: int, *, echo: bool = False) -> bool:
        """Send one message; answers whether an answer came. What it acknowledges is remembered."""
        message = (
            self.dialect.echo(self.identifier, number, f"t{number}")
            if echo
            else self.dialect.put(self.identifier, number)
        )
        try:
            answer = self.wire().ask(self.dialect.request(message))
        except (OSError, EOFError):
            self.close()
            return False
        assert answer.status in (200, 202, 503), answer.body
        self.hear(answer)
        return True

    def wire(self) -> Wire:
        """The connection that is open, or a new one."""
        if self._wire is None:
            self._wire = Wire(self.server.port)
        return self._wire

    def hear(self, answer: Answer) -> None:
        """Remember what an answer acknowledges."""
        for lower, upper in answer.acked or ():
            self.acknowledged.update(range(lower, upper + 1))

    def send_until_acknowledged(self, number: int) -> None:
        end = time.monotonic() + self.PATIENCE
        while number not in self.acknowledged:
            assert time.monotonic() < end, f"{number} was not acknowledged in {self.PATIENCE} s"
            if not self.send(number):
                time.sleep(0.02)


def settled(witness: Testimony, sequence: str, count: int, seconds: float = 20) -> list[int]:
    """The effects, as soon as there are ``count``, or at the latest after ``seconds``."""
    end = time.monotonic() + seconds
    while len(effects := witness.effects(sequence)) < count and time.monotonic() < end:
        time.sleep(0.02)
    return effects


def shuffled_windows(last: int, window: int, seed: int) -> Iterator[int]:
    """1 … last, shuffled within windows, each tenth number twice: what a bad network makes of a sequence."""
    chance = random.Random(seed)
    for start in range(1, last + 1, window):
        numbers = list(range(start, min(start + window, last + 1)))
        numbers += [n for n in numbers if chance.random() < 0.1]
        chance.shuffle(numbers)
        yield from numbers


def in_background(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
