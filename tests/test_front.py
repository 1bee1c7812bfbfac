"""Whose business a request is, and what is answered to one that the application must not get: behind both fronts."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, until
from tests.support.stored import Stored
from wsrm_mq import NotAuthenticated, WSRMMiddleware
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.testing import ASGIWire, HTTPAnswer, Wire, WSGIWire

SOAP = FACTORY.content_type
RM = b"http://docs.oasis-open.org/ws-rx/wsrm/200702"
METHODS = ["PUT", "PATCH", "DELETE", "GET", "OPTIONS", "BREW"]


class Service:
    """An application that looks neither at the method nor at the media type; and the middleware around it."""

    def __init__(self, front: str, store: Path, **options: Any) -> None:
        self.calls: list[bytes] = []
        self.store = Stored(store)
        make = {"wsgi": WSRMMiddleware, "asgi": WSRMASGIMiddleware}[front]
        self.middleware: Any = make(self._run, store, one_way=["{urn:example:orders}put"], **options)

    def _run(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        self.calls.append(environ["wsgi.input"].read())
        start_response("202 Accepted", [("Content-Length", "0")])
        return []

    def send(self, body: bytes, method: str = "POST", path: str = "/orders", **fields: str) -> HTTPAnswer:
        """``fields``: HTTP header fields by their names in lower case with ``_`` for ``-``."""
        named = {"Content-Type": SOAP, **{name.replace("_", "-").title(): value for name, value in fields.items()}}
        wire: Wire = (
            WSGIWire(self.middleware, path, {"REQUEST_METHOD": method})
            if isinstance(self.middleware, WSRMMiddleware)
            else ASGIWire(self.middleware, path, {"method": method})
        )
        return wire.post(body, named)

    def create(self, path: str = "/orders") -> str:
        created = self.send(FACTORY.create_sequence(), path=path).reply.created
        assert created is not None
        return created.identifier


@pytest.fixture(params=["wsgi", "asgi"])
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    opened: list[Service] = []

    def having(**options: Any) -> Service:
        opened.append(Service(request.param, tmp_path / f"store{len(opened)}.db", **options))
        return opened[-1]

    yield having
    for service in opened:
        service.middleware.close(5)


@contextmanager
def nothing_happens(service: Service) -> Iterator[None]:
    before, calls = service.store.everything(), list(service.calls)
    yield
    assert service.store.everything() == before
    assert service.calls == calls


# methods


@pytest.mark.spec("H-020", versions="all")
@pytest.mark.parametrize("method", METHODS)
def test_a_reliable_message_by_another_method_is_refused_and_not_run(
    serving: Callable[..., Service], method: str
) -> None:
    """Past the middleware the application would run it as often as it is sent."""
    for options in ({}, {"paths": ["/orders"]}):
        service = serving(**options)
        message = FACTORY.message(service.create(), 1)
        with nothing_happens(service):
            for _ in range(2):
                answer = service.send(message, method)
                assert (answer.status, answer.fields["allow"]) == (405, "POST")
                assert b"POST" in answer.body
            assert service.send(message, method, content_type="text/plain").status == 415
        assert service.send(b"", "GET").status == 202
        assert service.send(b'{"a": 1}', "PUT", content_type="application/json").status == 202


TYPES = ["application/json", "text/plain", "application/xml", "application/x-www-form-urlencoded", ""]


@pytest.mark.parametrize("paths", [[], ["/orders"]], ids=["everywhere", "on a path"])
def test_where_rm_is_required_the_application_gets_nothing_else_by_any_method_or_media_type(
    serving: Callable[..., Service], paths: list[str]
) -> None:
    service = serving(require_rm=True, paths=paths)
    identifier = service.create()
    with nothing_happens(service):
        for body in (FACTORY.message(identifier, 1), b"plain", b'{"a": 1}', b"x" * 100_000):
            for content_type in TYPES:
                assert service.send(body, content_type=content_type).status == 415
                for method in METHODS:
                    assert service.send(body, method, content_type=content_type).status == 405
        assert service.send(b"", "DELETE").status == 405
        assert service.send(b"", "PUT", content_length="", transfer_encoding="chunked").status == 405
        assert service.send(b"x", "HEAD").body == b""
    assert service.send(b"", "GET").status == 202, "a look at the page, or at the WSDL"
    assert service.send(FACTORY.message(identifier, 1)).status == 200


def test_rm_may_be_required_of_a_partner_alone(serving: Callable[..., Service]) -> None:
    def authenticate(environ: dict[str, Any], _headers: object) -> str:
        if environ.get("HTTP_X_USER") is None:
            raise NotAuthenticated
        return str(environ["HTTP_X_USER"])

    partners = {"acme": {"principal": "acme", "require_rm": True}}
    service = serving(partners=partners, authenticate=authenticate)
    asked = {"content_type": "application/json"}
    assert service.send(b"{}", "PUT", x_user="acme", **asked).status == 405
    assert service.send(b"{}", x_user="acme", **asked).status == 415
    assert service.send(b"{}", x_user="other", **asked).status == 202
    assert service.send(b"{}", **asked).status == 401
    assert service.calls == [b"{}"]


# paths


@pytest.mark.parametrize("body", [b'{"about": "' + RM + b'"}', b"[]", b"about " + RM, FACTORY.message("urn:x:y", 1)])
@pytest.mark.parametrize("content_type", ["application/json", "text/plain", SOAP, "application/soap+msbin1"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_on_a_path_that_is_not_covered_everything_is_the_applications(
    serving: Callable[..., Service], body: bytes, content_type: str, method: str
) -> None:
    service = serving(paths=["/orders"], require_rm=True)
    assert service.send(body, method, "/elsewhere", content_type=content_type).status == 202
    assert service.calls == [body]


def test_json_that_mentions_rm_is_no_message_anywhere_but_where_only_soap_is_taken(
    serving: Callable[..., Service],
) -> None:
    body = b' {"about": "' + RM + b'"}'
    anywhere, on_a_path = serving(), serving(paths=["/orders"])
    assert anywhere.send(body, content_type="application/json").status == 202
    assert anywhere.calls == [body]
    assert on_a_path.send(body, content_type="application/json").status == 415
    assert on_a_path.calls == []


# media types and codings


@pytest.mark.peer("P-21")
@pytest.mark.parametrize(
    ("content_type", "advice"),
    [
        ("application/soap+msbin1", b"Set messageEncoding to Text"),
        ('Application/SOAP+MSBin1; action="urn:x"', b"Set messageEncoding to Text"),
        ("application/soap+msbinsession1", b"Set messageEncoding to Text"),
        ("application/fastinfoset", b"Fast Infoset. Turn it off"),
        ("application/soap+fastinfoset", b"Fast Infoset. Turn it off"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"paths": ["/orders"]}, {"require_rm": True}], ids=str)
def test_a_binary_encoding_of_soap_is_answered_with_what_to_set(
    serving: Callable[..., Service], content_type: str, advice: bytes, options: dict[str, Any]
) -> None:
    service = serving(**options)
    with nothing_happens(service):
        answer = service.send(b"\x56\x02\x0b\x01", content_type=content_type)
        assert answer.status == 415
        assert advice in answer.body
        assert "text/xml" in answer.fields["accept"]


@pytest.mark.parametrize("coding", ["br", "deflate", "zstd", "gzip, gzip", "gzip, br", "aes128gcm"])
def test_a_coding_other_than_gzip_is_refused_with_the_ones_there_are(
    serving: Callable[..., Service], coding: str
) -> None:
    service = serving()
    message = FACTORY.message(service.create(), 1)
    with nothing_happens(service):
        for body in (gzip.compress(message), message):
            answer = service.send(body, content_encoding=coding)
            assert (answer.status, answer.fields["accept-encoding"]) == (415, "gzip, identity")


@pytest.mark.parametrize(("coding", "code"), [("x-gzip", gzip.compress), ("GZIP ", gzip.compress), ("identity", bytes)])
@pytest.mark.parametrize("headers", ["pass", "demote"])
def test_gzip_and_identity_are_known_by_all_their_names(
    serving: Callable[..., Service], coding: str, code: Callable[[bytes], bytes], headers: str
) -> None:
    service = serving(headers=headers)
    message = FACTORY.message(service.create(), 1)
    assert service.send(code(message), content_encoding=coding).status == 200
    assert until(lambda: service.calls)  # what has not begun is left to the next start
    assert service.middleware.close(5)
    assert len(service.calls) == 1
    assert service.calls[0].startswith(b"<") is (headers == "demote" or coding == "identity")


# numbers


@pytest.mark.parametrize(
    ("length", "status"), [("9" * 5_000, 413), ("0" * 5_000 + "7", 400), ("٣", 400), ("-1", 400), ("+1", 400)]
)
def test_a_length_that_is_none_or_huge_is_an_answer_and_no_traceback(tmp_path: Path, length: str, status: int) -> None:
    """As a server hands it on that does not look at it."""
    service = Service("wsgi", tmp_path / "store.db")
    with nothing_happens(service):
        assert service.send(b"", content_length=length).status == status
    assert service.send(b"{}", content_type="application/json", content_length="2").status == 202
    assert service.send(b"", content_type="application/json", content_length="9" * 5_000).status == 202
    service.middleware.close(5)
