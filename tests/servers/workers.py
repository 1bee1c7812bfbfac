"""The witness's service for servers that run several processes: ``application``, set up by the environment.

    WITNESS='{"store": …, "service_db": …, "clock": …, "work": 0.0, "options": {}}' gunicorn …workers:application

Each process that serves names itself in the answer's header ``X-Worker``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.servers.clock import shifted_clock
from tests.servers.witness import NAMESPACE, Death, service
from wsrm_mq.wsgi import WSRMMiddleware

_given = json.loads(os.environ["WITNESS"])
_middleware = WSRMMiddleware(
    service(Path(_given["service_db"]), Death(None), _given["work"]),
    _given["store"],
    clock=shifted_clock(Path(_given["clock"])),
    **{"one_way": (f"{NAMESPACE}/put_order",)} | _given["options"],
)


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    def start_with_name(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
        return start_response(status, [*headers, ("X-Worker", str(os.getpid()))], *rest)

    return _middleware(environ, start_with_name)
