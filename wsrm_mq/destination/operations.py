"""The operations of the service that answer nothing: those that the configuration names, or those that the service's
own WSDL shows."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from wsrm_mq.delivery.application import CallApplication, Environ
from wsrm_mq.delivery.service_reply import expanded, status_of
from wsrm_mq.destination.coverage import LARGEST, question
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.remembered import Recent

_PATHS: Final = 64
_ANSWER_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 60.0
_OF_THE_MESSAGE: Final = frozenset(
    ("CONTENT_LENGTH", "CONTENT_TYPE", "HTTP_CONTENT_ENCODING", "HTTP_SOAPACTION", "HTTP_TRANSFER_ENCODING")
)
"""Headers of a message that a question for the WSDL has not."""


_OF_A_START: Final = {
    "SERVER_NAME": "localhost",
    "SERVER_PORT": "80",
    "HTTP_HOST": "localhost",
    "REMOTE_ADDR": "127.0.0.1",
    "wsgi.url_scheme": "http",
}
"""The environ of a question that no sender has caused."""


@dataclass(frozen=True, slots=True)
class Operations:
    """Named by action, by Body element as ``{namespace}local``, or by its local name."""

    one_way: frozenset[str] = frozenset()
    answering: frozenset[str] | None = None
    """The operations that are known to answer. ``None``: all others."""
    has_replies: bool = True
    """Some may answer."""
    pass_as_before: bool = False
    """Whether clients hold an earlier description, in which these operations have an output: without WS-RM they get the
    answers of then."""

    def is_one_way(self, headers: Headers) -> bool:
        return not self.one_way.isdisjoint(_names(headers))

    def is_unknown(self, headers: Headers) -> bool:
        return self.answering is not None and (self.one_way | self.answering).isdisjoint(_names(headers))


_NOTHING_IS_KNOWN: Final = Operations(answering=frozenset())


class OwnDescription:
    """The service's own ``?wsdl``, read for its operations where no option and no file names them: at a start where the
    path is known then, else at the first request to it. A path that gives none is asked again a minute later. ``call``
    calls the application; ``tell`` is told a path that gives none, once."""

    def __init__(
        self,
        call: CallApplication,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], object] = lambda _path: None,
    ) -> None:
        self._call = call
        self._clock = clock
        self._tell = tell
        self._told: Recent[str, bool] = Recent(_PATHS)
        self._read: Recent[str, Operations] = Recent(_PATHS)
        self._failed: Recent[str, float] = Recent(_PATHS)
        self._hung_at: float | None = None
        self._lock = threading.Lock()

    def of(self, path: str) -> Operations:
        return self._read.get(path) or _NOTHING_IS_KNOWN

    def is_due(self, path: str) -> bool:
        if self._read.get(path) is not None:
            return False
        failures = (self._failed.get(path), self._hung_at)
        return all(at is None or self._clock() - at >= _AGAIN_SECONDS for at in failures)

    def read(self, path: str, environ: Environ) -> bool:
        """Ask, if it is due, as the sender of ``environ`` would; for a few seconds at most. Answers whether something
        was learned. To be called in a thread that may wait."""
        if not self.is_due(path):
            return False
        with self._lock:
            if not self.is_due(path):
                return False
            found: list[Operations | None] = []
            asking = threading.Thread(
                target=lambda: found.append(self._answer(environ)), name="wsrm-mq-wsdl", daemon=True
            )
            asking.start()
            asking.join(_ANSWER_SECONDS)
            if not found:
                self._hung_at = self._clock()  # nobody waits for it meanwhile, whatever path he names
            elif found[0] is None:
                self._failed.keep(path, self._clock())
            else:
                self._read.keep(path, found[0])
                return True
            if not self._told.get(path):
                self._told.keep(path, True)
                self._tell(path)
            return False

    def read_at_start(self, paths: Iterable[str]) -> None:
        """``read`` these. The service may give it only to a sender that it knows: the first request may ask again."""
        for path in paths:
            self.read(path, {"PATH_INFO": path, **_OF_A_START})
        self._failed = Recent(_PATHS)

    def _answer(self, environ: Environ) -> Operations | None:
        from wsrm_mq.envelope.wsdl import operations_in  # lxml, which few need

        try:
            line, headers, content = self._call(_asked(environ))
            if status_of(line)[0] != 200:
                return None
            document = expanded(tuple(headers), content, LARGEST)[1]
            return Operations(*operations_in(document)) if len(document) <= LARGEST else None
        except (Exception, SystemExit):  # an application that does not look at the method may answer anything
            return None


def _asked(environ: Environ) -> Environ:
    """The question for its WSDL, from where a message of ``environ`` came."""
    of_request = {name: value for name, value in environ.items() if name not in _OF_THE_MESSAGE}
    return question(
        {
            "SCRIPT_NAME": "",
            "SERVER_PROTOCOL": "HTTP/1.1",
            **of_request,
            "QUERY_STRING": "wsdl",
            "CONTENT_LENGTH": "0",
            "wsgi.version": (1, 0),
            "wsgi.input": io.BytesIO(),
            "wsgi.input_terminated": True,
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
        }
    )


def _names(headers: Headers) -> set[str | None]:
    if headers.body_name is None:
        return {headers.action}
    namespace, local = headers.body_name
    return {headers.action, f"{{{namespace}}}{local}", local}
