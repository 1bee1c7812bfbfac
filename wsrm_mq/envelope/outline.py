"""The passes of expat over an envelope. Nothing behind what they are for is read.

The outline is a tree of its Header, and the first child of Body: one pass that ends with the start tag of that, so its
cost does not depend on the body. If that child is an RM element the pass goes on to its end. The tree is built by
``TreeBuilder``, in C: only start tags are seen by Python, because each of them may be the last one of interest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from wsrm_mq.envelope.lexical import WHITE_SPACE
from wsrm_mq.envelope.stream import Limits, Source, codec_of, expat_encoding, malformed, pieces, refuse_doctype
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.faults import VersionMismatch
from wsrm_mq.versions import RM_OF_NAMESPACE, SOAP_VERSIONS, SOAPVersion

NAME_SEPARATOR: Final = "\n"
"""Between namespace and local name in every expanded name: no namespace name holds a line end."""

_ENVELOPE: Final = {f"{ns}{NAME_SEPARATOR}Envelope": soap for ns, soap in SOAP_VERSIONS.items()}
_HEADER: Final = {soap: f"{ns}{NAME_SEPARATOR}Header" for ns, soap in SOAP_VERSIONS.items()}
_BODY_OF: Final = {soap: f"{ns}{NAME_SEPARATOR}Body" for ns, soap in SOAP_VERSIONS.items()}
_RM: Final = tuple(ns + NAME_SEPARATOR for ns in RM_OF_NAMESPACE)


def split_name(name: str) -> tuple[str, str]:
    """(namespace, local name) of an expanded name."""
    namespace, _, local = name.rpartition(NAME_SEPARATOR)
    return namespace, local


class Outline:
    """The elements that the pass has seen so far: complete after ``read_outline``, and of use to a fault if that
    raised.

    Tags and attribute names are expanded names. ``body`` is Body itself; its only child is empty unless it is
    an RM element. ``elements`` is their number, ``read`` the bytes that were read. ``first_in_body`` is the byte
    at which that child begins; ``None`` where the pass did not end with it.
    """

    __slots__ = ("body", "elements", "first_in_body", "read", "root", "soap")

    def __init__(self) -> None:
        self.soap: SOAPVersion | None = None
        self.root: Element | None = None
        self.body: Element | None = None
        self.elements = 0
        self.first_in_body: int | None = None
        self.read: list[bytes] = []

    @property
    def blocks(self) -> Iterable[Element]:
        """The children of Header."""
        root = self.root
        is_there = root is not None and self.soap is not None and len(root) and root[0].tag == _HEADER[self.soap]
        return root[0] if root is not None and is_there else ()


class Enough(Exception):
    """Ends a pass."""


_PIECE: Final = 64 * 1024


def feed(parser: expat.XMLParserType, content: bytes, start: int = 0, stop: int | None = None) -> None:
    """Have ``parser`` pass over these bytes, until it has enough, or as far as they can be read."""
    try:
        for begin in range(start, len(content) if stop is None else min(stop, len(content)), _PIECE):
            parser.Parse(content[begin : begin + _PIECE], False)
    except (Enough, expat.ExpatError, LookupError, ValueError):
        pass


def read_outline(source: Source, charset: str | None, limits: Limits, outline: Outline) -> None:
    """Fill ``outline`` from ``source``. Raises ``EnvelopeError`` for a document that is no acceptable SOAP envelope."""
    parser: expat.XMLParserType | None = None
    try:
        for piece in pieces(source, limits.header_bytes):
            outline.read.append(piece)
            if parser is None:
                parser = _parser(expat_encoding(piece, charset), outline, limits)
            parser.Parse(piece, False)
        if parser is None:
            raise malformed("The request has no body.", status=400)
        if sum(map(len, outline.read)) >= limits.header_bytes:
            raise malformed(f"The header section is longer than {limits.header_bytes} bytes.")
        parser.Parse(b"", True)
    except Enough:
        _check_structure(outline, limits)
        return
    except expat.ExpatError as error:
        sense = f"{expat.ErrorString(error.code)}, line {error.lineno}"
        raise malformed(f"The request is not well-formed XML: {sense}.", status=400) from None
    except (LookupError, ValueError):  # an encoding that Python knows and expat cannot use, or the reverse
        raise malformed("The request is in an unknown encoding.", status=400) from None
    raise malformed("The envelope has no Body.")


def _parser(encoding: str | None, outline: Outline, limits: Limits) -> expat.XMLParserType:
    parser = expat.ParserCreate(encoding, NAME_SEPARATOR, None)
    builder = TreeBuilder()
    open_element, close_element = builder.start, builder.end
    max_elements, max_attributes = limits.elements, limits.attributes
    body: Element | None = None
    body_name = ""
    count = 1

    def start_root(name: str, attributes: dict[str, str]) -> None:
        nonlocal body_name
        outline.soap = soap = _ENVELOPE.get(name)
        if soap is None:
            raise _not_an_envelope(name)
        outline.root = open_element(name, attributes)
        body_name = _BODY_OF[soap]
        parser.StartElementHandler = start

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal body, count
        count += 1
        if count > max_elements or (attributes and len(attributes) > max_attributes):
            raise malformed("The header section has too many elements or attributes.")
        element = open_element(name, attributes)
        if body is not None:
            if not name.startswith(_RM) and element is body[0]:
                outline.first_in_body = parser.CurrentByteIndex
                raise Enough
        elif name == body_name:
            outline.body = body = element
            outline.elements = count
            parser.EndElementHandler = end_in_body

    def end_in_body(name: str) -> None:
        element = close_element(name)
        outline.elements = count
        if element is body or (body is not None and element is body[0]):
            raise Enough

    parser.StartElementHandler = start_root
    parser.EndElementHandler = close_element
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse_doctype
    parser.ProcessingInstructionHandler = _refuse_instruction
    return parser


def _check_structure(outline: Outline, limits: Limits) -> None:
    """Check the places of the elements, which no start tag shows by itself."""
    root, soap = outline.root, outline.soap
    assert root is not None  # a Body was seen
    assert soap is not None
    expected = [_BODY_OF[soap]] if len(root) == 1 else [_HEADER[soap], _BODY_OF[soap]]
    if [child.tag for child in root] != expected:
        raise malformed("The envelope holds something else than one Header and one Body.")
    if outline.elements > limits.depth and _depth(root) > limits.depth:
        raise malformed(f"The header section is nested more than {limits.depth} deep.")


def _depth(root: Element) -> int:
    depth, level = 0, [root]
    while level:
        depth += 1
        level = [child for element in level for child in element]
    return depth


def _not_an_envelope(root: str) -> EnvelopeError:
    namespace, local = split_name(root)
    if local == "Envelope" and namespace:
        return EnvelopeError(VersionMismatch("The SOAP version of this envelope is not 1.1 or 1.2."))
    return malformed("The request is not a SOAP envelope.", status=400)


def _refuse_instruction(*_: object) -> None:
    raise malformed("A processing instruction is not allowed in a SOAP message.", status=400)


# A pass over a fault: the path of open elements, and the text of the innermost one.


class FaultPass:
    """``path`` has the expanded names of the elements that are open, ``started`` and ``ended`` are called while the one
    they are about is its last."""

    def __init__(self, start: bytes, charset: str | None) -> None:
        """``start`` is the beginning of the envelope."""
        self.parser = parser = expat.ParserCreate(expat_encoding(start, charset), NAME_SEPARATOR, None)
        self.path: list[str] = []
        self._scope: list[tuple[str, str]] = []
        self._text: list[str] = []
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        parser.StartNamespaceDeclHandler = lambda prefix, uri: self._scope.append((prefix or "", uri or ""))
        parser.EndNamespaceDeclHandler = lambda _: self._scope.pop()

    def started(self) -> None:
        """Take the beginning of an element."""

    def ended(self) -> None:
        """Take the end of an element."""

    @property
    def local_path(self) -> list[str]:
        return [split_name(name)[1] for name in self.path]

    @property
    def said(self) -> str:
        """The text of the element that ends, behind its last child."""
        return "".join(self._text).strip(WHITE_SPACE)

    @property
    def said_name(self) -> tuple[str | None, str, str]:
        """(namespace, prefix, local name) of the qualified name that it says; the namespace is ``None`` where the
        prefix is not declared."""
        prefix, _, local = self.said.rpartition(":")
        return dict(self._scope).get(prefix), prefix, local

    def _start(self, name: str, _attributes: dict[str, str]) -> None:
        self.path.append(name)
        self._text.clear()
        self.started()

    def _end(self, _name: str) -> None:
        self.ended()
        self.path.pop()


# Where the elements of an envelope lie in its bytes, as far as Body's first child: for changes to an envelope that is
# not written anew. A pass of its own, so that a request that is only read does not pay for it.


_BODY: Final = frozenset(f"{ns}{NAME_SEPARATOR}Body" for ns in SOAP_VERSIONS)
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
    feed(parser, body, offset)
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
        parser.StartDoctypeDeclHandler = _leave

    def _mark(self) -> int:
        position = self._offset + self._parser.CurrentByteIndex
        for span, edge in self._unended:
            setattr(span, edge, position)
        self._unended.clear()
        return position

    def _start(self, name: str, _attributes: dict[str, str]) -> None:
        position, path, own = self._mark(), self._path, self._declared
        if len(path) == 2 and not (self._into_body if path[-1].name in _BODY else self._into_header):
            raise Enough
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
            raise Enough

    def _declare(self, prefix: str | None, uri: str | None) -> None:
        self._declarations += 1
        if self._declarations > _MAX_DECLARATIONS:
            raise Enough
        self._declared[prefix or ""] = uri or ""

    def _between(self, *_: object) -> None:
        self._mark()


def _leave(*_: object) -> None:
    raise Enough
