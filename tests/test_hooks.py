"""The hooks of the middleware: what they may be, and what they answer: a text, or the request is refused loudly."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, InProcess, taken, until
from wsrm_mq import Settings, WSRMMiddleware
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.testing import Reply

REFUSED = "SELECT (SELECT count(*) FROM lane) + (SELECT count(*) FROM message) + (SELECT count(*) FROM queue)"


def service(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    return taken(start_response)


@pytest.mark.parametrize("hook", ["authenticate", "connection_key"])
@pytest.mark.parametrize(
    "answer",
    [b"acme", 7, object(), ("acme",), True, "acme \udcff"],
    ids=["bytes", "int", "object", "tuple", "bool", "surrogate"],
)
def test_a_hook_that_answers_no_text_is_an_error_that_says_so_and_leaves_nothing(
    tmp_path: Path, hook: str, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    wsrm = InProcess(tmp_path, service, **{hook: lambda *_given: answer})
    try:
        with caplog.at_level(logging.ERROR):
            status, content = wsrm.post(FACTORY.create_sequence())
        assert status.startswith("503")
        assert b"set up wrongly" in content
        assert wsrm.rows(REFUSED) == [(0,)]
        said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert len(said) == 1
        assert f"{hook} answered" in said[0]
    finally:
        wsrm.middleware.close(5)


@pytest.mark.parametrize("hook", ["authenticate", "connection_key"])
def test_a_hook_that_raises_refuses_the_request_and_an_operator_can_count_it(
    tmp_path: Path, hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_given: object) -> str:
        raise OSError("the directory is away")

    wsrm = InProcess(tmp_path, service, **{hook: broken})
    try:
        status, content = wsrm.post(FACTORY.create_sequence())
        assert status.startswith("503")
        assert b"the directory is away" not in content
        [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert f"{hook} raised OSError: the directory is away" in record.getMessage()
        assert "in broken" in (record.exc_text or "")
        assert until(lambda: wsrm.rows("SELECT reason FROM refusal") == [("misconfigured",)])
    finally:
        wsrm.middleware.close(5)


def _of_one(environ: dict[str, Any]) -> str | None:
    return None


async def _of_a_loop(environ: dict[str, Any], headers: object) -> str | None:
    return None


@pytest.mark.parametrize("middleware", [WSRMMiddleware, WSRMASGIMiddleware])
@pytest.mark.parametrize(
    ("hooks", "said"),
    [
        (
            {"authenticate": 5},
            "authenticate is 5, which is no function; it is called as authenticate(environ, headers).",
        ),
        (
            {"authenticate": _of_one},
            "authenticate does not fit: it is called as authenticate(environ, headers), which says: "
            "too many positional arguments.",
        ),
        ({"authenticate": _of_a_loop}, "authenticate is an async function, which nothing would await; "),
        ({"connection_key": "peer"}, "connection_key is 'peer', which is no function; "),
        ({"on_event": print, "clock": None}, "clock is None, which is no function; it is called as clock()."),
        (
            {"on_event": 1, "clock": 2},
            "on_event is 1, which is no function; it is called as on_event(event).\nclock",
        ),
    ],
    ids=["number", "one-argument", "async", "text", "none", "two"],
)
def test_a_hook_that_cannot_be_called_as_one_is_told_when_the_middleware_is_made(
    middleware: Any, hooks: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        middleware(service, tmp_path / "wsrm.db", **hooks)
    assert str(raised.value).startswith(said)
    with pytest.raises(ConfigurationError):
        middleware.from_settings(service, Settings(store=str(tmp_path / "wsrm.db")), **hooks)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("middleware", [WSRMMiddleware, WSRMASGIMiddleware])
def test_the_name_of_an_application_is_not_taken_for_one(middleware: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^app is 'orders:service', which cannot be called\. .* import it"):
        middleware(app="orders:service", store=tmp_path / "wsrm.db")
    assert list(tmp_path.iterdir()) == []


async def loop_service(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """An ASGI application."""


class LoopService:
    __call__ = staticmethod(loop_service)


def _plain(scope: dict[str, Any], receive: Any, send: Any) -> Any:
    """One whose look does not say that it makes a coroutine."""
    return loop_service(scope, receive, send)


@pytest.mark.parametrize(
    ("app", "why"),
    [
        (loop_service, "is no WSGI application: calling it makes a coroutine."),
        (LoopService(), "is no WSGI application: calling it makes a coroutine."),
        (partial(loop_service), "does not take (environ, start_response): "),
        (_plain, "does not take (environ, start_response): "),
        (lambda environ: [], "does not take (environ, start_response): "),
    ],
    ids=["function", "object", "partial", "plain", "of-one"],
)
def test_an_asgi_application_in_the_wsgi_middleware_is_told_where_it_belongs(
    app: Any, why: str, tmp_path: Path
) -> None:
    for make in (
        lambda: WSRMMiddleware(app, tmp_path / "wsrm.db"),
        lambda: WSRMMiddleware.from_settings(app, Settings(store=str(tmp_path / "wsrm.db"))),
    ):
        with pytest.raises(ConfigurationError) as raised:
            make()
        assert f"which {why}" in str(raised.value)
        assert "WSRMASGIMiddleware" in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("app", "interface", "said"),
    [
        (
            loop_service,
            "wsgi",
            "calling it makes a coroutine. An ASGI application whose look does not say so needs int",
        ),
        (_plain, "auto", 'An ASGI application whose look does not say so needs interface="asgi".'),
        (service, "asgi", 'Without interface="asgi" it is called as a WSGI application.'),
    ],
    ids=["asgi-as-wsgi", "plain", "wsgi-as-asgi"],
)
def test_an_application_of_another_interface_than_is_said_is_told_when_the_asgi_middleware_is_made(
    app: Any, interface: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        WSRMASGIMiddleware(app, tmp_path / "wsrm.db", interface=interface)
    assert said in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "app", [service, loop_service, LoopService(), print], ids=["wsgi", "asgi", "object", "builtin"]
)
def test_an_application_of_either_interface_fits_the_asgi_middleware(app: Any, tmp_path: Path) -> None:
    WSRMASGIMiddleware(app, tmp_path / "wsrm.db", start=False)


def test_a_repeated_create_is_that_of_its_principal_alone(tmp_path: Path) -> None:
    """Two principals whose names end, and whose MessageIDs begin, alike; and one whose name is another's address."""

    def who(environ: dict[str, Any], _headers: object) -> str | None:
        return environ.get("HTTP_X_USER") or None

    def create(message_id: str, user: str = "") -> str:
        created = Reply.parse(wsrm.post(FACTORY.create_sequence(message_id=message_id), HTTP_X_USER=user)[1]).created
        assert created is not None
        return created.identifier

    wsrm = InProcess(tmp_path, service, authenticate=who)
    try:
        assert create("urn:a", "acme") == create("urn:a", "acme"), "sent again"
        assert create("b urn:a", "acme") != create("urn:a", "acme b")
        assert create("urn:a", "127.0.0.1") != create("urn:a")
    finally:
        wsrm.middleware.close(5)
