"""Where the elements of an envelope lie in its bytes, as far as Body's first child.

For changes to an envelope that is not written anew. A second pass, so that a request that is only read
does not pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from xml.parsers import expat

from wsrm_mq.envelope.encoding import codec_of, expat_encoding
from wsrm_mq.envelope.outline import NAME_SEPARATOR
from wsrm_mq.versions import SOAP_VERSIONS

__all__ = ["Document", "Span", "locate"]

_BODY: Final = frozenset(f"{ns}{NAME_SEPARATOR}Body" for ns in SOAP_VERSIONS)
_PIECE: Final = 64 * 1024
_MAX_DECLARATIONS: Final = 1_000
"""Each may be in the scope of every element: their number is a factor of this pass's cost."""


@dataclass(slots=True, eq=False)
class Span:
    """An element. ``start`` is its first byte, ``content`` the one behind its start tag, ``stop`` the one
    behind its end tag; -1 is not seen.

    Namespace declarations, by prefix (``""`` for the default namespace): ``outer`` are in scope around it,
    ``own`` it makes itself, ``inner`` are both together.
    """

    name: str
    ordinal: int
    parent: Span | None
    outer: Mapping[str, str]
    inner: Mapping[str, str]
    own: Mapping[str, str]
    start: int
    content: int = -1
    stop: int = -1

    @property
    def is_self_closed(self) -> bool:
        return self.content == self.stop

    @property
    def namespace(self) -> str:
        return self.name.rpartition(NAME_SEPARATOR)[0]

    @property
    def local(self) -> str:
        return self.name.rpartition(NAME_SEPARATOR)[2]


@dataclass(frozen=True, slots=True)
class Document:
    """``spans`` in document order. Offsets are into ``body``, which may hold more than the document."""

    body: bytes
    codec: str
    spans: tuple[Span, ...]

    def text(self, start: int, stop: int) -> str:
        return self.body[start:stop].decode(self.codec, "replace")


class _Enough(Exception):
    """Ends the pass."""


def locate(body: bytes, charset: str | None, offset: int = 0, *, into_body: bool = False) -> Document:
    """Spans of the document that begins at ``offset``. A broken one has those that begin before it breaks.

    ``into_body``: go on to the end of Body.
    """
    first = body[offset : offset + 256]
    codec = codec_of(first, charset)
    parser = expat.ParserCreate(expat_encoding(first, charset), NAME_SEPARATOR, None)
    spans: list[Span] = []
    path: list[Span] = []
    own: dict[str, str] = {}
    unended: list[tuple[Span, str]] = []
    declarations = 0

    def mark() -> int:
        """Every event ends the tag before it."""
        position = offset + parser.CurrentByteIndex
        for span, edge in unended:
            setattr(span, edge, position)
        unended.clear()
        return position

    def start(name: str, _attributes: dict[str, str]) -> None:
        nonlocal own
        position = mark()
        parent = path[-1] if path else None
        outer = parent.inner if parent else {}
        inner = {**outer, **own} if own else outer
        span = Span(name, len(spans) + 1, parent, outer, inner, own, position)
        own = {}
        spans.append(span)
        path.append(span)
        unended.append((span, "content"))

    def end(name: str) -> None:
        mark()
        unended.append((path.pop(), "stop"))
        if name in _BODY and len(path) == 1:
            raise _Enough

    def declare(prefix: str | None, uri: str | None) -> None:
        nonlocal declarations
        declarations += 1
        if declarations > _MAX_DECLARATIONS:
            raise _Enough
        own[prefix or ""] = uri or ""

    def stop_in_body(name: str, attributes: dict[str, str]) -> None:
        if len(path) == 2 and path[-1].name in _BODY and not into_body:
            mark()
            raise _Enough
        start(name, attributes)

    parser.StartElementHandler = stop_in_body
    parser.EndElementHandler = end
    parser.StartNamespaceDeclHandler = declare
    parser.CharacterDataHandler = parser.CommentHandler = lambda _: mark() and None
    parser.StartCdataSectionHandler = lambda: mark() and None
    parser.StartDoctypeDeclHandler = _refuse
    try:
        for begin in range(offset, len(body), _PIECE):
            parser.Parse(body[begin : begin + _PIECE], False)
    except (_Enough, expat.ExpatError, LookupError, ValueError):
        pass
    return Document(body, codec, tuple(s for s in spans if s.content >= 0))


def _refuse(*_: object) -> None:
    raise _Enough
