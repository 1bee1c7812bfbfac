"""WSRMMiddleware: one line around any WSGI SOAP service makes it reliable."""

from __future__ import annotations

import io
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from wsrm_mq.application import Application, Environ, StartResponse, WSGIApplication, call_wsgi, capture
from wsrm_mq.config import Settings, load, named_operations, settings_from
from wsrm_mq.connections import Connections
from wsrm_mq.contrib import spyne_compat
from wsrm_mq.destination import (
    Answer,
    Commit,
    Forward,
    Peer,
    Request,
    RMDestination,
    Run,
    Wait,
    reply_headers,
    unavailable,
)
from wsrm_mq.engine import Engine
from wsrm_mq.envelope import Headers, Limits
from wsrm_mq.envelope.wsdl import without_outputs
from wsrm_mq.errors import NotAuthenticated, StoreError
from wsrm_mq.queue.accept import Body, Created, Receipt
from wsrm_mq.queue.answers import settlement
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.replay.dispatcher import OnEvent
from wsrm_mq.request_body import BodyRefused, read_body
from wsrm_mq.store.writer import Clock, wall_clock
from wsrm_mq.versions import RM_VERSIONS

__all__ = ["WSRMMiddleware"]

log = logging.getLogger("wsrm_mq.wsgi")

Authenticate = Callable[[Environ, Headers], str | None]

_DISGUISED_BYTES: Final = 64 * 1024
_RM_NAMESPACES: Final = tuple(namespace.encode() for namespace in RM_VERSIONS)
_SOAP_TYPES: Final = ("text/xml", "application/soap+xml", "multipart/related", "application/xop+xml")
NOT_SOAP: Final = Answer(
    415,
    b"Send SOAP here, as text/xml (SOAP 1.1) or application/soap+xml (SOAP 1.2).\n",
    "text/plain; charset=utf-8",
    (("Accept", ", ".join(_SOAP_TYPES)),),
)


class WSRMMiddleware:
    """A WSGI application that speaks WS-ReliableMessaging for ``app``.

    ::

        application = WSRMMiddleware(spyne_wsgi_app, store="orders.db")

    Every keyword is an option of ``wsrm_mq.config.Settings``, in its units (seconds, bytes). Beside them:

    ``authenticate(environ, headers) -> principal``
        runs before anything is stored; raises ``NotAuthenticated`` to turn a request away. Default: the TLS
        client's name, else REMOTE_USER.
    ``connection_key(environ) -> str``
        names the connection a request came on.
    ``on_event(event)``
        hears of what an operator should know; must not block.
    ``start=False``
        waits with store and dispatcher for ``start()`` or the first request.

    Constructing it opens the store (``StoreError`` if it cannot be) and delivers what a crash left undelivered.
    """

    def __init__(
        self,
        app: WSGIApplication,
        store: str | os.PathLike[str] = "wsrm.db",
        *,
        authenticate: Authenticate | None = None,
        connection_key: Callable[[Environ], str | None] | None = None,
        on_event: OnEvent | None = None,
        start: bool = True,
        clock: Clock = wall_clock,
        **options: Any,
    ) -> None:
        self._set_up(
            app,
            settings_from({**options, "store": os.fspath(store)}),
            authenticate=authenticate,
            connection_key=connection_key,
            on_event=on_event,
            start=start,
            clock=clock,
        )

    @classmethod
    def from_settings(cls, app: WSGIApplication, settings: Settings, **hooks: Any) -> WSRMMiddleware:
        """Wrap ``app`` with options that are loaded already; ``hooks`` are the keywords that no file can hold."""
        middleware = cls.__new__(cls)
        middleware._set_up(app, settings, **hooks)
        return middleware

    @classmethod
    def from_config(cls, app: WSGIApplication, path: str | os.PathLike[str], **hooks: Any) -> WSRMMiddleware:
        """Wrap ``app`` with the options of a ``wsrm-mq.toml`` and the environment."""
        return cls.from_settings(app, load(Path(path), os.environ), **hooks)

    def _set_up(
        self,
        app: WSGIApplication,
        settings: Settings,
        *,
        authenticate: Authenticate | None = None,
        connection_key: Callable[[Environ], str | None] | None = None,
        on_event: OnEvent | None = None,
        start: bool = True,
        clock: Clock = wall_clock,
    ) -> None:
        self._app = app
        self._settings = settings
        self._authenticate = authenticate or _authenticated
        one_way, understood = _described(app, settings)
        self._one_way = one_way
        self._only_soap = spyne_compat.speaks_soap(app)
        self._limits = Limits(
            header_bytes=settings.max_header,
            body_bytes=settings.max_body,
            strict_addressing=settings.strict_addressing,
        )
        self._destination = RMDestination(
            one_way=one_way, understood=understood, limits=self._limits, verify_body=settings.verify_body
        )
        self._default_peer = Peer(settings.policy(None), require_rm=settings.require_rm)
        self._peers = {
            name: Peer(
                settings.policy(partner),
                name,
                one_way_answer=partner.one_way_answer,
                require_rm=settings.effective("require_rm", partner),
            )
            for name, partner in settings.partners.items()
        }
        self._connections = Connections(
            connection_key=connection_key,
            header=settings.connection_header,
            trusted_proxies=settings.trusted_proxies,
        )
        self._engine = Engine(
            settings.store,
            Application(app, self._policy_of, headers=settings.headers, limits=self._limits),
            self._policy_of,
            threads=settings.dispatch_threads,
            max_waiting=settings.max_waiting,
            on_event=on_event,
            clock=clock,
        )
        self._closed = False
        if start:
            self.start()

    # life

    def start(self) -> None:
        """Open the store and begin to deliver; does nothing where that is done."""
        if not self._engine.is_running:
            self._engine.start()
            self._closed = False

    def stop_waiting(self) -> None:
        """The end is near: answer the requests that wait for a message, and let none wait from now on."""
        self._closed = True

    def close(self, timeout: float | None = None) -> bool:
        """Finish what runs, give every sequence back, close the store. Answers whether all finished in ``timeout``
        seconds."""
        self._closed = True
        return self._engine.close(timeout)

    def __enter__(self) -> WSRMMiddleware:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def engine(self) -> Engine:
        return self._engine

    # requests

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if not self._covers(environ):
            if _is_disguised(environ):
                return _send(NOT_SOAP, start_response)
            return self._forward_untouched(environ, start_response)
        if not _is_soap(environ):
            return _send(NOT_SOAP, start_response)
        try:
            body = read_body(environ, limit=self._settings.max_body, spool_over=self._settings.spool_over)
        except BodyRefused as refused:
            refusal = Answer(refused.status, f"{refused.reason}\n".encode(), "text/plain; charset=utf-8")
            return _send(refusal, start_response)
        answer: Answer | Forward
        try:
            answer = self._answer(environ, body)
        except StoreError as error:
            log.error("request.store_error %s", error)
            answer = unavailable("The store cannot be written now; nothing was taken. Send again later.")
        except NotAuthenticated as error:
            answer = Answer(
                401, f"{error}\n".encode(), "text/plain; charset=utf-8", (("WWW-Authenticate", error.challenge),)
            )
        if isinstance(answer, Forward):
            return self._forward(environ, start_response, body, answer)
        return _send(answer, start_response)

    def _covers(self, environ: Environ) -> bool:
        """Whether the request is ours: a SOAP POST; where only SOAP is spoken, any POST. A service that does not look
        at the media type would run the message as often as it is sent."""
        if environ.get("REQUEST_METHOD") != "POST":
            return False
        paths = self._settings.paths
        if not paths:
            return self._only_soap or _is_soap(environ)
        path = _path(environ)
        return any(path == covered or path.startswith(covered.rstrip("/") + "/") for covered in paths)

    def _answer(self, environ: Environ, body: Body) -> Answer | Forward:
        if not self._engine.is_running:
            if self._closed:
                return unavailable("The service is shutting down. Send again later.")
            self.start()
        request = Request(
            queue=_path(environ),
            content_type=environ.get("CONTENT_TYPE", ""),
            soap_action=environ.get("HTTP_SOAPACTION"),
            body=body,
            identify=lambda headers: self._identify(environ, headers),
            capture=lambda: capture(environ),
            content_encoding=environ.get("HTTP_CONTENT_ENCODING", "").strip().lower(),
            address=environ.get("REMOTE_ADDR"),
            connection=self._connections.name(environ),
        )
        examined = self._destination.examine(request)
        if not isinstance(examined, Commit):
            return examined
        receipt = self._engine.store.call(
            examined.verb, size=examined.size, committed=lambda receipt: self._hand_over(examined, receipt)
        )
        if isinstance(receipt, Receipt) and (receipt.owned_elsewhere or receipt.discarding):
            self._engine.watch.look_soon()
        conclusion = self._destination.conclude(examined, receipt)
        return self._finish(examined, conclusion, bool(environ.get("wsgi.multithread", True)))

    def _hand_over(self, commit: Commit, receipt: Receipt | Created) -> None:
        """Give the dispatcher its work in the writer's thread: it need not wait for this request's thread."""
        work = self._destination.hand_over(commit, receipt)
        if work is None:
            return
        if work.claim is not None:
            self._engine.dispatcher.give(work.claim, work.delivery)
        elif work.delivery is not None:
            self._engine.dispatcher.offer(work.sequence, work.delivery)

    def _finish(self, commit: Commit, conclusion: Answer | Run | Wait, many_threads: bool) -> Answer:
        match conclusion:
            case Answer() as answer:
                return answer
            case Run(claim, delivery):
                left = self._engine.dispatcher.run_here(claim, delivery, self._settings.hold_wait)
                settled = self._settled(commit, delivery.position)
                if settled is not None:
                    return settled
                return self._wait(commit, Wait(delivery.position, Answer(202), bounded=True), many_threads, left)
            case Wait() as wait:
                return self._wait(commit, wait, many_threads, self._settings.hold_wait)

    def _wait(self, commit: Commit, wait: Wait, many_threads: bool, patience: float) -> Answer:
        """Wait for a message to be settled, at most ``patience`` seconds, which begin as ``hold_wait`` (I16).

        Few requests at a time wait for a gap, and none where the server has one thread: it could not take the request
        that fills it."""
        waiters = self._engine.waiters
        with waiters.expecting(wait.position) as event:
            settled = self._settled(commit, wait.position)
            if settled is not None:
                return settled
            if wait.bounded and not (many_threads and waiters.places.acquire(blocking=False)):
                return wait.otherwise
            try:
                deadline = time.monotonic() + patience
                while (left := deadline - time.monotonic()) > 0 and not self._closed:
                    # Once a second it looks by itself: a wake-up from another process can be lost.
                    event.wait(min(left, 1.0))
                    event.clear()
                    settled = self._settled(commit, wait.position)
                    if settled is not None:
                        return settled
            finally:
                if wait.bounded:
                    waiters.places.release()
        return wait.otherwise

    def _settled(self, commit: Commit, position: int) -> Answer | None:
        with self._engine.store.reader() as db:
            found = settlement(db, position)
        if found is None:
            return None
        return self._destination.settled(commit, found.outcome, found.reply, found.acknowledgement)

    def _identify(self, environ: Environ, headers: Headers) -> tuple[str | None, Peer]:
        principal = self._authenticate(environ, headers)
        matched = self._settings.partner_for(principal, _path(environ), environ.get("REMOTE_ADDR"))
        if matched is None:
            return principal, self._default_peer
        return principal, self._peers[matched[0]]

    def _policy_of(self, partner: str | None) -> QueuePolicy:
        """The policy of a partner; that of everybody else where his section is gone."""
        return self._peers.get(partner or "", self._default_peer).policy

    # the wrapped application, unreliably

    def _forward_untouched(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if not (self._one_way and environ.get("REQUEST_METHOD") == "GET" and _asks_for_wsdl(environ)):
            return self._app(environ, start_response)
        status, headers, content = call_wsgi(self._app, environ)
        if status.startswith("200"):
            content = without_outputs(content, self._one_way)
        headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
        start_response(status, [*headers, ("Content-Length", str(len(content)))])
        return [content]

    def _forward(
        self, environ: Environ, start_response: StartResponse, body: Body, forward: Forward
    ) -> Iterable[bytes]:
        environ["wsgi.input"] = body.open()
        environ["CONTENT_LENGTH"] = str(body.size)
        environ["wsgi.input_terminated"] = True
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        if not forward.one_way:
            return self._app(environ, start_response)
        status, headers, content = call_wsgi(self._app, environ)
        if not status.startswith("200"):
            start_response(status, headers)
            return [content]
        return _send(Answer(202), start_response)


def _is_disguised(environ: Environ) -> bool:
    """Whether a POST that does not call itself SOAP carries RM all the same: a service that does not look at the media
    type would run the message as often as it is sent. Only short bodies are looked at; they can be read again."""
    length = environ.get("CONTENT_LENGTH") or ""
    if environ.get("REQUEST_METHOD") != "POST" or _is_soap(environ) or not length.isdecimal():
        return False
    if not 0 < int(length) <= _DISGUISED_BYTES:
        return False
    content = environ["wsgi.input"].read(int(length))
    environ["wsgi.input"] = io.BytesIO(content)
    return any(namespace in content for namespace in _RM_NAMESPACES)


def _is_soap(environ: Environ) -> bool:
    return environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() in _SOAP_TYPES


def _path(environ: Environ) -> str:
    return f"{environ.get('SCRIPT_NAME', '')}{environ.get('PATH_INFO', '')}" or "/"


def _authenticated(environ: Environ, _headers: Headers) -> str | None:
    """The TLS client's name as servers and proxies show it, else REMOTE_USER, else nobody."""
    return environ.get("SSL_CLIENT_S_DN") or environ.get("REMOTE_USER") or None


def _described(app: WSGIApplication, settings: Settings) -> tuple[frozenset[str], frozenset[str] | None]:
    """Which operations are one-way and which header namespaces the application understands: as configured, else as a
    Spyne application declares them."""
    is_spyne = spyne_compat.is_spyne(app)
    one_way: set[str] = set()
    if settings.one_way == "auto" and is_spyne:
        one_way |= spyne_compat.one_way_operations(app)
    if settings.one_way == "auto" and not is_spyne:
        log.warning('one_way.unknown one_way="auto" asks Spyne, and the application is none: no operation is one-way')
    if settings.one_way != "auto":
        one_way |= named_operations(settings.one_way)
    understood = None if settings.understood is None else frozenset(settings.understood)
    if understood is None and is_spyne:
        understood = spyne_compat.understood_headers(app)
    return frozenset(one_way), understood


def _asks_for_wsdl(environ: Environ) -> bool:
    query = str(environ.get("QUERY_STRING", "")).lower()
    return query.split("&")[0].split("=")[0] == "wsdl" or str(environ.get("PATH_INFO", "")).endswith(".wsdl")


def _send(answer: Answer, start_response: StartResponse) -> list[bytes]:
    start_response(answer.line, reply_headers(answer))
    return [answer.body]
