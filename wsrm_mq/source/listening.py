"""The address at which an RM Source is acknowledged and replied to: a WSGI application that takes what is posted there
as the response to a request is taken, and a small server for it.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from urllib.parse import urlsplit

from wsrm_mq.delivery.arriving import Told
from wsrm_mq.delivery.posted import Answered
from wsrm_mq.errors import ConfigurationError, StoreError
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.versions import RMVersion

Listen = str | bool
MAX_MESSAGE: Final = 16 * 1024 * 1024
_AT_A_TIME: Final = 64
"""Connections."""
_ROOM_SECONDS: Final = 1.0
"""The longest that one more waits for another to end."""
_IDLE_SECONDS: Final = 10.0
_MESSAGE_SECONDS: Final = 60.0
_PIECE: Final = 65_536
_LINE: Final = 1_024


def place_of(acks_to: str | None, listen: Listen, *, polls: bool, rm: RMVersion) -> tuple[str, int] | None:
    """Host and port to listen at for ``acks_to``; ``None``: nothing does here. Raises ``ConfigurationError`` for what
    does not go together."""
    if acks_to is None and listen is not True:
        raise ConfigurationError("listen: say acks_to too, the URL by which partners reach it.")
    if polls and acks_to is not None:
        raise ConfigurationError("acks_to, polls: what is sent to an address need not be fetched; say one of them.")
    if polls and rm.make_connection is None:
        raise ConfigurationError(f"polls: WS-ReliableMessaging {rm.label} has no MakeConnection; write rm='1.1'.")
    if acks_to is None:
        return None
    scheme, host, port = _parsed(acks_to)
    if scheme not in ("http", "https") or not host:
        raise ConfigurationError(
            f"acks_to={acks_to!r}: is no address that can be sent to; write http://host:port/path, with the name by "
            "which the partner reaches this machine."
        )
    if listen is False:
        return None
    if listen is not True:
        _scheme, host, port = _parsed(f"//{listen}")
        if not host or not port:
            raise ConfigurationError(f"listen={listen!r}: write a host and a port, as 127.0.0.1:8090.")
        return host, port
    if scheme == "https":
        raise ConfigurationError(
            f"acks_to={acks_to!r}: this side listens without TLS. Have a server with TLS hand on what comes, and say "
            'where to: listen="127.0.0.1:8090"; or have it serve `source.endpoint`, and say listen=False.'
        )
    return host, port or 80


def _parsed(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port
    except ValueError:
        return "", None, None


class Endpoint:
    """The WSGI application at ``acks_to``, wherever it is mounted. ``take`` takes a message, and raises ``StoreError``
    where it is to come again."""

    def __init__(self, acks_to: str, take: Callable[[Answered], Told]) -> None:
        self._path = urlsplit(acks_to).path or "/"
        self._take = take

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        size = environ.get("CONTENT_LENGTH") or (None if environ.get("wsgi.input_terminated") else "0")
        names = (("Content-Type", "CONTENT_TYPE"), ("Content-Encoding", "HTTP_CONTENT_ENCODING"))
        fields = [(name, environ.get(key, "")) for name, key in names]
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        told = self.answer(environ["REQUEST_METHOD"], path, fields, size, environ["wsgi.input"].read)
        lines = [("Content-Type", told.content_type), ("Content-Length", str(len(told.content)))]
        start_response(f"{told.status} {http.client.responses[told.status]}", lines)
        return [told.content]

    def answer(
        self, method: str, path: str, fields: list[tuple[str, str]], size: str | None, read: Callable[[int], bytes]
    ) -> Told:
        """Answer a request. ``size``: its Content-Length; ``None``: ``read`` shows the end."""
        if (path or "/") != self._path:
            return Told(404, b"Nothing is here.\n")
        if method != "POST":
            return Told(405, b"SOAP messages are posted here.\n")
        if size is not None and not size.isdigit():
            return Told(400, b"The Content-Length is no number.\n")
        expected = MAX_MESSAGE + 1 if size is None else int(size)
        content = _read(read, expected) if expected <= MAX_MESSAGE + 1 else b""
        if max(expected if size is not None else 0, len(content)) > MAX_MESSAGE:
            return Told(413, f"No more than {MAX_MESSAGE} bytes are taken.\n".encode())
        if size is not None and len(content) < expected:
            return Told(400, b"The message broke off.\n")
        try:
            return self._take(Answer(200, "OK", fields, content))
        except StoreError as error:
            return Told(503, f"{error}\n".encode())


def _read(read: Callable[[int], bytes], size: int) -> bytes:
    until = time.monotonic() + _MESSAGE_SECONDS
    pieces: list[bytes] = []
    while size and (piece := read(min(size, _PIECE))):
        pieces.append(piece)
        size -= len(piece)
        if time.monotonic() > until:
            raise TimeoutError("the message takes too long")
    return b"".join(pieces)


def _chunk(file: BufferedIOBase, left: list[int], size: int) -> bytes:
    """Read from a body in chunks; ``left``: the bytes that are left of the chunk, empty behind the last one. Raises
    ``ValueError``."""
    if left == [0]:
        left[0] = int(file.readline(_LINE).partition(b";")[0], 16)
        if not left[0]:
            left.clear()
            while file.readline(_LINE).strip():
                continue
    if not left:
        return b""
    piece = file.read(min(size, left[0]))
    left[0] -= len(piece)
    if not left[0]:
        file.readline(_LINE)
    return piece


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    server: Listener

    def do_POST(self) -> None:
        is_in_chunks = self.headers.get("Transfer-Encoding", "").lower() == "chunked"
        size = None if is_in_chunks else self.headers.get("Content-Length", "0")
        read = partial(_chunk, self.rfile, [0]) if is_in_chunks else self.rfile.read
        try:
            told = self.server.endpoint.answer(self.command, urlsplit(self.path).path, self.headers.items(), size, read)
        except ValueError:
            told = Told(400, b"The message is not written as HTTP has it.\n")
        if told.status >= http.client.BAD_REQUEST:
            self.close_connection = True  # it may not be read to its end
        self.send_response(told.status)
        self.send_header("Content-Type", told.content_type)
        self.send_header("Content-Length", str(len(told.content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(told.content)

    do_GET = do_POST

    def log_message(self, *_arguments: object) -> None:
        """Say nothing: what comes is told as an event."""


class Listener(ThreadingMixIn, TCPServer):
    """A server for one endpoint, from its making until ``stop``. Raises ``ConfigurationError`` where it cannot
    listen."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, endpoint: Endpoint, host: str, port: int) -> None:
        self.endpoint = endpoint
        self._room = threading.BoundedSemaphore(_AT_A_TIME)
        try:
            self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            super().__init__((host, port), _Request)
        except OSError as error:
            raise ConfigurationError(
                f"Nothing can listen at {host}:{port}: {error}. Say listen= with a host and port of this machine, to "
                "which what is sent to acks_to is handed on. Where another process of the same store listens already, "
                "or a server of yours serves `source.endpoint`: listen=False."
            ) from error
        self._thread = threading.Thread(target=self.serve_forever, name="wsrm-mq-listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(timeout=_ROOM_SECONDS):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell nothing of a connection that broke off."""
