"""WSRMMiddleware: one line around any WSGI SOAP service makes it reliable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait as wait_for
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

from wsrm_mq.config import Settings, load, settings_from
from wsrm_mq.delivery.application import Environ, StartResponse, WSGIApplication, call_wsgi
from wsrm_mq.delivery.completion import Signal, ThreadCompletion
from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.destination.answers import LINES, Answer, forwarded
from wsrm_mq.destination.connections import correct_peer
from wsrm_mq.destination.coverage import NOT_SOAP, Business, asks_for_wsdl, is_disguised, question
from wsrm_mq.destination.exchange import Client, Commit, Forward, Wait
from wsrm_mq.destination.request_body import read_body
from wsrm_mq.errors import ConfigurationError, NameNotKnown, NameServerSilent
from wsrm_mq.events.telling import OnEvent
from wsrm_mq.front import DELIVERY, REFUSED, Front, Served, refuse_delivery
from wsrm_mq.hooks import Authenticate, Hooks, KeywordHooks, unfit_for_wsgi
from wsrm_mq.queue.arrival import Body, Receipt
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.store.clock import Clock, wall_clock

if TYPE_CHECKING:
    from wsrm_mq.config.keywords import OptionKeywords

__all__ = ["WSRMMiddleware"]

_FOR_ASGI: Final = "Around an ASGI application goes wsrm_mq.asgi.WSRMASGIMiddleware, with the same keywords."


class WSRMMiddleware(Served):
    """A WSGI application that speaks WS-ReliableMessaging for ``app``.

    ::

        application = WSRMMiddleware(spyne_wsgi_app, store="orders.db")

    Every keyword is an option of ``wsrm_mq.config.Settings``, in its units (seconds, bytes), or one of
    ``wsrm_mq.hooks.Hooks``. ``start=False`` waits with store and dispatcher for ``start()`` or the first request.

    Constructing it opens the store (``StoreError`` if it cannot be). What a crash left undelivered is delivered from
    the first request or ``start()`` on, or a second later: a process that only forks those that serve delivers nothing.
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
        **options: Unpack[OptionKeywords],
    ) -> None:
        settings = settings_from({**options, "store": os.fspath(store)})
        self._set_up(app, settings, Hooks(authenticate, connection_key, on_event, clock), start)

    @classmethod
    def from_settings(
        cls, app: WSGIApplication, settings: Settings, *, start: bool = True, **hooks: Unpack[KeywordHooks]
    ) -> WSRMMiddleware:
        """Wrap ``app`` with options that are loaded already; ``hooks`` are the keywords that no file can hold."""
        middleware = cls.__new__(cls)
        middleware._set_up(app, settings, Hooks(**hooks), start)
        return middleware

    @classmethod
    def from_config(
        cls, app: WSGIApplication, path: str | os.PathLike[str], *, start: bool = True, **hooks: Unpack[KeywordHooks]
    ) -> WSRMMiddleware:
        """Wrap ``app`` with the options of a ``wsrm-mq.toml`` and the environment."""
        return cls.from_settings(app, load(Path(path), os.environ), start=start, **hooks)

    def _set_up(self, app: WSGIApplication, settings: Settings, hooks: Hooks, start: bool) -> None:
        if unfit := unfit_for_wsgi(app):
            raise ConfigurationError(f"{unfit} {_FOR_ASGI}")
        self._app = app
        self._front = Front(app, partial(call_wsgi, app, limit=settings.max_reply), settings, hooks)
        if start:
            self._front.engine.start()

    # life

    def __enter__(self) -> WSRMMiddleware:
        """Serve here: deliver at once, close at the end."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # requests

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        front = self._front
        if "uwsgi.version" in environ:
            correct_peer(environ)
        alike = front.kept_headers.select(environ)
        key = (alike, environ.get("SSL_CLIENT_S_DN"), environ.get("REMOTE_USER"))
        client = front.clients.get(key)
        if client is None:
            business = front.business(environ)
            if business is Business.DOUBTFUL and is_disguised(environ):
                business = front.turned_away(NOT_SOAP)
            if isinstance(business, Answer):
                return _send(business, start_response)
            if business is not Business.OURS:
                return self._forward_untouched(environ, start_response)
        if DELIVERY in environ:
            return _send(refuse_delivery(environ), start_response)
        answer: Answer | Forward
        try:
            client = client or front.meet(key, environ, dict(alike))
            body = read_body(environ, limit=front.settings.max_body)
            if front.asks:
                front.ask_for_wsdl(client)
            while True:
                try:
                    begun = front.begin(client, environ, body, start_response)
                    break
                except NameNotKnown as name:
                    self._look_up(client, name.host)
            answer = self._answer(begun, environ)
        except REFUSED as error:
            answer = front.refusal(error)
        if isinstance(answer, Forward):
            return self._forward(environ, start_response, body, answer)
        return _send(answer, start_response)

    def _look_up(self, client: Client, host: str) -> None:
        """Wait for the look-up of a name, with as few requests at a time as wait for a gap."""
        front = self._front
        waiters, who = front.engine.waiters, client.who or ""
        if not waiters.enter(who, front.settings.max_waiting_peer, bounded=True):
            raise NameServerSilent(host)
        try:
            found, seconds = front.looked_up(client, host)
            wait_for((found,), seconds)
        finally:
            waiters.leave(who, bounded=True)

    def _answer(self, begun: Answer | Forward | Commit, environ: Environ) -> Answer | Forward:
        if not isinstance(begun, Commit):
            return begun
        commit, destination, engine = begun, self._front.destination, self._front.engine
        store, completions = engine.store, list[ThreadCompletion]()
        finished: list[Answer | Forward | Wait | BaseException] = []

        def run(claim: Claim, delivery: Delivery) -> None:
            """At once: the server may throw something into the request's own thread."""
            completion = ThreadCompletion(store, is_bounded=commit.may_answer_later)
            engine.dispatcher.run_for(claim, delivery, completion)
            completions.append(completion)

        def committed(receipt: Receipt) -> None:
            try:
                finished.append(destination.finish(commit, receipt, run))
            except BaseException as error:
                finished.append(error)

        store.call(commit.verb, size=commit.size, committed=committed, is_request=True)
        answer, left = finished[0], self._front.settings.hold_wait
        if isinstance(answer, BaseException):
            raise answer
        if not isinstance(answer, Wait):
            return answer
        if completions:  # its message is run for it
            settlement, left = completions[0].wait(left)
            if settlement is not None:
                return destination.settled(commit, answer, settlement)
        return self._wait(commit, answer, environ, left)

    def _wait(self, commit: Commit, wait: Wait, environ: Environ, patience: float) -> Answer:
        """``Front.waiting``. Where the server has one thread, no request waits for a gap: it could not take the one
        that fills it."""
        event = Signal()
        may_wait = not wait.bounded or environ.get("wsgi.multithread", True)
        with closing(self._front.waiting(commit, wait, event, patience, may_wait=may_wait)) as waiting:
            try:
                while True:
                    event.wait(next(waiting))
            except StopIteration as over:
                answer: Answer = over.value
                return answer

    # the wrapped application, unreliably

    def _forward_untouched(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        description = self._front.description
        if description is None or not asks_for_wsdl(environ):
            return self._app(environ, start_response)
        line, headers, body = description.answer(environ, *call_wsgi(self._app, question(environ)))
        start_response(line, headers)
        return [body]

    def _forward(
        self, environ: Environ, start_response: StartResponse, body: Body, forward: Forward
    ) -> Iterable[bytes]:
        environ["wsgi.input"] = body.open()
        environ["CONTENT_LENGTH"] = str(body.size)
        environ["wsgi.input_terminated"] = True
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        if not forward.is_answered_here:
            return self._app(environ, start_response)
        status, headers, content = call_wsgi(self._app, environ)
        reply = ServiceReply(status, tuple(headers), content)
        answer = forwarded(reply, forward.headers, forward.acknowledgements, one_way=forward.one_way)
        return _send(answer, start_response)


def _send(answer: Answer, start_response: StartResponse) -> Iterable[bytes]:
    headers = [*answer.headers, ("Content-Length", str(len(answer.body)))]
    start_response(answer.line or LINES[answer.status], headers)
    return [answer.body] if answer.left is None else _until_it_left(answer.body, answer.left)


def _until_it_left(body: bytes, left: Callable[[], object]) -> Iterator[bytes]:
    """Yield the body, and call ``left`` when the server asks for more: it has written the body then."""
    yield body
    left()
