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

__all__ = ["check_well_formed", "looks_whole"]

TAIL_BYTES: Final = 64


def looks_whole(tail: bytes) -> bool:
    """Whether ``tail``, the last ``TAIL_BYTES`` of a request, is that of an envelope: its end tag stands there. That
    costs the same for every body. One that looks otherwise was cut off, or is in UTF-16, or ends with a comment: only
    reading it to its end tells."""
    return tail.rstrip().endswith(b"Envelope>")


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
