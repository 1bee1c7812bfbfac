"""A WSGI application behind waitress, which stops only when what it has begun is done."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from wsrm_mq.cli.exits import Exit, Stopped

__all__ = ["Listener"]

MOST_CONNECTIONS: Final = 1_000
LOOP_SECONDS: Final = 1.0


class Listener:
    """Listens from the start; ``run`` answers requests until a signal asks it to stop.

    Raises ``Stopped`` where waitress is missing or the address cannot be had.
    """

    def __init__(self, app: Callable[..., Any], host: str, port: int, *, threads: int, max_body: int) -> None:
        try:
            from waitress import wasyncore  # type: ignore[import-untyped]
            from waitress.server import create_server  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise Stopped("waitress is not installed: pip install 'wsrm-mq[serve]'.", Exit.FAILED) from error
        listening = _listen(host, port)
        self._loop = wasyncore
        self._map: dict[int, Any] = {}
        self._server = create_server(
            app,
            map=self._map,
            sockets=[listening],
            threads=threads,
            ident="wsrm-mq",
            max_request_body_size=max_body,
            connection_limit=MOST_CONNECTIONS,
        )
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{listening.getsockname()[1]}"

    def run(self, announce: Callable[[str], None]) -> int:
        """Tell the address, serve until SIGTERM or SIGINT; answers which. A second one ends the process at once."""
        with _signals(self._server.pull_trigger) as caught:
            announce(self.url)
            while not caught:
                self._turn(LOOP_SECONDS)
        return caught[0]

    def drain(self, seconds: float) -> bool:
        """Take no connection and no further request, finish those that are here, end. Answers whether all were
        finished in time."""
        deadline = time.monotonic() + seconds
        self._loop.dispatcher.close(self._server)  # the listening socket alone: its trigger wakes the loop yet
        while (busy := self._close_idle()) and time.monotonic() < deadline:
            self._turn(min(LOOP_SECONDS, max(0.0, deadline - time.monotonic())))
        self._server.task_dispatcher.shutdown(timeout=1)
        self._loop.close_all(self._map)
        return not busy

    def _turn(self, seconds: float) -> None:
        self._loop.loop(timeout=seconds, map=self._map, use_poll=True, count=1)

    def _close_idle(self) -> bool:
        """Close every connection without a request or answer under way; answers whether others are left."""
        busy = False
        for channel in list(self._server.active_channels.values()):
            if channel.requests or channel.total_outbufs_len:
                busy = True
            else:
                channel.will_close = True
        return busy


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _kind, _protocol, _name, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family)
    except socket.gaierror as error:
        raise Stopped(f"cannot listen on {host}: {error.strerror}.", Exit.FAILED) from error
    except OSError as error:
        why = os.strerror(error.errno or 0)  # the error's own text repeats the address
        raise Stopped(f"cannot listen on {host}, port {port}: {why}.", Exit.FAILED) from error


@contextmanager
def _signals(wake: Callable[[], None]) -> Iterator[list[int]]:
    """The numbers of the signals that ask to stop, as they come. Each is caught once."""
    caught: list[int] = []

    def catch(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        signal.signal(number, signal.SIG_DFL)
        wake()

    before = {number: signal.signal(number, catch) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, previous in before.items():
            if number not in caught:
                signal.signal(number, previous)
