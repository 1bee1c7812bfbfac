"""The wire of a sender, and the answers on it: a keep-alive connection over HTTP, written and read by hand."""

from __future__ import annotations

import asyncio
import enum
import io
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from random import Random
from typing import Any, Final, Protocol, Self
from urllib.parse import unquote_to_bytes
from wsgiref.util import setup_testing_defaults

from lxml import etree

from wsrm_mq.testing.reply import Reply
from wsrm_mq.versions import SOAPVersion

_NO_BODY: Final = (204, 304)
_SOAP_TYPES: Final = tuple(version.media_type for version in SOAPVersion)


@dataclass(frozen=True)
class HTTPAnswer:
    """One HTTP response. The names of its ``fields`` are in lower case."""

    status: int
    fields: dict[str, str]
    body: bytes = field(repr=False)
    reason: str = ""

    @property
    def is_soap(self) -> bool:
        """Whether it is said to be an envelope."""
        return bool(self.body) and self.fields.get("content-type", "").startswith(_SOAP_TYPES)

    @cached_property
    def reply(self) -> Reply:
        """The envelope in it. Raises as ``Reply.parse`` does where there is none."""
        return Reply.parse(self.body)

    @cached_property
    def tree(self) -> Any:
        return etree.fromstring(self.body)

    def elements(self, name: str) -> list[Any]:
        """Elements with the local name ``name``; none of an empty answer."""
        return list(self.tree.iter("{*}" + name)) if self.body else []

    def texts(self, name: str) -> list[str]:
        return [element.text or "" for element in self.elements(name)]

    def text(self, name: str) -> str | None:
        """Text of the first element with the local name ``name``."""
        return next(iter(self.texts(name)), None)

    @property
    def acked(self) -> list[tuple[int, int]] | None:
        """Ranges of the only acknowledgement; ``None`` without one."""
        if not self.elements("SequenceAcknowledgement"):
            return None
        return list(self.reply.ack.ranges)

    @property
    def fault(self) -> str | None:
        """Local name of the most particular fault code; ``None`` if this is no fault."""
        for name in ("FaultCode", "Subcode", "faultcode", "Code"):
            if found := self.elements(name):
                return "".join(map(str, found[0].itertext())).strip().rpartition(":")[2]
        return None


class Wire(Protocol):
    """Leads to one service. ``OSError`` says that it broke, and not whether the request arrived."""

    def post(self, body: bytes, fields: Mapping[str, str]) -> HTTPAnswer: ...

    def post_half(self, body: bytes, fields: Mapping[str, str]) -> None:
        """Break off in the middle of the body."""

    def close(self) -> None: ...


def http_request(path: str, body: bytes, *lines: str) -> bytes:
    """A POST over HTTP/1.1. ``lines`` are header lines; one that says how long the body is replaces ours."""
    head = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *lines]
    if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in lines):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body


class HTTPWire:
    """One TCP connection."""

    def __init__(
        self, port: int, path: str = "/", *, host: str = "127.0.0.1", timeout: float = 20, own_port: int = 0
    ) -> None:
        """``timeout`` in seconds; ``own_port``: to come from this port, 0 from any."""
        self.path = path
        self.socket = socket.create_connection((host, port), timeout, ("", own_port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()
        self.socket.close()

    def reset(self) -> None:
        """Break it off: its port is free at once."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def post(self, body: bytes, fields: Mapping[str, str]) -> HTTPAnswer:
        return self.ask(self._request(body, fields))

    def post_half(self, body: bytes, fields: Mapping[str, str]) -> None:
        self.send(self._request(body, fields)[: -(len(body) // 2 or 1)])
        self.close()

    def _request(self, body: bytes, fields: Mapping[str, str]) -> bytes:
        return http_request(self.path, body, *(f"{name}: {value}" for name, value in fields.items()))

    def ask(self, request: bytes) -> HTTPAnswer:
        """``request`` is all of HTTP."""
        self.send(request)
        return self.read()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> HTTPAnswer:
        """The next response. Raises ``ConnectionError`` if the server closes before its end."""
        version, status, *reason = self._line().decode("latin-1").split(maxsplit=2)
        fields = {}
        while line := self._line().strip():
            name, _, value = line.decode("latin-1").partition(":")
            fields[name.strip().lower()] = value.strip()
        if version == "HTTP/1.0" and fields.get("connection") != "keep-alive":
            fields["connection"] = "close"
        body = self._body(fields) if int(status) >= 200 and int(status) not in _NO_BODY else b""
        return HTTPAnswer(int(status), fields, body, " ".join(reason).strip())

    def _body(self, fields: Mapping[str, str]) -> bytes:
        if fields.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(self._line(), 16):
                parts.append(self._exactly(size))
                self._line()
            self._line()
            return b"".join(parts)
        if "content-length" in fields:
            return self._exactly(int(fields["content-length"]))
        return self._reader.read() if fields.get("connection") == "close" else b""

    def _line(self) -> bytes:
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError(f"closed after {line!r}, before the end of the response")
        return line

    def _exactly(self, size: int) -> bytes:
        content = self._reader.read(size)
        if len(content) < size:
            raise ConnectionError(f"closed after {len(content)} of {size} bytes of a body")
        return content


# A bad line: it loses requests and answers, repeats messages, and takes its time.

_NUMBER: Final = re.compile(rb"MessageNumber>(\d+)<")


class Fate(enum.Enum):
    """The fate of an exchange on a bad line."""

    ARRIVES = enum.auto()
    REQUEST_LOST = enum.auto()
    """Half of it arrives and the connection breaks."""
    ANSWER_LOST = enum.auto()
    """The service has it, and the source does not know."""


@dataclass(slots=True)
class Traffic:
    """Counts of a line."""

    transmissions: int = 0
    requests_lost: int = 0
    answers_lost: int = 0
    duplicates: int = 0
    """Messages that the line repeated. Messages that a source sends again do not count."""


class Line:
    """A bad line, shared by the wires over it. ``loss`` and ``duplicates`` are chances from 0 to 1, ``delay`` is the
    most seconds that a transmission takes longer. A seed does the same to the same transmission of a message, whatever
    thread sends it."""

    def __init__(self, loss: float = 0.0, duplicates: float = 0.0, *, delay: float = 0.0, seed: int = 0) -> None:
        self.loss, self.duplicates, self.delay, self.seed = loss, duplicates, delay, seed
        self.traffic = Traffic()
        self._transmissions: Counter[int] = Counter()
        self._lock = threading.Lock()

    def fate(self, number: int, transmission: int) -> Fate:
        random = self._random("loss", number, transmission)
        if random.random() >= self.loss:
            return Fate.ARRIVES
        return random.choice((Fate.REQUEST_LOST, Fate.ANSWER_LOST))

    def repeats(self, number: int, transmission: int) -> bool:
        return self._random("duplicate", number, transmission).random() < self.duplicates

    def transmit(self, number: int) -> tuple[Fate, bool, float]:
        """Count the next transmission of a message, and answer its fate, whether it is repeated, and its delay in
        seconds."""
        with self._lock:
            self._transmissions[number] += 1
            transmission = self._transmissions[number]
            fate = self.fate(number, transmission)
            repeats = fate is not Fate.REQUEST_LOST and self.repeats(number, transmission)
            self.traffic.transmissions += 1
            self.traffic.requests_lost += fate is Fate.REQUEST_LOST
            self.traffic.answers_lost += fate is Fate.ANSWER_LOST
            self.traffic.duplicates += repeats
        return fate, repeats, self._random("delay", number, transmission).random() * self.delay

    def _random(self, *parts: object) -> Random:
        return Random(f"{self.seed} {parts}")


class LossyWire:
    """A wire over a line. Requests without a message number, such as CreateSequence, always arrive."""

    def __init__(self, wire: Wire, line: Line) -> None:
        self._wire = wire
        self._line = line

    def post(self, body: bytes, fields: Mapping[str, str]) -> HTTPAnswer:
        found = _NUMBER.search(body)
        if found is None:
            return self._wire.post(body, fields)
        fate, repeats, seconds = self._line.transmit(int(found[1]))
        time.sleep(seconds)
        if fate is Fate.REQUEST_LOST:
            self._wire.post_half(body, fields)
            raise ConnectionError("the line lost the request")
        if repeats:
            self._wire.post(body, fields)
        answer = self._wire.post(body, fields)
        if fate is Fate.ANSWER_LOST:
            raise ConnectionError("the line lost the answer")
        return answer

    def post_half(self, body: bytes, fields: Mapping[str, str]) -> None:
        self._wire.post_half(body, fields)

    def close(self) -> None:
        self._wire.close()


# Wires to an application in this process, without a server, and its lifespan. Many threads may post on one.

Message = MutableMapping[str, Any]
ASGIApplication = Callable[
    [Any, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
WSGIApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_OWN_KEYS: Final = ("CONTENT_TYPE", "CONTENT_LENGTH")
_SECONDS: Final = 60.0
"""The longest time of an answer."""


class WSGIWire:
    """Calls a WSGI application. ``environ`` is put over that of each request."""

    def __init__(self, app: WSGIApplication, path: str = "/", environ: Mapping[str, Any] | None = None) -> None:
        self._app = app
        self._environ = {"PATH_INFO": unquote_to_bytes(path).decode("latin-1"), **(environ or {})}

    def post(self, body: bytes, fields: Mapping[str, str]) -> HTTPAnswer:
        return self._call(body, len(body), fields)

    def post_half(self, body: bytes, fields: Mapping[str, str]) -> None:
        self._call(body[: len(body) // 2], len(body), fields)

    def close(self) -> None:
        """There is nothing to close."""

    def _call(self, body: bytes, length: int, fields: Mapping[str, str]) -> HTTPAnswer:
        environ = {
            "REQUEST_METHOD": "POST",
            "CONTENT_LENGTH": str(length),
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "wsgi.input": io.BytesIO(body),
            "wsgi.multithread": True,
        }
        setup_testing_defaults(environ)
        for name, value in fields.items():
            key = name.upper().replace("-", "_")
            environ[key if key in _OWN_KEYS else f"HTTP_{key}"] = value
        begun: list[tuple[str, list[tuple[str, str]]]] = []
        content = io.BytesIO()

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Callable[..., Any]:
            begun.append((status, headers))
            return content.write

        parts = self._app({**environ, **self._environ}, start_response)
        try:
            content.writelines(parts)
        finally:
            if hasattr(parts, "close"):
                parts.close()
        status, _, reason = begun[-1][0].partition(" ")
        return HTTPAnswer(
            int(status), {name.lower(): value for name, value in begun[-1][1]}, content.getvalue(), reason
        )


class ASGIWire:
    """Calls an ASGI application in an event loop that all wires of the process share. ``scope`` is put over that of
    each request."""

    def __init__(self, app: ASGIApplication, path: str = "/", scope: Mapping[str, Any] | None = None) -> None:
        self._app = app
        self._scope = {"path": unquote_to_bytes(path).decode(), "raw_path": path.encode(), **(scope or {})}

    def post(self, body: bytes, fields: Mapping[str, str]) -> HTTPAnswer:
        return self._call([body], len(body), fields)

    def post_half(self, body: bytes, fields: Mapping[str, str]) -> None:
        try:
            self._call([body[: len(body) // 2], None], len(body), fields)
        except ConnectionError:
            pass  # a client that is gone is told nothing

    def close(self) -> None:
        """There is nothing to close."""

    def _call(self, parts: list[bytes | None], length: int, fields: Mapping[str, str]) -> HTTPAnswer:
        exchange = self._exchange(parts, {"Content-Length": str(length), **fields})
        return asyncio.run_coroutine_threadsafe(exchange, _loop()).result(_SECONDS)

    async def _exchange(self, parts: list[bytes | None], fields: Mapping[str, str]) -> HTTPAnswer:
        """``None`` among ``parts``: the client is gone."""
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 5000),
            "server": ("127.0.0.1", 80),
        }
        sent: list[Message] = []

        async def receive() -> Message:
            if not parts:
                await asyncio.Event().wait()  # the client stays
            part = parts.pop(0)
            if part is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app({**scope, **self._scope}, receive, send)
        if not sent:
            raise ConnectionError("the application sent no answer")
        answered = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        return HTTPAnswer(sent[0]["status"], answered, b"".join(message.get("body", b"") for message in sent[1:]))


class Lifespan:
    """Starts an ASGI application in the loop of ``ASGIWire`` and stops it, as a server does: ``with Lifespan(app):``.

    One that knows no lifespan is left as it is. Raises ``RuntimeError`` where it fails to start or to stop."""

    def __init__(self, app: ASGIApplication) -> None:
        self._app = app
        self.state: dict[str, Any] = {}
        """The state that the application fills at its start; ``ASGIWire(app, scope={"state": …})`` gives it to
        requests."""

    def __enter__(self) -> Self:
        self._told: asyncio.Queue[Message] = asyncio.Queue()
        self._said: asyncio.Queue[Message] = asyncio.Queue()
        self._run = asyncio.run_coroutine_threadsafe(self._live(), _loop())
        self._announce("startup")
        return self

    def __exit__(self, *_exception: object) -> None:
        if not self._run.done():
            self._announce("shutdown")
            self._run.result(_SECONDS)

    async def _live(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            await self._app(scope, self._told.get, self._said.put)
        finally:
            await self._said.put({"type": "lifespan.none"})

    def _announce(self, event: str) -> None:
        async def tell() -> Message:
            await self._told.put({"type": f"lifespan.{event}"})
            return await self._said.get()

        said = asyncio.run_coroutine_threadsafe(tell(), _loop()).result(_SECONDS)
        if said["type"].endswith(".failed"):
            raise RuntimeError(f"{event}: {said.get('message') or 'failed'}")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="ASGIWire", daemon=True).start()
    return loop
