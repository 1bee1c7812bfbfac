"""The WSGI servers that are measured, each with eight threads for requests and one process that serves.

A front takes ``make``, which builds the application (in the process that serves: no store is carried over a fork), and
``announce(port)``, which it calls there too, when it is about to listen.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

__all__ = ["FRONTS", "THREADS", "Announce", "Environ", "Make", "WSGIApplication", "handed_to_uwsgi"]

Environ = dict[str, Any]
WSGIApplication = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
Make = Callable[[], WSGIApplication]
Announce = Callable[[int], None]

THREADS: Final = 8
_HANDED: Final = "BENCH_SERVER"
"""Environment: what uWSGI is to hand on, as JSON."""


def _waitress(make: Make, announce: Announce) -> None:
    """Python, one thread for all connections, eight for requests; what ``wsrm-mq serve`` starts."""
    from waitress import create_server

    # Eight connections on eight threads: a queue of one or two is no news, and telling it costs CPU.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    server: Any = create_server(make(), host="127.0.0.1", port=0, threads=THREADS)
    announce(server.effective_port)
    server.run()


def _granian(make: Make, announce: Announce) -> None:
    """Rust, one thread for all connections, eight for requests; a process that watches and one that serves."""
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces

    place, port = _kept_port()

    def load() -> WSGIApplication:
        application = make()
        announce(port)
        return application

    with place:
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


def _uwsgi(_make: Make, _announce: Announce) -> None:
    """C, a thread for each connection. A program of its own: it loads ``bench.server`` afresh."""
    place, port = _kept_port()
    place.set_inheritable(True)
    program = Path(sys.executable).with_name("uwsgi")
    output = os.dup(sys.stdout.fileno())  # uWSGI makes its own standard output one with standard error
    os.set_inheritable(output, True)
    os.environ[_HANDED] = json.dumps({"arguments": sys.argv[1:], "port": port, "output": output})
    os.execv(
        program,
        [
            str(program),
            f"--http11-socket=127.0.0.1:{port}",
            "--reuse-port",
            f"--threads={THREADS}",
            "--enable-threads",
            "--lazy-apps",
            "--need-app",
            "--disable-logging",
            "--buffer-size=16384",
            f"--virtualenv={sys.prefix}",
            f"--pythonpath={Path(__file__).parent.parent}",
            "--module=bench.server:for_uwsgi()",
        ],
    )


def handed_to_uwsgi() -> tuple[list[str], int]:
    """The arguments of the program that became uWSGI, and its port. Gives that program's standard output back."""
    handed = json.loads(os.environ[_HANDED])
    os.dup2(handed["output"], sys.stdout.fileno())
    return handed["arguments"], handed["port"]


def _kept_port() -> tuple[socket.socket, int]:
    """A free port, and a socket that keeps it: bound and not listening, it gets no connection."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    place.bind(("127.0.0.1", 0))
    return place, place.getsockname()[1]


FRONTS: Final[dict[str, Callable[[Make, Announce], None]]] = {
    "uWSGI": _uwsgi,
    "granian": _granian,
    "waitress": _waitress,
}
