"""Whether a whole envelope is well-formed: asked for by ``verify_body``, at a cost that grows with the
body."""

from __future__ import annotations

from typing import NoReturn
from xml.parsers import expat

from wsrm_mq.envelope.content import parse_content_type
from wsrm_mq.envelope.encoding import expat_encoding
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.multipart import root_part
from wsrm_mq.envelope.source import Source, pieces
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.faults import MalformedMessage

__all__ = ["check_well_formed"]


def check_well_formed(source: Source, content_type: str, limits: Limits) -> None:
    """Raises ``EnvelopeError`` (status 400) where the envelope, or the root part, is not well-formed to its
    end."""
    content = parse_content_type(content_type)
    charset = content.charset
    if content.is_multipart:
        part = root_part(source, content, limits)
        source, charset = part.stream, part.content.charset
    parser: expat.XMLParserType | None = None
    try:
        for piece in pieces(source, limits.body_bytes):
            if parser is None:
                parser = expat.ParserCreate(expat_encoding(piece, charset))
                parser.StartDoctypeDeclHandler = _refuse_doctype
            parser.Parse(piece, False)
        if parser is not None:
            parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = f"The body is not well-formed XML: {expat.ErrorString(error.code)}, line {error.lineno}."
        raise EnvelopeError(MalformedMessage(reason), status=400) from None


def _refuse_doctype(*_: object) -> NoReturn:
    raise EnvelopeError(MalformedMessage("A document type declaration is not allowed."), status=400)
