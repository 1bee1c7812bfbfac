"""The WSGI servers that are measured, each with eight threads for requests and one process that serves.

A front takes ``make``, which builds the application (in the process that serves: no store is carried over a fork), and
``announce(port)``, which it calls there too.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

__all__ = ["FRONTS", "THREADS", "Environ", "WSGIApplication"]

Environ = dict[str, Any]
WSGIApplication = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
Make = Callable[[], WSGIApplication]
Announce = Callable[[int], None]

THREADS: Final = 8


def _waitress(make: Make, announce: Announce) -> None:
    """Python, one thread for all connections; what ``wsrm-mq serve`` starts."""
    from waitress import create_server

    # Eight connections on eight threads: a queue of one or two is no news, and telling it costs CPU.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    server: Any = create_server(make(), host="127.0.0.1", port=0, threads=THREADS)
    announce(server.effective_port)
    server.run()


def _granian(make: Make, announce: Announce) -> None:
    """Rust, its own thread for all connections; a process that watches and one that serves."""
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces

    with socket.socket() as place:  # bound and not listening: it keeps the port, and gets no connection
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]

        def load() -> WSGIApplication:
            application = make()
            announce(port)
            return application

        server = Granian(
            "bench",
            address="127.0.0.1",
            port=port,
            interface=Interfaces.WSGI,
            workers=1,
            blocking_threads=THREADS,
            http=HTTPModes.http1,
            log_enabled=False,
        )
        server.serve(target_loader=load, wrap_loader=False)


FRONTS: Final[dict[str, Callable[[Make, Announce], None]]] = {"granian": _granian, "waitress": _waitress}
