"""A bad line in front of a server, for clients that are programs of their own."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, Self

from wsrm_mq.testing import Fate, HTTPAnswer, HTTPWire, Line, LossyWire

__all__ = ["Broken", "EverySecond", "Exchange", "Proxy"]

_ITS_OWN: Final = ("host", "content-length", "transfer-encoding", "date", "server")
"""What each of the two connections says for itself."""


class EverySecond(Line):
    """The first transmission of every second message is lost: of 2, 6, … the request, of 4, 8, … the answer."""

    def fate(self, number: int, transmission: int) -> Fate:
        if number % 2 or transmission > 1:
            return Fate.ARRIVES
        return Fate.REQUEST_LOST if number % 4 else Fate.ANSWER_LOST


class Broken(EverySecond):
    """And every answer to one message is lost, until the line is mended."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number
        self.mended = False

    def fate(self, number: int, transmission: int) -> Fate:
        if number == self._number and not self.mended:
            return Fate.ANSWER_LOST
        return super().fate(number, transmission)


class Exchange(NamedTuple):
    request: bytes
    fields: dict[str, str]
    """Of the request; names in lower case."""
    answer: HTTPAnswer | None
    """``None`` where the line lost it."""


class Proxy:
    """Leads from a port of its own to ``upstream``, over ``line``."""

    def __init__(self, upstream: int, line: Line | None = None) -> None:
        self.upstream = upstream
        self.line = line or Line()
        self.exchanges: list[Exchange] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def pass_on(self, path: str, body: bytes, fields: dict[str, str]) -> HTTPAnswer | None:
        kept = {name: value for name, value in fields.items() if name not in _ITS_OWN}
        answer = None
        try:
            with HTTPWire(self.upstream, path) as wire:
                answer = LossyWire(wire, self.line).post(body, kept)
        except OSError:  # lost, or the server is away
            pass
        self.exchanges.append(Exchange(body, fields, answer))
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                fields = {name.lower(): value for name, value in self.headers.items()}
                answer = proxy.pass_on(self.path, body, fields)
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response_only(answer.status, answer.reason)
                for name, value in answer.fields.items():
                    if name not in _ITS_OWN:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_arguments: Any) -> None:
                pass

        return Handler
