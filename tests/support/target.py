"""A service elsewhere that is posted to, and what it got."""

from __future__ import annotations

import gzip
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Target:
    """``answers``: status and body by the number of the request, else 202 without a body."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answers: dict[int, tuple[int, bytes]] = {}
        self.compresses = False
        self.drips = False
        self.lock = threading.Lock()
        self.url = ""
        self.port = 0

    def answer_to(self, number: int, _body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to the request of this number."""
        return self.answers.get(number, (202, b""))

    def arrived(self) -> None:
        """A request has come, and is not answered yet."""

    @property
    def keys(self) -> list[str]:
        return [fields["Wsrm-Mq-Key"] for fields, _body in self.requests]


@contextmanager
def serving(target: Target, host: str = "127.0.0.1", port: int = 0, key: Path | None = None) -> Iterator[Target]:
    """``key``: a file with the certificate and the key of a server with TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
            if len(body) < length:  # its sender has died
                self.close_connection = True
                return
            with target.lock:
                target.requests.append((dict(self.headers), body))
                status, content = target.answer_to(len(target.requests), body)
            target.arrived()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{target.url}/elsewhere")
            self.send_header("Content-Type", "text/xml")
            if target.compresses:
                content = gzip.compress(content)
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with suppress(OSError):  # it hangs up
                for piece in [content[at : at + 1] for at in range(len(content))] if target.drips else [content]:
                    self.wfile.write(piece)
                    time.sleep(0.1 if target.drips else 0)

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer((host, port), Handler)
    if key is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    target.port = server.server_port
    target.url = f"http://{host}:{target.port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield target
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
