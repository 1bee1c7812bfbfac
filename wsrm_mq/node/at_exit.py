"""The last that is sent by a program that ends and has closed no node: what it has put without waiting, and what it has
acknowledged. Their threads end with it."""

from __future__ import annotations

import atexit
from concurrent.futures import Future, wait
from typing import Any, Final, Protocol
from weakref import WeakSet

LAST_SECONDS: Final = 5.0
"""How long a program that ends waits for that."""


class Sends(Protocol):
    def send_last(self) -> list[Future[Any]]:
        """Have what waits sent; answers what is to be waited for. One that is closed, or of another process, sends
        nothing."""


_OPENED: Final[WeakSet[Sends]] = WeakSet()


def send_at_exit(node: Sends) -> None:
    """Have a node that is open send what it has left when the program ends."""
    _OPENED.add(node)


def _send_last() -> None:
    wait([one for node in list(_OPENED) for one in node.send_last()], timeout=LAST_SECONDS)


atexit.register(_send_last)
