"""Which connection a request came on, as far as the server shows it.

The connection groups messages for people and bounds what one client may hold; it is never the key of a sequence's
correctness, because proxies multiplex clients. In this order: the ``connection_key`` callable, a header that a trusted
proxy sets, the server's own connection object, the peer's address and port; else none.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Collection
from ipaddress import ip_address, ip_network
from typing import Any, Final

__all__ = ["Connections"]

Environ = dict[str, Any]


def _waitress_channel(environ: Environ) -> object | None:
    return getattr(environ.get("waitress.client_disconnected"), "__self__", None)


_OBJECTS: Final[tuple[Callable[[Environ], object | None], ...]] = (
    _waitress_channel,
    lambda environ: environ.get("gunicorn.socket"),
    lambda environ: environ.get("werkzeug.socket"),
)
"""Where servers show an object that lives as long as the connection."""


class Connections:
    """Names connections. A name is ``address:port`` and, where the server shows the connection, a random suffix: a
    port that comes back is then another connection."""

    def __init__(
        self,
        *,
        connection_key: Callable[[Environ], str | None] | None = None,
        header: str | None = None,
        trusted_proxies: Collection[str] = (),
    ) -> None:
        self._connection_key = connection_key
        self._header = "HTTP_" + header.upper().replace("-", "_") if header else None
        self._trusted = tuple(ip_network(network, strict=False) for network in trusted_proxies)
        self._named: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()

    def name(self, environ: Environ) -> str | None:
        if self._connection_key is not None:
            return self._connection_key(environ)
        address = environ.get("REMOTE_ADDR")
        if self._header is not None and self._is_trusted(address):
            shown = environ.get(self._header)
            if shown:
                return str(shown)
        port = environ.get("REMOTE_PORT")
        for find in _OBJECTS:
            connection = find(environ)
            if connection is not None:
                return self._of(connection, address, port)
        return f"{address}:{port}" if address and port else None

    def _is_trusted(self, address: str | None) -> bool:
        try:
            return any(ip_address(address or "") in network for network in self._trusted)
        except ValueError:
            return False

    def _of(self, connection: object, address: str | None, port: object) -> str | None:
        try:
            name = self._named.get(connection)
            # Of two threads that name it at once the first does, without a lock that a fork could leave held.
            return name or self._named.setdefault(connection, f"{address}:{port}/{secrets.token_hex(4)}")
        except TypeError:  # cannot be referred to weakly
            return f"{address}:{port}" if port else None
