"""What an ASGI server of any make serves for the tests: ``build`` makes it from the environment.

    uvicorn --factory tests.servers.asgi:build

``SERVED`` is JSON: ``app`` (``asgi`` or ``wsgi``), ``home`` (a directory) and ``options`` of the middleware. In
``home`` are the store, the service's database and ``go``, for which an operation waits whose text is ``wait``. The
table ``calls`` has a row for each call, ``life`` one for each step of the application's own lifespan.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from tests.servers.bounds import lower
from wsrm_mq import NotAuthenticated, WSRMMiddleware, once
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.asgi_calls import Receive, Scope, Send

NAMESPACE: Final = "urn:example:orders"
PIECES: Final = 5
_OPTIONS: Final = {"one_way": (f"{NAMESPACE}/put_order",), "retry": (0.1,)}
SCHEMA: Final = """
create table if not exists calls (sequence text, number integer, redelivery integer, state text, said text);
create table if not exists effects (sequence text, number integer);
create table if not exists life (step text);
"""
WSDL: Final = """
<w:definitions xmlns:w="http://schemas.xmlsoap.org/wsdl/" xmlns:t="urn:example:orders"
    xmlns:a="http://www.w3.org/2007/05/addressing/metadata" targetNamespace="urn:example:orders">
  <w:portType name="Orders">
    <w:operation name="put_order">
      <w:input message="t:put_order" a:Action="urn:example:orders/put_order"/>
      <w:output message="t:put_orderResponse"/>
    </w:operation>
  </w:portType>
</w:definitions>
""".strip()
ANSWER: Final = (
    '<s:Envelope xmlns:s="{soap}"><s:Body><t:echoResponse xmlns:t="urn:example:orders">{said}</t:echoResponse>'
    "</s:Body></s:Envelope>"
)


class Service:
    """The operations, whatever calls them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with self.connect() as db:
            db.executescript(SCHEMA)

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.home / "service.db", timeout=20)

    def step(self, name: str) -> None:
        with self.connect() as db:
            db.execute("insert into life values (?)", (name,))

    def begin(self, request: Any, said: str, state: str) -> int:
        """Note the call; answers how many there were for this message."""
        row = (request.get("wsrm.sequence_id"), request.get("wsrm.message_number"))
        with self.connect() as db:
            again = int(request.get("wsrm.redelivery", False))
            db.execute("insert into calls values (?, ?, ?, ?, ?)", (*row, again, state, said))
            query = "select count(*) from calls where sequence is ? and number is ?"
            return int(db.execute(query, row).fetchone()[0])

    def end(self, request: Any) -> None:
        with self.connect() as db:
            if "wsrm.sequence_id" in request and once(db, request):
                row = (request["wsrm.sequence_id"], request["wsrm.message_number"])
                db.execute("insert into effects values (?, ?)", row)

    @property
    def may_go(self) -> bool:
        return (self.home / "go").exists()


def said_in(body: bytes) -> str:
    found = re.search(rb"text>([^<]*)<", body)
    return found[1].decode() if found else ""


def answer_to(body: bytes, said: str) -> bytes:
    found = re.search(rb'"(http[^"]*soap[^"]*)"', body)
    return ANSWER.format(soap=found[1].decode() if found else "", said=said).encode()


def asgi(service: Service) -> Any:
    async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        service.step("started")
        scope["state"]["greeting"] = "hello"
        await send({"type": "lifespan.startup.complete"})
        await receive()
        service.step("stopped")
        await send({"type": "lifespan.shutdown.complete"})

    async def operation(scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        said = said_in(body)
        count = service.begin(scope, said, scope.get("state", {}).get("greeting", ""))
        if said == "raise" and count == 1:
            raise OSError("as it was told to")
        if said == "silent" and count == 1:
            return
        while said == "wait" and not service.may_go:
            await asyncio.sleep(0.01)
        service.end(scope)
        content_type = dict(scope["headers"])[b"content-type"]
        content = answer_to(body, said)
        # As Starlette streams: what says that the client is gone ends the answer.
        gone = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", content_type)]})
        for start in range(0, len(content), 100):
            await asyncio.sleep(0)
            if gone.done():
                return
            more = start + 100 < len(content)
            await send({"type": "http.response.body", "body": content[start : start + 100], "more_body": more})
        await gone

    async def page(scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/xml")]})
        if scope["path"] == "/stream":
            for number in range(PIECES):
                await send({"type": "http.response.body", "body": f"{number}\n".encode(), "more_body": True})
                await asyncio.sleep(0.1)
        content = WSDL.encode() if b"wsdl" in scope["query_string"] else b""
        await send({"type": "http.response.body", "body": content})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await lifespan(scope, receive, send)
        if scope["method"] == "POST":
            return await operation(scope, receive, send)
        return await page(scope, send)

    return app


def wsgi(service: Service) -> Any:
    def pieces() -> Iterable[bytes]:
        for number in range(PIECES):
            yield f"{number}\n".encode()
            time.sleep(0.1)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST":
            start_response("200 OK", [("Content-Type", "text/xml")])
            if environ["PATH_INFO"] == "/stream":
                return pieces()
            return [WSDL.encode() if "wsdl" in environ["QUERY_STRING"] else b""]
        body = environ["wsgi.input"].read()
        said = said_in(body)
        count = service.begin(environ, said, "hello")
        if said == "raise" and count == 1:
            raise OSError("as it was told to")
        if said == "silent" and count == 1:
            return []
        while said == "wait" and not service.may_go:
            time.sleep(0.01)
        service.end(environ)
        start_response("200 OK", [("Content-Type", environ["CONTENT_TYPE"])])
        return [answer_to(body, said)]

    return app


def authenticate(environ: dict[str, Any], _headers: object) -> str | None:
    user: str | None = environ.get("HTTP_X_USER")
    if user == "nobody":
        raise NotAuthenticated("Say who you are.", challenge="Basic")
    return user


def build() -> WSRMASGIMiddleware:
    served = json.loads(os.environ["SERVED"])
    home = Path(served["home"])
    app = {"asgi": asgi, "wsgi": wsgi}[served["app"]](Service(home))
    return WSRMASGIMiddleware(app, home / "store.db", authenticate=authenticate, **_OPTIONS | served["options"])


def build_wsgi() -> WSRMMiddleware:
    served = json.loads(os.environ["SERVED"])
    home = Path(served["home"])
    options = _OPTIONS | served["options"]
    lower(options.pop("bounds", {}))
    return WSRMMiddleware(wsgi(Service(home)), home / "store.db", authenticate=authenticate, **options)
