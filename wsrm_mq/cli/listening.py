"""An ASGI application behind uvicorn, which stops only when what it has begun is done."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from wsrm_mq.cli.output import Exit, Stopped

if TYPE_CHECKING:
    from wsrm_mq.asgi_calls import ASGIApplication
    from wsrm_mq.serving.admission import ConnectionBounds


class Listener:
    """Listens from the start; ``run`` answers requests until a signal asks it to stop.

    ``certificate`` and ``key``: files, as PEM. Raises ``Stopped`` where uvicorn is missing, the address cannot be had
    or the certificate cannot be used.
    """

    def __init__(self, host: str, port: int, certificate: str | None = None, key: str | None = None) -> None:
        try:
            from wsrm_mq.serving.uvicorn_server import BoundedServer
        except ModuleNotFoundError as error:
            raise Stopped(f"{error.name} is not installed: pip install 'wsrm-mq[serve]'.", Exit.FAILED) from error
        self._server = BoundedServer
        self._certificate, self._key = certificate, key
        if certificate is not None:
            _check(certificate, key)
        self._socket = _listen(host, port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http{'' if certificate is None else 's'}://{shown}:{self._socket.getsockname()[1]}"

    def run(
        self,
        app: ASGIApplication,
        *,
        announce: Callable[[str], None],
        ending: Callable[[], None],
        drain_seconds: float,
        bounds: ConnectionBounds,
        tell: Callable[..., None],
    ) -> tuple[int, bool]:
        """Tell the address, serve ``app`` until SIGTERM or SIGINT, take nothing more and finish what is here, in
        ``drain_seconds``; the application's lifespan ends last. A second signal ends the process at once. Answers
        which signal it was and whether all requests were answered. ``tell`` is told of events.

        Raises ``Stopped`` where the application does not start."""
        server = self._server(
            app,
            announce=lambda: announce(self.url),
            ending=ending,
            drain_seconds=drain_seconds,
            bounds=bounds,
            tell=tell,
            certificate=self._certificate,
            key=self._key,
        )

        def stop() -> None:
            server.should_exit = True

        with _signals(stop) as caught:
            try:
                server.run([self._socket])
            except SystemExit as error:
                raise Stopped("the application did not start; see above.", Exit.FAILED) from error
        return (caught or [0])[0], server.has_finished

    def close(self) -> None:
        self._socket.close()


def _check(certificate: str, key: str | None) -> None:
    import ssl

    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except OSError as error:  # what is wrong inside of a file is one too
        where = certificate if key is None else f"{certificate} and {key}"
        raise Stopped(f"cannot use the certificate in {where}: {error.strerror or error}.", Exit.FAILED) from error


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
