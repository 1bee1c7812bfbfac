"""What of the event loop's front only its inside shows: no server, the messages of ASGI written by hand."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, TWO_WAY, until
from tests.support.stored import Stored
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.asgi_calls import environ_of
from wsrm_mq.errors import StoreError
from wsrm_mq.front import Front
from wsrm_mq.testing import Reply

Message = dict[str, Any]
ANSWER = b'<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body><done/></s:Body></s:Envelope>'


def scope_of(path: str = "/orders", method: str = "POST", **more: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "http_version": "1.1",
        "headers": [(b"content-type", FACTORY.content_type.encode())],
        "client": ("127.0.0.1", 5000),
        "server": ("127.0.0.1", 80),
        **more,
    }


class Exchange:
    """One request: what the server says of it, and what came back."""

    def __init__(self, body: bytes, **scope: Any) -> None:
        self.scope = scope_of(**scope)
        self.sent: list[Message] = []
        self._body: bytes | None = body
        self.is_gone = asyncio.Event()

    async def receive(self) -> Message:
        if self._body is None:
            await self.is_gone.wait()
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    def through(self, app: Any) -> asyncio.Future[None]:
        return asyncio.ensure_future(app(self.scope, self.receive, self.send))

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])


async def asked(app: Any, body: bytes, **scope: Any) -> Exchange:
    exchange = Exchange(body, **scope)
    await exchange.through(app)
    return exchange


async def create(app: Any) -> str:
    created = Reply.parse((await asked(app, FACTORY.create_sequence())).body).created
    assert created is not None
    return created.identifier


class Operations:
    """A WSGI service that notes its calls and waits as long as it is told to."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.may_go = threading.Event()
        self.may_go.set()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        environ["wsgi.input"].read()
        self.calls.append(environ["wsrm.message_number"])
        self.may_go.wait(20)
        start_response("200 OK", [("Content-Type", FACTORY.content_type)])
        return [ANSWER]


@pytest.fixture
def service() -> Operations:
    return Operations()


@pytest.fixture
def middleware(tmp_path: Path, service: Operations) -> Iterator[WSRMASGIMiddleware]:
    made = WSRMASGIMiddleware(service, tmp_path / "store.db", retry=(0.05,), max_waiting=1, hold_wait=5.0)
    yield made
    service.may_go.set()
    made.close(20)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path / "store.db")


# requests that are cancelled


@pytest.mark.spec("D-DEL-001", versions="all")
@pytest.mark.parametrize("turns", range(8))
def test_a_cancelled_request_leaves_no_sequence_without_a_runner(
    middleware: WSRMASGIMiddleware, service: Operations, turns: int
) -> None:
    """Whenever it is cancelled: before its commit, between the commit and its turn, while its operation waits."""

    async def conversation() -> None:
        identifier = await create(middleware)
        request = Exchange(FACTORY.message(identifier, 1, reply_to=TWO_WAY)).through(middleware)
        for _ in range(turns):
            await asyncio.sleep(0)
        request.cancel()
        await asyncio.wait([request])
        answer = await asked(middleware, FACTORY.message(identifier, 1, reply_to=TWO_WAY))
        assert (answer.status, b"<done/>" in answer.body) == (200, True)
        answer = await asked(middleware, FACTORY.message(identifier, 2, reply_to=TWO_WAY))
        assert (answer.status, b"<done/>" in answer.body) == (200, True)

    asyncio.run(conversation())
    assert service.calls == [1, 2]


def test_operations_whose_requests_are_cancelled_before_a_thread_is_free_are_run(tmp_path: Path) -> None:
    service = Operations()
    service.may_go.clear()
    middleware = WSRMASGIMiddleware(service, tmp_path / "store.db", threads=1)

    async def conversation() -> None:
        sequences = [await create(middleware) for _ in range(3)]
        requests = [Exchange(FACTORY.message(each, 1, reply_to=TWO_WAY)).through(middleware) for each in sequences]
        await asyncio.sleep(0.2)
        for request in requests:
            request.cancel()
        await asyncio.wait(requests)
        service.may_go.set()
        for identifier in sequences:
            assert (await asked(middleware, FACTORY.message(identifier, 1, reply_to=TWO_WAY))).status == 200

    asyncio.run(conversation())
    middleware.close(20)
    assert service.calls == [1, 1, 1]


def test_a_cancelled_request_that_waited_for_a_gap_leaves_its_place(middleware: WSRMASGIMiddleware) -> None:
    async def conversation() -> None:
        first, second = await create(middleware), await create(middleware)
        waiting = Exchange(FACTORY.message(first, 2, reply_to=TWO_WAY)).through(middleware)
        await asyncio.sleep(0.2)
        assert (await asked(middleware, FACTORY.message(second, 3, reply_to=TWO_WAY))).status == 202
        waiting.cancel()
        await asyncio.wait([waiting])
        waiting = (exchange := Exchange(FACTORY.message(second, 2, reply_to=TWO_WAY))).through(middleware)
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await asked(middleware, FACTORY.message(second, 1, reply_to=TWO_WAY))
        await waiting
        assert b"<done/>" in exchange.body

    asyncio.run(conversation())


def test_a_client_that_is_gone_before_its_body_is_whole_leaves_nothing(
    middleware: WSRMASGIMiddleware, stored: Stored
) -> None:
    async def conversation() -> None:
        identifier = await create(middleware)
        messages = iter(({"type": "http.request", "body": b"<s:", "more_body": True}, {"type": "http.disconnect"}))

        async def receive() -> Message:
            return next(messages)

        exchange = Exchange(b"")
        await middleware(exchange.scope, receive, exchange.send)
        assert exchange.sent == []
        assert stored.received(identifier) == []

    asyncio.run(conversation())


def test_each_loop_after_another_is_served(middleware: WSRMASGIMiddleware, service: Operations) -> None:
    identifier = asyncio.run(create(middleware))
    for number in (1, 2):
        answer = asyncio.run(asked(middleware, FACTORY.message(identifier, number, reply_to=TWO_WAY)))
        assert answer.status == 200
    assert service.calls == [1, 2]


def test_what_a_loop_left_that_ended_in_the_middle_is_written(
    middleware: WSRMASGIMiddleware, stored: Stored, service: Operations
) -> None:
    async def half(identifier: str) -> None:
        Exchange(FACTORY.message(identifier, 1)).through(middleware)
        await asyncio.sleep(0)

    identifier = asyncio.run(create(middleware))
    asyncio.run(half(identifier))
    assert until(lambda: stored.received(identifier) == [(1, 1)], 5)
    assert until(lambda: service.calls == [1], 5)


# the end


def test_the_end_of_the_lifespan_answers_and_closes(tmp_path: Path, service: Operations, stored: Stored) -> None:
    middleware = WSRMASGIMiddleware(service, tmp_path / "store.db", hold_wait=20.0)

    async def conversation() -> None:
        told = lifespan_of(middleware)
        await told.say("lifespan.startup")
        identifier = await create(middleware)
        waiting = (exchange := Exchange(FACTORY.message(identifier, 2, reply_to=TWO_WAY))).through(middleware)
        await asyncio.sleep(0.1)
        begun = time.monotonic()
        middleware.stop_waiting()
        await waiting
        assert exchange.status == 202
        assert time.monotonic() - begun < 3
        await told.say("lifespan.shutdown")
        assert (await asked(middleware, FACTORY.message(identifier, 1))).status == 503
        assert [message["type"] for message in told.heard] == [
            "lifespan.startup.complete",
            "lifespan.shutdown.complete",
        ]
        assert stored.received(identifier) == [(2, 2)]

    asyncio.run(conversation())
    assert not middleware.engine.is_running


class Lifespan:
    def __init__(self, app: Any) -> None:
        self.heard: list[Message] = []
        self.state: dict[str, Any] = {}
        self._words: asyncio.Queue[str] = asyncio.Queue()
        self._answered = asyncio.Event()
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self.state}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        return {"type": await self._words.get()}

    async def _send(self, message: Any) -> None:
        self.heard.append(message)
        self._answered.set()

    async def say(self, word: str) -> None:
        """Say it and wait for an answer."""
        self._answered.clear()
        await self._words.put(word)
        await asyncio.wait_for(self._answered.wait(), 20)


def lifespan_of(app: Any) -> Lifespan:
    return Lifespan(app)


async def raises(scope: Any, _receive: Any, _send: Any) -> None:
    assert scope["type"] == "http"


async def returns(scope: Any, _receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})


@pytest.mark.parametrize("app", [raises, returns])
def test_an_application_without_a_lifespan_is_started_and_closed_all_the_same(tmp_path: Path, app: Any) -> None:
    middleware = WSRMASGIMiddleware(app, tmp_path / "store.db")
    assert (tmp_path / "store.db").exists()
    assert not middleware.engine.is_running, "there is no loop yet in which it could be called"

    async def life() -> None:
        told = lifespan_of(middleware)
        await told.say("lifespan.startup")
        assert middleware.engine.is_running
        await told.say("lifespan.shutdown")
        await told.task

    asyncio.run(life())
    assert not middleware.engine.is_running


def test_a_store_that_cannot_be_opened_is_told_when_it_is_made_and_when_it_starts(tmp_path: Path) -> None:
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"This is a letter to my aunt.\n" * 40)
    for app in (raises, Operations()):
        with pytest.raises(StoreError):
            WSRMASGIMiddleware(app, bad)
    middleware = WSRMASGIMiddleware(raises, bad, start=False)

    async def life() -> None:
        told = lifespan_of(middleware)
        await told.say("lifespan.startup")
        assert told.heard[0]["type"] == "lifespan.startup.failed"
        assert "bad.db" in told.heard[0]["message"]
        told.task.cancel()

    asyncio.run(life())


# what a server says of a request


@pytest.mark.parametrize(
    ("root", "path", "script_name", "path_info"),
    [
        ("", "/orders", "", "/orders"),
        ("/shop", "/shop/orders", "/shop", "/orders"),
        ("/shop", "/shopping", "/shop", "/shopping"),
        ("/shop", "/shop", "/shop", ""),
        ("", "/b\u00fccher", "", "/b\u00c3\u00bccher"),
    ],
)
def test_the_path_is_that_of_wsgi(root: str, path: str, script_name: str, path_info: str) -> None:
    environ = environ_of(scope_of(path, root_path=root))
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == (script_name, path_info)


def test_headers_come_together_and_none_passes_for_another() -> None:
    headers = [
        (b"X-Two", b"a"),
        (b"x-two", b"b"),
        (b"x_user", b"forged"),
        (b"x-user", b"caf\xe9"),
        (b"content-type", b"text/xml"),
        (b"remote-user", b"forged"),
    ]
    environ = environ_of(scope_of(headers=headers))
    assert environ["HTTP_X_TWO"] == "a,b"
    assert environ["HTTP_X_USER"] == "caf\u00e9"
    assert environ["CONTENT_TYPE"] == "text/xml"
    assert "REMOTE_USER" not in environ


def test_what_is_no_http_goes_to_the_application(tmp_path: Path) -> None:
    seen: list[str] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    middleware = WSRMASGIMiddleware(app, tmp_path / "store.db")
    exchange_scope = {"type": "websocket", "path": "/"}

    async def nothing() -> Message:
        return {}

    async def send(_message: Any) -> None: ...

    asyncio.run(middleware(exchange_scope, nothing, send))
    assert seen == ["websocket"]


@pytest.mark.parametrize("compressed", [False, True])
def test_what_takes_long_to_read_is_read_in_a_thread(
    tmp_path: Path, service: Operations, monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    middleware = WSRMASGIMiddleware(service, tmp_path / "store.db", verify_body=True, one_way=())
    threads: list[threading.Thread] = []
    examine = Front.begin

    def noting(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return examine(*arguments)

    monkeypatch.setattr(Front, "begin", noting)

    async def conversation() -> None:
        identifier = await create(middleware)
        headers = [(b"content-type", FACTORY.content_type.encode())]
        body = FACTORY.message(identifier, 1, f"<a>{'x' * 100_000}</a>" if not compressed else "<a/>")
        if compressed:
            import gzip

            headers.append((b"content-encoding", b"gzip"))
            body = gzip.compress(body)
        assert (await asked(middleware, body, headers=headers)).status == 200

    asyncio.run(conversation())
    middleware.close(20)
    assert threads[0] is threading.main_thread()
    assert threads[1] is not threading.main_thread()


# a fork


def test_a_child_does_not_call_an_asgi_application_before_a_loop_serves_it(tmp_path: Path) -> None:
    calls: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await receive()
        calls.append(os.getpid())
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body"})

    middleware = WSRMASGIMiddleware(app, tmp_path / "store.db", one_way=("put",))

    async def serve(identifier: str | None) -> str:
        identifier = identifier or await create(middleware)
        await asked(middleware, FACTORY.message(identifier, 1 + len(calls)))
        end = time.monotonic() + 10
        while not (calls and calls[-1] == os.getpid()) and time.monotonic() < end:
            await asyncio.sleep(0.01)
        return identifier

    identifier = asyncio.run(serve(None))
    pid = os.fork()
    if not pid:
        status = 1
        try:
            idle = not middleware.engine.is_running
            asyncio.run(serve(identifier))
            status = 0 if idle and calls[-1] == os.getpid() else 2
            middleware.close(10)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    middleware.close(20)


def test_a_hook_sees_each_request_with_its_own_scope_however_alike_they_are(tmp_path: Path) -> None:
    seen: list[Any] = []
    lengths: list[str] = []

    def authenticate(environ: dict[str, Any], _headers: Any) -> str:
        seen.append(environ["asgi.scope"])
        lengths.append(environ["CONTENT_LENGTH"])
        environ["REMOTE_PORT"] = "changed"  # its own copy
        return "somebody"

    service = Operations()
    app = WSRMASGIMiddleware(service, tmp_path / "store.db", authenticate=authenticate)

    bodies = [FACTORY.create_sequence(), FACTORY.create_sequence(message_id="urn:another:request")]

    async def run() -> list[Exchange]:
        named = [(b"content-type", FACTORY.content_type.encode())]
        return [await asked(app, body, headers=[*named, (b"content-length", b"%d" % len(body))]) for body in bodies]

    try:
        exchanges = asyncio.run(run())
    finally:
        app.close(20)
    assert [scope is exchange.scope for scope, exchange in zip(seen, exchanges, strict=True)] == [True, True]
    assert lengths == [str(len(body)) for body in bodies]


def test_requests_that_are_alike_but_for_one_header_are_kept_with_their_own(
    middleware: WSRMASGIMiddleware, tmp_path: Path
) -> None:
    async def run() -> None:
        identifier = await create(middleware)
        for number, header in enumerate((b"one", b"one", b"two"), 1):
            headers = [(b"content-type", FACTORY.content_type.encode()), (b"x-request-id", header)]
            await asked(middleware, FACTORY.message(identifier, number, reply_to=TWO_WAY), headers=headers)

    asyncio.run(run())
    kept = Stored(tmp_path / "store.db").rows("SELECT environ FROM message ORDER BY id")
    assert [json.loads(environ)["HTTP_X_REQUEST_ID"] for (environ,) in kept] == ["one", "one", "two"]


def test_a_body_without_a_length_is_bounded_although_it_comes_at_once(tmp_path: Path) -> None:
    app = WSRMASGIMiddleware(Operations(), tmp_path / "store.db", max_body=2_000)
    try:
        exchange = asyncio.run(asked(app, b"<x>" + b" " * 3_000 + b"</x>"))
    finally:
        app.close(20)
    assert exchange.status == 413


LARGE = {
    "a value": lambda number: [(b"x-large", b"%05d" % number + b"x" * 60_000)],
    "a name": lambda number: [(b"x-%05d" % number + b"x" * 60_000, b"")],
    "many": lambda number: [(b"x-%d-%d" % (number, each), b"") for each in range(2_000)],
    "one that is stored": lambda number: [(b"x-request-id", b"%05d" % number + b"x" * 60_000)],
}


@pytest.mark.parametrize("kind", LARGE)
def test_requests_with_large_headers_are_not_remembered(middleware: WSRMASGIMiddleware, kind: str) -> None:
    """Whether they are stored or not: any client can send some thousand of them."""

    async def run(numbers: range) -> None:
        for number in numbers:
            headers = [(b"content-type", FACTORY.content_type.encode()), *LARGE[kind](number)]
            created = await asked(middleware, FACTORY.create_sequence(), headers=headers)
            assert created.status == 200

    asyncio.run(run(range(10)))
    tracemalloc.start()
    try:
        asyncio.run(run(range(10, 60)))
        kept, _most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 50 * 60_000 / 4
