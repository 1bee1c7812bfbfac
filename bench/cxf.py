"""Apache CXF's server, built with the clients of the tests: one JVM for all rounds, for it is slow until it is warm."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.asking import create_sequence
from bench.load import in_order
from bench.process import THIS_TREE
from bench.sides import Amount, Side, sent, unless_too_busy
from tests.interop.java_client import build
from tests.support.programs import free_port

__all__ = ["CxfServer", "running", "versions"]

_NAMED: Final = {"CXF": "cxf-rt-ws-rm", "Derby": "derby"}
"""Libraries whose versions a run is published with."""


class CxfServer:
    """``pid`` is the JVM's."""

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self._pids = [pid]

    def side(self, connections: int, amount: Amount) -> Side:
        """In order, a new sequence on each connection; every answer has to acknowledge its message, as ours do."""

        def measure(most: int) -> Side:
            identifiers = [create_sequence(self._port) for _ in range(connections)]
            plan = in_order(identifiers, amount.planned(connections))
            return sent(self._port, self._pids, plan, amount, most, acknowledged=True)

        return unless_too_busy(measure)


def versions() -> str:
    """Of CXF, of the database under its store and of Java."""
    jars = [jar.stem for jar in (_home() / "lib").iterdir()]
    found = {
        name: next(jar.removeprefix(f"{stem}-") for jar in jars if re.fullmatch(rf"{stem}-[0-9.]+", jar))
        for name, stem in _NAMED.items()
    }
    java = subprocess.run(["java", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return ", ".join([*(f"{name} {version}" for name, version in found.items()), java])


@contextmanager
def running(directory: Path, *, stores: bool) -> Iterator[CxfServer]:
    """``stores``: with its JDBC store, Derby, in ``directory``, whose log Derby opens with O_DSYNC; else it has
    none."""
    home = _home()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="cxf-", dir=directory) as made, tempfile.TemporaryFile() as said:
        place = [str(Path(made, "store"))] if stores else []
        command = ["java", "-cp", f"{home / 'cxf-1.jar'}:{home}/lib/*", "peers.CxfServer", str(port), "idle", *place]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, cwd=made
        ) as process:
            try:
                assert process.stdout is not None
                if process.stdout.readline() != "ready\n":
                    said.seek(0)
                    raise RuntimeError(f"CXF did not start:\n{said.read()[-4_000:].decode(errors='replace')}")
                yield CxfServer(port, process.pid)
            finally:
                process.kill()


def _home() -> Path:
    return build(THIS_TREE / "build" / "peers") / "cxf"
