"""Where a process of this machine listens, as Linux tells those who may know: its user, and root."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

_LISTENS: Final = "0A"
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Of a server that listens on every address."""


def listening(pid: int) -> list[tuple[str, int]]:
    """Addresses and ports that can be connected to from here; none where it is not known."""
    process = Path("/proc", str(pid))
    found, sockets = set(), set()
    with suppress(OSError):
        for handle in os.listdir(process / "fd"):
            with suppress(FileNotFoundError):  # closed meanwhile
                sockets.add(os.readlink(process / "fd" / handle))
        for table in ("tcp", "tcp6"):
            for line in (process / "net" / table).read_text().splitlines()[1:]:
                _number, local, _remote, state, *rest = line.split()
                if state == _LISTENS and f"socket:[{rest[5]}]" in sockets:
                    found.add(_place(local))
    return sorted(found)


def _place(written: str) -> tuple[str, int]:
    """``0100007F:1F90``: words of 32 bits as this machine has them, and the port."""
    address, _colon, port = written.partition(":")
    packed = b"".join(struct.pack("=I", int(address[at : at + 8], 16)) for at in range(0, len(address), 8))
    host = socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
    return _LOOPBACK.get(host, host), int(port, 16)
