"""The requests that are the middleware's business, by path, method and media type; those that ask for the WSDL; and the
answers to those that the application must not get, because it could take them for messages."""

from __future__ import annotations

import enum
import io
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from wsrm_mq.delivery.application import CallApplication, Environ
from wsrm_mq.delivery.service_reply import expanded, status_of
from wsrm_mq.destination.answers import Answer, plain
from wsrm_mq.destination.request_body import told_length
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.remembered import Recent
from wsrm_mq.versions import RM_OF_NAMESPACE

DISGUISED_BYTES: Final = 64 * 1024
LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a document that is read; a tree of it takes several times as much."""
UNASKED: Final = frozenset(
    ("accept-encoding", "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "range")
)
"""Fields of a request by which the application would answer with less than its document."""
_CGI_UNASKED: Final = tuple(f"HTTP_{name.upper().replace('-', '_')}" for name in UNASKED)
_RM_NAMESPACES: Final = tuple(namespace.encode() for namespace in RM_OF_NAMESPACE)
_SOAP_TYPES: Final = ("text/xml", "application/soap+xml", "multipart/related", "application/xop+xml")
_JSON: Final = (b"{", b"[", b'"')
"""How JSON begins, and XML or MIME does not."""
_BODILESS: Final = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))
"""Methods that carry no message, unless they carry a body all the same."""


_ACCEPT: Final = ("Accept", ", ".join(_SOAP_TYPES))
NOT_SOAP: Final = plain(415, "Send SOAP here, as text/xml (SOAP 1.1) or application/soap+xml (SOAP 1.2).", _ACCEPT)
_WCF_BINARY: Final = plain(
    415, "This is the binary encoding of WCF. Set messageEncoding to Text (or Mtom) in the client's binding.", _ACCEPT
)
_FAST_INFOSET: Final = plain(
    415, "This is Fast Infoset. Turn it off in the client: send text/xml or application/soap+xml.", _ACCEPT
)
_BINARY: Final = {
    "application/soap+msbin1": _WCF_BINARY,
    "application/soap+msbinsession1": _WCF_BINARY,
    "application/soap+fastinfoset": _FAST_INFOSET,
    "application/fastinfoset": _FAST_INFOSET,
}
_NOT_POST: Final = plain(405, "Send SOAP here with POST.", ("Allow", "POST"))


class Business(enum.Enum):
    """The side whose business a request is."""

    OURS = enum.auto()
    """SOAP, posted to a covered path."""
    DOUBTFUL = enum.auto()
    """The application's, unless it carries RM (see ``is_disguised``), or only RM is taken of its sender."""
    THE_APPLICATIONS = enum.auto()


class Coverage:
    """The covered paths. ``paths`` cover themselves and all paths below them; none cover everything. ``only_soap``: the
    application takes nothing else."""

    def __init__(self, paths: Sequence[str] | None, *, only_soap: bool) -> None:
        self._paths = tuple(paths or ())
        self._takes_only_soap = only_soap or bool(paths)

    def business(self, environ: Environ) -> Business | Answer:
        """Decide whose business the request is, or answer it to turn it away: an application that does not look at
        method and media type would run a message as often as it is sent."""
        if self._paths and not self._covers(path_of(environ)):
            return Business.THE_APPLICATIONS
        media_type = str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower()
        if environ.get("REQUEST_METHOD") == "POST":
            if media_type in _SOAP_TYPES:
                return Business.OURS
            if media_type in _BINARY:
                return _BINARY[media_type]
            return NOT_SOAP if self._takes_only_soap else Business.DOUBTFUL
        if environ.get("REQUEST_METHOD") in _BODILESS and not _has_body(environ):
            return Business.THE_APPLICATIONS
        is_soap = media_type in _SOAP_TYPES or media_type in _BINARY
        return not_rm(environ) if is_soap and _has_body(environ) else Business.DOUBTFUL

    def describes(self, environ: Environ) -> bool:
        """Whether a WSDL at this address belongs to a covered path: ``/soap.wsdl`` belongs to ``/soap``."""
        path = path_of(environ)
        return not self._paths or self._covers(path) or self._covers(path.removesuffix(".wsdl"))

    def _covers(self, path: str) -> bool:
        return any(path == covered or path.startswith(covered.rstrip("/") + "/") for covered in self._paths)


def not_rm(environ: Environ) -> Answer:
    """The answer to a request that would have to be RM, posted as SOAP."""
    method = environ.get("REQUEST_METHOD")
    if method == "POST":
        return NOT_SOAP
    return _NOT_POST._replace(body=b"") if method == "HEAD" else _NOT_POST


def _has_body(environ: Environ) -> bool:
    return environ.get("CONTENT_LENGTH") not in (None, "", "0") or "HTTP_TRANSFER_ENCODING" in environ


def is_disguised(environ: Environ) -> bool:
    """Whether a doubtful request carries RM all the same. Only short bodies are looked at; they can be read again."""
    if not may_be_disguised(environ):
        return False
    content = environ["wsgi.input"].read(told_length(environ))
    environ["wsgi.input"] = io.BytesIO(content)
    return carries_rm(content)


def may_be_disguised(environ: Environ) -> bool:
    """Whether a body is small enough to be read for RM that its Content-Type does not show."""
    length = told_length(environ)
    return length is not None and 0 < length <= DISGUISED_BYTES


def carries_rm(content: bytes) -> bool:
    """Whether it could be a message of WS-ReliableMessaging. JSON that mentions the namespace is none."""
    return content.lstrip()[:1] not in _JSON and any(namespace in content for namespace in _RM_NAMESPACES)


def path_of(environ: Environ) -> str:
    """The whole path of a request, mount point included: it names a queue."""
    return f"{environ.get('SCRIPT_NAME', '')}{environ.get('PATH_INFO', '')}" or "/"


def asks_for_wsdl(environ: Environ) -> bool:
    if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
        return False
    query = str(environ.get("QUERY_STRING", "")).lower()
    return query.split("&")[0].split("=")[0] == "wsdl" or str(environ.get("PATH_INFO", "")).endswith(".wsdl")


def question(environ: Environ) -> Environ:
    """The request that the application gets in place of ``environ``, which asks for a WSDL."""
    asked = {**environ, "REQUEST_METHOD": "GET"}
    for name in _CGI_UNASKED:
        asked.pop(name, None)
    return asked


# The operations of the service that answer nothing: those that the configuration names, or those that the service's
# own WSDL shows.

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
    """Whether there are operations that may answer."""
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
                self._hung_at = self._clock()  # no request waits for it meanwhile, whatever its path
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
