"""Servers of Java's stacks under the tests' control: Apache CXF and Metro, each with the orders service in a JVM."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from tests.support.orders_server import within
from tests.support.programs import free_port

from .java_client import QUICK

SERVERS: Final = {"cxf": "peers.CxfServer", "metro": "peers.MetroServer"}
FLAGS: Final = {"cxf": (), "metro": ("-Dsun.net.httpserver.nodelay=true",)}
"""Without it each answer of Metro's takes 48 ms."""
_READY: Final = "ready"


class JavaServer:
    """``arguments`` are those of the class in Java behind its port, which is the same in each of its lives."""

    def __init__(self, built: Path, name: str, directory: Path, *arguments: str) -> None:
        home = built / name
        self.port = free_port()
        jars = f"{home / f'{name}-1.jar'}:{home}/lib/*"
        self._command = ["java", *QUICK, *FLAGS[name], "-cp", jars, SERVERS[name], str(self.port), *arguments]
        self._directory = directory
        self._said, self._log = directory / "said.txt", directory / "server.log"
        self._lives = 0
        self.start()

    def start(self) -> None:
        with self._said.open("ab") as said, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=said, stderr=log, cwd=self._directory
            )
        self._lives += 1
        lives = within(60, lambda: self._lines().count(_READY), self._lives.__le__)
        assert lives == self._lives, self._log.read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """As a power cut does."""
        self._process.kill()
        self._process.communicate()

    def calls(self) -> list[str]:
        """The texts of the calls, in all its lives."""
        return [line for line in self._lines() if line != _READY]

    def _lines(self) -> list[str]:
        return self._said.read_text().splitlines()
