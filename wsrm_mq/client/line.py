"""The line to a queue server: an event loop in a thread of its own, on which requests are sent and answered.

A request that could not be sent, or that the server was too busy for, is sent again for a while; one that was sent and
not answered only if it does no more when it arrives twice. A session is begun by the first request that leases
something, and kept alive by one every few seconds. What was leased by an answer that was lost on its way goes back: the
server is told which that was.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from itertools import count
from ssl import SSLContext
from typing import Any, Final, TypeVar

import aiohttp
from yarl import URL

from wsrm_mq.client.forms import Answer, Request, asking, check, read
from wsrm_mq.errors import (
    ConfigurationError,
    NotAnswered,
    Overloaded,
    ServerUnavailable,
    SessionEnded,
    StoreBusy,
    StoreOverloaded,
    StoreUnavailable,
    WSRMError,
)
from wsrm_mq.events.telling import Events

PATIENCE: Final = 30.0
"""Seconds for which a request is sent again that could not be sent, or found no room at the server."""
WAIT_SECONDS: Final = 25.0
"""The longest that one request waits for a message: proxies give up after a minute."""
SESSION_SECONDS: Final = 10.0
"""A session ends when the server has heard nothing of it for so long."""
_TOKEN: Final = re.compile("[!-~]+")
_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
_CONNECT_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 60.0
_LONGEST_HEADER: Final = 1024 * 1024
"""The longest header of an answer, in bytes: a message's properties are in one."""
_IDLE_SECONDS: Final = 4.0
"""An idle connection is closed by this side before most servers close it."""

_PRESENT: Final = asking("GET", "session")._replace(in_session=True)
MOST_LOST: Final = 100
"""Lost answers that one request tells of."""

R = TypeVar("R")


class Line:
    """The line of one node. Its methods may be called by any thread but that of its loop; coroutines run on that."""

    def __init__(
        self, where: str, token: str | None, client: str | None, telling: Events, tls: SSLContext | None = None
    ) -> None:
        """``where``: the address of the server. ``client``: what its session is known by. ``tls``: whom it trusts, and
        what it shows; ``None``: as the system says."""
        self.where = URL(where)
        if self.where.scheme not in ("http", "https") or not self.where.host:
            raise ConfigurationError(f"{where!r} is no address of a queue server; it is https://host/path.")
        if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
            raise ConfigurationError(
                "The `token` is none: it is a text without spaces and line ends, as `wsrm-mq token add` wrote it. "
                "One that is read from a file is to be stripped."
            )
        self.is_open = True
        self._base = str(self.where).rstrip("/")
        self._token = token
        self._client = client
        self._telling = telling
        self._tls = tls
        self._pid = os.getpid()
        self._session: str | None = None
        self._sent_at = 0.0
        self._numbers = count(1)
        self._lost: set[int] = set()
        """The numbers of requests of the session that lease, and to which no answer has come."""
        self._is_away = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wsrm-mq-client", daemon=True)
        self._thread.start()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.wait(self._begin())

    async def _begin(self) -> None:
        self._beginning = asyncio.Lock()
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS, ssl=self._tls or True),
            headers=headers,
            skip_auto_headers=("Content-Type",),
            auto_decompress=True,
            max_field_size=_LONGEST_HEADER,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self.begin(self._keep_alive())

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and of this process."""
        return self.is_open and self._pid == os.getpid()

    # for threads

    @property
    def has_session(self) -> bool:
        """Whether something may be leased by it."""
        return self._session is not None

    def check_open(self) -> None:
        """Raises ``StoreUnavailable`` where it is closed, and in a fork."""
        if self._pid != os.getpid():
            raise StoreUnavailable(
                f"{self.where}: the node was opened in another process, of which this one is a fork.",
                "Call `connect` in the child.",
            )
        if not self.is_open:
            raise StoreUnavailable(f"{self.where}: the node is closed.", "Call `connect` anew.")

    def run(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        """Have a coroutine run on the loop."""
        try:
            self.check_open()
        except StoreUnavailable:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the loop, and wait for it."""
        done = self.run(work)
        try:
            return done.result()
        except BaseException:
            done.cancel()
            raise

    def call(self, request: Request) -> Answer:
        """Send a request; answers what came back. Raises the error that the server tells."""
        return self.wait(self.ask(request))

    def wake(self, event: asyncio.Event) -> None:
        """Set an event of the loop."""
        if self.is_open:
            self._loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """End the session, which gives back what it has leased, and the line."""
        if self.is_usable:
            self.wait(self._end())
            self.is_open = False
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # on the loop

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a task that ends with the line."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def ask(self, request: Request, *, patience: float = PATIENCE) -> Answer:
        """See ``call``. ``patience``: seconds for which it is sent again."""
        deadline = time.monotonic() + patience
        tries = 0
        while True:
            try:
                return await self._send(request)
            except (ServerUnavailable, StoreBusy, StoreOverloaded, Overloaded):
                if time.monotonic() >= deadline:
                    raise
            except NotAnswered:
                if not request.may_repeat or time.monotonic() >= deadline:
                    raise
            except SessionEnded:
                if not request.in_session or request.path.startswith("subscriptions/"):
                    raise
            await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1

    async def _send(self, request: Request) -> Answer:
        if not request.in_session:
            return await self._answered(request, {})
        session = await self._in_session()
        headers = {"Session": session}
        lost = sorted(self._lost)[:MOST_LOST]
        if lost:
            headers["Lost"] = ",".join(map(str, lost))
        number = next(self._numbers)
        if request.leases:
            headers["Request"] = str(number)
        try:
            answer = await self._answered(request, headers)
        except SessionEnded:
            self._forget(session)
            raise
        except (ServerUnavailable, Overloaded):
            raise  # nothing of it was begun
        except (WSRMError, asyncio.CancelledError) as error:
            is_ending = isinstance(error, asyncio.CancelledError) and request.path.startswith("subscriptions/")
            if request.leases and self._session == session and not is_ending:
                self._lose(number)
            raise
        if request.leases or request.path == "session":
            self._lost.difference_update(lost)
        return answer

    async def _answered(self, request: Request, headers: dict[str, str]) -> Answer:
        answer = await self._exchange(request, headers)
        try:
            check(answer, f"{self._base}/{request.path}")
        except NotAnswered as error:
            self._away(error)
            raise
        self._there()
        return answer

    def _forget(self, session: str) -> None:
        """The session has ended; what it had leased went back."""
        if self._session == session:
            self._session = None
            self._lost.clear()

    def _lose(self, number: int) -> None:
        """Tell the server that the answer to a request was lost, now and with each request that leases until it has
        heard of it."""
        self._lost.add(number)
        if len(self._lost) == 1:
            self.begin(self._tell_lost())

    async def _tell_lost(self) -> None:
        while self._lost and self._session is not None:
            try:
                await self.ask(_PRESENT)
            except WSRMError:
                await asyncio.sleep(_PAUSES[-1])

    async def _in_session(self) -> str:
        """The name of the session, which is begun where there is none."""
        async with self._beginning:
            if self._session is None:
                wanted = asking("POST", "sessions", json={"client": self._client, "timeout": SESSION_SECONDS})
                answer = await self._answered(wanted, {})
                self._session = str(read(answer, dict[str, Any])["session"])
            return self._session

    async def _exchange(self, request: Request, headers: dict[str, str]) -> Answer:
        if request.content_type is not None:
            headers["Content-Type"] = request.content_type
        if request.message is not None:
            headers["Message"] = request.message
        if "Session" in headers:
            self._sent_at = time.monotonic()  # what names no session renews none
        where = URL(f"{self._base}/{request.path}", encoded=True)
        if request.query:
            where = where.with_query(request.query)
        wait = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_ANSWER_SECONDS)
        try:
            async with self._http.request(
                request.method, where, data=request.body or None, headers=headers, timeout=wait, allow_redirects=False
            ) as response:
                if request.told is not None and (settled := response.headers.get("Settled")) is not None:
                    request.told(settled.split(","))
                body = await response.read()
                return Answer(
                    response.status, response.headers.get("Content-Type", ""), response.headers.get("Message"), body
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            self._away(error)
            raise ServerUnavailable(f"{self.where} cannot be reached: {error}. Nothing was sent.") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._away(error)
            raise NotAnswered(
                f"{self.where} has not answered: {error or type(error).__name__}. What was sent may have been done. "
                "Give what you put a `message_id` and put it again, or use a `store`, which does that."
            ) from None

    def _away(self, error: BaseException) -> None:
        if not self._is_away:
            self._is_away = True
            self._telling.tell("server.away", address=str(self.where), error=error)

    def _there(self) -> None:
        if self._is_away:
            self._is_away = False
            self._telling.tell("server.back", address=str(self.where))

    async def _keep_alive(self) -> None:
        pause = SESSION_SECONDS / 4
        while True:
            await asyncio.sleep(pause)
            if self._session is not None and time.monotonic() - self._sent_at >= pause:
                try:
                    await self.ask(_PRESENT, patience=0)
                except WSRMError:
                    continue  # who needs it hears of it

    async def _end(self) -> None:
        session, self._session = self._session, None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if session is not None:
            try:
                await self._exchange(asking("DELETE", "session"), {"Session": session})
            except (NotAnswered, ServerUnavailable):
                pass  # it ends by silence
        await self._http.close()
