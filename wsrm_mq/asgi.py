"""WSRMASGIMiddleware: the same destination on an event loop, around an ASGI or a WSGI application.

One commit per tick: the messages that all connections have sent since the last one are written together, in the loop's
own thread, and answered. The loop waits for nothing but the disk; the application runs in the dispatcher's threads
(WSGI) or, called from there, as a coroutine of the loop (ASGI).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from wsrm_mq.asgi_calls import (
    ASGIApplication,
    Message,
    Receive,
    Scope,
    Send,
    alike,
    call_asgi,
    decoded,
    environ_of,
    replayed,
    send_described,
    status_line,
    whole_answer,
)
from wsrm_mq.config import Settings, load, settings_from
from wsrm_mq.delivery.application import Environ, StartResponse, WSGIApplication, call_wsgi
from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.destination.answers import Answer, forwarded
from wsrm_mq.destination.coverage import (
    DISGUISED_BYTES,
    NOT_SOAP,
    UNASKED,
    Business,
    asks_for_wsdl,
    carries_rm,
    may_be_disguised,
)
from wsrm_mq.destination.exchange import Client, Commit, Forward, Wait
from wsrm_mq.destination.request_body import SPOOL_OVER, BodyRefused, Spool, told_length, too_large
from wsrm_mq.errors import ConfigurationError, NameNotKnown, StoreError
from wsrm_mq.events.telling import OnEvent
from wsrm_mq.front import DELIVERY, REFUSED, Front, Served, refuse_delivery
from wsrm_mq.hooks import Authenticate, Hooks, KeywordHooks, is_asgi, unfit_for_asgi, unfit_for_wsgi
from wsrm_mq.queue.arrival import Body
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.store.clock import Clock, wall_clock
from wsrm_mq.tick import LoopCompletion, Tick

if TYPE_CHECKING:
    from wsrm_mq.config.keywords import OptionKeywords
    from wsrm_mq.wsgi import WSRMMiddleware

__all__ = ["WSRMASGIMiddleware"]

_IS_CHUNKED: Final = "HTTP_TRANSFER_ENCODING"
_SCANNED_HERE: Final = 64 * 1024
"""Larger bodies that have to be read whole (gzip, ``verify_body``) are read in a thread: the loop must go on."""
DRAIN_SECONDS: Final = 30.0
"""The time that running messages may take to finish when the server's lifespan ends."""

Interface = Literal["auto", "asgi", "wsgi"]
_OTHERWISE: Final = {
    "asgi": 'Without interface="asgi" it is called as a WSGI application.',
    "wsgi": 'An ASGI application whose look does not say so needs interface="asgi".',
}
"""The hint for an application that does not fit, by interface."""


class WSRMASGIMiddleware(Served):
    """An ASGI application that speaks WS-ReliableMessaging for ``app``, which is an ASGI or a WSGI application.

    ::

        application = WSRMASGIMiddleware(spyne_wsgi_app, store="orders.db")

    Keywords as those of ``wsrm_mq.WSRMMiddleware``; the environ that ``authenticate`` and ``connection_key`` get is
    made from the ASGI scope, which it has as ``asgi.scope``. ``interface`` says what ``app`` is where the look at it
    does not: ``asgi`` or ``wsgi``. An ASGI application finds the ``wsrm.*`` keys in its scope.

    Constructing it opens the store (``StoreError`` if it cannot be). What a crash left undelivered is delivered from
    the lifespan's start-up on; where the server has none, from the first request on, to a WSGI application a second
    later at the latest. The end of the lifespan closes the store. ``close`` is not to be called in the loop's own
    thread where ``app`` is an ASGI application: it still runs there.
    """

    def __init__(
        self,
        app: ASGIApplication | WSGIApplication,
        store: str | os.PathLike[str] = "wsrm.db",
        *,
        interface: Interface = "auto",
        authenticate: Authenticate | None = None,
        connection_key: Callable[[Environ], str | None] | None = None,
        on_event: OnEvent | None = None,
        start: bool = True,
        clock: Clock = wall_clock,
        **options: Unpack[OptionKeywords],
    ) -> None:
        settings = settings_from({**options, "store": os.fspath(store)})
        self._set_up(app, settings, Hooks(authenticate, connection_key, on_event, clock), start, interface)

    @classmethod
    def from_settings(
        cls,
        app: ASGIApplication | WSGIApplication,
        settings: Settings,
        *,
        interface: Interface = "auto",
        start: bool = True,
        **hooks: Unpack[KeywordHooks],
    ) -> WSRMASGIMiddleware:
        """Wrap ``app`` with options that are loaded already; ``hooks`` are the keywords that no file can hold."""
        middleware = cls.__new__(cls)
        middleware._set_up(app, settings, Hooks(**hooks), start, interface)
        return middleware

    @classmethod
    def from_config(
        cls,
        app: ASGIApplication | WSGIApplication,
        path: str | os.PathLike[str],
        *,
        interface: Interface = "auto",
        start: bool = True,
        **hooks: Unpack[KeywordHooks],
    ) -> WSRMASGIMiddleware:
        """Wrap ``app`` with the options of a ``wsrm-mq.toml`` and the environment."""
        settings = load(Path(path), os.environ)
        return cls.from_settings(app, settings, interface=interface, start=start, **hooks)

    @classmethod
    def in_place_of(cls, wrapped: WSRMMiddleware, threads: int) -> WSRMASGIMiddleware:
        """Make the same destination as ``wrapped``, with its engine, its settings and its hooks, on an event loop.
        Hooks are called in threads, of which there are ``threads``, as there are for requests that are not reliable."""
        middleware = cls.__new__(cls)
        middleware._is_asgi, middleware._state = False, {}
        middleware._stand_before(wrapped._app, wrapped._front, threads)
        if middleware._shows_environ:
            middleware._hook_threads = ThreadPoolExecutor(threads, "wsrm-mq-hooks")
        return middleware

    def _set_up(self, app: Any, settings: Settings, hooks: Hooks, start: bool, interface: Interface) -> None:
        self._is_asgi = is_asgi(app) if interface == "auto" else interface == "asgi"
        if unfit := (unfit_for_asgi if self._is_asgi else unfit_for_wsgi)(app):
            raise ConfigurationError(f"{unfit} {_OTHERWISE['asgi' if self._is_asgi else 'wsgi']}")
        self._state: dict[str, Any] = {}
        """The state that the application's start-up has left for its requests."""
        limit = settings.max_reply
        if self._is_asgi:
            call = call_asgi(app, lambda: self._loop, self._state, limit)
        else:
            call = partial(call_wsgi, app, limit=limit)
        self._stand_before(app, Front(app, call, settings, hooks), settings.threads)
        if self._is_asgi:
            self.engine.runs_here = self._is_the_loop_here
        self.engine.starts_in_child = not self._is_asgi  # the application needs a loop, and the parent's is not there
        if start and self._is_asgi:
            self.engine.check()
        elif start:
            self.engine.start()

    def _stand_before(self, app: Any, front: Front, threads: int) -> None:
        self._inner: ASGIApplication = app if self._is_asgi else behind_threads(app, threads)
        self._front = front
        self._shows_environ = front.has_hooks
        """A hook of the application gets to see the environ: it is made for each request."""
        self._hook_threads: ThreadPoolExecutor | None = None
        """The threads that call hooks which were written for threads: they may wait for something."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tick: Tick | None = None

    def _is_the_loop_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    # life

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ours around that of the application, if it has one: it is called when it has started and before it stops."""
        is_heard = False

        async def received() -> Message:
            nonlocal is_heard
            is_heard = True
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await asyncio.to_thread(self.close, DRAIN_SECONDS)
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._state.update(scope.get("state") or {})
                try:
                    await asyncio.to_thread(self.start)
                    await asyncio.to_thread(self._front.ask_at_start)
                except StoreError as error:
                    message = {"type": "lifespan.startup.failed", "message": str(error)}
            await send(message)

        self._loop = asyncio.get_running_loop()
        if self._is_asgi:
            try:
                await self._inner(scope, received, sent)
            except Exception:  # one that knows no lifespan raises at once, or returns
                if is_heard:
                    raise
            if is_heard:
                return
        while True:
            message = await received()
            await sent({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    # requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._lifespan(scope, receive, send)
        if scope["type"] != "http":
            return await self._inner(scope, receive, send)
        front = self._front
        self._loop = loop = asyncio.get_running_loop()  # another one after a fork
        key, length = alike(scope)
        client = front.clients.get(key) or await self._meet(key, scope, receive, send)
        if client is None:
            return None
        if DELIVERY in scope:
            return await _send(refuse_delivery(scope), send)
        answer: Answer | Forward | Wait
        try:
            body = await self._body(client, length, receive)
            if body is None:
                return None  # the client is gone
            environ = environ_of(scope) if self._shows_environ else client.environ
            if front.asks and front.own_description.is_due(client.path):
                await asyncio.to_thread(front.ask_for_wsdl, client)
            begun = await self._begin(client, environ, body, receive)
            if isinstance(begun, Commit):
                tick, completions = self._tick_of(loop), list[LoopCompletion]()
                run = partial(self._run_for_request, tick, completions, begun)
                answer = await tick.commit(begun.verb, begun.size, partial(front.destination.finish, begun, run=run))
                if isinstance(answer, Wait):
                    answer = await self._settled(begun, answer, completions, receive)
            else:
                answer = begun
        except REFUSED as error:
            return await _send(front.refusal(error), send)
        if isinstance(answer, Forward):
            return await self._forward(scope, replayed(body, receive), send, answer)
        return await _send(answer, send, receive)

    async def _meet(self, key: Hashable, scope: Scope, receive: Receive, send: Send) -> Client | None:
        """The client of a request that is ours. Any other one is answered here."""
        front, environ = self._front, environ_of(scope)
        business = front.business(environ)
        if business is Business.OURS:
            try:
                return front.meet(key, environ, {name: environ[name] for name in environ.keys() - {"asgi.scope"}})
            except BodyRefused as error:
                business = front.refusal(error)
        if isinstance(business, Answer):
            await _send(business, send)
        else:
            is_doubtful = business is Business.DOUBTFUL and may_be_disguised(environ)
            await self._forward_untouched(environ, scope, receive, send, is_doubtful=is_doubtful)
        return None

    async def _body(self, client: Client, length: str, receive: Receive) -> Body | None:
        """The whole body; large ones go to a temporary file as they come in. ``None``: the client has gone. Raises
        ``BodyRefused``."""
        most = self._front.settings.max_body
        if (told_length({"CONTENT_LENGTH": length}) or 0) > most:
            raise too_large(most)
        message = await receive()
        content = message.get("body", b"")
        is_whole = message["type"] == "http.request" and not message.get("more_body")
        if is_whole and not content and "HTTP_UPGRADE" in client.environ and (length or _IS_CHUNKED in client.environ):
            self.engine.events.tell("request.body_lost")  # uvicorn with httptools, where another protocol is offered
            raise BodyRefused(400, "There is no body: the server lost it to the Upgrade that was offered.")
        if is_whole and len(content) <= min(SPOOL_OVER, most):
            return Body(content)
        return await _collected(message, receive, most)

    async def _begin(self, client: Client, environ: Environ, body: Body, receive: Receive) -> Answer | Forward | Commit:
        """In a thread where that may take long. Names are looked up meanwhile, in no thread of this loop's."""
        front, is_slow = self._front, body.size > _SCANNED_HERE or client.content_encoding
        while True:
            try:
                if not is_slow and self._hook_threads is None and front.engine.is_running:
                    return front.begin(client, environ, body, receive)
                begin = partial(front.begin, client, environ, body, receive)
                if self._hook_threads is None:
                    return await asyncio.to_thread(begin)
                return await asyncio.get_running_loop().run_in_executor(self._hook_threads, begin)
            except NameNotKnown as name:
                found, seconds = front.looked_up(client, name.host)
                await asyncio.wait((asyncio.wrap_future(found),), timeout=seconds)

    def _tick_of(self, loop: asyncio.AbstractEventLoop) -> Tick:
        store, tick = self._front.engine.store, self._tick
        if tick is None or tick.store is not store or tick.loop is not loop:
            dispatcher = self._front.engine.dispatcher
            self._tick = tick = Tick(loop, store, (dispatcher.pool, dispatcher.request_pool, dispatcher.send_pool))
        return tick

    def _run_for_request(
        self, tick: Tick, completions: list[LoopCompletion], commit: Commit, claim: Claim, delivery: Delivery
    ) -> None:
        completion = LoopCompletion(tick, is_bounded=commit.may_answer_later)
        self.engine.dispatcher.run_for(claim, delivery, completion)
        completions.append(completion)

    async def _settled(self, commit: Commit, wait: Wait, completions: list[LoopCompletion], receive: Receive) -> Answer:
        """The answer to a request that waits for its message."""
        left = self._front.settings.hold_wait
        if completions:  # its message is run for it
            settlement, left = await completions[0].settled(left)
            if settlement is not None:
                return self._front.destination.settled(commit, wait, settlement)
        return await self._wait(commit, wait, receive, left)

    async def _wait(self, commit: Commit, wait: Wait, receive: Receive, patience: float) -> Answer:
        """``Front.waiting``, no longer than the client does."""
        event, gone = _LoopEvent(asyncio.get_running_loop()), asyncio.ensure_future(_until_gone(receive))
        with contextlib.closing(self._front.waiting(commit, wait, event, patience)) as waiting:
            try:
                seconds = next(waiting)
                while True:
                    await event.wait(seconds, gone)
                    seconds = waiting.send(gone.done())
            except StopIteration as over:
                answer: Answer = over.value
                return answer
            finally:
                gone.cancel()

    # the wrapped application, unreliably

    async def _forward_untouched(
        self, environ: Environ, scope: Scope, receive: Receive, send: Send, *, is_doubtful: bool
    ) -> None:
        if is_doubtful:
            body = await _collected(await receive(), receive, DISGUISED_BYTES)
            if body is None:
                return None
            if carries_rm(body.content or b""):
                return await _send(self._front.turned_away(NOT_SOAP), send)
            receive = replayed(body, receive)
        description = self._front.description
        if description is None or not asks_for_wsdl(environ):
            return await self._inner(scope, receive, send)
        headers = [field for field in scope["headers"] if field[0].decode("latin-1").lower() not in UNASKED]
        start, content = await whole_answer(self._inner, {**scope, "method": "GET", "headers": headers}, receive)
        said = status_line(start["status"]), decoded(start.get("headers", ())), content
        described = await asyncio.to_thread(description.answer, environ, *said)
        return await send_described(described, send)

    async def _forward(self, scope: Scope, receive: Receive, send: Send, forward: Forward) -> None:
        if not forward.is_answered_here:
            return await self._inner(scope, receive, send)
        start, content = await whole_answer(self._inner, scope, receive)
        reply = ServiceReply(f"{start['status']} ", tuple(decoded(start.get("headers", ()))), content)
        answer = forwarded(reply, forward.headers, forward.acknowledgements, one_way=forward.one_way)
        return await _send(answer, send)


class _LoopEvent:
    """An event that other threads set and this loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float, gone: asyncio.Future[None]) -> None:
        """Wait until it is set, ``seconds`` are over, or the client is ``gone``."""
        waiting = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait((waiting, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        self._event.clear()


def behind_threads(app: WSGIApplication, threads: int) -> ASGIApplication:
    """Make a WSGI application an ASGI one, called in ``threads``, for requests that are not reliable."""
    try:
        from a2wsgi import WSGIMiddleware
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a WSGI application behind ASGI needs a2wsgi: pip install 'wsrm-mq[asgi]'.", name="a2wsgi"
        ) from error

    def called(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Call the application with the environ that a reliable message has, and an input that ends."""
        of_server = {name: value for name, value in environ.items() if name.startswith("wsgi.")}
        own = {"wsgi.input_terminated": True, "wsgi.errors": sys.stderr}
        return app({**of_server, **environ_of(environ["asgi.scope"]), **own}, start_response)

    inner: ASGIApplication = WSGIMiddleware(called, workers=threads)  # type: ignore[arg-type,assignment]
    return inner


async def _until_gone(receive: Receive) -> None:
    with contextlib.suppress(Exception):  # some servers raise where the client is gone
        while (await receive())["type"] != "http.disconnect":
            pass


async def _collected(message: Message, receive: Receive, limit: int) -> Body | None:
    """The whole body, of which ``message`` is the first; large ones go to a temporary file as they come in. ``None``:
    the client has gone. Raises ``BodyRefused``."""
    spool = Spool(limit)
    while message["type"] == "http.request":
        spool.add(message.get("body", b""))
        if not message.get("more_body"):
            return spool.body()
        message = await receive()
    return None


async def _send(answer: Answer, send: Send, receive: Receive | None = None) -> None:
    """``receive`` tells whether the client of an answer that has ``left`` is there to take it."""
    headers = [(b"content-length", b"%d" % len(answer.body))]
    for name, value in answer.headers:
        headers.append((name.lower().encode("latin-1"), value.encode("latin-1")))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if answer.left is None or receive is None:
        return await send({"type": "http.response.body", "body": answer.body})
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.sleep(0)
        is_there = not gone.done()
        await send({"type": "http.response.body", "body": answer.body})
    finally:
        gone.cancel()
    if is_there:
        answer.left()
