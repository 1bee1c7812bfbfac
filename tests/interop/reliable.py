"""The orders service behind ``wsrm-mq serve``, as a process that tests start, kill and look into."""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from tests.support.orders_server import within
from tests.support.programs import ROOT
from tests.support.stored import Stored

_ONE_WAY: Final = "{urn:example:orders}put_order"


class Reliable:
    """``options``: as in the environment, without WSRM_MQ_; ``bounds``: constants of the package to lower; ``once``:
    what a kill interrupts is done once all the same, by the inbox; ``takes``: seconds that each operation does."""

    def __init__(
        self,
        directory: Path,
        bounds: Mapping[str, float] | None = None,
        *,
        once: bool = False,
        takes: float = 0.0,
        **options: str,
    ) -> None:
        self.store = Stored(directory / "store.db")
        self.port = 0
        self._service_db = directory / "service.db"
        self._log = directory / "server.log"
        self._environment = {
            "SERVICE_DB": str(self._service_db),
            "BOUNDS": json.dumps(dict(bounds or {})),
            "WSRM_MQ_STORE": str(directory / "store.db"),
            "TAKES": str(takes),
            **({"ONCE": "yes"} if once else {}),
            **{f"WSRM_MQ_{name.upper()}": value for name, value in options.items()},
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.end()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Start it, on the port it had before if it had one."""
        served = ["tests.servers.recorded:application", "--port", str(self.port), "--one-way", _ONE_WAY]
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "wsrm_mq", "serve", *served],
                cwd=ROOT,
                env={**os.environ, **self._environment},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 60)
        line = self._process.stdout.readline() if ready else ""
        assert line.startswith("wsrm-mq: serving "), line + self._log.read_text()
        self.port = int(line.rpartition(":")[2])

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(how)
        self._process.communicate(timeout=60)

    def kill(self) -> None:
        """As a power cut does."""
        self.end(signal.SIGKILL)

    def done(self, count: int) -> list[str]:
        """The texts of the operations that were done, in that order, as soon as they are ``count``."""
        return within(20, self._texts, lambda seen: len(seen) >= count)

    def numbers(self) -> list[int]:
        """The numbers of their messages, in the same order."""
        return [number for _text, number in self._effects()]

    def _texts(self) -> list[str]:
        return [text for text, _number in self._effects()]

    def _effects(self) -> list[tuple[str, int]]:
        with sqlite3.connect(self._service_db, timeout=10) as connection:
            return connection.execute("select text, number from effects order by rowid").fetchall()

    def ends(self) -> list[tuple[str, int]]:
        """Of each sequence of WS-RM its state and the number that it expects."""
        return self.store.rows("select state, expected from sequences where kind = 'rm' order by key")
