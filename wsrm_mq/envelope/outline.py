"""The outline of an envelope: its header blocks, and the first child of Body. Nothing behind that is read.

One expat pass that ends with the start tag of Body's first child, so its cost does not depend on the body.
Header blocks of the namespaces this package speaks become small trees, other blocks keep only their name and
attributes. If Body's first child is an RM element the pass goes on to its end.
"""

from __future__ import annotations

from typing import Final
from xml.parsers import expat

from wsrm_mq.envelope.encoding import expat_encoding
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.source import Source, pieces
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.faults import Fault, MalformedMessage, VersionMismatch
from wsrm_mq.versions import ADDRESSING_VERSIONS, RM_VERSIONS, SOAP_VERSIONS, SOAPVersion

__all__ = ["NAME_SEPARATOR", "Node", "Outline", "read_outline"]


NAME_SEPARATOR: Final = "\n"
"""Between namespace and local name: no namespace name holds a line end."""

_ENVELOPE: Final = {f"{ns}{NAME_SEPARATOR}Envelope": soap for ns, soap in SOAP_VERSIONS.items()}
_RM: Final = tuple(ns + NAME_SEPARATOR for ns in RM_VERSIONS)
_OURS: Final = (*_RM, *(ns + NAME_SEPARATOR for ns in ADDRESSING_VERSIONS))


class Node:
    """An element. ``name`` is namespace, separator, local name; ``ordinal`` counts start tags from 1 on.

    ``text`` is that of an element without child elements, else empty.
    """

    __slots__ = ("attributes", "children", "name", "ordinal", "text")

    def __init__(self, name: str, attributes: dict[str, str], ordinal: int) -> None:
        self.name = name
        self.attributes = attributes
        self.children: list[Node] = []
        self.ordinal = ordinal
        self.text = ""


class Outline:
    """What the pass has seen so far: complete after ``read_outline``, and of use to a fault if that raised.

    ``pieces`` are the bytes that were read.
    """

    __slots__ = ("blocks", "body", "encoding", "pieces", "soap")

    def __init__(self) -> None:
        self.soap: SOAPVersion | None = None
        self.blocks: list[Node] = []
        self.body: Node | None = None
        self.encoding: str | None = None
        self.pieces: list[bytes] = []


class _Complete(Exception):
    """Ends the pass."""


def _refuse(reason: str, status: int | None = None) -> EnvelopeError:
    return EnvelopeError(MalformedMessage(reason), status=status)


def read_outline(source: Source, charset: str | None, limits: Limits, outline: Outline) -> None:
    """Fills ``outline`` from ``source``. Raises ``EnvelopeError`` for all that is no acceptable SOAP
    envelope."""
    unread = pieces(source, limits.header_bytes)
    piece = next(unread, b"")
    if not piece:
        raise _refuse("The request has no body.", 400)
    outline.encoding = expat_encoding(piece, charset)
    try:
        parser = _parser(outline, limits)
        while piece:
            outline.pieces.append(piece)
            parser.Parse(piece, False)
            piece = next(unread, b"")
        if sum(map(len, outline.pieces)) >= limits.header_bytes:
            raise _refuse(f"The header section is longer than {limits.header_bytes} bytes.")
        parser.Parse(b"", True)
    except _Complete:
        return
    except (expat.ExpatError, LookupError, ValueError) as error:
        # ValueError and LookupError: an encoding that Python knows and expat cannot use, or the reverse
        raise _refuse(f"The request is not well-formed XML: {_sense(error)}.", 400) from None
    raise _refuse("The envelope has no Body.")


def _sense(error: Exception) -> str:
    if isinstance(error, expat.ExpatError):
        return f"{expat.ErrorString(error.code)}, line {error.lineno}"
    return "its encoding is unknown"


def _parser(outline: Outline, limits: Limits) -> expat.XMLParserType:
    parser = expat.ParserCreate(outline.encoding, NAME_SEPARATOR, None)
    max_elements, max_depth, max_attributes = limits.elements, limits.depth, limits.attributes
    depth = elements = 0
    in_body = False
    header, body = "", ""
    stack: list[Node] = []
    text: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, elements, in_body
        depth += 1
        elements += 1
        if elements > max_elements or depth > max_depth or len(attributes) > max_attributes:
            raise _refuse("The header section has too many elements or attributes, or is nested too deeply.")
        if depth > 3:
            if stack:
                node = Node(name, attributes, elements)
                stack[-1].children.append(node)
                stack.append(node)
                text.clear()
        elif depth == 3:
            node = Node(name, attributes, elements)
            if in_body:
                outline.body = node
                if not name.startswith(_RM):
                    raise _Complete
                stack.append(node)
            else:
                outline.blocks.append(node)
                if name.startswith(_OURS):
                    stack.append(node)
            text.clear()
        elif depth == 2:
            if name == body:
                in_body = True
            elif name != header or elements > 2:
                raise _refuse("The envelope holds something else than one Header and one Body.")
        else:
            open_envelope(name)

    def open_envelope(name: str) -> None:
        nonlocal header, body
        outline.soap = soap = _ENVELOPE.get(name)
        if soap is None:
            raise EnvelopeError(*_not_an_envelope(name))
        header, body = (f"{soap.namespace}{NAME_SEPARATOR}{local}" for local in ("Header", "Body"))

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1
        if depth >= 2:
            if stack:
                node = stack.pop()
                if not node.children:
                    node.text = "".join(text)
                if in_body and not stack:
                    raise _Complete
        elif in_body:
            raise _Complete

    def refuse_doctype(*_: object) -> None:
        raise _refuse("A document type declaration is not allowed in a SOAP message.", 400)

    def refuse_instruction(*_: object) -> None:
        raise _refuse("A processing instruction is not allowed in a SOAP message.", 400)

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text.append
    parser.StartDoctypeDeclHandler = refuse_doctype
    parser.ProcessingInstructionHandler = refuse_instruction
    return parser


def _not_an_envelope(root: str) -> tuple[Fault, None, int | None]:
    namespace, _, local = root.rpartition(NAME_SEPARATOR)
    if local == "Envelope" and namespace:
        return (
            VersionMismatch("The SOAP version of this envelope is not supported; 1.1 and 1.2 are."),
            None,
            None,
        )
    return MalformedMessage("The request is not a SOAP envelope."), None, 400
