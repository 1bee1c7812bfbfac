"""A POST to an address that may be sent to. Nothing follows a redirect, and no proxy of the environment is asked."""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import IO, Any, ClassVar, Final, NamedTuple, TypeGuard
from urllib.parse import unquote, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.util import parse_url

from wsrm_mq.errors import ConfigurationError, NameServerSilent, NotAllowed, NotAnswered, Unread
from wsrm_mq.outbound.addresses import Allowed, check_url
from wsrm_mq.outbound.names import Names
from wsrm_mq.remembered import Recent, are_small

_CONNECT_SECONDS: Final = 10.0
_LOOK_UPS: Final = 64
_WHO: ContextVar[str | None] = ContextVar("who", default=None)
"""The peer that is the cause of this thread's post: names are looked up in its share."""
_MAX_ANSWER: Final = 16 * 1024 * 1024
_PIECE: Final = 65_536
_LARGE: Final = 65_536
"""Bytes of a message from which on its size may be why a connection breaks off."""
_FROM_GATEWAYS: Final = (502, 503, 504)
_WITHOUT_CONTENT: Final = (204, 304)
_WAYS: Final = 1_024
_OWN: Final = {"Accept-Encoding": "identity", "User-Agent": "wsrm-mq"}
_FIELD: Final = re.compile(r"[!#-'*+.^-z|~0-9A-Z-]+: [\t\x20-\x7e\x80-\xff]*")
_PLAIN: Final = re.compile(rb"HTTP/1\.1 ([2-5]\d\d) ?([^\r\n]*)\r\n((?:[^\s:]+:[^\r\n]*\r\n)+)\r\n")
"""The head of an answer that is read here. Any other is read by ``http.client``, from its first byte: its parser of
headers, which is one of mails, costs more than the rest of an exchange."""


class Answer(NamedTuple):
    status: int
    reason: str
    headers: list[tuple[str, str]]
    content: bytes
    """The content as it was sent; it may be compressed."""


class _InTime(io.RawIOBase):
    """The bytes that a socket receives, until twice its time-out is over. The time-out itself counts from byte to byte,
    so status and headers that drip would hold their thread for ever. The content of an answer has its own bound."""

    def __init__(self, received: io.RawIOBase, sock: socket.socket, first: bytes) -> None:
        """``first``: bytes that came before."""
        self._received = received
        self._first = first
        self._sock = sock
        timeout = sock.gettimeout()
        self._end = None if timeout is None else time.monotonic() + 2 * timeout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._end is not None and time.monotonic() > self._end:
            raise TimeoutError("the answer takes too long")
        if not self._first:
            return self._received.readinto(buffer)
        size = min(len(buffer), len(self._first))
        buffer[:size], self._first = self._first[:size], self._first[size:]
        return size

    def close(self) -> None:
        self._received.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, first: bytes = b"", **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_InTime(sock.makefile("rb", buffering=0), sock, first))


class _Plain(HTTPConnection):
    """Connects to the very address that was looked up, and judged where ``allowed`` judges; the name stays for TLS and
    in ``Host``."""

    response_class = _Response
    names: ClassVar[Names]
    allowed: ClassVar[Allowed | None] = None

    def _new_conn(self) -> socket.socket:
        name, allowed, look_up = self._dns_host, self.allowed, partial(self.names.look_up, who=_WHO.get())
        try:
            addresses = look_up(name) if allowed is None else allowed.judge(name, self.port, look_up)
        except NameServerSilent as error:
            raise NewConnectionError(self, str(error)) from error
        except OSError as error:
            raise NewConnectionError(self, f"there is no host {name}: {error}") from error
        try:
            return self._connected(addresses)
        finally:
            self.host = name

    def _connected(self, addresses: list[str]) -> socket.socket:
        """Connect to the first address that answers."""
        *others, last = addresses
        for address in others:
            self.host = address
            with suppress(NewConnectionError, ConnectTimeoutError):
                return super()._new_conn()
        self.host = last
        return super()._new_conn()


class _Secure(_Plain, HTTPSConnection):
    pass


def _pools(names: Names, allowed: Allowed | None = None) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    """Classes of pools by scheme. Their connections lead only to ``allowed`` addresses; ``None``: to any."""
    own = {"names": names, "allowed": allowed}
    return {
        "http": type("_Pool", (urllib3.HTTPConnectionPool,), {"ConnectionCls": type("_Connection", (_Plain,), own)}),
        "https": type(
            "_PoolTLS", (urllib3.HTTPSConnectionPool,), {"ConnectionCls": type("_ConnectionTLS", (_Secure,), own)}
        ),
    }


def tls(ca: str | None = None, certificate: str | None = None) -> ssl.SSLContext:
    """Make the TLS context of requests. The file ``ca`` has the certificates of authorities in place of the system's;
    the file ``certificate`` has the certificate of this side and its key, as PEM. Raises ``ConfigurationError``."""
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate)
    except OSError as error:
        files = " or ".join(file for file in (ca, certificate) if file is not None)
        raise ConfigurationError(f"{files}: cannot be used as certificates: {error}.") from error
    return context


class _Way(NamedTuple):
    """The way of requests that have the same address and headers."""

    pool: urllib3.HTTPConnectionPool
    is_tunnel: bool
    """It leads through a proxy that does not read what passes."""
    head: bytes
    """The request's line and headers."""


class Poster:
    """Posts, over connections that it keeps. ``seconds`` bound an answer; ``connections``: so many are kept to a
    host. ``proxy`` is the URL of one that all goes through, https:// too: it resolves the names that were judged here.
    Raises ``ConfigurationError`` for one that cannot be spoken to."""

    def __init__(
        self,
        allowed: Allowed,
        *,
        seconds: float = 60.0,
        connections: int = 64,
        context: ssl.SSLContext | None = None,
        proxy: str | None = None,
    ) -> None:
        self._allowed = allowed
        self._seconds = seconds
        self._names = Names(_LOOK_UPS)
        self._ways: Recent[tuple[object, ...], _Way] = Recent(_WAYS)
        timeout = urllib3.Timeout(connect=min(seconds, _CONNECT_SECONDS), read=seconds)
        options: dict[str, Any] = {"maxsize": connections, "timeout": timeout, "ssl_context": context}
        self._proxied = None if proxy is None else _proxy(proxy, options)
        self._anywhere = urllib3.PoolManager(**options)
        self._judged = urllib3.PoolManager(**options)
        self._judged.pool_classes_by_scheme = _pools(self._names, allowed)
        for pools in filter(None, (self._proxied, self._anywhere)):
            pools.pool_classes_by_scheme = _pools(self._names)

    def post(self, url: str, headers: Mapping[str, str], body: bytes | IO[bytes], who: str | None = None) -> Answer:
        """Post because of ``who``. Raises ``NotAllowed`` for an address that nothing is sent to, ``NotAnswered`` where
        no whole answer comes, ``Unread`` where the connection broke off and the host answers a message without
        content."""
        _WHO.set(who)
        try:
            try:
                return self._posted(url, headers, body)
            except (ProtocolError, SSLError):
                if not _is_large(body):
                    raise
                self._pools(url).clear()  # it was kept for longer than its host keeps one, perhaps
                return self._posted(url, headers, body)
        except NotAllowed as error:
            raise NotAllowed(f"{url}: {error}") from error
        except HTTPError as error:
            is_unread = _is_large(body) and isinstance(error, ProtocolError | SSLError) and self._answers(url)
            raise (Unread if is_unread else NotAnswered)(f"{url}: {_said(error)}") from error

    def _posted(self, url: str, headers: Mapping[str, str], body: bytes | IO[bytes]) -> Answer:
        way = self._way(url, headers)
        pool, is_kept = way.pool, False
        connection: Any = pool._get_conn()
        try:
            if connection.sock is None:
                (partial(pool._prepare_proxy, connection) if way.is_tunnel else connection.connect)()
            connection.sock.settimeout(self._seconds)
            _send(connection.sock, way.head, body)
            answer, is_kept = self._received(url, connection.sock)
            return answer
        except ssl.SSLError as error:
            raise SSLError(error) from error
        except TimeoutError as error:
            raise ReadTimeoutError(pool, url, f"Read timed out. (read timeout={self._seconds:g})") from error
        except (OSError, http.client.HTTPException) as error:
            raise ProtocolError("Connection aborted.", error) from error
        finally:
            if not is_kept:
                connection.close()
            pool._put_conn(connection)

    def _way(self, url: str, headers: Mapping[str, str]) -> _Way:
        if self._proxied is not None:
            return self._way_to(url, headers)
        key = (url, *headers.items())
        way = self._ways.get(key)
        if way is None or way.pool.pool is None:  # it was closed, to make room for others
            way = self._way_to(url, headers)
            if are_small(((url, ""), *headers.items())):
                self._ways.keep(key, way)
        return way

    def _way_to(self, url: str, headers: Mapping[str, str]) -> _Way:
        pools, parts = self._pools(url), parse_url(url)
        is_proxied, is_tunnel = self._proxied is not None, parts.scheme == "https"
        target = parts.request_uri
        fields = {"Host": parts.netloc or "", **_OWN}
        if self._proxied is not None and not is_tunnel:
            target = parts._replace(auth=None, fragment=None).url
            fields.update(self._proxied.proxy_headers)
        said = {name.lower(): f"{name}: {value}" for name, value in (*fields.items(), *headers.items())}
        for field in said.values():
            if not _FIELD.fullmatch(field):
                raise ValueError(f"the header {field.partition(':')[0]!r} cannot be sent as it is")
        head = "\r\n".join((f"POST {target} HTTP/1.1", *said.values(), ""))
        return _Way(pools.connection_from_url(url), is_proxied and is_tunnel, head.encode("latin-1"))

    def _received(self, url: str, sock: socket.socket) -> tuple[Answer, bool]:
        """The answer, and whether another may follow it on this connection."""
        first = sock.recv(_PIECE)
        head = _PLAIN.match(first)
        fields = [] if head is None else _fields(head[3])
        length = _length(fields)
        if head is None or length is None or int(head[1]) in _WITHOUT_CONTENT:
            return self._read(url, _Response(sock, method="POST", first=first))
        content = self._whole(url, _counted(first[head.end() :], length, sock))
        answer = Answer(int(head[1]), head[2].decode("latin-1").strip(), fields, content[:length])
        return answer, len(content) == length

    def _read(self, url: str, response: _Response) -> tuple[Answer, bool]:
        try:
            response.begin()
            content = self._whole(url, iter(partial(response.read1, _PIECE), b""))
            if response.length:
                raise http.client.IncompleteRead(content, response.length)
            answer = Answer(response.status, response.reason, response.getheaders(), content)
            return answer, not response.will_close
        finally:
            response.close()

    def _answers(self, url: str) -> bool:
        try:
            return self._posted(url, {}, b"").status not in _FROM_GATEWAYS
        except HTTPError:
            return False

    def connect(self, url: str) -> None:
        """Connect, and send nothing. Raises as ``post``."""
        try:
            connection = self._pools(url).connection_from_url(url)._get_conn()
            try:
                connection.connect()
            finally:
                connection.close()
        except NotAllowed as error:
            raise NotAllowed(f"{url}: {error}") from error
        except (HTTPError, OSError) as error:
            raise NotAnswered(f"{url}: {_said(error)}") from error

    def _pools(self, url: str) -> urllib3.PoolManager:
        if self._proxied is not None:
            check_url(url, self._allowed, partial(self._names.look_up, who=_WHO.get()))
            return self._proxied
        return self._anywhere if self._allowed.lists(url) else self._judged

    def _whole(self, url: str, pieces: Iterable[bytes]) -> bytes:
        """The time-out of a connection counts from byte to byte: an answer that drips would hold its thread for
        ever."""
        end = time.monotonic() + self._seconds
        content: list[bytes] = []
        size = 0
        for piece in pieces:
            content.append(piece)
            size += len(piece)
            if size > _MAX_ANSWER:
                raise NotAnswered(f"{url}: its answer has more than {_MAX_ANSWER} bytes")
            if time.monotonic() > end:
                raise NotAnswered(f"{url}: its answer was not over after {self._seconds:g} s")
        return b"".join(content)


def _send(sock: socket.socket, head: bytes, body: bytes | IO[bytes]) -> None:
    """Send a request, in pieces: a time-out is for the sending of one. A body of bytes has no Content-Length in its
    head."""
    ending = b"Content-Length: %d\r\n\r\n" % len(body) if isinstance(body, bytes) else b"\r\n"
    pieces = iter(partial((io.BytesIO(body) if isinstance(body, bytes) else body).read, _PIECE), b"")
    try:
        sock.sendall(head + ending + next(pieces, b""))
        for piece in pieces:
            sock.sendall(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass  # its host may have answered before it had read all
    except TimeoutError as error:
        raise ProtocolError("Connection aborted.", error) from error


def _fields(head: bytes) -> list[tuple[str, str]]:
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[:-1])
    return [(name, value.strip()) for name, _colon, value in lines]


def _length(fields: list[tuple[str, str]]) -> int | None:
    """The number of bytes of the content behind these headers; ``None``: something else bounds it, or the connection
    ends with it."""
    said = {name.lower(): value for name, value in fields}
    length = said.get("content-length", "")
    is_counted = len(said) == len(fields) and "transfer-encoding" not in said and length.isascii() and length.isdigit()
    return int(length) if is_counted and said.get("connection", "keep-alive").lower() == "keep-alive" else None


def _counted(first: bytes, length: int, sock: socket.socket) -> Iterator[bytes]:
    """The pieces of a content of so many bytes; ``first`` have come."""
    yield first
    left = length - len(first)
    while left > 0:
        piece = sock.recv(min(left, _PIECE))
        if not piece:
            raise http.client.IncompleteRead(b"", left)
        left -= len(piece)
        yield piece


def _is_large(body: bytes | IO[bytes]) -> TypeGuard[bytes]:
    return isinstance(body, bytes) and len(body) > _LARGE


def _proxy(url: str, options: dict[str, Any]) -> urllib3.ProxyManager:
    """The pools of a proxy. One of https is vouched for as endpoints are, and gets what is for http endpoints by TLS
    too; a name and password in its URL are sent to it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"The proxy {parts.scheme}://{parts.hostname or ''}: write http://host:port or https://…"
        )
    secret = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    headers = urllib3.make_headers(proxy_basic_auth=secret)
    return urllib3.ProxyManager(url, proxy_headers=headers, proxy_ssl_context=options["ssl_context"], **options)


def _said(error: Exception) -> str:
    """The message of ``error`` without the connection or pool at the beginning of urllib3's text."""
    text = str(error.args[-1] if isinstance(error, ConnectTimeoutError) else error)
    return (text.partition("): ")[2] or text).removeprefix("Failed to establish a new connection: ")
