"""Calls of ASGI applications by the dispatcher: a request in the words of WSGI, from a thread, with the whole answer
back. And the other way round: an ASGI request of a server in the words of WSGI."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, Final

from wsrm_mq.delivery.application import CallApplication, Environ
from wsrm_mq.delivery.service_reply import UnusableReply, check_size
from wsrm_mq.destination.description import Described
from wsrm_mq.queue.arrival import Body

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApplication = Callable[[Scope, Receive, Send], Awaitable[None]]
_Answered = tuple[str, list[tuple[str, str]], bytes]

_PIECE: Final = 64 * 1024
_NAMED: Final = ("method", "path", "root_path", "query_string", "http_version", "scheme")
_PLAIN: Final = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}
_PLAIN_BACK: Final = {name: header.encode() for header, name in _PLAIN.items()}


def environ_of(scope: Scope) -> Environ:
    """The CGI part of a WSGI environ, as PEP 3333 has it (text is latin-1), with ``asgi.scope``. It has no input."""
    root, path = scope.get("root_path", ""), scope["path"]
    if root and f"{path}/".startswith(f"{root}/"):
        path = path[len(root) :]
    host, port = scope.get("server") or ("localhost", None)
    client = scope.get("client") or (None, None)
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": _latin(root),
        "PATH_INFO": _latin(path),
        "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port or 80),
        "SERVER_PROTOCOL": f"HTTP/{scope.get('http_version', '1.1')}",
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "asgi.scope": scope,
        **_cgi(scope["headers"]),
    }
    if client[0]:
        environ["REMOTE_ADDR"] = client[0]
    if client[1]:
        environ["REMOTE_PORT"] = str(client[1])
    return environ


def alike(scope: Scope) -> tuple[object, str]:
    """The parts of a scope that are the same for two requests whose environs are, but for CONTENT_LENGTH and
    ``asgi.scope``; and the length."""
    length = b""
    headers = []
    for name, value in scope["headers"]:
        if name == b"content-length":
            length = value
        else:
            headers.append((name, value))
    ends = tuple(scope.get("client") or ()), tuple(scope.get("server") or ())
    return (ends, *map(scope.get, _NAMED), *headers), length.decode("latin-1")


def _latin(text: str) -> str:
    return text if text.isascii() else text.encode().decode("latin-1")


def _cgi(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    named: dict[str, str] = {}
    for raw_name, raw_value in headers:
        header, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if "_" in header:
            continue  # it would pass for the header with a hyphen
        name = _PLAIN.get(header) or f"HTTP_{header.upper().replace('-', '_')}"
        named[name] = f"{named[name]},{value}" if name in named else value
    return named


def call_asgi(
    app: ASGIApplication,
    loop: Callable[[], asyncio.AbstractEventLoop | None],
    state: dict[str, Any],
    limit: int = sys.maxsize,
) -> CallApplication:
    """Make the call of ``app`` in the ``loop`` that serves, for a thread that is not the loop's. ``state`` is the state
    that its start-up has left for its requests; ``limit`` the most bytes that it may answer with."""

    def call(environ: Environ) -> tuple[str, list[tuple[str, str]], bytes]:
        here = loop()
        if here is None:
            raise RuntimeError("an ASGI application is called in the loop that serves it, and none does yet")
        outcome = asyncio.run_coroutine_threadsafe(_without_exit(_exchange(app, environ, state, limit)), here).result()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return call


class WholeAnswer:
    """Takes the messages that an application sends, until its answer is whole: at most ``limit`` bytes."""

    def __init__(self, limit: int = sys.maxsize) -> None:
        self._limit = limit
        self._size = 0
        self._start: Message | None = None
        self._written: list[bytes] = []
        self.is_whole = asyncio.Event()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            piece = message.get("body", b"")
            self._size += len(piece)
            check_size(self._size, self._limit)
            self._written.append(piece)
            if not message.get("more_body"):
                self.is_whole.set()

    @property
    def start(self) -> Message:
        """The message with status and headers. Raises ``RuntimeError`` where the application sent none."""
        if self._start is None:
            raise RuntimeError("the application sent no http.response.start")
        return self._start

    @property
    def content(self) -> bytes:
        check_size(self._size, self._limit)  # the application may have caught that
        return b"".join(self._written)


def replayed(body: Body, receive: Receive) -> Receive:
    """Make a ``receive`` for an application that answers the body first, which was read already."""
    source = body.open()
    is_read = False

    async def replayed() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        piece = source.read(_PIECE)
        is_read = source.tell() >= body.size or not piece
        return {"type": "http.request", "body": piece, "more_body": not is_read}

    return replayed


async def whole_answer(app: ASGIApplication, scope: Scope, receive: Receive) -> tuple[Message, bytes]:
    """The whole answer of an application: its start message and the body."""
    answer = WholeAnswer()

    async def received() -> Message:
        """Once it has answered, its client is gone: so a server has it, which has not seen the answer yet."""
        asked, answered = asyncio.ensure_future(receive()), asyncio.ensure_future(answer.is_whole.wait())
        try:
            await asyncio.wait((asked, answered), return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else {"type": "http.disconnect"}
        finally:
            asked.cancel()
            answered.cancel()

    await app(scope, received, answer.send)
    return answer.start, answer.content


async def send_described(described: Described, send: Send) -> None:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in described.headers]
    await send({"type": "http.response.start", "status": int(described.line[:3]), "headers": headers})
    await send({"type": "http.response.body", "body": described.body})


async def _without_exit(exchange: Awaitable[_Answered]) -> _Answered | BaseException:
    """The outcome of a call. An application that exits has not taken its message, like one that raises: an event loop
    would end, and the server with it."""
    try:
        return await exchange
    except (SystemExit, KeyboardInterrupt) as error:
        return error


async def _exchange(app: ASGIApplication, environ: Environ, state: dict[str, Any], limit: int) -> _Answered:
    source = environ["wsgi.input"]
    left = int(environ["CONTENT_LENGTH"])
    answer = WholeAnswer(limit)

    async def receive() -> Message:
        nonlocal left
        if left < 0:  # the connection ends when the answer is whole
            await answer.is_whole.wait()
            return {"type": "http.disconnect"}
        piece = source.read(_PIECE)
        left = left - len(piece) if piece else 0
        more = left > 0
        left = left or -1
        return {"type": "http.request", "body": piece, "more_body": more}

    try:
        await app({**_scope_of(environ), "state": dict(state)}, receive, answer.send)
    finally:
        source.close()
    return status_line(answer.start["status"]), decoded(answer.start.get("headers", ())), answer.content


def _scope_of(environ: Environ) -> Scope:
    """An HTTP scope for a stored request; it holds the ``wsrm.*`` keys of the environ too."""
    root, path = (environ[name].encode("latin-1").decode("utf-8", "replace") for name in ("SCRIPT_NAME", "PATH_INFO"))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": environ["SERVER_PROTOCOL"].removeprefix("HTTP/"),
        "method": environ.get("REQUEST_METHOD", "POST"),
        "scheme": environ.get("wsgi.url_scheme", "http"),
        "path": root + path,
        "root_path": root,
        "query_string": environ["QUERY_STRING"].encode("latin-1"),
        "headers": list(_headers_of(environ)),
        "client": (environ["REMOTE_ADDR"], 0) if "REMOTE_ADDR" in environ else None,
        "server": (environ.get("SERVER_NAME", "localhost"), int(environ.get("SERVER_PORT", 80))),
        **{name: value for name, value in environ.items() if name.startswith("wsrm.")},
    }


def _headers_of(environ: Environ) -> Iterable[tuple[bytes, bytes]]:
    for name, value in environ.items():
        if name in _PLAIN_BACK:
            yield _PLAIN_BACK[name], value.encode("latin-1")
        elif name.startswith("HTTP_"):
            yield name[5:].lower().replace("_", "-").encode("latin-1"), value.encode("latin-1")


def decoded(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def status_line(code: int) -> str:
    if not isinstance(code, int):
        raise UnusableReply(f"answered with a status that is no number but {type(code).__name__}")
    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return f"{code} "
