"""A bad line in front of a server, for clients that are programs of their own."""

from __future__ import annotations

import itertools
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, Self
from urllib.parse import SplitResult, urlsplit

from wsrm_mq.testing import Fate, HTTPAnswer, HTTPWire, Line

_NUMBER: Final = re.compile(rb"MessageNumber>(\d+)<")
_ITS_OWN: Final = ("host", "content-length", "transfer-encoding", "date", "server")
"""What each of the two connections says for itself."""
COPY_SECONDS: Final = 0.5


class Numbered(Line):
    """It is bad for what has a message number: what is a copy, or is sent again, has the same."""

    def number(self, body: bytes) -> int | None:
        """Of the message in ``body``; ``None``: it arrives in any case."""
        found = _NUMBER.search(body)
        return None if found is None else int(found[1])


class EverySecond(Numbered):
    """The first transmission of every second message is lost: of 2, 6, … the request, of 4, 8, … the answer."""

    def fate(self, number: int, transmission: int) -> Fate:
        if number % 2 or transmission > 1:
            return Fate.ARRIVES
        return Fate.REQUEST_LOST if number % 4 else Fate.ANSWER_LOST


class EverySecondAnswer(Numbered):
    """The answer to the first transmission of every second message is lost."""

    def fate(self, number: int, transmission: int) -> Fate:
        return Fate.ARRIVES if number % 2 or transmission > 1 else Fate.ANSWER_LOST


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


class EverySecondRequest(EverySecond):
    """Every second request is lost, or its answer, whatever it is and however often it has come."""

    def __init__(self, duplicates: float = 0.0, *, delay: float = 0.0) -> None:
        super().__init__(duplicates=duplicates, delay=delay)
        self._requests = itertools.count(1)

    def number(self, _body: bytes) -> int:
        return next(self._requests)


class Exchange(NamedTuple):
    request: bytes
    fields: dict[str, str]
    """Of the request; names in lower case."""
    answer: HTTPAnswer | None
    """``None`` where the line lost it."""
    fate: Fate
    """What the line did with it."""


class Proxy:
    """Leads from a port of its own over ``line``: to ``upstream``, or to wherever a client of proxies says.

    What the line delays is kept back on its way there or on its way back, in turn. What it repeats comes once more
    ``COPY_SECONDS`` after the first has been answered, when others have passed it, and nobody reads the answer to that.
    """

    def __init__(self, upstream: int = 0, line: Numbered | None = None, *, patience: float = 0.0) -> None:
        """``patience``: so many seconds it waits for a server that is away, with the request in its hands."""
        self.upstream = upstream
        self._patience = patience
        self.line = line or Numbered()
        self.exchanges: list[Exchange] = []
        self._copies: list[threading.Thread] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

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
        for copy in self._copies:
            copy.join()

    def pass_on(self, path: str, body: bytes, fields: dict[str, str]) -> HTTPAnswer | None:
        kept = {name: value for name, value in fields.items() if name not in _ITS_OWN}
        number = self.line.number(body)
        fate, repeats, seconds = (Fate.ARRIVES, False, 0.0) if number is None else self.line.transmit(number)
        on_the_way_back = seconds if len(self.exchanges) % 2 else 0.0
        time.sleep(seconds - on_the_way_back)
        answer = self._passed(path, body, kept, fate)
        if repeats:
            self._copies.append(threading.Thread(target=self._pass_copy, args=(path, body, kept), daemon=True))
            self._copies[-1].start()
        self.exchanges.append(Exchange(body, fields, answer, fate))
        time.sleep(on_the_way_back)
        return answer

    def _passed(self, path: str, body: bytes, fields: dict[str, str], fate: Fate) -> HTTPAnswer | None:
        try:
            with self._wire(urlsplit(path)) as wire:
                if fate is Fate.REQUEST_LOST:
                    wire.post_half(body, fields)
                    return None
                answer = wire.post(body, fields)
        except OSError:  # the server is away
            return None
        return None if fate is Fate.ANSWER_LOST else answer

    def _wire(self, to: SplitResult) -> HTTPWire:
        end = time.monotonic() + self._patience
        while True:
            try:
                return HTTPWire(to.port or self.upstream, to.path)
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _pass_copy(self, path: str, body: bytes, fields: dict[str, str]) -> None:
        time.sleep(COPY_SECONDS)
        self._passed(path, body, fields, Fate.ARRIVES)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or what waits for the rest of an answer waits 40 ms longer

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
