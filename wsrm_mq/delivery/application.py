"""The wrapped application, called for a stored message: the request is rebuilt from its kept part.

Every delivery is called the same way, first time or replay, so a replay never differs from the first try.
"""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, BinaryIO, Final

from wsrm_mq.delivery import service_reply
from wsrm_mq.delivery.delivery import Call, Delivery, Outcome
from wsrm_mq.delivery.outgoing_messages import REPLY_ENDPOINTS, reply_endpoint, service_message
from wsrm_mq.delivery.service_reply import Raised, raised
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.rewrite import (
    HeaderPlace,
    NotAnEnvelope,
    ServiceFault,
    complete_reply,
    demote,
    excerpt,
    fault_in,
    strip,
)
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import Limits, content_coding, content_type_of, expand
from wsrm_mq.queue.failure import Diagnosis
from wsrm_mq.queue.policy import OnFault, PolicyOf
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.remembered import SMALL
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.sequence.faults import FaultCode
from wsrm_mq.store.sql import storable
from wsrm_mq.store.words import ANSWERED_WITH_FAULT
from wsrm_mq.versions import ADDRESSING_OF_LABEL, SOAP_OF_LABEL

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
WSGIApplication = Callable[[Environ, StartResponse], Iterable[bytes]]
CallApplication = Callable[[Environ], tuple[str, list[tuple[str, str]], bytes]]
"""Calls an application of any kind and answers status line, headers and body."""
Rewrite = Callable[[bytes, Headers], bytes]
"""Takes the header blocks of WS-RM out of an envelope."""

_NOT_FOR_IT: Final = ("HTTP_ACCEPT_ENCODING", REPLY_ENDPOINTS)
"""Parts of a request that the service does not get. Into an answer that is compressed no acknowledgement can be put."""
_REDIRECTION: Final = 300
_CLIENT_ERROR: Final = 400
_SERVER_ERROR: Final = 500
_USUAL_LIMITS: Final = Limits()
_CLIENTS: Final = 1_024
"""The number of clients whose environ is remembered."""
_MAX_REPLY: Final = 256 * 1024 * 1024
_CODE_LENGTH: Final = 200
"""The most characters of a fault's code."""


def _from_json(environ: str) -> Environ:
    return {
        "SCRIPT_NAME": "",
        "PATH_INFO": "/",
        "QUERY_STRING": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
        **{name: value for name, value in json.loads(environ).items() if name not in _NOT_FOR_IT},
        "wsgi.version": (1, 0),
        "wsgi.input_terminated": True,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


class Application:
    """Calls the application for a delivery and answers the outcome. ``headers``: ``pass``, ``demote`` or ``strip``."""

    def __init__(
        self,
        call: CallApplication,
        policy_of: PolicyOf,
        *,
        headers: str = "pass",
        limits: Limits = _USUAL_LIMITS,
        max_reply: int = _MAX_REPLY,
        copied: Collection[str | None] = (),
    ) -> None:
        """``copied``: the partners whose messages are published when the application has taken them; ``None``: those of
        senders without a section."""
        self._copied = copied
        self._limits = limits
        self._max_reply = max_reply
        self._call = call
        self._policy_of = policy_of
        self._environs: dict[str, Environ] = {}
        """The environs that the messages of a client have in common, by the kept request: to be copied."""
        self._rewrite: Rewrite | None = {"pass": None, "demote": demote, "strip": strip}[headers]

    def __call__(self, delivery: Delivery) -> Outcome:
        refused: list[str] = []
        failed: list[object] = []
        known: list[bool] = []
        try:
            kept = self._environs.get(delivery.environ) or self._read(delivery.environ)
            body, size = delivery.body.open(), delivery.body.size
            if self._rewrite is not None:
                body, size = self._rewritten(body.read(), kept, self._rewrite)
            environ = self._environ(delivery, kept, body, size)
            environ["wsrm.refuse"] = refused.append
            environ["wsrm.failed"] = failed.append
            if delivery.source is not None:
                environ["wsrm.known"] = partial(known.append, True)
            status, headers, content = self._call(environ)
            if refused:
                outcome = _failure(f"refused by the application: {refused[0]}", "refused")
            else:
                outcome = self._judge(delivery, status, headers, content)
        except service_reply.UnusableReply as error:
            outcome = _failure(str(error), "http_error")
        except BaseException as error:  # SystemExit too: an application that exits has not taken the message
            failed.clear()
            why = raised(error)
            return Outcome(error=why.text, diagnosis=Diagnosis("exception", None, why.type, why.place))
        if known:
            outcome.is_known = True
        elif outcome.error is None and delivery.partner in self._copied:
            outcome.is_copied = True
        return _explained(outcome, failed) if failed else outcome

    def _read(self, environ: str) -> Environ:
        read = _from_json(environ)
        if len(environ) <= SMALL:
            if len(self._environs) >= _CLIENTS:
                self._environs = {}
            self._environs[environ] = read
        return read

    def _rewritten(self, content: bytes, kept: Mapping[str, str], rewrite: Rewrite) -> tuple[BinaryIO, int]:
        if content_coding(kept.get("HTTP_CONTENT_ENCODING", "")) == "gzip":
            content = expand(content, self._limits).read()
        headers = scan(content, kept.get("CONTENT_TYPE", ""), kept.get("HTTP_SOAPACTION"), self._limits)
        rewritten = rewrite(content, headers)
        return io.BytesIO(rewritten), len(rewritten)

    def _environ(self, delivery: Delivery, kept: Mapping[str, str], body: BinaryIO, size: int) -> Environ:
        identifier, number, replay_id = delivery.source or (delivery.identifier, delivery.number, "")
        environ: Environ = {
            **kept,
            "CONTENT_LENGTH": str(size),
            "wsgi.input": body,
            "wsgi.errors": sys.stderr,
            "wsrm.sequence_id": identifier,
            "wsrm.message_number": number,
            "wsrm.replay_id": replay_id,
            "wsrm.version": delivery.rm,
            "wsrm.redelivery": delivery.redelivery,
            "wsrm.attempt": delivery.attempt,
            "wsrm.late": delivery.late,
            "wsrm.connection": delivery.connection,
            "wsrm.principal": delivery.principal,
        }
        if self._rewrite is not None:
            environ.pop("HTTP_CONTENT_ENCODING", None)  # it was expanded to be rewritten
        if delivery.principal is not None:
            environ["REMOTE_USER"] = delivery.principal
        return environ

    def _judge(self, delivery: Delivery, line: str, fields: list[tuple[str, str]], content: bytes) -> Outcome:
        """Whether the answer means that the application has taken the message (design: application failure)."""
        code, status = service_reply.status_of(line)
        headers: tuple[tuple[str, str], ...] = ()
        if content or delivery.wants_reply:  # else nothing of them is read or sent
            headers, content = service_reply.expanded(service_reply.reply_headers(fields), content, self._max_reply)
        content_type = content_type_of(headers) if content else ""
        if content:
            service_reply.check_is_of_a_service(content, delivery.key.identifier)
        fault = fault_in(content, content_type) if content else None
        if _REDIRECTION <= code < _CLIENT_ERROR:  # a framework's answer, as for a missing slash: the service never ran
            location = next((value for name, value in fields if str(name).lower() == "location"), "elsewhere")
            return _failure(f"answered {status}, to {location}: no SOAP client follows a redirect", "http_error")
        # The answer to a one-way message is read here only: what is no success and no fault has not taken it.
        refused_at = _SERVER_ERROR if delivery.wants_reply else _CLIENT_ERROR
        if fault is None and code >= refused_at:
            return _failure(f"answered {status} without a SOAP fault", "http_error")
        if fault is not None:
            outcome = self._of_fault(delivery, fault, f"answered {status}", content)
            if outcome is not None:
                return outcome
        if not delivery.wants_reply:
            return Outcome()
        place = leaving = None
        if content:
            to = reply_endpoint(delivery.environ, is_fault=fault is not None)
            content, place = _with_addressing(content, content_type, delivery, to, is_fault=fault is not None)
            if to is not None and place is not None:
                leaving = service_message(to, content, content_type, self._limits)
        return Outcome(ServiceReply(status, headers, content, place, outgoing_message=leaving))

    def _of_fault(self, delivery: Delivery, fault: ServiceFault, answered: str, content: bytes) -> Outcome | None:
        """The outcome that a SOAP fault means; ``None``: the fault is the answer that the sender waits for."""
        policy = self._policy_of(delivery.partner)
        code = storable(fault.code, _CODE_LENGTH) if fault.code is not None else None
        told = f"{answered} with a fault: {excerpt(content)}"
        if delivery.wants_reply:
            return _failure(told, "soap_fault", code) if policy.retry_faults else None
        if fault.whose is FaultCode.RECEIVER:
            return _failure(f"{answered} with a Receiver fault: {excerpt(content)}", "soap_fault", code)
        if policy.on_fault is OnFault.DEAD_LETTER:
            return _failure(told, ANSWERED_WITH_FAULT, code)
        return Outcome(remark=storable(told), diagnosis=Diagnosis(ANSWERED_WITH_FAULT, code))


def _with_addressing(
    content: bytes, content_type: str, delivery: Delivery, to: EndpointReference | None, *, is_fault: bool
) -> tuple[bytes, HeaderPlace | None]:
    """The reply with the addressing headers that the application did not write; they are stored with it, so that a
    duplicate gets the same MessageID."""
    addressing = ADDRESSING_OF_LABEL[delivery.addressing]
    action = addressing.soap_fault_action if is_fault else f"{delivery.action or ''}Response"
    try:
        return complete_reply(
            content, content_type, SOAP_OF_LABEL[delivery.soap], addressing, delivery.message_id, action, to
        )
    except NotAnEnvelope:
        return content, None


def call_wsgi(
    app: WSGIApplication, environ: Environ, limit: int = sys.maxsize
) -> tuple[str, list[tuple[str, str]], bytes]:
    """Call a WSGI application and take its whole answer: status line, headers, body. Raises ``UnusableReply`` where
    that is more than ``limit`` bytes."""
    started: list[Any] = []
    written: list[bytes] = []
    size = 0

    def write(piece: bytes) -> None:
        nonlocal size
        size += len(piece)
        service_reply.check_size(size, limit)
        written.append(piece)

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        started[:] = [status, list(headers)]
        return write

    result = app(environ, start_response)
    try:
        for piece in result:
            if piece != b"":
                write(piece)
    finally:
        close = getattr(result, "close", None)
        if close is not None:
            close()
    if not started:
        raise RuntimeError("the application did not call start_response")
    return started[0], started[1], b"".join(written)


def _failure(error: str, kind: str, code: str | None = None) -> Outcome:
    return Outcome(error=storable(error), diagnosis=Diagnosis(kind, code))


def _explained(outcome: Outcome, failed: list[object]) -> Outcome:
    """Add the cause that the application has told to a failure: the first exception, as others may follow from it."""
    error = next((one for one in failed if isinstance(one, BaseException)), None)
    failed.clear()  # its traceback leads to the request, and that leads to it
    if error is not None and (outcome.error is not None or outcome.remark is not None):
        why = raised(error)
        outcome.diagnosis = outcome.diagnosis._replace(exception=why.type, place=why.place)
        outcome.error, outcome.remark = _caused(outcome.error, why), _caused(outcome.remark, why)
    return outcome


def _caused(text: str | None, why: Raised) -> str | None:
    return text and f"{text}; raised {why.text}"


# The application is not forked in the middle of a call.
#
# An application may fork while it is served, and a server's master delivers where no worker lives. Open files of a
# call would be in the child as well, and a SQLite connection of the application's own that is carried over a fork
# breaks its file. So a fork waits for the calls to end, and none begins meanwhile.


class Gate:
    """Calls the application while it is open. ``runs_here`` answers whether this very thread, as that of an event loop,
    runs the calls of other threads: such calls cannot end while it waits."""

    def __init__(self, call: Call, runs_here: Callable[[], bool] = lambda: False) -> None:
        self._call = call
        self._runs_here = runs_here
        self._lock = threading.Lock()
        """Taken as itself: an error thrown into a request's thread could leave a condition's own ``with`` locked."""
        self._changed = threading.Condition(self._lock)
        self._inside: set[int] = set()
        """The threads that are inside a call."""
        self._is_open = True

    def __call__(self, delivery: Delivery) -> Outcome:
        me = threading.get_ident()
        with self._lock:
            while not self._is_open:
                self._changed.wait()
            self._inside.add(me)
        try:
            return self._call(delivery)
        finally:
            with self._lock:
                self._inside.discard(me)
                if not self._is_open:
                    self._changed.notify_all()

    @property
    def is_inside(self) -> bool:
        """Whether the caller is the application, within a call."""
        return threading.get_ident() in self._inside or (bool(self._inside) and self._runs_here())

    def close(self, seconds: float) -> bool:
        """Let no call in, and wait for the calls inside to end, at most ``seconds``; not for one of this thread, where
        it is the application itself that forks, nor for calls that this thread has to run. Answers whether all have
        ended."""
        me = threading.get_ident()
        with self._lock:
            self._is_open = False
            return self._changed.wait_for(lambda: not self._inside - {me}, 0 if self._runs_here() else seconds)

    def open(self) -> None:
        with self._lock:
            self._is_open = True
            self._changed.notify_all()
