"""A name server that answers what a test says, or is silent."""

from __future__ import annotations

import socket
import threading
from typing import Any


class NameServer:
    """A name server. ``answers``: what it says of a name, one after the other, the last for ever; it knows what it was
    ``asked``."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []
        self.speaks = threading.Event()
        """Unless it is set, it answers nothing."""
        self.speaks.set()

    def fail(self, host: str) -> list[str]:
        raise AssertionError(f"{host} was looked up")

    def __call__(self, host: str, port: int | None, *kind: Any, **options: Any) -> list[Any]:
        if host not in self.answers:
            return _getaddrinfo(host, port, *kind, **options)  # a number, or a name of this machine
        self.asked.append(host)
        self.speaks.wait(30)
        answers = self.answers[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [entry for address in found for entry in _getaddrinfo(address, port, type=socket.SOCK_STREAM)]


_getaddrinfo = socket.getaddrinfo
