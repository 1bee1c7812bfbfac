"""``/metrics`` for Prometheus and ``/healthz`` for supervisors of processes, as a WSGI application.

::

    from wsrm_mq.observe import ObserveApp

    inside = ObserveApp(application)  # mount it where only your own people reach it

It does not authenticate: bind it to loopback, or to a network of your own. Metrics need ``wsrm-mq[metrics]``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from wsrm_mq.engine.engine import Engine
from wsrm_mq.errors import StoreError
from wsrm_mq.observe.health import Health

__all__ = ["ObserveApp"]


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
