"""What came of an operation is recorded whatever it is: each failure counts, and none repeats an operation for ever."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, TWO_WAY, InProcess, until
from tests.support.stored import Stored
from tests.test_asgi_in_process import ANSWER, asked, create
from wsrm_mq import WSRMMiddleware
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.testing import Reply

LONE = "\udcff"
"""A lone surrogate, which no UTF-8 can carry: what ``os.fsdecode`` makes of a stray byte."""
MOST = 64 * 1024
FAILING = 0.1

answered = pytest.mark.parametrize("hold_wait", [5])

Starts = Callable[..., Any]
Behaves = Callable[[dict[str, Any], Starts], Any]


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Unnamed(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise ValueError("no name")


class OfNoName(Exception, metaclass=Unnamed):
    pass


class Unspeakable:
    def __format__(self, spec: str) -> str:
        raise KeyboardInterrupt


def raising(error: BaseException) -> Behaves:
    def behave(_environ: dict[str, Any], _start: Starts) -> Any:
        raise error

    return behave


def refusing(reason: Any) -> Behaves:
    def behave(environ: dict[str, Any], start: Starts) -> Any:
        environ["wsrm.refuse"](reason)
        return answering()(environ, start)

    return behave


def answering(status: Any = "200 OK", *headers: Any, body: Any = ANSWER) -> Behaves:
    def behave(_environ: dict[str, Any], start: Starts) -> Any:
        start(status, [("Content-Type", FACTORY.content_type), *headers])
        return body if isinstance(body, list) else [body]

    return behave


class Service:
    """Does as it is told, and notes how often it is called."""

    def __init__(self) -> None:
        self.behave = answering()
        self.calls: list[int] = []
        self.asked_for: list[str | None] = []

    def __call__(self, environ: dict[str, Any], start_response: Starts) -> Any:
        environ["wsgi.input"].read()
        self.calls.append(environ["wsrm.message_number"])
        self.asked_for.append(environ.get("HTTP_ACCEPT_ENCODING"))
        return self.behave(environ, start_response)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def hold_wait() -> float:
    """Seconds. What fails has no answer to wait for."""
    return FAILING


@pytest.fixture
def wsrm(tmp_path: Path, service: Service, hold_wait: float) -> Iterator[InProcess]:
    made = InProcess(tmp_path, service, retry=(0.05,), hold_wait=hold_wait, max_reply=MOST)
    yield made
    made.middleware.close(10)


BAD = {
    "a surrogate in an exception": raising(OSError(f"cannot open {LONE}")),
    "20 MB in an exception": raising(OSError("x" * 20_000_000)),
    "an exception without a text": raising(Mute()),
    "an exception whose type has no name": raising(OfNoName("what")),
    "an exit": raising(SystemExit(LONE)),
    "a surrogate in a refusal": refusing(f"not now {LONE}"),
    "20 MB in a refusal": refusing("x" * 20_000_000),
    "a refusal that is no text": refusing(Unspeakable()),
    "a surrogate in a status": answering(f"200 OK{LONE}"),
    "a status that is a number": answering(200),
    "a status of no HTTP": answering("fine"),
    "a redirect": answering("307 Temporary Redirect", ("Location", "/soap/"), body=b""),
    "a status that is not final": answering("100 Continue"),
    "a line break in a status": answering("200 OK\r\nX: y"),
    "an answer that is too large": answering(body=[b"x" * 1024] * 65),
    "an answer that is too large when it is expanded": answering(
        "200 OK", ("Content-Encoding", "gzip"), body=gzip.compress(ANSWER + b" " * MOST)
    ),
    "an answer of text": answering(body="text"),
    "a surrogate in a header": answering("200 OK", ("X-A", LONE)),
    "a line break in a header": answering("200 OK", ("X-A", "a\r\nSet-Cookie: b")),
    "a name of no header": answering("200 OK", ("X A", "a")),
    "a header that is a number": answering("200 OK", ("X-A", 1)),
    "headers without end": answering("200 OK", ("X-A", "a" * 70_000)),
    "a compressed answer that breaks off": answering(
        "200 OK", ("Content-Encoding", "gzip"), body=gzip.compress(ANSWER)[:-9]
    ),
}


@pytest.mark.parametrize("way", ["one-way", "two-way"])
@pytest.mark.parametrize("behave", BAD.values(), ids=BAD.keys())
def test_each_failure_counts_and_after_the_last_try_the_sequence_waits_for_an_operator(
    wsrm: InProcess, service: Service, behave: Behaves, way: str
) -> None:
    service.behave = behave
    identifier = wsrm.create()
    options = {"reply_to": TWO_WAY} if way == "two-way" else {}
    wsrm.put(identifier, 1, **options)
    assert until(lambda: wsrm.rows("SELECT 1 FROM lane WHERE blocked IS NOT NULL"), 8)
    assert service.calls == [1, 1], "the try and the one retry, no more"
    [(failures, error)] = wsrm.rows("SELECT failures, last_error FROM entry")
    assert failures == 2
    assert 0 < len(error) < 10_000
    assert wsrm.rows("SELECT attempt FROM ledger WHERE event = 'failed' ORDER BY id") == [(1,), (2,)]
    assert all(len(reason) < 10_000 for (reason,) in wsrm.rows("SELECT reason FROM ledger WHERE reason IS NOT NULL"))


@pytest.mark.parametrize(
    ("behave", "says"),
    [
        (raising(OSError(f"cannot open {LONE}")), "cannot open \\udcff"),
        (raising(Mute()), "Mute, whose text cannot be read"),
        (answering("200 OK", ("X-A", "a\r\nb")), "the header 'X-A': 'a\\r\\nb', which HTTP cannot carry"),
        (answering(body=[b"x" * MOST, b"x"]), "more than 65536 bytes, which is max_reply"),
        (answering("200 OK", ("Content-Encoding", "br"), body=b"\x0b"), "Content-Encoding 'br'"),
        (answering("301 Moved Permanently", ("Location", "/soap/")), "answered 301 Moved Permanently, to /soap/"),
    ],
)
def test_the_operator_reads_what_is_wrong(wsrm: InProcess, service: Service, behave: Behaves, says: str) -> None:
    service.behave = behave
    wsrm.put(wsrm.create(), 1, reply_to=TWO_WAY)
    assert until(lambda: wsrm.rows("SELECT 1 FROM entry WHERE last_error IS NOT NULL"))
    [(error,)] = wsrm.rows("SELECT last_error FROM entry")
    assert says in error.splitlines()[0]


@answered
def test_headers_as_bytes_are_sent_as_the_text_that_they_are(wsrm: InProcess, service: Service) -> None:
    service.behave = answering(b"200 OK", (b"X-A", b"caf\xe9"))
    identifier = wsrm.create()
    sent: list[Any] = []
    for _copy in range(2):
        status, content = wsrm.post(FACTORY.message(identifier, 1, reply_to=TWO_WAY))
        sent.append((status, Reply.parse(content).ack.ranges))
    assert sent == [("200 OK", ((1, 1),))] * 2
    assert service.calls == [1]
    assert wsrm.rows("SELECT json_extract(headers, '$[1][1]') FROM reply") == [("caf\xe9",)]


@answered
@pytest.mark.parametrize(
    ("coding", "compress"), [("gzip", gzip.compress), ("X-GZIP", gzip.compress), ("deflate", zlib.compress)]
)
def test_an_answer_that_the_service_compressed_carries_its_acknowledgement(
    wsrm: InProcess, service: Service, coding: str, compress: Callable[[bytes], bytes]
) -> None:
    service.behave = answering("200 OK", ("Content-Encoding", coding), body=compress(ANSWER))
    identifier = wsrm.create()
    message = FACTORY.message(identifier, 1, reply_to=TWO_WAY)
    for _copy in range(2):
        status, content = wsrm.post(message, HTTP_ACCEPT_ENCODING="gzip, br")
        assert (status, Reply.parse(content).ack.ranges) == ("200 OK", ((1, 1),))
    assert b"encoding" not in wsrm.rows("SELECT lower(headers) FROM reply")[0][0].encode()
    assert service.asked_for == [None], "it is not asked to compress"


def test_a_compressed_fault_of_a_one_way_message_is_seen(wsrm: InProcess, service: Service) -> None:
    fault = (
        b'<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><s:Fault>'
        b"<faultcode>s:Server</faultcode><faultstring>down</faultstring></s:Fault></s:Body></s:Envelope>"
    )
    service.behave = answering("500 No", ("Content-Encoding", "gzip"), body=gzip.compress(fault))
    wsrm.put(wsrm.create(), 1)
    assert until(lambda: wsrm.rows("SELECT 1 FROM entry WHERE last_error LIKE '%Receiver fault: s:Server down%'"))


# an ASGI application


Sends = Callable[[dict[str, Any]], Any]


def asgi_answering(status: Any, headers: Any, body: bytes) -> Any:
    async def app(scope: dict[str, Any], receive: Any, send: Sends) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    return app


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (200, [("x-a", "text")], ANSWER),
        (200, [(b"x-a", b"a\r\nb")], ANSWER),
        ("200 OK", [], ANSWER),
        (None, [], ANSWER),
        (200, [], b"x" * (MOST + 1)),
    ],
    ids=["headers of text", "a line break", "a status of text", "no status", "too large"],
)
def test_what_an_asgi_application_answers_is_held_to_http_too(
    tmp_path: Path, status: Any, headers: Any, body: bytes
) -> None:
    middleware = WSRMASGIMiddleware(
        asgi_answering(status, headers, body), tmp_path / "store.db", retry=(0.05,), max_reply=MOST
    )
    stored = Stored(tmp_path / "store.db")

    def blocked() -> list[Any]:
        return stored.rows("SELECT failures FROM entry JOIN lane s ON s.id = entry.lane WHERE s.blocked NOT NULL")

    async def conversation() -> None:
        identifier = await create(middleware)
        await asked(middleware, FACTORY.message(identifier, 1))
        async with asyncio.timeout(8):
            while not blocked():
                await asyncio.sleep(0.02)
        await asyncio.to_thread(middleware.close, 10)

    asyncio.run(conversation())
    assert blocked() == [(2,)]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("way", ["one-way", "two-way"])
def test_an_asgi_application_that_exits_fails_like_any_other_and_the_server_goes_on(
    tmp_path: Path, error: type[BaseException], way: str
) -> None:
    calls: list[int] = []

    async def app(scope: dict[str, Any], _receive: Any, _send: Sends) -> None:
        if scope["type"] == "http":
            calls.append(scope["wsrm.attempt"])
            raise error("an operation that ends the process")

    middleware = WSRMASGIMiddleware(app, tmp_path / "store.db", retry=(0.05,), hold_wait=FAILING)
    stored = Stored(tmp_path / "store.db")
    last_errors = "SELECT last_error FROM entry JOIN lane s ON s.id = entry.lane WHERE s.blocked NOT NULL"

    async def conversation() -> None:
        identifier = await create(middleware)
        options = {"reply_to": TWO_WAY} if way == "two-way" else {}
        await asked(middleware, FACTORY.message(identifier, 1, **options))
        async with asyncio.timeout(8):
            while not stored.rows(last_errors):
                await asyncio.sleep(0.02)
        await asyncio.to_thread(middleware.close, 10)

    asyncio.run(conversation())
    assert calls == [1, 2], "the try and the one retry, no more"
    assert stored.rows(last_errors)[0][0].startswith(f"{error.__name__}: an operation that ends the process")


# wrapped twice


def in_front(app: Any) -> Any:
    """Something between the two, as ProxyFix is."""
    return lambda environ, start_response: app(environ, start_response)


@pytest.mark.parametrize("way", ["one-way", "two-way"])
@pytest.mark.parametrize("inner_store", ["store.db", "other.db"])
def test_a_service_that_is_wrapped_twice_is_a_failure_that_says_so(
    tmp_path: Path, service: Service, inner_store: str, way: str
) -> None:
    inner = WSRMMiddleware(service, tmp_path / inner_store)
    outer = InProcess(tmp_path, in_front(inner), retry=(0.05,), hold_wait=FAILING)
    try:
        outer.put(outer.create(), 1, **({"reply_to": TWO_WAY} if way == "two-way" else {}))
        assert until(lambda: outer.rows("SELECT 1 FROM lane WHERE blocked IS NOT NULL"))
        [(outcome, failures, error)] = outer.rows("SELECT outcome, failures, last_error FROM entry")
        assert (outcome, failures) == (None, 2)
        assert "wrapped twice" in error
        assert "wrap the service once" in error
        assert service.calls == []
    finally:
        outer.middleware.close(10)
        inner.close(10)


@pytest.mark.parametrize("inner_store", ["store.db", "other.db"])
def test_so_it_is_where_something_between_the_two_passes_on_what_http_carries_and_no_more(
    tmp_path: Path, service: Service, inner_store: str
) -> None:
    """As an adapter between WSGI and ASGI does. On one store the inner one may run the retry, which is as good."""
    inner = WSRMMiddleware(service, tmp_path / inner_store)

    def adapter(environ: dict[str, Any], start_response: Starts) -> Any:
        return inner({name: value for name, value in environ.items() if "wsrm" not in name}, start_response)

    outer = InProcess(tmp_path, adapter, retry=(0.05,), hold_wait=FAILING)
    delivered = "SELECT 1 FROM entry WHERE outcome = 'delivered'"
    blocked = "SELECT 1 FROM lane WHERE blocked IS NOT NULL"
    try:
        outer.put(outer.create(), 1)
        assert until(lambda: outer.rows(blocked) or outer.rows(delivered))
        assert len(service.calls) == len(outer.rows(delivered)), "what was not called is not delivered"
        [(reason, *_), *_] = outer.rows("SELECT reason FROM ledger WHERE event = 'failed'")
        assert "wrapped twice" in reason
    finally:
        outer.middleware.close(10)
        inner.close(10)


def test_a_service_may_answer_with_what_it_was_asked(wsrm: InProcess, service: Service) -> None:
    """With the RM headers in it: that does not make it a middleware."""
    identifier = wsrm.create()
    message = FACTORY.message(identifier, 1, reply_to=TWO_WAY)
    service.behave = answering("200 OK", body=message)
    assert wsrm.post(message)[0] == "200 OK"
    assert wsrm.rows("SELECT outcome, failures FROM entry") == [("delivered", 0)]


def test_an_event_loop_says_so_too(tmp_path: Path, service: Service) -> None:
    store = tmp_path / "store.db"
    inner = WSRMASGIMiddleware(service, store)
    outer = WSRMASGIMiddleware(inner, store, retry=(0.05,))
    stored = Stored(store)

    async def conversation() -> None:
        await asked(outer, FACTORY.message(await create(outer), 1))
        async with asyncio.timeout(8):
            while not stored.rows("SELECT 1 FROM lane WHERE blocked IS NOT NULL"):
                await asyncio.sleep(0.02)
        await asyncio.to_thread(outer.close, 10)
        await asyncio.to_thread(inner.close, 10)

    asyncio.run(conversation())
    [(outcome, error)] = stored.rows("SELECT outcome, last_error FROM entry")
    assert outcome is None
    assert "wrapped twice" in error
    assert service.calls == []


def test_a_middleware_for_other_paths_inside_one_is_none_of_its_business(tmp_path: Path, service: Service) -> None:
    inner = WSRMMiddleware(service, tmp_path / "other.db", paths=("/invoices",))
    outer = InProcess(tmp_path, inner, paths=("/orders",))
    try:
        outer.put(outer.create(), 1)
        assert until(lambda: outer.rows("SELECT 1 FROM entry WHERE outcome = 'delivered'"))
        assert service.calls == [1]
    finally:
        outer.middleware.close(10)
        inner.close(10)
