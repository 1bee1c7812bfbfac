"""An application that is reliable already: wherever its middleware is, `serve` adds no second one."""

from __future__ import annotations

import functools
import http.client
import json
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from a2wsgi import WSGIMiddleware
from flask import Flask
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

from tests.support.commands import Wsrm, document
from tests.support.serve_command import SOURCE, Serve, Served, eventually
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.serving.wrapping import found_in, named_by, outermost
from wsrm_mq.testing import Reply
from wsrm_mq.wsgi import WSRMMiddleware

Application = Any


def plain(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "0")])
    return []


@pytest.fixture
def wrapped(somewhere: Path) -> WSRMMiddleware:
    return WSRMMiddleware(plain, start=False)


def in_flask(middleware: Application, flask: type[Flask] = Flask) -> Flask:
    app = flask(__name__)
    app.wsgi_app = middleware  # type: ignore[method-assign]
    return app


class Mine(Flask):
    def __call__(self, environ: Any, start_response: Any) -> Any:
        environ["REMOTE_USER"] = "alice"
        return self.wsgi_app(environ, start_response)


class Checked(WSRMMiddleware):
    def __call__(self, environ: Any, start_response: Any) -> Any:
        return super().__call__(environ, start_response)


# where it is


def test_the_outermost_middleware_is_found_also_as_what_flask_serves(wrapped: WSRMMiddleware) -> None:
    assert outermost(wrapped) is outermost(in_flask(wrapped)) is wrapped
    assert found_in(wrapped) == found_in(in_flask(wrapped)) == [wrapped]


@pytest.mark.parametrize(
    "around",
    [
        ProxyFix,
        lambda inner: in_flask(ProxyFix(inner)),
        lambda inner: ProxyFix(in_flask(inner)),
        lambda inner: in_flask(inner, Mine),
        lambda inner: DispatcherMiddleware(plain, {"/orders": inner}),
        lambda inner: functools.wraps(inner, updated=())(lambda *arguments: inner(*arguments)),
        WSGIMiddleware,
    ],
    ids=["ProxyFix", "in Flask", "around Flask", "Flask's subclass", "mounted", "decorated", "behind ASGI"],
)
def test_one_that_is_deeper_is_found_and_stays_where_it_is(wrapped: WSRMMiddleware, around: Any) -> None:
    application = around(wrapped)
    assert found_in(application) == [wrapped]
    assert outermost(application) is None


def test_one_that_does_more_than_ours_is_called_as_it_is(somewhere: Path) -> None:
    checked = Checked(plain, start=False)
    assert found_in(checked) == [checked]
    assert outermost(checked) is None


def test_what_is_not_wrapped_is_not_taken_for_it() -> None:
    class Everything:
        def __call__(self) -> None: ...

        def __getattr__(self, name: str) -> Any:
            if name == "application":
                raise RuntimeError("no such thing outside of a request")
            return Everything()

    endless = Everything()
    circle = ProxyFix(plain)
    circle.app = circle
    for application in (plain, ProxyFix(plain), Flask(__name__), endless, circle):
        assert found_in(application) == []
        assert outermost(application) is None
        assert not named_by(application)


def test_a_middleware_that_a_framework_makes_later_is_told_of(somewhere: Path, wsrm: Wsrm) -> None:
    (somewhere / "starry.py").write_text(
        "from types import SimpleNamespace\nfrom wsrm_mq.asgi import WSRMASGIMiddleware\n"
        "class Starlette:\n"
        "    user_middleware = [SimpleNamespace(cls=WSRMASGIMiddleware)]\n"
        "    async def __call__(self, scope, receive, send): ...\n"
        "app = Starlette()\n"
    )
    result = wsrm("serve", "starry:app", "--port", "0")
    assert result.exit_code == 2
    assert "Take it out there" in result.stderr
    assert WSRMASGIMiddleware.__name__ in result.stderr


# served

WRAPPED = """
import json, threading, time
from pathlib import Path
from werkzeug.middleware.proxy_fix import ProxyFix
from wsrm_mq import WSRMMiddleware

def note(**fields):
    with open("seen", "a") as seen:
        seen.write(json.dumps(fields) + "\\n")

asked = []

def plain(environ, start_response):
    if environ["REQUEST_METHOD"] == "GET":  # it has no WSDL
        start_response("404 Not Found", [("Content-Length", "0")])
        return []
    note(hook_thread=asked[-1] if asked else None, address=environ.get("REMOTE_ADDR"),
         principal=environ.get("wsrm.principal"), script=environ["SCRIPT_NAME"], path=environ["PATH_INFO"])
    body = b"<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope'><s:Body><done/></s:Body></s:Envelope>"
    start_response("200 OK", [("Content-Type", "application/soap+xml"), ("Content-Length", str(len(body)))])
    return [body]

def authenticate(environ, headers):
    asked.append(threading.current_thread().name)
    while Path("wait").exists() and environ.get("HTTP_X_NAME") == "slow":
        time.sleep(0.01)
    return environ.get("HTTP_X_NAME", "nobody")

def on_event(event):
    note(event=event.name)

app = WSRMMiddleware(plain, store="own.db", authenticate=authenticate, on_event=on_event,
                     connection_key=lambda environ: "key of " + environ["REMOTE_ADDR"])
fixed = ProxyFix(app, x_prefix=1)
late = WSRMMiddleware(plain, store="own.db", start=False)
"""


def ask(served: Served, content: bytes, **fields: str) -> Reply:
    host, _, port = served.url.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    connection.request("POST", "/orders", content, {"Content-Type": SOURCE.content_type, **fields})
    return Reply.parse(connection.getresponse().read())


def create(served: Served, **fields: str) -> str:
    created = ask(served, SOURCE.create_sequence(), **fields).created
    assert created is not None
    return created.identifier


def seen(directory: Path) -> list[dict[str, Any]]:
    path = directory / "seen"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def shop(somewhere: Path) -> Path:
    (somewhere / "wrapped.py").write_text(WRAPPED)
    return somewhere


def test_the_outermost_one_is_taken_onto_the_loop_with_its_store_and_its_hooks(
    serve: Serve, shop: Path, wsrm: Wsrm
) -> None:
    served = serve("wrapped:app", "--port", "0", "--store", "other.db", "--headers", "strip")
    identifier = create(served, **{"X-Name": "alice"})
    two_way = SOURCE.message(identifier, 1, reply_to="")
    assert ask(served, two_way, **{"X-Name": "alice"}).body is not None
    assert ask(served, SOURCE.message(identifier, 2), **{"X-Name": "mallory"}).fault is not None
    (call,) = seen(shop)
    assert call["hook_thread"].startswith("wsrm-mq-hooks"), "its place is the loop, not a thread of the server's"
    assert call["principal"] == "alice"
    (found,) = document(wsrm("connection", "list", "--json", "--store", "own.db"))["connections"]
    assert found["name"] == "key of 127.0.0.1"
    assert len(document(wsrm("store", "info", "--json", "--store", "own.db"))["instances"]) == 1
    status, said = served.end(signal.SIGTERM)
    assert status == 0
    assert "the options it was given hold, and --store, --headers changes nothing." in said
    assert not (shop / "other.db").exists()
    assert document(wsrm("store", "info", "--json", "--store", "own.db"))["instances"] == []


def test_a_hook_that_waits_stops_no_other_request(serve: Serve, shop: Path) -> None:
    served = serve("wrapped:app", "--port", "0")
    (shop / "wait").touch()
    created: list[str] = []
    slow = threading.Thread(target=lambda: created.append(create(served, **{"X-Name": "slow"})))
    slow.start()
    try:
        assert create(served, **{"X-Name": "quick"})
        assert not created
    finally:
        (shop / "wait").unlink()
        slow.join()
    assert created


def test_behind_proxyfix_it_is_served_in_threads_with_the_address_that_proxyfix_gives(serve: Serve, shop: Path) -> None:
    served = serve("wrapped:fixed", "--port", "0", "--store", "other.db")
    proxied = {"X-Forwarded-For": "10.9.8.7", "X-Forwarded-Prefix": "/shop", "X-Name": "alice"}
    identifier = create(served, **proxied)
    assert ask(served, SOURCE.message(identifier, 1, reply_to=""), **proxied).body is not None
    (call,) = seen(shop)
    assert (call["address"], call["script"], call["path"]) == ("10.9.8.7", "/shop", "/orders")
    assert not call["hook_thread"].startswith("wsrm-mq-hooks"), "its place is a thread of the server's"
    assert not (shop / "other.db").exists(), "not wrapped again"
    assert "not the outermost part" in served.end(signal.SIGTERM)[1]


def test_one_that_was_not_to_start_starts_with_the_server(serve: Serve, shop: Path) -> None:
    served = serve("wrapped:late", "--port", "0")
    identifier = create(served)
    assert ask(served, SOURCE.message(identifier, 1)).ack.ranges == ((1, 1),)
    assert eventually(lambda: [each["path"] for each in seen(shop) if "path" in each] == ["/orders"])
    assert served.end(signal.SIGTERM)[0] == 0
    assert re.search("own", " ".join(path.name for path in shop.iterdir()))
