"""The parts of a message that may leave its node: chosen headers, and its envelope without proofs of its sender."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from wsrm_mq.envelope.rewrite import body_digest, without_security
from wsrm_mq.envelope.stream import Limits, content_coding, expand
from wsrm_mq.errors import ConfigurationError, EnvelopeError
from wsrm_mq.kept_headers import refusal_to_keep

_ADDRESS: Final = (
    "REQUEST_METHOD",
    "SCRIPT_NAME",
    "PATH_INFO",
    "QUERY_STRING",
    "CONTENT_TYPE",
    "HTTP_SOAPACTION",
    "wsgi.url_scheme",
)
"""Fields of a stored request that are always given, whichever headers are asked for: its address, and the fields by
which its envelope is read."""
_GZIP: Final = "gzip"
_REQUESTS: Final = 1_024
"""The number of requests that are remembered: those of a client are alike."""
_LIMITS: Final = Limits()


Envelope = tuple[bytes | None, bool]
"""The content of an envelope, expanded where it was received compressed; and whether it is as it was received, so that
it may be replayed."""


class Exposure:
    """``headers``: names of request headers that are given beside Content-Type and SOAPAction. ``security``: envelopes
    keep their ``wsse:Security``."""

    def __init__(self, headers: Iterable[str] = (), *, security: bool = False) -> None:
        self.headers: Final = tuple(sorted({name.title() for name in headers}))
        for name in self.headers:
            if why := refusal_to_keep(name):
                raise ConfigurationError(f"the header {name!r} cannot be exported: it {why}.")
        self.security: Final = security
        self._given: Final = frozenset((*_ADDRESS, *(f"HTTP_{n.upper().replace('-', '_')}" for n in self.headers)))
        self._given_back: Final = frozenset(("content-type", *(name.lower() for name in self.headers)))
        self.request: Final = lru_cache(_REQUESTS)(self._request)

    def _request(self, stored: str | None) -> str | None:
        """A stored request, as JSON, without the headers that were not asked for."""
        if stored is None:
            return None
        return _json({name: value for name, value in json.loads(stored).items() if name in self._given})

    def reply_headers(self, stored: str) -> str:
        """The headers of a reply, as a JSON list of pairs, without those that were not asked for."""
        return _json([pair for pair in json.loads(stored) if pair[0].lower() in self._given_back])

    def envelope(self, body: bytes | None, request: str | None) -> Envelope:
        """The envelope that is given for ``body``, which came with the stored ``request``."""
        return self._shown(body, *_content(request or "{}"))

    def digest(self, body: bytes | None, request: str | None) -> str | None:
        """SHA-256 of the content of the SOAP Body in ``body`` (``envelope.body_digest``); ``None``: it is not known."""
        content_type, is_compressed = _content(request or "{}")
        plain = _plain(body, is_compressed)
        return body_digest(plain, content_type) if plain is not None else None

    def reply(self, body: bytes | None, headers: str) -> Envelope:
        """The body that is given for a reply with these stored headers."""
        kept = {name.lower(): value for name, value in json.loads(headers)}
        is_compressed = content_coding(kept.get("content-encoding", "")) == _GZIP
        return self._shown(body, kept.get("content-type", ""), is_compressed)

    def _shown(self, body: bytes | None, content_type: str, is_compressed: bool) -> Envelope:
        plain = _plain(body, is_compressed)
        if plain is None:
            return None, False
        if self.security:
            return plain, True
        redacted = without_security(plain, content_type)
        return redacted, redacted is plain


def _plain(body: bytes | None, is_compressed: bool) -> bytes | None:
    """``body`` expanded; ``None`` where it is not there, or breaks off."""
    try:
        return expand(body, _LIMITS).read() if is_compressed and body is not None else body
    except EnvelopeError:
        return None


@lru_cache(_REQUESTS)
def _content(request: str) -> tuple[str, bool]:
    """The Content-Type of a stored request, and whether its body is compressed."""
    kept: dict[str, str] = json.loads(request)
    return kept.get("CONTENT_TYPE", ""), content_coding(kept.get("HTTP_CONTENT_ENCODING", "")) == _GZIP


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
