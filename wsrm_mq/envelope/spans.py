"""Where the elements of an envelope lie in its bytes, as far as Body's first child.

For changes to an envelope that is not written anew. A second pass, so that a request that is only read
does not pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from xml.parsers import expat

from wsrm_mq.envelope.outline import NAME_SEPARATOR, codec_of, expat_encoding
from wsrm_mq.versions import SOAP_VERSIONS

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


def locate(
    body: bytes, charset: str | None, offset: int = 0, *, into_body: bool = False, into_header: bool = True
) -> Document:
    """Spans of the document that begins at ``offset``. A broken one has those that begin before it breaks.

    ``into_body``: go on to the end of Body; without ``into_header`` there is nothing behind the start tag of the
    document's first element.
    """
    first = body[offset : offset + 256]
    parser = expat.ParserCreate(expat_encoding(first, charset), NAME_SEPARATOR, None)
    spans = _Pass(parser, offset, into_body, into_header).spans
    try:
        for begin in range(offset, len(body), _PIECE):
            parser.Parse(body[begin : begin + _PIECE], False)
    except (_Enough, expat.ExpatError, LookupError, ValueError):
        pass
    return Document(body, codec_of(first, charset), tuple(span for span in spans if span.content >= 0))


class _Pass:
    """Notes where elements begin and end in ``spans``. Every event ends the tag before it."""

    def __init__(self, parser: expat.XMLParserType, offset: int, into_body: bool, into_header: bool) -> None:
        self.spans: list[Span] = []
        self._parser = parser
        self._offset = offset
        self._into_body = into_body
        self._into_header = into_header
        self._path: list[Span] = []
        self._declared: dict[str, str] = {}
        """The namespaces that the next start tag declares, by prefix."""
        self._declarations = 0
        self._unended: list[tuple[Span, str]] = []
        """Spans whose tag has not ended, and the edge that its end is."""
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartNamespaceDeclHandler = self._declare
        parser.CharacterDataHandler = parser.CommentHandler = self._between
        parser.StartCdataSectionHandler = self._between
        parser.StartDoctypeDeclHandler = _refuse

    def _mark(self) -> int:
        position = self._offset + self._parser.CurrentByteIndex
        for span, edge in self._unended:
            setattr(span, edge, position)
        self._unended.clear()
        return position

    def _start(self, name: str, _attributes: dict[str, str]) -> None:
        position, path, own = self._mark(), self._path, self._declared
        if len(path) == 2 and not (self._into_body if path[-1].name in _BODY else self._into_header):
            raise _Enough
        parent = path[-1] if path else None
        outer = parent.inner if parent else {}
        inner = {**outer, **own} if own else outer
        span = Span(name, len(self.spans) + 1, parent, outer, inner, own, position)
        self._declared = {}
        self.spans.append(span)
        path.append(span)
        self._unended.append((span, "content"))

    def _end(self, name: str) -> None:
        self._mark()
        self._unended.append((self._path.pop(), "stop"))
        if name in _BODY and len(self._path) == 1:
            raise _Enough

    def _declare(self, prefix: str | None, uri: str | None) -> None:
        self._declarations += 1
        if self._declarations > _MAX_DECLARATIONS:
            raise _Enough
        self._declared[prefix or ""] = uri or ""

    def _between(self, *_: object) -> None:
        self._mark()


def _refuse(*_: object) -> None:
    raise _Enough
