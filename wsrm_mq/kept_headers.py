"""The part of a request that is stored with its message: the headers that SOAP and a replay need, and those that
`keep_headers` adds.

It is an allow-list, for a header that is not foreseen may be a secret. The application sees no header that is not
stored, at the first delivery either: that is rebuilt from the store too. Authorization and Cookie are never stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import compress
from typing import Any, Final

KEPT_HEADERS: Final = (
    "Accept",
    "Accept-Charset",
    "Accept-Encoding",
    "Accept-Language",
    "Cache-Control",
    "Content-Description",
    "Content-Disposition",
    "Content-Encoding",
    "Content-ID",
    "Content-Language",
    "Content-Location",
    "Content-Transfer-Encoding",
    "Content-Type",
    "Date",
    "Forwarded",
    "Host",
    "MIME-Version",
    "Pragma",
    "Request-Id",
    "SOAPAction",
    "traceparent",
    "tracestate",
    "User-Agent",
    "Via",
    "X-Correlation-ID",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Proto",
    "X-Forwarded-Server",
    "X-Real-IP",
    "X-Request-ID",
)
"""Headers that are always stored."""

NEVER_KEPT: Final = ("Authorization", "Cookie", "Proxy-Authorization")
"""Headers that `keep_headers` may not name: a replay runs under the stored principal, not under credentials that have
expired."""

_OF_THE_CONNECTION: Final = (
    "Connection",
    "Content-Length",
    "Expect",
    "HTTP2-Settings",
    "Keep-Alive",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
)
"""Headers about the way the request came, not about the message: they are left out without a word."""

_REQUEST: Final = (
    "REQUEST_METHOD",
    "SCRIPT_NAME",
    "PATH_INFO",
    "QUERY_STRING",
    "CONTENT_TYPE",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "REMOTE_ADDR",
    "wsgi.url_scheme",
    "wsrm.traceparent",
)
"""The keys of an environ that are stored, beside its headers."""

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_LONGEST: Final = 100
"""The longest name of a header that is remembered or told: a stranger may choose it."""
_NAMES: Final = 512
"""Names in the cache, and names of dropped headers that are told: a stranger may send more."""


def _key(header: str) -> str:
    return f"HTTP_{header.upper().replace('-', '_')}"


_ALWAYS: Final = frozenset({*_REQUEST, *map(_key, KEPT_HEADERS)})
_SILENT: Final = frozenset(map(_key, _OF_THE_CONNECTION))
_REFUSED: Final = frozenset(map(_key, (*NEVER_KEPT, *_OF_THE_CONNECTION)))


def refusal_to_keep(header: str) -> str:
    """Why `keep_headers` may not name this one; empty: it may."""
    if not _NAME.fullmatch(header):
        return "is not the name of a header"
    return "is never stored" if _key(header) in _REFUSED else ""


class KeptHeaders:
    """Selects the stored part of a request. ``keep``: headers beside ``KEPT_HEADERS``. ``dropped(name)`` is called once
    for each other header, with its name, never its value."""

    def __init__(self, keep: Iterable[str] = (), dropped: Callable[[str], object] = lambda _name: None) -> None:
        self._kept = _ALWAYS.union(map(_key, keep)) - _REFUSED
        self._dropped = dropped
        self._known: dict[str, bool] = {}

    def select(self, environ: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """The part of a request that a replay needs."""
        known = self._known
        try:
            return tuple(compress(environ.items(), map(known.__getitem__, environ)))
        except KeyError:
            return tuple([item for item in environ.items() if self._keeps(item[0])])

    def _keeps(self, name: str) -> bool:
        keeps = name in self._kept
        if name not in self._known and len(self._known) < _NAMES and len(name) <= len("HTTP_") + _LONGEST:
            self._known[name] = keeps
            if not keeps and name.startswith("HTTP_") and name not in _SILENT:
                self._dropped(name.removeprefix("HTTP_").replace("_", "-").title())
        return keeps


def as_json(kept: Iterable[tuple[str, str]]) -> str:
    """The kept part of a request as it is stored."""
    return json.dumps(dict(kept), separators=(",", ":"))
