"""The outline of an envelope: a tree of its Header, and the first child of Body. Nothing behind that is read.

One expat pass that ends with the start tag of Body's first child, so its cost does not depend on the body. If
that child is an RM element the pass goes on to its end. The tree is built by ``TreeBuilder``, in C: only
start tags are seen by Python, because each of them may be the last one of interest.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.stream import Source, pieces
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.faults import MalformedMessage, VersionMismatch
from wsrm_mq.versions import RM_OF_NAMESPACE, SOAP_VERSIONS, SOAPVersion

# The encoding of a document: its byte order mark says it, else the charset of its Content-Type, else its XML
# declaration.
#
# The order is RFC 7303's. Names are Python's codec names.

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_ALL_MARKS: Final = tuple(mark for mark, _ in _MARKS)
_UNMARKED: Final = ((b"<\0", "utf-16-le"), (b"\0<", "utf-16-be"))
_DECLARED: Final = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")

_NOT_SO: Final = ("utf-16", "utf-32", "utf-8")
"""Codecs that a declaration cannot mean, since it was read as ASCII; and ``utf-8-sig``, which would write a mark in the
middle."""

_EXPAT_NAMES: Final = {
    "utf-8": "UTF-8",
    "ascii": "UTF-8",  # what text/xml meant without a charset: never what was sent
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16LE",
    "utf-16-be": "UTF-16BE",
    "iso8859-1": "ISO-8859-1",
}


def expat_encoding(start: bytes, charset: str | None) -> str | None:
    """The encoding to impose on expat for a document that begins so; ``None`` lets it see for itself."""
    if charset is None or start.startswith(_ALL_MARKS):
        return None
    return _EXPAT_NAMES.get(charset, charset)


def codec_of(start: bytes, charset: str | None) -> str:
    """The codec of a document, of which ``start`` holds at least the XML declaration."""
    for mark, codec in _MARKS:
        if start.startswith(mark):
            return codec
    if charset is not None and charset not in ("utf-16", "ascii"):
        return charset
    for opening, codec in _UNMARKED:
        if start.startswith(opening):
            return codec
    declared = _DECLARED.match(start)
    try:
        codec = codecs.lookup(declared[1].decode("ascii")).name if declared else "utf-8"
    except LookupError:
        return "utf-8"
    return "utf-8" if codec.startswith(_NOT_SO) else codec


NAME_SEPARATOR: Final = "\n"
"""Between namespace and local name in every expanded name: no namespace name holds a line end."""

_ENVELOPE: Final = {f"{ns}{NAME_SEPARATOR}Envelope": soap for ns, soap in SOAP_VERSIONS.items()}
_HEADER: Final = {soap: f"{ns}{NAME_SEPARATOR}Header" for ns, soap in SOAP_VERSIONS.items()}
_BODY: Final = {soap: f"{ns}{NAME_SEPARATOR}Body" for ns, soap in SOAP_VERSIONS.items()}
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


class _Complete(Exception):
    """Ends the pass."""


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
            raise _refuse("The request has no body.", 400)
        if sum(map(len, outline.read)) >= limits.header_bytes:
            raise _refuse(f"The header section is longer than {limits.header_bytes} bytes.")
        parser.Parse(b"", True)
    except _Complete:
        _check_structure(outline, limits)
        return
    except expat.ExpatError as error:
        sense = f"{expat.ErrorString(error.code)}, line {error.lineno}"
        raise _refuse(f"The request is not well-formed XML: {sense}.", 400) from None
    except (LookupError, ValueError):  # an encoding that Python knows and expat cannot use, or the reverse
        raise _refuse("The request is in an unknown encoding.", 400) from None
    raise _refuse("The envelope has no Body.")


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
        body_name = _BODY[soap]
        parser.StartElementHandler = start

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal body, count
        count += 1
        if count > max_elements or (attributes and len(attributes) > max_attributes):
            raise _refuse("The header section has too many elements or attributes.")
        element = open_element(name, attributes)
        if body is not None:
            if not name.startswith(_RM) and element is body[0]:
                outline.first_in_body = parser.CurrentByteIndex
                raise _Complete
        elif name == body_name:
            outline.body = body = element
            outline.elements = count
            parser.EndElementHandler = end_in_body

    def end_in_body(name: str) -> None:
        element = close_element(name)
        outline.elements = count
        if element is body or (body is not None and element is body[0]):
            raise _Complete

    parser.StartElementHandler = start_root
    parser.EndElementHandler = close_element
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.ProcessingInstructionHandler = _refuse_instruction
    return parser


def _check_structure(outline: Outline, limits: Limits) -> None:
    """Check the places of the elements, which no start tag shows by itself."""
    root, soap = outline.root, outline.soap
    assert root is not None  # a Body was seen
    assert soap is not None
    expected = [_BODY[soap]] if len(root) == 1 else [_HEADER[soap], _BODY[soap]]
    if [child.tag for child in root] != expected:
        raise _refuse("The envelope holds something else than one Header and one Body.")
    if outline.elements > limits.depth and _depth(root) > limits.depth:
        raise _refuse(f"The header section is nested more than {limits.depth} deep.")


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
    return _refuse("The request is not a SOAP envelope.", 400)


def _refuse_doctype(*_: object) -> None:
    raise _refuse("A document type declaration is not allowed in a SOAP message.", 400)


def _refuse_instruction(*_: object) -> None:
    raise _refuse("A processing instruction is not allowed in a SOAP message.", 400)


def _refuse(reason: str, status: int | None = None) -> EnvelopeError:
    return EnvelopeError(MalformedMessage(reason), status=status)
