"""What an operation of Spyne raises is kept, though the fault that Spyne answers says "Internal Error" and no more."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from spyne import Application, Fault, ServiceBase, Unicode, rpc
from spyne.protocol.soap import Soap11, Soap12
from spyne.server.wsgi import WsgiApplication

from tests.support.in_process import FACTORY, InProcess, until
from tests.support.stored import Stored
from tests.test_asgi_in_process import asked, create
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.contrib.spyne_errors import tell_failures

NAMESPACE = "urn:example:orders"
PLACE = rf"{re.escape(__file__)}:\d+ Shop\.put"
PUT = f'<o:put xmlns:o="{NAMESPACE}"><o:text>{{text}}</o:text></o:put>'


class NoStock(Exception):
    pass


class Shop(ServiceBase):
    @rpc(Unicode)
    def put(ctx: Any, text: str) -> None:
        match text:
            case "raise":
                raise NoStock("none of them is left")
            case "library":
                json.loads("{")
            case "client":
                raise Fault("Client.NoStock", "no such article")
            case "server":
                raise Fault("Server", "not now")


def speaking(protocol: type[Soap11]) -> Application:
    return Application([Shop], NAMESPACE, in_protocol=protocol(validator="soft"), out_protocol=protocol())


def routed(soap_1_1: Any, soap_1_2: Any) -> Any:
    """As an application has it that speaks both versions: the middleware sees a function."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        is_1_2 = environ.get("CONTENT_TYPE", "").startswith("application/soap+xml")
        return (soap_1_2 if is_1_2 else soap_1_1)(environ, start_response)

    return application


@pytest.fixture(params=["alone", "behind a function"])
def wsrm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcess]:
    alone = WsgiApplication(speaking(Soap12))
    app = alone if request.param == "alone" else routed(WsgiApplication(speaking(Soap11)), alone)
    made = InProcess(tmp_path, app, retry=(), one_way=[f"{{{NAMESPACE}}}put"], understood=[])
    yield made
    made.middleware.close(10)


def attempts(wsrm: InProcess) -> list[tuple[Any, ...]]:
    return wsrm.rows("SELECT event, fault, exception, place, reason FROM attempts")


@pytest.mark.parametrize(
    ("text", "event", "fault", "exception", "says"),
    [
        ("raise", "failed", "Receiver", f"{__name__}.NoStock", "; raised NoStock: none of them is left\n"),
        ("library", "failed", "Receiver", "json.decoder.JSONDecodeError", "; raised JSONDecodeError: "),
        (
            "server",
            "failed",
            "Receiver",
            "spyne.model.fault.Fault",
            "with a Receiver fault: soap12env:Receiver not now",
        ),
        ("client", "answered_with_fault", "Sender.NoStock", "spyne.model.fault.Fault", "no such article"),
    ],
)
def test_the_attempt_keeps_what_was_raised_and_where(
    wsrm: InProcess, text: str, event: str, fault: str, exception: str, says: str
) -> None:
    wsrm.put(wsrm.create(), 1, body=PUT.format(text=text))
    assert until(lambda: attempts(wsrm))
    [(*found, place, reason)] = attempts(wsrm)
    assert found == [event, fault, exception]
    assert re.fullmatch(PLACE, place)
    assert says in reason


def test_an_operation_that_does_what_it_is_told_tells_nothing(wsrm: InProcess) -> None:
    wsrm.put(wsrm.create(), 1, body=PUT.format(text="fine"))
    assert until(lambda: wsrm.rows("SELECT 1 FROM entry WHERE outcome = 'delivered'"))
    assert attempts(wsrm) == []


def test_behind_an_event_loop_it_tells_alike(tmp_path: Path) -> None:
    async def run() -> list[tuple[Any, ...]]:
        middleware = WSRMASGIMiddleware(
            WsgiApplication(speaking(Soap12)),
            tmp_path / "store.db",
            retry=(),
            one_way=[f"{{{NAMESPACE}}}put"],
            understood=[],
        )
        identifier = await create(middleware)
        await asked(middleware, FACTORY.message(identifier, 1, body=PUT.format(text="raise")))
        stored = Stored(tmp_path / "store.db")
        assert await asyncio.to_thread(until, lambda: stored.rows("SELECT 1 FROM attempts"))
        await asyncio.to_thread(middleware.close, 10)
        return stored.rows("SELECT fault, exception FROM attempts")

    assert asyncio.run(run()) == [("Receiver", f"{__name__}.NoStock")]


def test_one_that_is_made_later_is_listened_to_when_it_is_told(tmp_path: Path) -> None:
    late: list[Any] = []
    wsrm = InProcess(
        tmp_path, lambda *call: late[0](*call), retry=(), one_way=[f"{{{NAMESPACE}.late}}put"], understood=[]
    )

    class Late(ServiceBase):
        @rpc(Unicode)
        def put(ctx: Any, text: str) -> None:
            raise NoStock

    application = Application([Late], f"{NAMESPACE}.late", in_protocol=Soap12(), out_protocol=Soap12())
    tell_failures(application)
    tell_failures(application)
    late.append(WsgiApplication(application))
    wsrm.put(wsrm.create(), 1, body=PUT.replace(NAMESPACE, f"{NAMESPACE}.late").format(text="x"))
    assert until(lambda: attempts(wsrm))
    assert attempts(wsrm)[0][2] == f"{__name__}.NoStock"
    wsrm.middleware.close(10)


@pytest.mark.parametrize("request_of", [lambda environ: environ, lambda environ: SimpleNamespace(META=environ)])
def test_the_key_is_found_in_the_environ_and_in_a_request_of_django(request_of: Callable[[Any], Any]) -> None:
    told: list[BaseException] = []
    application = speaking(Soap11)
    tell_failures(application)
    error = NoStock()
    context = SimpleNamespace(transport=SimpleNamespace(req=request_of({"wsrm.failed": told.append})))
    try:
        raise error
    except NoStock:
        application.event_manager.fire_event("method_exception_object", context)
    assert told == [error]


def test_outside_a_delivery_nothing_is_told() -> None:
    application = speaking(Soap11)
    tell_failures(application)
    for transport in (SimpleNamespace(req={}), SimpleNamespace(), SimpleNamespace(req=None)):
        application.event_manager.fire_event("method_exception_object", SimpleNamespace(transport=transport))


def test_of_any_other_application_nothing_is_changed() -> None:
    tell_failures(lambda *_call: [])
