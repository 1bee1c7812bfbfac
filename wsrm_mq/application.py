"""The wrapped application, called for a stored message: the request is rebuilt from what was kept of it.

Every delivery is called the same way, first time or replay, so a replay can never differ from the first try.
"""

from __future__ import annotations

import io
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, BinaryIO, Final

from wsrm_mq.envelope import HeaderPlace, Limits, NotAnEnvelope, complete_reply, demote, expand, is_fault, scan, strip
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.queue.settle import Reply
from wsrm_mq.remembered import remembered, size_of_values
from wsrm_mq.replay.delivery import Delivery, Outcome
from wsrm_mq.sequence.faults import FaultCode
from wsrm_mq.tracing import RECEIVED_IN
from wsrm_mq.versions import WSA_2004, WSA_2005, SOAPVersion

__all__ = ["Application", "CallApplication", "Environ", "StartResponse", "WSGIApplication", "call_wsgi", "capture"]

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
WSGIApplication = Callable[[Environ, StartResponse], Iterable[bytes]]
CallApplication = Callable[[Environ], tuple[str, list[tuple[str, str]], bytes]]
"""Calls an application of whatever kind and answers status line, headers and body."""

_KEPT: Final = {
    "REQUEST_METHOD",
    "SCRIPT_NAME",
    "PATH_INFO",
    "QUERY_STRING",
    "CONTENT_TYPE",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "REMOTE_ADDR",
    "wsgi.url_scheme",
    RECEIVED_IN,
}
_NEVER_KEPT: Final = frozenset(
    {"HTTP_AUTHORIZATION", "HTTP_PROXY_AUTHORIZATION", "HTTP_COOKIE", "HTTP_CONNECTION", "HTTP_TRANSFER_ENCODING"}
)
_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_CLIENT_ERROR: Final = 400
_SERVER_ERROR: Final = 500
_USUAL_LIMITS: Final = Limits()
_CLIENTS: Final = 1_024
"""Whose environ is remembered."""
_NAMES: Final = 512
_TAG: Final = re.compile(r"<[^>]*>")
_SOAP = {version.label: version for version in SOAPVersion}
_ADDRESSING = {version.label: version for version in (WSA_2004, WSA_2005)}


def capture(environ: Environ) -> str:
    """The part of a request that a replay needs, as JSON: never Authorization or Cookie."""
    return _as_json(tuple([item for item in environ.items() if _keeps(item[0])]))


@lru_cache(_NAMES)
def _keeps(name: str) -> bool:
    return name in _KEPT or (name.startswith("HTTP_") and name not in _NEVER_KEPT)


@remembered(_CLIENTS, size_of_values)
def _as_json(items: tuple[tuple[str, str], ...]) -> str:
    """A client's requests are alike: most are written, and read again, once."""
    return json.dumps(dict(items), separators=(",", ":"))


@remembered(_CLIENTS, len)
def _from_json(environ: str) -> dict[str, Any]:
    """The environ of a client's messages, as far as they are alike: to be copied."""
    return {
        "SCRIPT_NAME": "",
        "PATH_INFO": "/",
        "QUERY_STRING": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
        **json.loads(environ),
        "wsgi.version": (1, 0),
        "wsgi.input_terminated": True,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsrm.replay_id": "",
    }


class Application:
    """Has the application called for a delivery and says what came of it. ``headers``: ``pass``, ``demote`` or
    ``strip``."""

    def __init__(
        self,
        call: CallApplication,
        policy_of: PolicyOf,
        *,
        headers: str = "pass",
        limits: Limits = _USUAL_LIMITS,
    ) -> None:
        self._limits = limits
        self._call = call
        self._policy_of = policy_of
        self._rewrite = {"pass": None, "demote": demote, "strip": strip}[headers]

    def __call__(self, delivery: Delivery) -> Outcome:
        kept = _from_json(delivery.environ)
        refused: list[str] = []
        try:
            body, size = self._body(delivery, kept)
            environ = self._environ(delivery, kept, body, size, refused)
            status, headers, content = self._call(environ)
            if refused:
                return Outcome(error=f"refused by the application: {refused[0]}", fault="refused")
            return self._judge(delivery, status, headers, content)
        except BaseException as error:  # SystemExit too: an application that exits has not taken the message
            return Outcome(error=_told(error), fault="exception")

    def _body(self, delivery: Delivery, kept: Mapping[str, str]) -> tuple[BinaryIO, int]:
        if self._rewrite is None:
            return delivery.body.open(), delivery.body.size
        content_type = kept.get("CONTENT_TYPE", "")
        content = delivery.body.open().read()
        if kept.get("HTTP_CONTENT_ENCODING", "").strip().lower() == "gzip":
            content = expand(content, self._limits).read()
        rewritten = self._rewrite(content, scan(content, content_type, kept.get("HTTP_SOAPACTION"), self._limits))
        return io.BytesIO(rewritten), len(rewritten)

    def _environ(
        self,
        delivery: Delivery,
        kept: Mapping[str, str],
        body: BinaryIO,
        size: int,
        refused: list[str],
    ) -> Environ:
        environ: Environ = {
            **kept,
            "CONTENT_LENGTH": str(size),
            "wsgi.input": body,
            "wsgi.errors": sys.stderr,
            "wsrm.sequence_id": delivery.identifier,
            "wsrm.message_number": delivery.number,
            "wsrm.version": delivery.rm,
            "wsrm.redelivery": delivery.redelivery,
            "wsrm.attempt": delivery.attempt,
            "wsrm.connection": delivery.connection,
            "wsrm.principal": delivery.principal,
            "wsrm.refuse": refused.append,
        }
        if self._rewrite is not None:
            environ.pop("HTTP_CONTENT_ENCODING", None)  # it was expanded to be rewritten
        if delivery.principal is not None:
            environ["REMOTE_USER"] = delivery.principal
        return environ

    def _judge(
        self,
        delivery: Delivery,
        status: str,
        headers: list[tuple[str, str]],
        content: bytes,
    ) -> Outcome:
        """Whether the answer means that the application has taken the message (design: application failure)."""
        content_type = next((value for name, value in headers if name.lower() == "content-type"), "") if content else ""
        fault = is_fault(content, content_type) if content else None
        # Of a one-way message nobody reads the answer: whatever is no success and no fault has not taken it.
        refused_at = _SERVER_ERROR if delivery.wants_reply else _CLIENT_ERROR
        if fault is None and int(status.split(" ", 1)[0]) >= refused_at:
            return Outcome(error=f"answered {status} without a SOAP fault", fault="http_error")
        if fault is FaultCode.RECEIVER and not delivery.wants_reply:
            return Outcome(error=f"answered {status} with a Receiver fault: {_excerpt(content)}", fault="soap_fault")
        if fault is not None and delivery.wants_reply and self._policy_of(delivery.partner).retry_faults:
            return Outcome(error=f"answered {status} with a fault: {_excerpt(content)}", fault="soap_fault")
        if not delivery.wants_reply:
            return Outcome(remark=f"answered {status} with a fault: {_excerpt(content)}" if fault is not None else None)
        place = None
        if content:
            content, place = _with_addressing(content, content_type, delivery, is_fault=fault is not None)
        headers = [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP]
        return Outcome(Reply(status, tuple(headers), content, place))


def _with_addressing(
    content: bytes, content_type: str, delivery: Delivery, *, is_fault: bool
) -> tuple[bytes, HeaderPlace | None]:
    """The reply with the addressing headers that the application did not write; they are stored with it, so that a
    duplicate gets the same MessageID."""
    addressing = _ADDRESSING[delivery.addressing]
    action = addressing.soap_fault_action if is_fault else f"{delivery.action or ''}Response"
    try:
        return complete_reply(content, content_type, _SOAP[delivery.soap], addressing, delivery.message_id, action)
    except NotAnEnvelope:
        return content, None


def call_wsgi(app: WSGIApplication, environ: Environ) -> tuple[str, list[tuple[str, str]], bytes]:
    """Call a WSGI application and take its whole answer: status line, headers, body."""
    started: list[Any] = []
    written: list[bytes] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        started[:] = [status, list(headers)]
        return written.append

    result = app(environ, start_response)
    try:
        written.extend(result)
    finally:
        close = getattr(result, "close", None)
        if close is not None:
            close()
    if not started:
        raise RuntimeError("the application did not call start_response")
    return started[0], started[1], b"".join(written)


def _told(error: BaseException) -> str:
    """The last lines of a traceback: enough to find the place, little enough for a column."""
    lines = traceback.format_exception(error, limit=-3)
    return f"{type(error).__name__}: {error}\n" + "".join(lines)[-2_000:]


def _excerpt(content: bytes) -> str:
    """What a fault says to people: its text without the tags."""
    return " ".join(_TAG.sub(" ", content[:4_000].decode("utf-8", "replace")).split())[:500]
