"""The servers that are measured, each with one process that serves.

A front takes ``make``, which builds the application (in the process that serves: no store is carried over a fork), and
``announce(port)``, which it calls there too, when it is about to listen.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

__all__ = ["FRONTS", "Front", "handed_to_uwsgi"]

_Make = Callable[[], Any]
_Announce = Callable[[int], None]
_Interface = Literal["wsgi", "asgi"]

_THREADS: Final = 8
"""For requests, where threads take them; uWSGI has one for each connection."""
_MOST_CONNECTIONS: Final = 40
_ROOT: Final = Path(__file__).parent.parent
_HANDED: Final = "BENCH_SERVER"
"""Environment: what uWSGI is to hand on, as JSON."""


class Front(NamedTuple):
    shown: str
    """As it is called in the results."""
    serve: Callable[[_Make, _Announce], None]
    speaks: _Interface
    wraps: _Interface = "wsgi"
    """The interface of the application inside the middleware."""
    is_taken: bool = False
    """The application was a ``WSRMMiddleware`` already, as it is for `serve` in the README's first example."""


def _waitress(make: _Make, announce: _Announce) -> None:
    """Python, one thread for all connections, eight for requests; what ``wsrm-mq serve`` starts."""
    from waitress import create_server  # type: ignore[import-untyped]

    # More connections than threads: a queue of some requests is no news, and telling it costs CPU.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    server: Any = create_server(make(), host="127.0.0.1", port=0, threads=_THREADS)
    announce(server.effective_port)
    server.run()


def _gunicorn(make: _Make, announce: _Announce) -> None:
    """Python, gthread: eight threads for requests; a process that watches and one that serves."""
    from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]

    place, port = _kept_port()
    options = {
        "bind": f"127.0.0.1:{port}",
        "reuse_port": True,
        "worker_class": "gthread",
        "threads": _THREADS,
        "keepalive": 75,
        "loglevel": "critical",
    }

    class Application(BaseApplication):  # type: ignore[misc]
        def load_config(self) -> None:
            for name, value in options.items():
                self.cfg.set(name, value)

        def load(self) -> Any:
            application = make()
            announce(port)
            return application

    with place:
        Application().run()


def _granian(make: _Make, announce: _Announce, interface: _Interface) -> None:
    """Rust, one thread for all connections; WSGI: eight for requests; a process that watches and one that serves."""
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces

    place, port = _kept_port()

    def load() -> Any:
        application = make()
        announce(port)
        return application

    with place:
        server = Granian(
            "bench",
            address="127.0.0.1",
            port=port,
            interface=Interfaces(interface),
            workers=1,
            blocking_threads=_THREADS if interface == "wsgi" else None,
            http=HTTPModes.http1,
            log_enabled=False,
        )
        server.serve(target_loader=load, wrap_loader=False)


def _granian_wsgi(make: _Make, announce: _Announce) -> None:
    _granian(make, announce, "wsgi")


def _granian_asgi(make: _Make, announce: _Announce) -> None:
    _granian(make, announce, "asgi")


def _uvicorn(make: _Make, announce: _Announce, **settings: Any) -> None:
    """Python on uvloop and httptools: one event loop for all."""
    import uvicorn

    listening, application = _for_loop(make)
    config = uvicorn.Config(application, loop="uvloop", http="httptools", access_log=False, **settings)
    announce(listening.getsockname()[1])
    uvicorn.Server(config).run(sockets=[listening])


_plain_uvicorn: Final = partial(_uvicorn, log_level="critical")
_uvicorn_as_serve: Final = partial(
    _uvicorn,
    ws="none",
    log_config=None,
    proxy_headers=False,
    server_header=False,
    headers=[("server", "wsrm-mq")],
)
"""With the settings of ``wsrm-mq serve``, without its bounds."""


def _serve(make: _Make, announce: _Announce) -> None:
    """The server of ``wsrm-mq serve``."""
    from wsrm_mq.serving.uvicorn_server import BoundedServer

    listening, application = _for_loop(make)
    port = listening.getsockname()[1]
    server = BoundedServer(application, announce=lambda: announce(port), ending=lambda: None, drain_seconds=1)
    server.run(sockets=[listening])


def _for_loop(make: _Make) -> tuple[socket.socket, Any]:
    from wsrm_mq.cli.serve import spare_the_collector

    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    application = make()
    spare_the_collector()  # as `wsrm-mq serve` does
    return listening, application


def _uwsgi(_make: _Make, _announce: _Announce) -> None:
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
            f"--threads={_MOST_CONNECTIONS}",
            "--enable-threads",
            "--lazy-apps",
            "--need-app",
            "--disable-logging",
            "--buffer-size=16384",
            f"--virtualenv={sys.prefix}",
            f"--pythonpath={_ROOT}",
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


FRONTS: Final[dict[str, Front]] = {
    "waitress": Front("waitress", _waitress, "wsgi"),
    "gunicorn": Front("gunicorn gthread", _gunicorn, "wsgi"),
    "uWSGI": Front("uWSGI", _uwsgi, "wsgi"),
    "granian": Front("granian WSGI", _granian_wsgi, "wsgi"),
    "uvicorn": Front("uvicorn", _plain_uvicorn, "asgi"),
    "uvicorn-as-serve": Front("uvicorn, as serve", _uvicorn_as_serve, "asgi"),
    "serve": Front("serve", _serve, "asgi"),
    "granian-asgi": Front("granian ASGI", _granian_asgi, "asgi"),
    "uvicorn-asgi-app": Front("uvicorn, ASGI application", _plain_uvicorn, "asgi", wraps="asgi"),
    "serve-wrapped": Front("serve, wrapped", _plain_uvicorn, "asgi", is_taken=True),
}
"""By the name under which one is chosen."""
