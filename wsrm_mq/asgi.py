"""WSRMASGIMiddleware: the same destination on an event loop, around an ASGI or a WSGI application.

One commit per tick: what all connections have sent since the last one is written together, in the loop's own thread,
and answered. The loop waits for nothing but the disk; the application runs in the dispatcher's threads (WSGI) or,
called from there, as a coroutine of the loop (ASGI).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from wsrm_mq.application import Environ, WSGIApplication, call_wsgi
from wsrm_mq.asgi_calls import ASGIApplication, Message, Receive, Scope, Send, call_asgi, environ_of
from wsrm_mq.config import Settings, load, settings_from
from wsrm_mq.destination import Answer, Commit, Forward, Run, Wait, reply_headers
from wsrm_mq.engine import Engine
from wsrm_mq.envelope.wsdl import without_outputs
from wsrm_mq.errors import NotAuthenticated, StoreError
from wsrm_mq.events.telling import OnEvent
from wsrm_mq.front import (
    NOT_SOAP,
    Authenticate,
    Front,
    Hooks,
    asks_for_wsdl,
    carries_rm,
    is_soap,
    may_be_disguised,
    refusal,
)
from wsrm_mq.queue.accept import Body, Created, Receipt
from wsrm_mq.request_body import BodyRefused
from wsrm_mq.store.writer import Clock, wall_clock
from wsrm_mq.tick import Tick

__all__ = ["WSRMASGIMiddleware"]

R = TypeVar("R")

_SCANNED_HERE: Final = 64 * 1024
"""Larger bodies that have to be read whole (gzip, ``verify_body``) are read in a thread: the loop must go on."""
_THREADS: Final = 64

Interface = Literal["auto", "asgi", "wsgi"]


class WSRMASGIMiddleware:
    """An ASGI application that speaks WS-ReliableMessaging for ``app``, which is an ASGI or a WSGI application.

    ::

        application = WSRMASGIMiddleware(spyne_wsgi_app, store="orders.db")

    Keywords as those of ``wsrm_mq.WSRMMiddleware``; the environ that ``authenticate`` and ``connection_key`` get is
    made from the ASGI scope, which it has as ``asgi.scope``. ``interface`` says what ``app`` is where the look at it
    does not: ``asgi`` or ``wsgi``. An ASGI application finds the ``wsrm.*`` keys in its scope.

    Constructing it opens the store (``StoreError`` if it cannot be). The end of the server's lifespan closes it.
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
        **options: Any,
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
        **hooks: Any,
    ) -> WSRMASGIMiddleware:
        """Wrap ``app`` with options that are loaded already; ``hooks`` are the keywords that no file can hold."""
        middleware = cls.__new__(cls)
        middleware._set_up(app, settings, Hooks(**hooks), start, interface)
        return middleware

    @classmethod
    def from_config(
        cls, app: ASGIApplication | WSGIApplication, path: str | os.PathLike[str], **hooks: Any
    ) -> WSRMASGIMiddleware:
        """Wrap ``app`` with the options of a ``wsrm-mq.toml`` and the environment."""
        return cls.from_settings(app, load(Path(path), os.environ), **hooks)

    def _set_up(self, app: Any, settings: Settings, hooks: Hooks, start: bool, interface: Interface) -> None:
        is_asgi = _is_asgi(app) if interface == "auto" else interface == "asgi"
        self._inner: ASGIApplication = app if is_asgi else _behind_threads(app, settings.dispatch_threads)
        self._has_lifespan = is_asgi
        call = call_asgi(app, lambda: self._loop) if is_asgi else partial(call_wsgi, app)
        self._front = Front(app, call, settings, hooks)
        self._loop: asyncio.AbstractEventLoop
        self._tick: Tick | None = None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="wsrm-mq-request")
        if start:
            self.start()

    # life

    def start(self) -> None:
        """Open the store and begin to deliver; does nothing where that is done."""
        self._front.start()

    def stop_waiting(self) -> None:
        """The end is near: answer the requests that wait for a message, and let none wait from now on."""
        self._front.is_ending = True

    def close(self, timeout: float | None = None) -> bool:
        """Finish what runs, give every sequence back, close the store. Answers whether all finished in ``timeout``
        seconds. Not to be called in the loop's own thread where ``app`` is an ASGI application: it still runs there."""
        return self._front.close(timeout)

    @property
    def engine(self) -> Engine:
        return self._front.engine

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ours around that of the application, if it has one."""
        heard = False

        async def received() -> Message:
            nonlocal heard
            heard = True
            message = await receive()
            if message["type"] == "lifespan.startup":
                await asyncio.to_thread(self.start)
            elif message["type"] == "lifespan.shutdown":
                await asyncio.to_thread(self.close)
            return message

        if self._has_lifespan:
            try:
                return await self._inner(scope, received, send)
            except BaseException:
                if heard:
                    raise
        while True:  # an application that knows no lifespan raises at once
            message = await received()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return None

    # requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        if scope["type"] == "lifespan":
            return await self._lifespan(scope, receive, send)
        if scope["type"] != "http":
            return await self._inner(scope, receive, send)
        front = self._front
        environ = environ_of(scope)
        if not front.covers(environ):
            return await self._forward_untouched(environ, scope, receive, send)
        if not is_soap(environ):
            return await _send(NOT_SOAP, send)
        try:
            body = await _read_body(environ, receive, front.settings)
            if body is None:
                return None  # the client is gone
            answer = await self._answer(environ, body, receive)
        except (BodyRefused, StoreError, NotAuthenticated) as error:
            return await _send(refusal(error), send)
        if isinstance(answer, Forward):
            return await self._forward(scope, _replayed(body, receive), send, answer.one_way)
        return await _send(answer, send)

    async def _answer(self, environ: Environ, body: Body, receive: Receive) -> Answer | Forward:
        front = self._front
        if body.size > _SCANNED_HERE or not front.engine.is_running:
            examined = await self._in_thread(front.examine, environ, body, receive)
        else:
            examined = front.examine(environ, body, receive)
        if not isinstance(examined, Commit):
            return examined
        receipt = await self._commit(examined)
        match front.conclude(examined, receipt):
            case Answer() as answer:
                return answer
            case Run(claim, delivery):
                run_here = front.engine.dispatcher.run_here
                left = await self._in_thread(run_here, claim, delivery, front.settings.hold_wait)
                return await self._wait(examined, Wait(delivery.position, Answer(202), bounded=True), receive, left)
            case Wait() as wait:
                return await self._wait(examined, wait, receive, front.settings.hold_wait)

    def _commit(self, commit: Commit) -> asyncio.Future[Receipt | Created]:
        writer = self._front.engine.store.writer
        tick = self._tick
        if tick is None or tick.writer is not writer or tick.loop is not self._loop:
            self._tick = tick = Tick(self._loop, writer)
        done = partial(self._front.committed, commit)
        return tick.commit(commit.verb, commit.size, done, commit.request.connection)

    async def _in_thread(self, work: Callable[..., R], *arguments: Any) -> R:
        return await self._loop.run_in_executor(self._threads, work, *arguments)

    async def _wait(self, commit: Commit, wait: Wait, receive: Receive, patience: float) -> Answer:
        """Wait for a message to be settled, at most ``patience`` seconds, which begin as ``hold_wait`` (I16), and no
        longer than the client does. Few requests at a time wait for a gap."""
        front = self._front
        waiters = front.engine.waiters
        event = _LoopEvent(self._loop)
        with waiters.expecting(wait.position, event):
            settled = front.settled(commit, wait.position)
            if settled is not None:
                return settled
            if not waiters.enter(commit.who, commit.peer.max_waiting, bounded=wait.bounded):
                return wait.otherwise
            gone = asyncio.ensure_future(_until_gone(receive))
            try:
                deadline = time.monotonic() + patience
                while (left := deadline - time.monotonic()) > 0 and not (front.is_ending or gone.done()):
                    # Once a second it looks by itself: a wake-up from another process can be lost.
                    await event.wait(min(left, 1.0), gone)
                    settled = front.settled(commit, wait.position)
                    if settled is not None:
                        return settled
            finally:
                gone.cancel()
                waiters.leave(commit.who, bounded=wait.bounded)
        return wait.otherwise

    # the wrapped application, unreliably

    async def _forward_untouched(self, environ: Environ, scope: Scope, receive: Receive, send: Send) -> None:
        if may_be_disguised(environ):
            body = await _read_body(environ, receive, self._front.settings)
            if body is None:
                return
            if carries_rm(body.content or b""):
                return await _send(NOT_SOAP, send)
            receive = _replayed(body, receive)
        if self._front.one_way and environ["REQUEST_METHOD"] == "GET" and asks_for_wsdl(environ):
            start, content = await _whole(self._inner, scope, receive)
            if start["status"] == 200:
                content = without_outputs(content, self._front.one_way)
            return await _send_whole(start, content, send)
        return await self._inner(scope, receive, send)

    async def _forward(self, scope: Scope, receive: Receive, send: Send, one_way: bool) -> None:
        if not one_way:
            return await self._inner(scope, receive, send)
        start, content = await _whole(self._inner, scope, receive)
        if start["status"] == 200:
            return await _send(Answer(202), send)
        return await _send_whole(start, content, send)


class _LoopEvent:
    """An event that other threads set and this loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float, gone: asyncio.Future[None]) -> None:
        """Until it is set, or ``seconds`` are over, or the client is ``gone``."""
        waiting = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait((waiting, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        self._event.clear()


def _is_asgi(app: Any) -> bool:
    call = app if inspect.isfunction(app) or inspect.ismethod(app) else getattr(app, "__call__", app)  # noqa: B004
    return inspect.iscoroutinefunction(inspect.unwrap(call))


def _behind_threads(app: WSGIApplication, threads: int) -> ASGIApplication:
    """A WSGI application for what is not reliable: plain requests, its WSDL."""
    try:
        from a2wsgi import WSGIMiddleware
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a WSGI application behind ASGI needs a2wsgi: pip install 'wsrm-mq[asgi]'.", name="a2wsgi"
        ) from error
    inner: ASGIApplication = WSGIMiddleware(app, workers=threads)  # type: ignore[arg-type,assignment]
    return inner


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(environ: Environ, receive: Receive, settings: Settings) -> Body | None:
    """The whole body; large ones go to a temporary file as they come in. ``None``: the client has gone. Raises
    ``BodyRefused``."""
    limit, spool_over = settings.max_body, settings.spool_over
    length = environ.get("CONTENT_LENGTH", "")
    if length.isdecimal() and int(length) > limit:
        raise _too_large(limit)
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body") and len(message["body"]) <= spool_over:
        return Body(message["body"])
    spool: Any = tempfile.SpooledTemporaryFile(max_size=spool_over)  # noqa: SIM115 - Body keeps it
    size = 0
    while message["type"] == "http.request":
        size += len(message.get("body", b""))
        if size > limit:
            raise _too_large(limit)
        spool.write(message.get("body", b""))
        if not message.get("more_body"):
            break
        message = await receive()
    else:
        return None
    if size <= spool_over:
        spool.seek(0)
        return Body(spool.read())
    return Body(None, spool, size)


def _too_large(limit: int) -> BodyRefused:
    return BodyRefused(413, f"The body is larger than {limit} bytes.")


def _replayed(body: Body, receive: Receive) -> Receive:
    """``receive`` for an application: first the body that was read already."""
    source = body.open()
    is_read = False

    async def replayed() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        piece = source.read(_SCANNED_HERE)
        is_read = source.tell() >= body.size or not piece
        return {"type": "http.request", "body": piece, "more_body": not is_read}

    return replayed


async def _whole(app: ASGIApplication, scope: Scope, receive: Receive) -> tuple[Message, bytes]:
    """The whole answer of an application: its start message and the body."""
    started: list[Message] = []
    written: list[bytes] = []

    async def keep(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.append(message)
        elif message["type"] == "http.response.body":
            written.append(message.get("body", b""))

    await app(scope, receive, keep)
    if not started:
        raise RuntimeError("the application sent no http.response.start")
    return started[0], b"".join(written)


async def _send_whole(start: Message, content: bytes, send: Send) -> None:
    headers = [(name, value) for name, value in start.get("headers", ()) if name.lower() != b"content-length"]
    headers.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": start["status"], "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _send(answer: Answer, send: Send) -> None:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in reply_headers(answer)]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
