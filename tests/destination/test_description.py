"""A WSDL on its way out: what HTTP says of it stays true, whatever the application says."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.test_asgi_in_process import Exchange
from wsrm_mq import WSRMMiddleware
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.destination import description
from wsrm_mq.envelope.wsdl import parsed
from wsrm_mq.errors import NotAuthenticated

HEAD: Final = (
    '<w:definitions xmlns:w="http://schemas.xmlsoap.org/wsdl/" xmlns:s="http://schemas.xmlsoap.org/wsdl/soap/" '
    'targetNamespace="urn:t" xmlns:t="urn:t">'
)
WSDL: Final = (
    f'<?xml version="1.0" encoding="UTF-8"?>{HEAD}'
    '<w:portType name="p"><w:operation name="put"><w:input message="t:put" '
    'xmlns:m="http://www.w3.org/2007/05/addressing/metadata" m:Action="urn:t:put"/><w:output message="t:none"/>'
    '</w:operation></w:portType><w:binding name="b" type="t:p">'
    '<s:binding transport="http://schemas.xmlsoap.org/soap/http"/></w:binding>'
    '<w:service name="s"><w:port name="p" binding="t:b"><s:address location="http://10.0.0.7:8080/orders?v=1"/>'
    "</w:port></w:service></w:definitions>"
).encode()
ANNOUNCED: Final = b"RMAssertion"


@dataclass
class Service:
    """Answers every request alike, and keeps what it was asked."""

    content: bytes = WSDL
    status: str = "200 OK"
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/xml"),)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        self.asked.append(environ)
        start_response(self.status, list(self.headers))
        return [self.content]


@dataclass(frozen=True)
class Got:
    status: int
    headers: dict[str, str]
    body: bytes


Get = Callable[..., Got]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture(params=["wsgi", "asgi"])
def front(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def get(front: str, service: Service, tmp_path: Path) -> Iterator[Get]:
    """Asks the service behind the middleware, whose options are those of the first request."""
    made: list[Any] = []

    def get(path: str = "/?wsdl", method: str = "GET", headers: dict[str, str] | None = None, **options: Any) -> Got:
        kind = WSRMMiddleware if front == "wsgi" else WSRMASGIMiddleware
        if not made:
            made.append(kind(service, tmp_path / "store.db", start=False, **options))  # type: ignore[arg-type]
        ask = _over_wsgi if front == "wsgi" else _over_asgi
        where, _, query = path.partition("?")
        return ask(made[0], where, query, method, headers or {})

    yield get
    for one in made:
        one.close()


def _over_wsgi(app: Any, path: str, query: str, method: str, headers: dict[str, str]) -> Got:
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, "SCRIPT_NAME": ""}
    environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    started: list[Any] = []
    body = b"".join(app(environ, lambda *said: started.append(said)))
    return Got(int(started[0][0][:3]), {name.lower(): value for name, value in started[0][1]}, body)


def _over_asgi(app: Any, path: str, query: str, method: str, headers: dict[str, str]) -> Got:
    fields = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    exchange = Exchange(b"", path=path, method=method, query_string=query.encode(), headers=fields)

    async def ask() -> None:
        await exchange.through(app)

    asyncio.run(ask())
    named = {name.decode(): value.decode() for name, value in exchange.sent[0]["headers"]}
    return Got(exchange.status, named, exchange.body)


@pytest.mark.parametrize("path", ["/?wsdl", "/?WSDL", "/orders?wsdl=1", "/orders.wsdl"])
def test_what_asks_for_a_wsdl_gets_one_that_announces(get: Get, path: str) -> None:
    got = get(path, one_way=["urn:t:put"])
    assert got.status == 200
    assert ANNOUNCED in got.body
    assert b"w:output" not in got.body
    assert got.headers["content-length"] == str(len(got.body))


@pytest.mark.spec("RSP-014", versions="all")
def test_a_service_that_claims_to_conform_to_the_profile_goes_on_to(get: Get, service: Service) -> None:
    claim = (
        b'<p:Policy xmlns:p="http://schemas.xmlsoap.org/ws/2004/09/policy">'
        b'<r:Conformant xmlns:r="http://ws-i.org/profiles/rsp/1.0/"/></p:Policy>'
    )
    service.content = WSDL.replace(HEAD.encode(), HEAD.encode() + claim)
    said = get().body
    assert ANNOUNCED in said
    assert b"r:Conformant" in said


@pytest.mark.parametrize(
    ("path", "is_announced"),
    [("/soap?wsdl", True), ("/soap.wsdl", True), ("/soap/x.wsdl", True), ("/else?wsdl", False)],
)
def test_only_addresses_of_covered_paths_announce(get: Get, path: str, is_announced: bool) -> None:
    assert (ANNOUNCED in get(path, paths=["/soap"]).body) is is_announced


def test_an_application_that_is_to_announce_nothing_is_asked_as_it_was(get: Get, service: Service) -> None:
    got = get(headers={"If-None-Match": '"a"', "Accept-Encoding": "gzip"}, announce_rm=False)
    assert got.body == WSDL
    assert service.asked[0]["HTTP_IF_NONE_MATCH"] == '"a"'


def test_what_asks_for_something_else_passes(get: Get, service: Service) -> None:
    service.content = b"<p/>" + WSDL
    assert get("/?xsd=1").body == service.content
    assert get("/index.html").body == service.content


def test_a_head_tells_what_a_get_would_bring(get: Get, service: Service) -> None:
    whole = get()
    head = get(method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers == whole.headers
    assert service.asked[-1]["REQUEST_METHOD"] == "GET"


def test_the_document_is_validated_by_itself_and_not_by_what_it_was_made_of(get: Get, service: Service) -> None:
    """The application would say 304 of a document that has never left it, after a change of the configuration too."""
    service.headers += (("ETag", '"of-the-service"'), ("Last-Modified", "Mon, 23 Nov 2026 10:00:00 GMT"))
    whole = get(headers={"If-None-Match": '"of-the-service"', "Range": "bytes=0-9"})
    assert whole.status == 200
    assert whole.headers["etag"] != '"of-the-service"'
    assert "last-modified" not in whole.headers
    assert not {"HTTP_IF_NONE_MATCH", "HTTP_RANGE"} & set(service.asked[-1])
    for known in (whole.headers["etag"], f'"x", W/{whole.headers["etag"]}', "*"):
        again = get(headers={"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", whole.headers["etag"])
        assert "content-length" not in again.headers


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_document_that_comes_compressed_goes_out_plain(get: Get, service: Service, coding: str) -> None:
    service.content = gzip.compress(WSDL) if coding == "gzip" else zlib.compress(WSDL)
    service.headers += (("Content-Encoding", coding), ("Content-Length", str(len(service.content))))
    got = get(headers={"Accept-Encoding": "gzip"})
    assert ANNOUNCED in got.body
    assert "content-encoding" not in got.headers
    assert got.headers["content-length"] == str(len(got.body))
    assert "HTTP_ACCEPT_ENCODING" not in service.asked[0]


def test_the_charset_is_the_one_that_it_is_written_in(get: Get, service: Service) -> None:
    service.content = WSDL.replace(b"UTF-8", b"ISO-8859-1").replace(b'name="b"', 'name="grö"'.encode("latin-1"))
    service.headers = (("Content-Type", 'text/xml; charset="iso-8859-1"; x=y'),)
    got = get()
    assert got.headers["content-type"] == "text/xml; x=y; charset=utf-8"
    assert "grö".encode() in got.body


@pytest.mark.parametrize(
    ("content", "reason"),
    {
        WSDL[:-20]: "not XML",
        b"<!DOCTYPE w>" + WSDL[38:]: "not a WSDL 1.1",
        b'<d:description xmlns:d="http://www.w3.org/ns/wsdl"/>': "not a WSDL 1.1",
        WSDL + b" " * 5_000: "larger than",
    }.items(),
    ids=["cut off", "with a document type", "WSDL 2.0", "huge"],
)
def test_a_document_that_cannot_be_read_goes_out_as_it_came_and_is_told_once(
    get: Get,
    service: Service,
    content: bytes,
    reason: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(description, "LARGEST", 4_000)
    service.content = content
    service.headers += (("ETag", '"own"'),)
    for _ in range(3):
        got = get()
        assert (got.body, got.headers["etag"]) == (content, '"own"')
    assert get(headers={"If-None-Match": '"own"'}).status == 304
    [told] = [record for record in caplog.records if "wsdl.untouched" in record.message]
    assert reason in told.message


def test_a_coding_that_is_not_known_goes_out_as_it_came(get: Get, service: Service) -> None:
    service.headers += (("Content-Encoding", "br"),)
    got = get()
    assert (got.body, got.headers["content-encoding"]) == (WSDL, "br")


def test_a_page_or_an_error_in_place_of_a_wsdl_is_not_told(
    get: Get, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.headers = (("Content-Type", "text/html"),)
    service.content = b"<html><p>Services<html>"
    assert get().body == service.content
    service.status, service.content = "404 Not Found", WSDL
    got = get()
    assert (got.status, got.body) == (404, WSDL)
    assert "wsdl.untouched" not in caplog.text


def test_what_is_promised_is_what_holds_for_the_principal_and_for_strangers_what_holds_for_them(get: Get) -> None:
    def authenticate(environ: dict[str, Any], _headers: Any) -> str | None:
        if "HTTP_X_USER" not in environ:
            raise NotAuthenticated("who is it?")
        return str(environ["HTTP_X_USER"])

    partners = {"acme": {"principal": "acme", "assurance": "at_most_once"}}
    assert b"ExactlyOnce/" in get(authenticate=authenticate, partners=partners).body
    assert b"AtMostOnce/" in get(headers={"X-User": "acme"}).body


@pytest.mark.parametrize("announce_rm", [True, False])
@pytest.mark.parametrize(
    ("public_url", "location"),
    {
        "https://shop.example": b'"https://shop.example/orders?v=1"',
        "https://shop.example:8443/soap/": b'"https://shop.example:8443/soap/orders?v=1"',
        "https://shop.example/orders": b'"https://shop.example/orders?v=1"',
        "https://shop.example/ord": b'"https://shop.example/ord/orders?v=1"',
    }.items(),
)
def test_the_service_lies_where_its_clients_reach_it(
    get: Get, public_url: str, location: bytes, announce_rm: bool
) -> None:
    got = get(public_url=public_url, announce_rm=announce_rm)
    assert location in got.body
    assert (ANNOUNCED in got.body) is announce_rm


@pytest.mark.parametrize("location", ["jms:queue:orders", "http://[broken"])
def test_a_port_that_is_reached_in_another_way_stays_where_it_is(get: Get, service: Service, location: str) -> None:
    service.content = WSDL.replace(b"http://10.0.0.7:8080/orders?v=1", location.encode())
    assert location.encode() in get(public_url="https://shop.example").body


def test_a_wsdl_of_a_thousand_operations_is_described_in_a_moment_and_made_once_whoever_asks(
    get: Get, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read of it grows with it, and not with its square: anybody may ask."""
    names = [f"put{n}" for n in range(1_000)]
    messages = [f'<w:message name="{n}"><w:part name="p" element="t:{n}"/></w:message>' for n in names]
    ported = [_operation(n, f'message="t:{n}"', "") for n in names]
    bound = [_operation(n, "", f'<s:operation soapAction="urn:{n}"/>') for n in names]
    binding = '<w:binding name="b" type="t:p"><s:binding transport="http://schemas.xmlsoap.org/soap/http"/>'
    port_type = '<w:portType name="p">'
    pieces = [HEAD, *messages, port_type, *ported, "</w:portType>", binding, *bound, "</w:binding></w:definitions>"]
    service.content = "".join(pieces).encode()
    read: list[bytes] = []
    monkeypatch.setattr(description, "parsed", lambda document: read.append(document) or parsed(document))
    begun = time.process_time()
    got = get(one_way=["urn:put7"])
    assert time.process_time() - begun < 2.0
    assert ANNOUNCED in got.body
    assert got.body.count(b"<w:output") == 2 * 999
    etag = got.headers["etag"]
    assert [get().headers["etag"], get(method="HEAD").headers["etag"]] == [etag, etag]
    assert get(headers={"If-None-Match": etag}).status == 304
    assert len(read) == 1
    service.content = WSDL
    assert get().headers["etag"] != etag


def _operation(name: str, message: str, more: str) -> str:
    return f'<w:operation name="{name}">{more}<w:input {message}/><w:output {message}/></w:operation>'
