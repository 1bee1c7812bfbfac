"""``/metrics`` and ``/healthz`` of ``serve``: on a port of their own, whatever the service's own threads do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from wsrm_mq.cli.exits import Exit, Stopped

SECONDS: Final = 10.0
"""So long a client may take to send its request."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is worth no line."""


@contextmanager
def observed(reliable: Any, host: str, port: int) -> Iterator[str]:
    """Serve them for ``reliable`` meanwhile; gives their address."""
    from wsrm_mq.observe import ObserveApp

    try:
        server = make_server(host, port, ObserveApp(reliable), _Server, _Quiet)
    except OSError as error:
        raise Stopped(f"cannot listen on {host}, port {port}: {error.strerror}.", Exit.FAILED) from error
    threading.Thread(target=server.serve_forever, name="wsrm-mq-observe", daemon=True).start()
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
