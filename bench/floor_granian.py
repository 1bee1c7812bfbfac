"""The floor behind threads: each request waits for a writer thread, which commits what has come meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from bench.applications import Environ
from bench.floor import CONTENT_TYPE, LINGER_SECONDS, Arrival, Floor, acknowledgement, arrival

__all__ = ["WSGIFloor"]

_KEPT: Final = frozenset(
    {"REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "CONTENT_TYPE", "SERVER_NAME", "SERVER_PORT"}
    | {"SERVER_PROTOCOL", "REMOTE_ADDR", "wsgi.url_scheme", "HTTP_HOST", "HTTP_USER_AGENT", "HTTP_SOAPACTION"}
)


class WSGIFloor:
    """A WSGI application: ``app``, another one, is called for every message that is stored at ``path``."""

    def __init__(self, app: Any, path: Path) -> None:
        self.floor = Floor(app, path)
        self._writing = threading.Lock()
        self._arrived: SimpleQueue[tuple[Arrival, threading.Lock]] = SimpleQueue()
        threading.Thread(target=self._write, daemon=True).start()

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        items = tuple([item for item in environ.items() if item[0] in _KEPT])
        found = arrival(environ["wsgi.input"].read(), items, None)
        if found is None:
            with self._writing:
                answer = self.floor.create(environ["PATH_INFO"])
        else:
            committed = threading.Lock()
            committed.acquire()
            self._arrived.put((found, committed))
            committed.acquire()
            answer = acknowledgement(found.identifier, found.number)
        start_response("200 OK", [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(answer)))])
        return [answer]

    def _write(self) -> None:
        unsettled = 0
        while True:
            together = self._come(LINGER_SECONDS if unsettled else None)
            with self._writing:
                unsettled += len(together) - self.floor.commit([one for one, _ in together])
            for _, committed in together:
                committed.release()

    def _come(self, timeout: float | None) -> list[tuple[Arrival, threading.Lock]]:
        """All that has come; waits for the first, at most ``timeout`` seconds."""
        come = []
        try:
            come.append(self._arrived.get(timeout=timeout))
            while True:
                come.append(self._arrived.get_nowait())
        except Empty:
            return come
