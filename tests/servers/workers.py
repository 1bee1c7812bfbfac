"""The witness's service for servers that run several processes: ``application``, set up by the environment.

    WITNESS=… gunicorn …workers:application

Each process that serves names itself in the answer's header ``X-Worker``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from tests.servers.given import given
from wsrm_mq.wsgi import WSRMMiddleware

_service, _options = given()
_middleware = WSRMMiddleware(_service, **_options)


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    def start_with_name(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
        return start_response(status, [*headers, ("X-Worker", str(os.getpid()))], *rest)

    return _middleware(environ, start_with_name)
