"""A wrapped service as a source sees it: the product's middleware, whose requests are tasks instead of threads."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from tests.simulator.oracle import Violation
from tests.simulator.policies import SLOW_CALL, SOURCED
from tests.simulator.process import Process
from tests.simulator.wire import Letter
from wsrm_mq.config.loading import settings_from
from wsrm_mq.delivery.delivery import Delivery, Outcome
from wsrm_mq.destination.coverage import Operations
from wsrm_mq.destination.exchange import Peer
from wsrm_mq.engine import Engine
from wsrm_mq.front import Front
from wsrm_mq.hooks import Hooks
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.wsgi import WSRMMiddleware

PUT, ASK = "urn:example:orders/put", "urn:example:orders/ask"
HOLD_WAIT: Final = 0.5
"""Seconds that a request waits for its message, at most."""
_SETTINGS: Final = settings_from({"store": "services.db", "hold_wait": HOLD_WAIT, "one_way": (PUT,)})
_AT_MOST: Final = round(1000 * (HOLD_WAIT + SLOW_CALL)) + 100
"""Milliseconds: nothing else holds a thread of a server, but for a look or two (I16)."""


class Door(Front):
    """One process's. ``partner``: who is on the other side of it."""

    def __init__(self, process: Process, partner: str) -> None:
        self._process = process
        self._serving = 0
        self._said: tuple[str, list[tuple[str, str]], bytes] = "200 OK", [], b""
        super().__init__(_application, lambda _environ: self._said, _SETTINGS, Hooks())
        policy, operations = SOURCED[partner], Operations(frozenset((PUT,)))
        self._default_peer = Peer(policy, partner, operations=operations)
        self._middleware = WSRMMiddleware.__new__(WSRMMiddleware)
        self._middleware._app, self._middleware._front = _application, self

    def _make_engine(self, hooks: Hooks) -> Engine:
        return self._process  # type: ignore[return-value]

    def _make_description(self, peers: Iterable[Peer]) -> None:
        """It shows no WSDL."""

    @property
    def is_waited_at(self) -> bool:
        """A request waits for its answer."""
        return self._serving > 0

    def answered(self, delivery: Delivery, content_type: str, content: bytes) -> Outcome:
        """What comes of a call that the service has answered so."""
        self._said = "200 OK", [("Content-Type", content_type)], content
        return self.deliver(delivery)

    def answer(self, letter: Letter) -> Answer:
        """In a task of the process. Raises ``Violation`` where a request has held its thread for too long (I16)."""
        begun, process = self._process.tasks.now - self._process.stalled, self._process
        self._serving += 1
        told: list[Any] = []
        content = b"".join(self._middleware(_environ(letter), lambda *status: told.extend(status)))
        self._serving -= 1
        waited = process.tasks.now - process.stalled - begun
        if waited > _AT_MOST:
            raise Violation(f"a request has held its thread for {waited} ms (I16)")
        status, fields = told
        return Answer(int(status[:3]), status[4:], fields, content)


def _environ(letter: Letter) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": urlsplit(letter.url).path,
        "SERVER_NAME": "services.example",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "192.0.2.1",
        "CONTENT_TYPE": letter.headers["Content-Type"],
        "CONTENT_LENGTH": str(len(letter.body)),
        "HTTP_SOAPACTION": letter.headers.get("SOAPAction", ""),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(letter.body),
        "wsgi.multithread": True,
    }


def _application(*_arguments: Any) -> Any:
    raise AssertionError("nothing is passed through")
