"""The connection that a request came on, as far as the server shows it.

The connection groups messages for people, bounds the messages that one client may have in the store and orders messages
that have no sequence; it is never the key of a sequence's correctness, because proxies multiplex clients. In this
order: the ``connection_key`` callable, a header that a trusted proxy sets, the server's own connection object, the
peer's address and port; else none.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from ipaddress import ip_address, ip_network
from typing import Any, Final

# The sender of a request behind proxies: the report of a trusted proxy about its client is believed, and nothing
# else.

_FOR: Final = re.compile(r'(?:^|;)\s*for="?([^;"]*)', re.IGNORECASE)
"""The client in an element of Forwarded (RFC 7239); X-Forwarded-For has nothing but that."""
_ADDRESS: Final = re.compile(r"\[([^\]]+)\](?::\d+)?|([\d.]+):\d+")
"""An address that is written with a port, or in brackets."""


class Proxies:
    """``trusted``: addresses and networks of proxies; ``header``: where they append their client's address."""

    def __init__(self, trusted: Collection[str] = (), header: str | None = None) -> None:
        self._trusted = tuple(ip_network(network, strict=False) for network in trusted)
        self._key = "HTTP_" + header.upper().replace("-", "_") if header else None

    def are_trusted(self, address: str | None) -> bool:
        try:
            found = ip_address(address or "")
        except ValueError:
            return False
        return any(found in network for network in self._trusted)

    def sender(self, environ: Mapping[str, Any]) -> str | None:
        """The address that a request was sent from: the last one, on its way here, that is no trusted proxy's. What
        stands before it in the header its sender may have written."""
        address: str | None = environ.get("REMOTE_ADDR")
        if self._key is None or not self.are_trusted(address):
            return address
        for element in reversed(environ.get(self._key, "").split(",")):
            reported = _address(element)
            if reported is None:
                break
            address = reported
            if not self.are_trusted(address):
                break
        return address


def _address(element: str) -> str | None:
    named = _FOR.search(element)
    text = (named[1] if named else element).strip()
    written = _ADDRESS.fullmatch(text)
    try:
        return str(ip_address((written[1] or written[2]) if written else text))
    except ValueError:  # "unknown", a name that hides the address, or nothing
        return None


try:
    import uwsgi as uwsgi  # there where uWSGI serves, and nowhere else
except ImportError:
    uwsgi = None
if not hasattr(uwsgi, "connection_fd"):  # a directory of that name can be imported too
    uwsgi = None

Environ = dict[str, Any]

_PORTS: Final = 10_000
"""Peers in memory by their ports; a keep-alive connection that is forgotten gets another name."""


def _shown(environ: Environ, call: object) -> object | None:
    """An object that lives as long as the connection, where a server shows one: uvicorn and cheroot do by the function
    that they call us with, a bound method."""
    of_call = getattr(call, "__self__", None)
    candidates: tuple[object | None, ...] = (
        getattr(of_call, "transport", None),  # uvicorn's receive
        getattr(environ.get("waitress.client_disconnected"), "__self__", None),
        environ.get("gunicorn.socket"),
        environ.get("werkzeug.socket"),
        getattr(getattr(of_call, "req", None), "conn", None),  # cheroot's start_response
    )
    for shown in candidates:
        if shown is not None:
            return shown
    return None


class Connections:
    """Names connections. A name is ``address:port`` and a random suffix: a port that comes back is another connection.
    Where the server shows no object it is another one after ``idle`` seconds without a request."""

    def __init__(
        self,
        *,
        connection_key: Callable[[Environ], str | None] | None = None,
        header: str | None = None,
        trusted_proxies: Collection[str] = (),
        idle: float = 300.0,
        notes_closes: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection_key = connection_key
        self._header = "HTTP_" + header.upper().replace("-", "_") if header else None
        self._proxies = Proxies(trusted_proxies)
        self._idle = idle
        self._notes_closes = notes_closes
        self._monotonic = monotonic
        self._named: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()
        self._by_port: OrderedDict[tuple[str, object], tuple[str, float]] = OrderedDict()
        self._closed: deque[str] = deque()

    def name(self, environ: Environ, call: object = None) -> str | None:
        """The name of a request's connection. ``call`` is the function that the server gave with the request: WSGI's
        start_response, ASGI's receive."""
        if self._connection_key is not None:
            return self._connection_key(environ)
        address = environ.get("REMOTE_ADDR")
        if self._header is not None and self._proxies.are_trusted(address):
            shown = environ.get(self._header)
            if shown:
                return str(shown)
        port = environ.get("REMOTE_PORT")
        connection = _shown(environ, call)
        if connection is not None:
            return self._of(connection, address, port)
        return self._of_port(address, port, environ) if address and port else None

    def closed(self) -> list[str]:
        """The connections whose end the server has shown since the last call; none without ``notes_closes``."""
        names: list[str] = []
        while self._closed:
            names.append(self._closed.popleft())
        return names

    def _of(self, connection: object, address: str | None, port: object) -> str | None:
        try:
            name = self._named.get(connection)
            if name is not None:
                return name
            # Of two threads that name it at once the first does, without a lock that a fork could leave held.
            fresh = _fresh(address, port)
            name = self._named.setdefault(connection, fresh)
            if self._notes_closes and name is fresh:
                # It may be called wherever memory is tidied up, whatever lock is held there: it only takes a note.
                weakref.finalize(connection, self._closed.append, name).atexit = False
            return name
        except TypeError:  # cannot be referred to weakly
            return f"{address}:{port}" if port else None

    def _of_port(self, address: str, port: object, environ: Environ) -> str:
        if uwsgi is not None and not environ.get(_OWN_SOCKET):
            return f"{address}:{port}"  # its router spreads a connection over the processes: all have to say the same
        now = self._monotonic()
        known = self._by_port.pop((address, port), None)
        name = known[0] if known is not None and now - known[1] <= self._idle else _fresh(address, port)
        self._by_port[address, port] = (name, now)
        if len(self._by_port) > _PORTS:
            self._by_port.popitem(last=False)
        return name


def _fresh(address: str | None, port: object) -> str:
    return f"{address}:{port}/{secrets.token_hex(4)}"


# uWSGI

_OWN_SOCKET: Final = "wsrm.own_socket"


def correct_peer(environ: Environ) -> None:
    """Correct the peer in the environ of uWSGI: its HTTP router swaps the bytes of the port; its own HTTP socket shows
    no port, and from the second request of a connection on the address 0.0.0.0. Does nothing under other servers."""
    if uwsgi is None:
        return
    port = environ.get("REMOTE_PORT")
    if port:
        if environ.get("UWSGI_ROUTER") == "http" and _OWN_SOCKET not in environ:
            environ["REMOTE_PORT"] = str(socket.ntohs(int(port)))
        return
    try:
        with socket.socket(fileno=os.dup(uwsgi.connection_fd())) as own:
            peer = own.getpeername()
    except (OSError, ValueError):
        return
    if isinstance(peer, tuple):
        environ["REMOTE_ADDR"], environ["REMOTE_PORT"], environ[_OWN_SOCKET] = peer[0], str(peer[1]), True
