"""``/metrics`` for Prometheus and ``/healthz`` for supervisors of processes, as a WSGI application.

::

    from wsrm_mq.observe import ObserveApp

    inside = ObserveApp(application)  # mount it where only your own people reach it

It does not authenticate: bind it to loopback, or to a network of your own. Metrics need ``wsrm-mq[metrics]``.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from wsrm_mq.engine import Engine
from wsrm_mq.errors import StoreError

__all__ = ["ObserveApp"]


# The health of this process, for ``/healthz``.

WRITE_SECONDS: Final = 2.0
"""The longest time of a transaction on a store that can be written."""
WATCH_SECONDS: Final = 15.0
"""The watch looks once a second; one that has not for so long hangs."""


class Check(NamedTuple):
    """The result of a check. ``detail`` tells the operator the problem, and holds nothing that a stranger may not
    know."""

    is_ok: bool
    detail: str = ""


class Health:
    """Looks at an engine. However often it is asked, one probe at a time waits for the writer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._probe: tuple[float, Future[None]] | None = None
        """When it was begun, and a transaction that does nothing: it proves that the writer lives and gets the write
        lock."""
        self._pid = os.getpid()

    def look(self) -> dict[str, Check]:
        if not self._engine.is_running:
            return {"engine": Check(False, "not started yet, or stopping")}
        if self._pid != os.getpid():  # a fork may have left the lock as it was
            self._lock, self._probe, self._pid = threading.Lock(), None, os.getpid()
        engine, idle = self._engine, time.monotonic() - self._engine.watch.turned_at
        return {
            "engine": Check(True),
            "writer": _check(engine.store.writer.is_alive, "its thread has ended"),
            "store": self._store(),
            "watch": _check(idle < WATCH_SECONDS, f"it has not looked for {idle:.0f} s"),
            "disk": _check(not engine.store.is_disk_full, "the disk is full: free some space"),
        }

    def _store(self) -> Check:
        with self._lock:
            begun, probe = self._probe or (time.monotonic(), Future())
            try:
                if self._probe is None:
                    self._probe = begun, probe
                    self._engine.store.submit(lambda _tx: None, partial(_finish, probe))
                error = probe.exception(max(0.0, begun + WRITE_SECONDS - time.monotonic()))
            except TimeoutError:
                return Check(False, f"a transaction has waited for {time.monotonic() - begun:.0f} s")
            except StoreError as refused:
                error = refused
            self._probe = None
        return Check(True) if error is None else _failed(error)


def _check(is_ok: bool, trouble: str) -> Check:
    return Check(is_ok, "" if is_ok else trouble)


def _finish(probe: Future[None], _result: None, error: BaseException | None) -> None:
    probe.set_result(None) if error is None else probe.set_exception(error)


def _failed(error: BaseException) -> Check:
    """Without the error's text, which has the path of the store."""
    return Check(False, type(error).__name__)


class Reliable(Protocol):
    """A front of ours."""

    @property
    def engine(self) -> Engine: ...


class _Page(NamedTuple):
    status: str
    content: bytes
    content_type: str = "text/plain; charset=utf-8"


_NOT_FOUND: Final = _Page("404 Not Found", b"There is /metrics and /healthz.\n")
_NOT_ALLOWED: Final = _Page("405 Method Not Allowed", b"Only GET and HEAD.\n")
_NO_METRICS: Final = _Page("501 Not Implemented", b"Metrics need prometheus-client: pip install 'wsrm-mq[metrics]'.\n")


class ObserveApp:
    """Answers ``/metrics`` and ``/healthz`` for ``reliable``, a ``WSRMMiddleware``."""

    def __init__(self, reliable: Reliable) -> None:
        self._engine = reliable.engine
        self._health = Health(self._engine)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method = environ.get("REQUEST_METHOD")
        page = self._page(environ) if method in ("GET", "HEAD") else _NOT_ALLOWED
        headers = [
            ("Content-Type", page.content_type),
            ("Content-Length", str(len(page.content))),
            ("Cache-Control", "no-store"),
        ]
        start_response(page.status, headers)
        return [b"" if method == "HEAD" else page.content]

    def _page(self, environ: dict[str, Any]) -> _Page:
        match environ.get("PATH_INFO", ""):
            case "/metrics":
                return self._metrics(environ.get("HTTP_ACCEPT", ""))
            case "/healthz":
                return self._healthz()
        return _NOT_FOUND

    def _metrics(self, accept: str) -> _Page:
        try:
            from prometheus_client import CollectorRegistry
            from prometheus_client.exposition import choose_encoder

            from wsrm_mq.observe.metrics import StoreCollector
        except ModuleNotFoundError:
            return _NO_METRICS
        if not self._engine.is_running:
            return _Page("503 Service Unavailable", b"The service is not started yet, or stopping.\n")
        registry = CollectorRegistry(auto_describe=False)
        registry.register(StoreCollector(self._engine.store.reader, self._engine.store.clock))
        encode, content_type = choose_encoder(accept)
        try:
            return _Page("200 OK", encode(registry), content_type)
        except StoreError as error:
            return _Page("503 Service Unavailable", f"The store cannot be read: {type(error).__name__}.\n".encode())

    def _healthz(self) -> _Page:
        checks = self._health.look()
        is_ok = all(check.is_ok for check in checks.values())
        document = {
            "status": "ok" if is_ok else "failing",
            "checks": {
                name: {"ok": check.is_ok, **({"detail": check.detail} if check.detail else {})}
                for name, check in checks.items()
            },
        }
        status = "200 OK" if is_ok else "503 Service Unavailable"
        return _Page(status, json.dumps(document).encode() + b"\n", "application/json")
