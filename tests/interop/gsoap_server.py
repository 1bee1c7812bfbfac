"""A gSOAP RM Destination under the tests' control: it keeps what it knows in memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.programs import free_port


class GsoapServer:
    """Its port is the same in each of its lives. ``program`` is ``rmserver``, as ``gsoap_client.build`` makes it."""

    def __init__(self, program: Path, directory: Path) -> None:
        self._program = program
        self.port = free_port()
        self._said = directory / "said.txt"
        self.start()

    def start(self) -> None:
        with self._said.open("ab") as out:
            self._process = subprocess.Popen(
                [self._program, str(self.port)], stdout=out, stderr=subprocess.PIPE, bufsize=0
            )
        assert self._process.stderr is not None
        assert self._process.stderr.readline() == b"up\n"

    def kill(self) -> None:
        """As a power cut does."""
        self._process.kill()
        self._process.communicate()

    def calls(self) -> list[str]:
        """The texts of the calls, in all its lives."""
        return self._said.read_text().splitlines()
