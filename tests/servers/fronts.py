"""The fronts that a test server can have, each in one process with one word on standard output: where it listens."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, Final

from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.wsgi import WSRMMiddleware


def _announce(port: int) -> None:
    print(json.dumps({"port": port, "pid": os.getpid()}), flush=True)


def _waitress(app: Any, port: int, threads: int, options: dict[str, Any]) -> None:
    from waitress import create_server

    def stop(_signal: int, _frame: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    middleware = WSRMMiddleware(app, **options)
    server = create_server(middleware, host="127.0.0.1", port=port, threads=threads)
    _announce(int(server.effective_port))
    try:
        server.run()
    finally:
        middleware.close(10)
        sys.stdout.flush()


def _uvicorn(app: Any, port: int, threads: int, options: dict[str, Any]) -> None:
    import uvicorn

    middleware = WSRMASGIMiddleware(app, threads=threads, **options)
    listening = socket.create_server(("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(middleware, log_level="warning", access_log=False, timeout_keep_alive=120))
    _announce(listening.getsockname()[1])
    server.run(sockets=[listening])


FRONTS: Final[dict[str, Callable[[Any, int, int, dict[str, Any]], None]]] = {
    "waitress": _waitress,
    "uvicorn": _uvicorn,
}


def serve(front: str, app: Any, *, port: int = 0, threads: int = 8, **options: Any) -> None:
    """Serve ``app`` on the loopback address until SIGTERM, behind the middleware with ``options``."""
    FRONTS[front](app, port, threads, options)
