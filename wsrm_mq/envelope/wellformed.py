"""Whether a whole envelope is well-formed: asked for by ``verify_body``, and of one that does not end as envelopes do.
The cost grows with the body."""

from __future__ import annotations

from typing import Final, NoReturn
from xml.parsers import expat

from wsrm_mq.envelope.content import parse_content_type
from wsrm_mq.envelope.encoding import expat_encoding
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.multipart import root_part
from wsrm_mq.envelope.source import Source, pieces
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.faults import MalformedMessage

_LONGEST_PIECE: Final = 256 * 1024


def check_well_formed(source: Source, content_type: str, limits: Limits) -> None:
    """Raises ``EnvelopeError`` (status 400) where the envelope, or the root part, is not well-formed to its
    end, or asks the parser to remember too much. Time grows with the body, memory does not."""
    content = parse_content_type(content_type)
    charset = content.charset
    if content.is_multipart:
        part = root_part(source, content, limits)
        source, charset = part.stream, part.content.charset
    parser: expat.XMLParserType | None = None
    fed = 0
    try:
        for piece in pieces(source, limits.body_bytes, _LONGEST_PIECE):
            if parser is None:
                parser = _parser(expat_encoding(piece, charset), limits)
            parser.Parse(piece, False)
            fed += len(piece)
            if fed - parser.CurrentByteIndex > limits.tag_bytes + _LONGEST_PIECE:
                raise _refuse(f"The body holds a tag or comment of more than {limits.tag_bytes} bytes.")
        if parser is not None:
            parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise _refuse(
            f"The body is not well-formed XML: {expat.ErrorString(error.code)}, line {error.lineno}."
        ) from None


def _parser(encoding: str | None, limits: Limits) -> expat.XMLParserType:
    """Expat by itself keeps a place for every open element and every name there was."""
    names: dict[str, str] = {}
    parser = expat.ParserCreate(encoding, intern=names)
    most_open, most_names = limits.body_depth, limits.body_names
    depth = 0

    def start(_name: str, _attributes: list[str]) -> None:
        nonlocal depth
        depth += 1
        if depth > most_open:
            raise _refuse(f"The body is nested more than {most_open} deep.")
        if len(names) > most_names:
            raise _refuse(f"The body has more than {most_names} different names of elements and attributes.")

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    parser.ordered_attributes = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = _refuse_doctype
    return parser


def _refuse_doctype(*_: object) -> NoReturn:
    raise _refuse("A document type declaration is not allowed.")


def _refuse(reason: str) -> EnvelopeError:
    return EnvelopeError(MalformedMessage(reason), status=400)
