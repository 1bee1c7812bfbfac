"""Each attempt that does not go well is kept with its fault, its exception and its place."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, TWO_WAY, InProcess, taken, until
from tests.support.stored import Stored
from tests.test_asgi_in_process import asked, create
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.testing import Reply

Starts = Callable[..., Any]
Behaves = Callable[[dict[str, Any], Starts], Any]

ENVELOPE = (
    '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><s:Fault>'
    "<faultcode>s:{code}</faultcode><faultstring>{text}</faultstring></s:Fault></s:Body></s:Envelope>"
)
ATTEMPTS = "SELECT event, fault, exception, place, reason FROM attempts ORDER BY key"


def answering_fault(code: str, *told: BaseException) -> Behaves:
    """Answers as a framework does that catches what its operation raises, and tells of it."""

    def behave(environ: dict[str, Any], start: Starts) -> Any:
        for error in told:
            try:
                raise error
            except type(error) as caught:
                environ["wsrm.failed"](caught)
        start("500 Internal Server Error", [("Content-Type", FACTORY.content_type)])
        return [ENVELOPE.format(code=code, text="Internal Error").encode()]

    return behave


def raising(error: BaseException) -> Behaves:
    def behave(_environ: dict[str, Any], _start: Starts) -> Any:
        raise error

    return behave


def refusing(environ: dict[str, Any], start: Starts) -> Any:
    environ["wsrm.refuse"]("not now")
    return taken(start)


def telling_for_nothing(environ: dict[str, Any], start: Starts) -> Any:
    environ["wsrm.failed"](OSError("it was caught and cured"))
    return taken(start)


def answering_html(environ: dict[str, Any], start: Starts) -> Any:
    environ["wsrm.failed"](OSError("away"))
    start("503 Service Unavailable", [("Content-Type", "text/html")])
    return [b"<html/>"]


class Service:
    def __init__(self) -> None:
        self.behave: Behaves = lambda _environ, start: taken(start)
        self.calls: list[int] = []

    def __call__(self, environ: dict[str, Any], start: Starts) -> Any:
        environ["wsgi.input"].read()
        self.calls.append(environ["wsrm.message_number"])
        return self.behave(environ, start)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def options() -> dict[str, Any]:
    return {}


@pytest.fixture
def wsrm(tmp_path: Path, service: Service, options: dict[str, Any]) -> Iterator[InProcess]:
    made = InProcess(tmp_path, service, **{"retry": (), "hold_wait": 0.1, **options})
    yield made
    made.middleware.close(10)


@pytest.mark.parametrize(
    ("behave", "event", "fault", "exception", "says"),
    [
        (raising(OSError("away")), "failed", "exception", "OSError", "OSError: away\nTraceback"),
        (answering_fault("Server"), "failed", "Server", None, "answered 500 Internal Server Error with a Receiver"),
        (
            answering_fault("Server", OSError("away")),
            "failed",
            "Server",
            "OSError",
            "with a Receiver fault: s:Server Internal Error; raised OSError: away\nTraceback",
        ),
        (
            answering_fault("Server", OSError("away"), ValueError("what followed")),
            "failed",
            "Server",
            "OSError",
            "; raised OSError: away\n",
        ),
        (
            answering_fault("Client.NoStock", LookupError("x")),
            "answered_with_fault",
            "Client.NoStock",
            "LookupError",
            "with a fault: s:Client.NoStock Internal Error; raised LookupError: x\n",
        ),
        (answering_html, "failed", "http_error", "OSError", "answered 503 Service Unavailable without a SOAP fault; "),
        (refusing, "failed", "refused", None, "refused by the application: not now"),
    ],
)
def test_an_attempt_is_kept_with_its_cause(
    wsrm: InProcess, service: Service, behave: Behaves, event: str, fault: str, exception: str | None, says: str
) -> None:
    service.behave = behave
    wsrm.put(wsrm.create(), 1)
    assert until(lambda: wsrm.rows(ATTEMPTS))
    [(found, *causes, place, reason)] = wsrm.rows(ATTEMPTS)
    assert (found, *causes) == (event, fault, exception)
    assert says in reason
    is_raised_here = exception is not None and behave is not answering_html
    assert (place or "").startswith(f"{__file__}:") is is_raised_here


def test_what_is_told_of_a_message_that_is_taken_is_forgotten(wsrm: InProcess, service: Service) -> None:
    service.behave = telling_for_nothing
    wsrm.put(wsrm.create(), 1)
    assert until(lambda: wsrm.rows("SELECT 1 FROM entry WHERE outcome = 'delivered'"))
    assert wsrm.rows(ATTEMPTS) == []


@pytest.mark.parametrize("told", [None, "a text", 7])
def test_what_is_told_and_is_no_exception_changes_nothing(wsrm: InProcess, service: Service, told: Any) -> None:
    def behave(environ: dict[str, Any], start: Starts) -> Any:
        environ["wsrm.failed"](told)
        return answering_fault("Server")(environ, start)

    service.behave = behave
    wsrm.put(wsrm.create(), 1)
    assert until(lambda: wsrm.rows(ATTEMPTS))
    assert wsrm.rows("SELECT fault, exception, place FROM attempts") == [("Server", None, None)]


@pytest.mark.parametrize("is_told", [True, False])
def test_a_request_that_failed_is_freed_at_once(wsrm: InProcess, service: Service, is_told: bool) -> None:
    class Kept:
        pass

    kept: list[weakref.ref[Kept]] = []

    def behave(environ: dict[str, Any], _start: Starts) -> Any:
        environ["kept"] = Kept()
        kept.append(weakref.ref(environ["kept"]))
        try:
            raise OSError("away")
        except OSError as error:
            if is_told:
                environ["wsrm.failed"](error)
            raise

    service.behave = behave
    gc.disable()
    try:
        wsrm.put(wsrm.create(), 1)
        assert until(lambda: wsrm.rows(ATTEMPTS))
        assert until(lambda: kept[0]() is None, 2)
    finally:
        gc.enable()


def test_an_asgi_application_tells_by_its_scope(tmp_path: Path) -> None:
    async def app(scope: dict[str, Any], _receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope["wsrm.failed"](OSError("away"))
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    async def run() -> list[Any]:
        middleware = WSRMASGIMiddleware(app, tmp_path / "store.db", retry=(), hold_wait=0.1)
        identifier = await create(middleware)
        await asked(middleware, FACTORY.message(identifier, 1, reply_to=TWO_WAY))
        await asyncio.to_thread(middleware.close, 10)
        return Stored(tmp_path / "store.db").rows("SELECT fault, exception FROM attempts")

    assert asyncio.run(run()) == [("http_error", "OSError")]


# on_fault


PUT_ASIDE = pytest.mark.parametrize("options", [{"on_fault": "dead_letter"}])


@PUT_ASIDE
def test_what_is_answered_with_a_sender_fault_is_put_aside_and_what_follows_is_delivered(
    wsrm: InProcess, service: Service
) -> None:
    def behave(environ: dict[str, Any], start: Starts) -> Any:
        return answering_fault("Client")(environ, start) if environ["wsrm.message_number"] == 1 else taken(start)

    service.behave = behave
    identifier = wsrm.create()
    for number in (1, 2, 3):
        wsrm.put(identifier, number)
    assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome IS NOT NULL") == [(3,)])
    assert wsrm.rows("SELECT number, queue, outcome, reason, deliveries FROM messages ORDER BY number") == [
        (1, "/orders#dead", "dead", "answered_with_fault", 1),
        (2, "/orders", "delivered", None, 1),
        (3, "/orders", "delivered", None, 1),
    ]
    assert service.calls == [1, 2, 3], "once each: another try would not help"
    assert wsrm.rows("SELECT event, reason FROM ledger_events WHERE event = 'dead'") == [
        ("dead", "answered_with_fault")
    ]
    assert wsrm.rows("SELECT event, fault FROM attempts") == [("failed", "Client")]


@PUT_ASIDE
def test_a_two_way_message_is_never_put_aside_by_its_fault(wsrm: InProcess, service: Service) -> None:
    service.behave = answering_fault("Client")
    assert wsrm.put(wsrm.create(), 1, reply_to=TWO_WAY).startswith("500")
    assert until(lambda: wsrm.rows("SELECT outcome, reason FROM entry") == [("delivered", None)])


@PUT_ASIDE
def test_a_receiver_fault_is_tried_again_as_ever(wsrm: InProcess, service: Service) -> None:
    service.behave = answering_fault("Server")
    wsrm.put(wsrm.create(), 1)
    assert until(lambda: wsrm.rows("SELECT 1 FROM lane WHERE blocked IS NOT NULL"))
    assert wsrm.rows("SELECT outcome FROM entry") == [(None,)]


@pytest.mark.parametrize("options", [{"on_fault": "dead_letter", "acknowledge": "delivered", "hold_wait": 5}])
def test_where_an_acknowledgement_waits_for_the_delivery_what_is_put_aside_is_acknowledged(
    wsrm: InProcess, service: Service
) -> None:
    service.behave = answering_fault("Client")
    identifier = wsrm.create()
    status, content = wsrm.post(FACTORY.message(identifier, 1))
    assert (status, Reply.parse(content).ack.ranges) == ("200 OK", ((1, 1),))
    assert wsrm.rows("SELECT outcome FROM entry") == [("dead",)]


@pytest.mark.parametrize(
    "options", [{"partners": {"acme": {"path": "/orders", "on_fault": "dead_letter"}}, "queue_one_way": True}]
)
def test_a_partner_has_a_rule_of_its_own_and_it_holds_without_wsrm_too(wsrm: InProcess, service: Service) -> None:
    service.behave = answering_fault("Client")
    wsrm.post(FACTORY.envelope("urn:example:orders/put", reply_to=FACTORY.none))
    assert until(lambda: wsrm.rows("SELECT outcome, reason FROM entry") == [("dead", "answered_with_fault")])
