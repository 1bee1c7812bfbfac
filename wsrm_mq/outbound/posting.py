"""A POST to an address that may be sent to. Nothing follows a redirect, and no proxy of the environment is asked."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import IO, Any, ClassVar, Final, NamedTuple, TypeGuard
from urllib.parse import unquote, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ProtocolError, SSLError

from wsrm_mq.errors import ConfigurationError, NameServerSilent, NotAllowed, NotAnswered, Unread
from wsrm_mq.outbound.addresses import Allowed, check_url
from wsrm_mq.outbound.names import Names

_CONNECT_SECONDS: Final = 10.0
_LOOK_UPS: Final = 64
_WHO: ContextVar[str | None] = ContextVar("who", default=None)
"""The peer that is the cause of this thread's post: names are looked up in its share."""
_MAX_ANSWER: Final = 16 * 1024 * 1024
_PIECE: Final = 65_536
_LARGE: Final = 65_536
"""Bytes of a message from which on its size may be why a connection breaks off."""
_FROM_GATEWAYS: Final = (502, 503, 504)


class Answer(NamedTuple):
    status: int
    reason: str
    headers: list[tuple[str, str]]
    content: bytes
    """The content as it was sent; it may be compressed."""


class _InTime(io.RawIOBase):
    """The bytes that a socket receives, until twice its time-out is over. The time-out itself counts from byte to byte,
    so status and headers that drip would hold their thread for ever. The content of an answer has its own bound."""

    def __init__(self, received: io.RawIOBase, sock: socket.socket) -> None:
        self._received = received
        self._sock = sock
        timeout = sock.gettimeout()
        self._end = None if timeout is None else time.monotonic() + 2 * timeout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._end is not None and time.monotonic() > self._end:
            raise TimeoutError("the answer takes too long")
        return self._received.readinto(buffer)

    def close(self) -> None:
        self._received.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_InTime(sock.makefile("rb", buffering=0), sock))


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
        if _is_large(body):  # in pieces: a time-out is for the sending of one
            headers = {**headers, "Content-Length": str(len(body))}
            body = io.BytesIO(body)
        answer = self._pools(url).urlopen(
            "POST", url, body=body, headers=headers, redirect=False, retries=False, preload_content=False
        )
        with answer:
            content = self._whole(url, answer)
            answer.release_conn()
        return Answer(answer.status, answer.reason or "", list(answer.headers.items()), content)

    def _answers(self, url: str) -> bool:
        try:
            answer = self._pools(url).urlopen("POST", url, body=b"", redirect=False, retries=False)
        except HTTPError:
            return False
        return answer.status not in _FROM_GATEWAYS

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

    def _whole(self, url: str, answer: urllib3.BaseHTTPResponse) -> bytes:
        """The time-out of a connection counts from byte to byte: an answer that drips would hold its thread for
        ever."""
        end = time.monotonic() + self._seconds
        pieces: list[bytes] = []
        size = 0
        while piece := answer.read1(_PIECE, decode_content=False):
            pieces.append(piece)
            size += len(piece)
            if size > _MAX_ANSWER:
                raise NotAnswered(f"{url}: its answer has more than {_MAX_ANSWER} bytes")
            if time.monotonic() > end:
                raise NotAnswered(f"{url}: its answer was not over after {self._seconds:g} s")
        return b"".join(pieces)


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
