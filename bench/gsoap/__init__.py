"""gSOAP's server: built from our ``server.c`` and the plug-ins that are installed, run afresh for each measurement."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

from bench.asking import create_sequence
from bench.compiler import built, gcc, run_tool

__all__ = ["MODES", "GsoapServer", "Mode", "running"]

Mode = Literal["plain", "queue"]
MODES: Final[tuple[Mode, ...]] = ("plain", "queue")

_HERE: Final = Path(__file__).parent
_SOURCES: Final = (_HERE / "server.c", _HERE / "orders.h")
_SYSTEM: Final = Path("/usr/share/gsoap")
_PARTS: Final = ("plugin/wsaapi.c", "plugin/wsrmapi.c", "plugin/mq.c", "custom/duration.c")


class GsoapServer(NamedTuple):
    port: int
    pids: list[int]

    def create_sequence(self) -> str:
        return create_sequence(self.port)


@contextmanager
def running(mode: Mode) -> Iterator[GsoapServer]:
    """A fresh server; it dies at the end of the block, and with this process."""
    with subprocess.Popen([compiled(), mode], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield GsoapServer(int(process.stdout.readline()), [process.pid])
        finally:
            process.kill()


def compiled() -> Path:
    return built("gsoap-server", _SOURCES, _build)


def _build(target: Path) -> None:
    with tempfile.TemporaryDirectory() as stubs:
        where = Path(stubs)
        imports = f"-I{_SYSTEM / 'import'}:{_SYSTEM}"
        run_tool("soapcpp2", "-c", "-x", "-w", "-L", "-a", "-2", imports, _SOURCES[1], cwd=where)
        gcc(
            "-DSOAP_WSRM_FAST_ALLOC",  # without it the plug-in can lose track of what was sent
            f"-I{where}",
            f"-I{_SYSTEM / 'plugin'}",
            f"-I{_SYSTEM}",
            "-o",
            target,
            _SOURCES[0],
            *(where / part for part in ("soapC.c", "soapServer.c", "soapClient.c")),
            *(_SYSTEM / part for part in _PARTS),
            "-lgsoap",
            "-lpthread",
            "-lm",
        )
