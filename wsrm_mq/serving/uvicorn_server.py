"""uvicorn with the bounds that it has no options for, and an end that is ours to time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from socket import socket
from typing import Any, Final

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from wsrm_mq.asgi_calls import ASGIApplication
from wsrm_mq.events.telling import tell
from wsrm_mq.serving.admission import Admission, ConnectionBounds

# A connection of `serve`: uvicorn's, with bounds, and with an answer where uvicorn has none.

HEAD_BYTES: Final = 64 * 1024
"""The largest size of request line and headers together, beside the bytes that came with the first one."""
_OFFER: Final = (b"upgrade", b"http2-settings")
_MALFORMED: Final = "Invalid HTTP request received."
_ON_ITS_WAY_SECONDS: Final = 2.0
"""The time for which a connection that makes room for another one still takes a request and answers it."""
_READ_IN_VAIN_SECONDS: Final = 10.0
"""The time for which bytes after the answer are read: a client that is cut off while it sends may not read it."""
RETRY_AFTER_SECONDS: Final = 5
_TEXT: Final = b"Too many connections are open. Send again later.\n"
_NO_ROOM: Final = b"".join(
    (
        b"HTTP/1.1 503 Service Unavailable\r\nserver: wsrm-mq\r\n",
        b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % len(_TEXT),
        b"retry-after: %d\r\nconnection: close\r\n\r\n" % RETRY_AFTER_SECONDS,
        _TEXT,
    )
)


class BoundedProtocol(HttpToolsProtocol):
    """A connection on which a request has to come in time and with a head of bounded size.

    An offer to go on in another protocol (``Upgrade: h2c``, which Java's HTTP client makes by itself) is declined: the
    request is answered as if it had made none (RFC 9110, 7.8). A client that closes its side has its answers. One that
    comes when there is no room, or has to make room for another one, is answered 503, and can read that.
    """

    def __init__(self, admission: Admission, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._admission = admission
        self._request_seconds = admission.bounds.request_seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._is_new = self._in_head = self._is_silent = True
        self._is_offer = self._is_declined = False
        self._head_bytes = 0
        self._begun = self.loop.time()
        self._due: float | None = self._begun + self._request_seconds
        """The time when the request, or the next piece of it, has to be here. None while an answer is being made."""
        self._first: RequestResponseCycle | None = None
        """The request that is being answered, where several are on their way."""
        self._stuck_since: float | None = None
        """The time since when the client does not read."""
        self._is_leaving = self._is_answered = False
        self._leaves_at: asyncio.TimerHandle | None = None
        self._admission.admit(self, self._begun)

    # what comes

    def data_received(self, data: bytes) -> None:
        if self._is_leaving:
            return self._say_no_room()
        self._unset_keepalive_if_required()
        self._is_new = False
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.logger.warning(_MALFORMED)
            if not self._close_when_answered():
                self.send_400_response(_MALFORMED)
            return
        if not self._in_head:
            if self._due is not None:
                self._due = self.loop.time() + self._request_seconds
        elif not self._is_new:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.transport.close()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as end_of_head:
            if not self._is_offer:
                raise httptools.HttpParserError(_MALFORMED) from None
            self._decline_offer()
            self._feed(data[end_of_head.args[0] :])

    def _decline_offer(self) -> None:
        """llhttp ends a request that makes an offer with its head, and takes its body for the next one. A new parser
        reads the head again as it was understood, without the offer; then what follows it."""
        self._is_offer, self._is_declined = False, True
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        fields = [b"%s: %s\r\n" % field for field in self.headers if field[0] not in _OFFER]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(b"%s %s HTTP/%s\r\n%s\r\n" % (method, self.url, version, b"".join(fields)))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_new = self._in_head = True
        self._is_silent = False
        self._head_bytes = 0
        self._begun = now = self.loop.time()
        self._due = now + self._request_seconds

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            if self._is_declined or self.parser.get_method() == b"CONNECT":
                raise ValueError("no tunnel begins here")
            self._is_offer = True
            return
        self._is_declined = self._in_head = False
        before = self.cycle
        if before is not None and not self.pipeline and not before.response_complete:
            self._first = before
        super().on_headers_complete()
        if self.cycle is not None and not self.cycle.keep_alive:
            self.cycle.transport = _LastAnswer(self)  # type: ignore[assignment]

    @property
    def is_request_here(self) -> bool:
        """Whether the last request has come in whole."""
        return self._due is None

    def on_message_complete(self) -> None:
        if self._is_offer:
            return
        self._due = None
        super().on_message_complete()

    # the answers

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._first = self.pipeline[-1][0]
        super().on_response_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more; it may still read."""
        return not self._is_leaving and self._close_when_answered()

    def turn_away(self, *, patiently: bool) -> None:
        """Answer that there is no room. A close that meets an unread request would be a reset, without a reason for the
        client. ``patiently``: the next bytes are read for a while, so that the client reads the answer."""
        self._unset_keepalive_if_required()
        self._is_leaving, self._due = True, None
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if patiently:
            self._leaves_at = self.loop.call_later(_ON_ITS_WAY_SECONDS, self._leave)
        else:
            self._leave()

    def _leave(self) -> None:
        """Close; a client that has no answer yet is told that there is no room."""
        if (self.cycle is None or not self.cycle.response_started) and not self.transport.is_closing():
            self.transport.write(_NO_ROOM)
        self.transport.close()

    def _say_no_room(self) -> None:
        if self._is_answered or self.transport.is_closing():
            return
        self.transport.write(_NO_ROOM)
        self.close_when_read()

    def close_when_read(self) -> None:
        """Say that this was the last answer, and close when the client has seen it: it may still send."""
        self._is_leaving, self._is_answered, self._due = True, True, None
        if self._leaves_at is not None:
            self._leaves_at.cancel()
        self._leaves_at = self.loop.call_later(_READ_IN_VAIN_SECONDS, self.transport.abort)
        if self.transport.can_write_eof():  # TLS has no end of one side
            self.transport.write_eof()

    def _close_when_answered(self) -> bool:
        """Read no more, answer the whole requests that are here, then close. Answers whether there are any."""
        if self._due is not None and not self._in_head and self.pipeline:
            self.pipeline.popleft()  # its body is not here
            self.cycle = self.pipeline[0][0] if self.pipeline else self._first  # type: ignore[assignment]
        elif self._due is not None and not self._in_head:
            return False
        if self.cycle is None or self.cycle.response_complete or self.transport.is_closing():
            return False
        self._due = None
        self.cycle.keep_alive = False
        self._feed = _left_unread  # type: ignore[method-assign, assignment]
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._admission.left(self)
        if self._leaves_at is not None:
            self._leaves_at.cancel()
        if self.pipeline and self._first is not None:
            self._first.disconnected = True
            self._first.message_event.set()
            self.pipeline.clear()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck_since = None
        super().resume_writing()

    # the bounds

    def close_if_late(self, now: float) -> None:
        if self.transport.is_closing():
            if self._stuck_since is None:
                self._stuck_since = now
        elif self._due is not None and self._due < now and not self.flow.read_paused:
            self.transport.close()
        if self._stuck_since is not None and self._stuck_since + self._request_seconds < now:
            self.transport.abort()

    def may_go(self, now: float) -> tuple[int, float] | None:
        """Answer the rank of this connection among those that are closed for another one, the lowest first: an idle
        one, one with a slow head, one with a slow body. ``None``: it may not be closed."""
        if self._is_leaving or self.transport.is_closing():
            return None
        if self._due is None:
            is_idle = self.cycle is not None and self.cycle.response_complete and not self.pipeline
            idle = self.timeout_keep_alive_task
            return (0, idle.when() - self.timeout_keep_alive) if is_idle and idle is not None else None
        if self._is_silent:
            return 0, self._begun
        patience = self._admission.bounds.head_seconds if self._in_head else self._request_seconds
        return (1 if self._in_head else 2, self._begun) if self._begun + patience < now else None

    def shutdown(self) -> None:
        """The end is near: a request that is not here in whole is not waited for."""
        if self._due is not None:
            self.transport.close()
        else:
            super().shutdown()


class _LastAnswer:
    """The transport of a request after which the client wants no other one. It may be answered before it is here."""

    def __init__(self, connection: BoundedProtocol) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection.transport, name)

    def close(self) -> None:
        if self._connection.is_request_here or self._connection.transport.is_closing():
            self._connection.transport.close()
        else:
            self._connection.close_when_read()


def _left_unread(_data: bytes) -> None:
    """Drop the bytes after the end."""


_SWEEP_TICKS: Final = 50
_LOOK_TICKS: Final = 10
"""Ticks of uvicorn, of 0.1 s each."""
_LAST_BYTES_SECONDS: Final = 2
"""For answers that are on their way when the end has come."""


class BoundedServer(uvicorn.Server):
    """Serves ``app``. ``announce`` is called when it does, ``ending`` when it is told to stop (``should_exit``): then
    no connection and no further request is taken, and running requests may take ``drain_seconds``. ``certificate`` and
    ``key``: files, as PEM; without them there is no TLS."""

    def __init__(
        self,
        app: ASGIApplication,
        *,
        announce: Callable[[], None],
        ending: Callable[[], None],
        drain_seconds: float,
        bounds: ConnectionBounds = ConnectionBounds(),  # noqa: B008 - it is frozen
        tell: Callable[..., None] = tell,
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        self._admission = Admission(bounds, tell)
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(BoundedProtocol, self._admission),  # type: ignore[arg-type]
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=[("server", "wsrm-mq")],
                ssl_certfile=certificate,
                ssl_keyfile=key,
                timeout_keep_alive=bounds.keep_alive,  # type: ignore[arg-type]
                timeout_graceful_shutdown=_LAST_BYTES_SECONDS,
            )
        )
        self._admission.connections = self.server_state.connections  # type: ignore[assignment]
        self._announce = announce
        self._ending = ending
        self._drain_seconds = drain_seconds
        self.has_finished = True
        """Whether all requests were answered before the end."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()  # the caller's business

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    async def on_tick(self, counter: int) -> bool:
        if counter % _SWEEP_TICKS == 0:
            now = asyncio.get_running_loop().time()
            for connection in self._connections():
                connection.close_if_late(now)
        if counter % _LOOK_TICKS == 0:
            self._admission.look(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._ending()
        for server in self.servers:
            server.close()
        for connection in self._connections():
            connection.shutdown()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._drain_seconds
        while self.server_state.tasks and loop.time() < deadline:
            await asyncio.sleep(0.02)
        self.has_finished = not self.server_state.tasks
        await super().shutdown(sockets)

    def _connections(self) -> list[Any]:
        return list(self.server_state.connections)
