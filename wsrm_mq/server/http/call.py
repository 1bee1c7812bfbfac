"""One request: who asks, for what, and its body, which is read within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from wsrm_mq.errors import BadRequest, ConfigurationError, NotAuthenticated, Overloaded, TooLarge
from wsrm_mq.node import Node
from wsrm_mq.parts import Malformed, Part, Reader, boundary_of
from wsrm_mq.parts import TooLarge as PartTooLarge
from wsrm_mq.server.access import Access
from wsrm_mq.server.bounds import Use
from wsrm_mq.server.rights import Principal, Right
from wsrm_mq.server.sessions import Session, Sessions

T = TypeVar("T")
SESSION: Final = "session"
REQUEST: Final = "request"
LOST: Final = "lost"
MOST_LOST: Final = 100
MOST_DISCARDED: Final = 256 * 1024
DISCARD_SECONDS: Final = 1.0
JSON_BYTES: Final = 4 * 1024 * 1024
"""The longest body in JSON."""


class Limits(NamedTuple):
    """The bounds of a server. ``body_bytes``: of one message. ``request_bytes``: of one request. ``bytes``: of all
    requests that are being read. ``running``: requests at a time that do not wait for a message. ``pause_seconds``: of
    a client that sends, or reads, no further."""

    body_bytes: int = 64 * 1024 * 1024
    request_bytes: int = 256 * 1024 * 1024
    bytes: int = 1024 * 1024 * 1024
    running: int = 1_000
    parts: int = 1_000
    pause_seconds: float = 30.0


class Server:
    """The state that all requests share. ``reading``: the bytes of bodies that are being read, ``running``: requests
    that are."""

    def __init__(self, node: Node, sessions: Sessions, access: Access, limits: Limits) -> None:
        self.node = node
        self.sessions = sessions
        self.access = access
        self.limits = limits
        self.ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """It is done when nothing is to wait any more."""
        self.reading = 0
        self.running = 0


class Call:
    """A request. ``names``: what its path names."""

    def __init__(self, server: Server, request: Request, principal: Principal) -> None:
        self.server = server
        self.node = server.node
        self.request = request
        self.headers: Mapping[str, str] = request.headers
        self.principal = principal
        self.names: dict[str, str] = request.path_params
        self._held = 0

    @property
    def use(self) -> Use:
        return self.server.sessions.use_of(self.principal.name)

    @property
    def is_revoked(self) -> bool:
        """Whether the token of its principal has ended since the request came."""
        try:
            self.server.access.still(self.principal)
        except NotAuthenticated:
            return True
        return False

    def queue(self, right: Right) -> str:
        """The queue that its path names, to which its principal has this right. Raises ``UnknownQueue`` and
        ``RightMissing``."""
        queue = self.names["queue"]
        self.principal.require(right, queue)
        return queue

    def session(self, *, is_named: bool = False) -> Session:
        """The session that the request names, or that of the principal where it names none. ``is_named``: it has to.
        Raises ``SessionEnded``."""
        name = self.headers.get(SESSION)
        if name is not None:
            return self.server.sessions.of(self.principal.name, name)
        if is_named:
            raise BadRequest("This is of a session: begin one, and name it in the header Session.")
        return self.server.sessions.shared(self.principal.name)

    @property
    def number(self) -> int | None:
        """The number that its client gives to a request that leases. Raises ``BadRequest``."""
        text = self.headers.get(REQUEST)
        return None if text is None else self._number_in(REQUEST, text)

    @property
    def lost(self) -> list[int]:
        """The numbers of earlier requests to which its client has got no answer. Raises ``BadRequest``."""
        found = [one.strip() for one in self.headers.get(LOST, "").split(",") if one.strip()]
        if len(found) > MOST_LOST:
            raise BadRequest(f"The header {LOST.title()} has {len(found)} numbers; it has {MOST_LOST} at most.")
        return [self._number_in(LOST, one) for one in found]

    def _number_in(self, header: str, text: str) -> int:
        if SESSION not in self.headers:
            raise BadRequest(f"The header {header.title()} is of a session: begin one, and name it in Session.")
        return whole_number(text, f"in the header {header.title()} is no number of a request")

    def query(self, kind: type[T]) -> T:
        """The parameters of its query. Raises ``ConfigurationError``."""
        values: dict[str, Any] = {}
        for name, value in self.request.query_params.multi_items():
            if name == "queue":
                values.setdefault(name, []).append(value)
            elif name in values:
                raise ConfigurationError(f"The parameter `{name}` is there twice.")
            else:
                values[name] = value
        try:
            return msgspec.convert(values, type=kind, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"The query is not as it is to be: {error}.") from None

    # the body

    async def pieces(self, most: int) -> AsyncIterator[bytes]:
        """The body as it comes, ``most`` bytes of it. Raises ``BadRequest``, ``TooLarge``, ``LimitReached`` and
        ``Overloaded``."""
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise BadRequest("A compressed body is not read: send it as it is.")
        told = int(self.headers.get("content-length", 0))
        if told > most:
            raise TooLarge(f"The body has {told} bytes; at most {most} are read.")
        self._hold(told)
        size = 0
        stream = self.request.stream()
        while True:
            try:
                async with asyncio.timeout(self.server.limits.pause_seconds):
                    piece = await anext(stream, None)
            except TimeoutError:
                raise BadRequest("The body did not go on for too long.") from None
            except ClientDisconnect:
                raise BadRequest("The body is cut off.") from None
            if piece is None:
                return
            size += len(piece)
            if size > most:
                raise TooLarge(f"The body has more than {most} bytes.")
            if size > self._held:
                self._hold(len(piece))
            if piece:
                yield piece

    def _hold(self, size: int) -> None:
        if self.server.reading + size > self.server.limits.bytes:
            raise Overloaded("The server is reading as many bytes as it may at a time.")
        self.use.take("bytes", size)
        self.server.reading += size
        self._held += size

    def done(self) -> None:
        """Give back the room of the bytes that were read."""
        self.use.give("bytes", self._held)
        self.server.reading -= self._held
        self._held = 0

    async def body(self, most: int | None = None) -> bytes:
        """The whole body, in memory once."""
        most = self.server.limits.body_bytes if most is None else most
        first: bytes | None = None
        whole: BytesIO | None = None
        async for piece in self.pieces(most):
            if first is None:
                first = piece
                continue
            if whole is None:
                whole = BytesIO()
                whole.write(first)
            whole.write(piece)
        return whole.getvalue() if whole is not None else first or b""

    async def json(self, kind: type[T]) -> T:
        """The body, which is JSON. Raises ``ConfigurationError`` for what is not as it is to be."""
        body = await self.body(JSON_BYTES)
        try:
            return msgspec.json.decode(body or b"{}", type=kind)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise ConfigurationError(f"The body is not as it is to be: {error}.") from None

    @property
    def boundary(self) -> str | None:
        """The boundary between the messages of a body that has several; ``None``: it has not."""
        return boundary_of(self.headers.get("content-type", ""))

    async def parts(self) -> list[Part]:
        """The messages of a body that has several. Raises ``BadRequest`` and ``TooLarge``."""
        boundary = self.boundary
        if boundary is None:
            raise BadRequest("Several messages are sent as `Content-Type: multipart/mixed; boundary=…`.")
        limits = self.server.limits
        reader = Reader(boundary, limits.body_bytes, limits.parts)
        found: list[Part] = []
        try:
            async for piece in self.pieces(limits.request_bytes):
                found += reader.feed(piece)
        except Malformed as error:
            raise BadRequest(str(error)) from None
        except PartTooLarge as error:
            raise TooLarge(str(error)) from None
        if not reader.has_ended:
            raise BadRequest("The body ends before its last part does.")
        return found


def whole_number(text: str, is_wrong: str) -> int:
    """Read a number. Raises ``BadRequest``, which says of the text how it ``is_wrong``."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest(f"{text[:100]!r} {is_wrong}.")
    return int(text)


async def discard_rest(request: Request) -> None:
    """Read what is left of a small body: a server that answers and closes while bytes come resets the connection, and
    the answer may be lost by it."""
    if int(request.headers.get("content-length", 0)) > MOST_DISCARDED:
        return
    left = MOST_DISCARDED
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):  # it was read, or its client has gone
        async with asyncio.timeout(DISCARD_SECONDS):
            async for piece in request.stream():
                left -= len(piece)
                if left < 0:
                    return
