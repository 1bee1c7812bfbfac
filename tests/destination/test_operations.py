"""Which operations have no answer is read from the service, without an option: a message that overtakes another one is
acknowledged at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from wsrm_mq import WSRMMiddleware
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.contrib import spyne_compat  # noqa: F401  (before Spyne)
from wsrm_mq.destination import coverage
from wsrm_mq.destination.coverage import OwnDescription
from wsrm_mq.testing import ASGIWire, EnvelopeFactory, Reply, WSGIWire

# isort: split
from spyne import Application, Integer, ServiceBase, Unicode, rpc
from spyne.protocol.soap import Soap12
from spyne.server.wsgi import WsgiApplication

FACTORY: Final = EnvelopeFactory()
NAMESPACE: Final = "urn:example:orders"
WSDL: Final = f"""<w:definitions xmlns:w="http://schemas.xmlsoap.org/wsdl/" targetNamespace="{NAMESPACE}"
  xmlns:t="{NAMESPACE}" xmlns:m="http://www.w3.org/2007/05/addressing/metadata">
  <w:types><x:schema xmlns:x="http://www.w3.org/2001/XMLSchema" targetNamespace="{NAMESPACE}">
    <x:element name="done"><x:complexType><x:sequence/></x:complexType></x:element>
    <x:element name="said" type="t:said"/>
    <x:complexType name="said"><x:sequence><x:element name="text"/></x:sequence></x:complexType>
  </x:schema></w:types>
  <w:message name="put"><w:part name="in" element="t:put"/></w:message>
  <w:message name="ask"><w:part name="in" element="t:ask"/></w:message>
  <w:message name="note"><w:part name="in" element="t:note"/></w:message>
  <w:message name="done"><w:part name="out" element="t:done"/></w:message>
  <w:message name="said"><w:part name="out" element="t:said"/></w:message>
  <w:portType name="Orders">
    <w:operation name="put"><w:input message="t:put"/></w:operation>
    <w:operation name="ask"><w:input message="t:ask"/><w:output message="t:said"/></w:operation>
    <w:operation name="note"><w:input message="t:note"/><w:output message="t:done"/></w:operation>
  </w:portType>
</w:definitions>""".encode()
ANSWER: Final = b'<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body><done/></s:Body></s:Envelope>'
SOON: Final = 2.0
"""Seconds: less than a request waits for its turn."""


class Service:
    """A SOAP service of no framework, with a WSDL."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status = "200 OK"
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ["REQUEST_METHOD"] == "GET":
            self.asked.append(f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}")
            self.may_answer.wait(20)
            start_response(self.status, [("Content-Type", "text/xml")])
            return [WSDL]
        start_response("200 OK", [("Content-Type", "application/soap+xml"), ("Content-Length", str(len(ANSWER)))])
        return [ANSWER]

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        said: list[Any] = []
        environ = {
            "REQUEST_METHOD": scope["method"],
            "PATH_INFO": scope["path"],
            "QUERY_STRING": scope["query_string"].decode(),
        }
        body = b"".join(self(environ, lambda *given: said.append(given)))
        headers = [(name.encode(), value.encode()) for name, value in said[0][1]]
        await send({"type": "http.response.start", "status": int(said[0][0][:3]), "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Orders(ServiceBase):
    @rpc(Integer)
    def put(ctx: Any, n: int) -> None:
        pass

    @rpc(_returns=Unicode)
    def ask(ctx: Any) -> str:
        return "so"


def spyne() -> WsgiApplication:
    return WsgiApplication(
        Application([Orders], NAMESPACE, in_protocol=Soap12(validator="soft"), out_protocol=Soap12())
    )


async def run_lifespan(app: Any) -> None:
    """As a server starts it, and stops it when that is through."""
    asked = iter(["lifespan.startup", "lifespan.shutdown"])
    said: list[str] = []

    async def receive() -> dict[str, str]:
        return {"type": next(asked)}

    async def send(message: Any) -> None:
        said.append(message["type"])

    await app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


class Partner:
    """Sends to a middleware in this process."""

    def __init__(self, wire: WSGIWire | ASGIWire) -> None:
        self.wire = wire
        self._identifier: str | None = None

    def post(self, body: bytes) -> tuple[int, bytes]:
        answer = self.wire.post(body, {"Content-Type": FACTORY.content_type})
        return answer.status, answer.body

    def send(self, number: int, operation: str) -> tuple[int, bytes]:
        if self._identifier is None:
            created = Reply.parse(self.post(FACTORY.create_sequence())[1]).created
            assert created is not None
            self._identifier = created.identifier
        body = f'<o:{operation} xmlns:o="{NAMESPACE}"/>'
        message = FACTORY.message(self._identifier, number, body, action=f"urn:any:{operation}", reply_to="")
        return self.post(message)

    def wsdl(self) -> bytes:
        assert isinstance(self.wire, WSGIWire)
        environ = {"REQUEST_METHOD": "GET", "QUERY_STRING": "wsdl", "CONTENT_LENGTH": "0"}
        return WSGIWire(self.wire._app, "/orders", environ).post(b"", {}).body


Make = Callable[..., Partner]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[WSRMMiddleware | WSRMASGIMiddleware] = []

    def wrap(app: Any, front: type = WSRMMiddleware, **options: Any) -> Partner:
        middleware = front(app, tmp_path / f"{len(made)}.db", **options)
        made.append(middleware)
        return Partner((WSGIWire if front is WSRMMiddleware else ASGIWire)(middleware, "/orders"))

    yield wrap
    for middleware in made:
        middleware.close(10)


def acknowledged_at_once(partner: Partner, number: int, operation: str) -> bool:
    begun = time.monotonic()
    status, body = partner.send(number, operation)
    took = time.monotonic() - begun
    ack = Reply.parse(body).ack if body else None
    return status == 200 and took < SOON and ack is not None and any(low <= number <= high for low, high in ack.ranges)


def test_a_void_operation_of_spyne_is_one_way_without_an_option(make: Make) -> None:
    partner = make(spyne())
    assert acknowledged_at_once(partner, 1, "put")
    assert acknowledged_at_once(partner, 3, "put")
    assert b"so" in partner.send(2, "ask")[1]
    assert b"putResponse" not in partner.wsdl().partition(b"portType")[2]


@pytest.mark.parametrize(
    ("front", "app"),
    [
        (WSRMMiddleware, lambda service: service),
        (WSRMASGIMiddleware, lambda service: service),
        (WSRMASGIMiddleware, lambda service: service.asgi),
    ],
    ids=["WSGI", "WSGI on a loop", "ASGI"],
)
def test_what_the_services_own_wsdl_gives_no_output_is_one_way(
    make: Make, front: type, app: Callable[[Service], Any]
) -> None:
    service = Service()
    partner = make(app(service), front, hold_wait=0.1)
    assert acknowledged_at_once(partner, 1, "put")
    assert acknowledged_at_once(partner, 3, "put")
    assert partner.send(4, "ask") == (202, b"")
    assert service.asked == ["/orders?wsdl"]


def test_a_partner_whose_clients_wait_for_an_answer_gets_it_and_the_wsdl_that_says_so(make: Make) -> None:
    partner = make(spyne(), partners={"old": {"path": "/orders", "one_way": []}})
    status, body = partner.send(1, "put")
    assert (status, b"putResponse" in body) == (200, True)
    assert b"putResponse" in partner.wsdl().partition(b"portType")[2]


def test_a_client_without_ws_rm_gets_what_it_got_before_the_service_was_wrapped(make: Make) -> None:
    plain = FACTORY.envelope("urn:any:put", f'<o:put xmlns:o="{NAMESPACE}"/>', reply_to="")
    status, body = make(spyne()).post(plain)
    assert (status, b"putResponse" in body) == (200, True)
    assert make(spyne(), one_way=["put"]).post(plain) == (202, b"")


@pytest.mark.parametrize("app", [lambda service: service, lambda service: service.asgi], ids=["WSGI", "ASGI"])
def test_the_paths_that_are_configured_are_asked_when_an_asgi_server_starts(
    tmp_path: Path, app: Callable[[Service], Any]
) -> None:
    service = Service()
    asyncio.run(run_lifespan(WSRMASGIMiddleware(app(service), tmp_path / "wsrm.db", paths=["/orders", "/returns"])))
    assert service.asked == ["/orders?wsdl", "/returns?wsdl"]


def test_a_path_without_a_wsdl_is_told_when_it_starts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = Service()
    service.status = "404 Not Found"
    middleware = WSRMASGIMiddleware(service, tmp_path / "wsrm.db", paths=["/orders"])
    asyncio.run(run_lifespan(middleware))
    (said,) = [one.getMessage() for one in caplog.records if "one_way.no_wsdl" in one.getMessage()]
    assert ("/orders" in said, "set one_way = []" in said) == (True, True), said


def test_what_is_refused_at_the_start_is_asked_again_at_the_first_message() -> None:
    service, told = Service(), list[str]()
    service.status = "401 Unauthorized"

    def call(environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        return service.status, [], b"".join(service(environ, lambda *_given: None))

    description = OwnDescription(call, tell=told.append)
    description.read_at_start(["/orders"])
    assert told == ["/orders"]
    service.status = "200 OK"
    assert description.read("/orders", {"REQUEST_METHOD": "POST", "PATH_INFO": "/orders"})
    assert told == ["/orders"]


@pytest.mark.parametrize(("operation", "is_told"), [("note", True), ("other", True), ("ask", False)])
def test_an_operation_of_which_nothing_is_known_is_told_once_when_it_has_waited(
    make: Make, operation: str, is_told: bool
) -> None:
    told: list[Any] = []
    partner = make(Service(), hold_wait=0.1, on_event=told.append)
    for number in (3, 4):
        assert partner.send(number, operation) == (202, b"")
    partner.send(1, "put")
    end = time.monotonic() + 5
    while is_told and not told and time.monotonic() < end:
        time.sleep(0.01)
    assert [(event.name, event.fields["operation"], event.fields["path"]) for event in told] == [
        ("one_way.unknown", f"{{{NAMESPACE}}}{operation}", "/orders")
    ] * is_told
    assert all("name it in the option one_way if it has none, else set one_way = []" in event.detail for event in told)


def test_a_service_without_a_wsdl_is_asked_again_a_minute_later_and_one_with_it_never() -> None:
    now = [0.0]
    service = Service()

    def call(environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        body = service(environ, lambda *_given: None)
        return service.status, [], b"".join(body)

    description = OwnDescription(call, lambda: now[0])
    message = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_SOAPACTION": "put", "CONTENT_TYPE": "text/xml"}
    service.status = "503 Service Unavailable"
    assert [description.read("/", message) for _ in range(3)] == [False, False, False]
    assert len(service.asked) == 1
    service.status, now[0] = "200 OK", 60.0
    assert description.read("/", message)
    now[0] = 1e6
    assert not description.read("/", message)
    assert len(service.asked) == 2


def test_a_service_that_does_not_answer_keeps_nobody_for_long_whatever_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coverage, "_ANSWER_SECONDS", 0.05)
    service = Service()
    service.may_answer.clear()
    description = OwnDescription(lambda environ: ("200 OK", [], b"".join(service(environ, lambda *_: None))))
    begun = time.monotonic()
    for path in ("/a", "/b", "/c"):
        assert not description.read(path, {"PATH_INFO": path, "REQUEST_METHOD": "POST"})
    service.may_answer.set()
    assert time.monotonic() - begun < SOON
    assert service.asked == ["/a?wsdl"]
