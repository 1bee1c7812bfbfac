"""The service's description of itself: its WSDL, and what the middleware adds to that.

The application is asked for its whole WSDL, whatever part of it was wished, and answers as if it were not wrapped.
What is made of that is another document, with a validator of its own (ETag).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable
from typing import Final, NamedTuple

from wsrm_mq.delivery.application import Environ
from wsrm_mq.delivery.service_reply import UnusableReply, expanded
from wsrm_mq.destination.coverage import LARGEST
from wsrm_mq.envelope.stream import content_type_of, parse_content_type
from wsrm_mq.envelope.wsdl import Announcement, announce, move_ports, parsed, remove_outputs, written
from wsrm_mq.events.telling import Events
from wsrm_mq.remembered import Recent

_DOCUMENTS: Final = 8
_REMEMBERED: Final = 4 * 1024 * 1024
"""Bytes of a document that is remembered."""
_OF_THE_LENGTH: Final = frozenset(("content-length", "transfer-encoding", "connection", "keep-alive"))
_OF_THE_OTHER_DOCUMENT: Final = frozenset(
    ("accept-ranges", "content-digest", "content-md5", "digest", "etag", "last-modified", "repr-digest")
)
_ABOUT: Final = b"http://schemas.xmlsoap.org/wsdl/"


class Described(NamedTuple):
    """An HTTP response, with all of its headers."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes


class _Made(NamedTuple):
    """The changed document; none where nothing is to be added."""

    document: bytes | None
    etag: str = ""


class Description:
    """The additions to WSDLs: the operations in ``one_way`` of a request have no output, its ``announcement`` is
    attached, where it answers one, and the service lies at ``public_url``, where that is given."""

    def __init__(
        self,
        one_way: Callable[[Environ], frozenset[str]],
        public_url: str | None,
        announcement: Callable[[Environ], Announcement | None],
        events: Events,
    ) -> None:
        self._one_way = one_way
        self._public_url = public_url
        self._announcement = announcement
        self._events = events
        self._is_told = False
        self._made: Recent[Hashable, _Made] = Recent(_DOCUMENTS)
        """The changed documents, by the digest of the application's document and the additions: each is made once."""

    def answer(self, environ: Environ, line: str, headers: Iterable[tuple[str, str]], content: bytes) -> Described:
        """The answer to ``environ``, made from the application's answer."""
        kept = [(name, value) for name, value in headers if name.lower() not in _OF_THE_LENGTH]
        if line.startswith("200"):
            try:
                kept, content = self._completed(environ, kept, content)
            except (UnusableReply, ValueError) as error:
                self._tell(environ, kept, content, error)
            etag = next((value for name, value in kept if name.lower() == "etag"), None)
            if etag is not None and _is_known(etag, environ.get("HTTP_IF_NONE_MATCH", "")):
                return Described("304 Not Modified", [field for field in kept if not _describes_body(field[0])], b"")
        kept.append(("Content-Length", str(len(content))))
        return Described(line, kept, b"" if environ.get("REQUEST_METHOD") == "HEAD" else content)

    def _completed(
        self, environ: Environ, headers: list[tuple[str, str]], content: bytes
    ) -> tuple[list[tuple[str, str]], bytes]:
        plain, document = expanded(tuple(headers), content, LARGEST)
        if len(document) > LARGEST:
            raise ValueError(f"larger than {LARGEST} bytes")
        added = self._one_way(environ), self._announcement(environ)
        key = hashlib.sha256(document).digest(), *added
        made = self._made.get(key)
        if made is None:
            made = self._with(document, *added)
            if len(document) <= _REMEMBERED:
                self._made.keep(key, made)
        if made.document is None:
            return headers, content
        kept = [_in_utf_8(name, value) for name, value in plain if name.lower() not in _OF_THE_OTHER_DOCUMENT]
        return [*kept, ("ETag", made.etag)], made.document

    def _with(self, document: bytes, one_way: frozenset[str], announcement: Announcement | None) -> _Made:
        root = parsed(document)
        changes = (
            remove_outputs(root, one_way),
            announcement is not None and announce(root, announcement),
            self._public_url is not None and move_ports(root, self._public_url),
        )
        if not any(changes):
            return _Made(None)
        other = written(root)
        return _Made(other, f'"{hashlib.sha256(other).hexdigest()[:32]}"')

    def _tell(self, environ: Environ, headers: list[tuple[str, str]], content: bytes, error: Exception) -> None:
        """Once: what asks for a WSDL may be answered by a page, but by no WSDL that is broken."""
        media_type = parse_content_type(content_type_of(headers)).media_type
        if not self._is_told and ("xml" in media_type or _ABOUT in content):
            self._is_told = True
            self._events.tell("wsdl.untouched", path=environ.get("PATH_INFO"), reason=str(error))


def _is_known(etag: str, tags: str) -> bool:
    return tags.strip() == "*" or etag.removeprefix("W/") in [tag.strip().removeprefix("W/") for tag in tags.split(",")]


def _describes_body(name: str) -> bool:
    return name.lower().startswith("content-") and name.lower() != "content-location"


def _in_utf_8(name: str, value: str) -> tuple[str, str]:
    if name.lower() != "content-type" or "charset" not in value.lower():
        return name, value
    parts = [part.strip() for part in value.split(";")]
    others = [part for part in parts if not part.lower().startswith("charset")]
    return name, "; ".join([*others, "charset=utf-8"])
